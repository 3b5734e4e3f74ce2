//! PostgreSQL's protocol, as the engine speaks it.

use std::collections::HashMap;
use std::sync::Arc;

use ciphertoll_wire::postgres::command::encode_terminate;
use ciphertoll_wire::postgres::errand::Errand;
use ciphertoll_wire::postgres::follow::first_command_bytes;
use ciphertoll_wire::postgres::server::{
    Authentication, Report, write_authentication, write_backend_key_data, write_error,
    write_parameter_status, write_ready_for_query,
};
use ciphertoll_wire::postgres::{
    CancelKey, ChannelBinding, Connect, Encryption, Error, Login, Parameters, Severity, TransactionStatus,
};
use ciphertoll_wire::scram::KeyCache;
use ciphertoll_wire::session::{self, ServerInfo};
use ciphertoll_wire::{Response, Secret};

use crate::dialect::{
    self, Admission, Dialect, Dialing, FirstWord, FromClient, FromServer, FrontStep, Greeted, Judge, Leaving,
    Making, Parted, Place, Pooling, Settled, Start, Ticket,
};
use crate::facts::Facts;
use crate::front::{self, Front, Gate};
use crate::refusal::Refusal;
use crate::session::{Session, digest};
use crate::settings::StartError;
use crate::url;
use crate::wanted::{Wanted, cannot_fail};

/// Databases whose settings are remembered; clients of others are greeted by the server's own word.
const MAX_KNOWN: usize = 64;

/// The protocol, with the one user that logs in.
pub struct Postgres {
    user: Arc<str>,
    password: Secret,
    /// The database of clients that name none.
    database: Arc<str>,
    encryption: Encryption,
    /// So that no password is hashed for each connection.
    keys: Arc<KeyCache>,
    /// What clients must know that the kernel says nothing of.
    gate: Option<Arc<Gate>>,
    pooling: Pooling,
    /// What the server says of a new connection's settings.
    known: HashMap<Key, Parameters>,
}

/// A role and a database.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    user: Arc<str>,
    database: Arc<str>,
}

impl Postgres {
    fn account(&self, database: Option<&str>) -> Arc<Login> {
        let binding = match self.encryption {
            Encryption::Plain => ChannelBinding::Disabled,
            _ => ChannelBinding::Preferred,
        };
        Arc::new(Login {
            user: self.user.to_string(),
            password: self.password.clone(),
            database: database.map(ToOwned::to_owned),
            encryption: self.encryption,
            channel_binding: binding,
        })
    }
}

impl Dialect for Postgres {
    type Key = Key;
    type Front = Front;
    type Wanted = Wanted;
    type Facts = Facts;
    type Session = Session;
    type Errand = Errand;
    type Remains = TransactionStatus;

    const FIRST_WORD: FirstWord = FirstWord::Client;

    fn new(making: Making<'_>) -> Result<Self, StartError> {
        let Making { server, password, judge, pooling } = making;
        let gate = match judge {
            Judge::Kernel => None,
            Judge::Proxy => Some(Arc::new(Gate::new(&server.user, &password)?)),
        };
        let user: Arc<str> = server.user.as_str().into();
        Ok(Self {
            database: server.database.as_deref().map_or_else(|| Arc::clone(&user), Into::into),
            user,
            password,
            encryption: match server.encryption {
                url::Encryption::None => Encryption::Plain,
                url::Encryption::Tls { .. } => Encryption::Tls,
            },
            keys: Arc::new(KeyCache::new()),
            gate,
            pooling,
            known: HashMap::new(),
        })
    }

    fn unknown(&self) -> Option<Key> {
        None
    }

    fn doubt(&mut self, _: &ciphertoll_net::Error) {}

    fn front(&self, admission: Admission) -> Front {
        Front::new(match (admission, &self.gate) {
            (Admission::Granted, _) => front::Admission::Granted,
            (Admission::Denied { uid }, _) => front::Admission::Denied { uid: Some(uid) },
            (Admission::Password, Some(gate)) => front::Admission::Password(Arc::clone(gate)),
            (Admission::Password, None) => front::Admission::Denied { uid: None },
        })
    }

    fn key(&self, wanted: &Wanted) -> Result<Key, Refusal> {
        if *wanted.user != *self.user {
            let (own, other) = (&self.user, &wanted.user);
            let message = format!("this proxy logs in as \"{own}\" only, and not as \"{other}\"");
            return Err(Refusal::new(Refusal::WHO, message));
        }
        let database = match &wanted.database {
            Some(name) if **name != *self.database => name.as_str().into(),
            _ => Arc::clone(&self.database),
        };
        Ok(Key { user: Arc::clone(&self.user), database })
    }

    fn login(&self, key: &Key) -> Dialing {
        let login = self.account(Some(&key.database));
        let machine = Connect::pooled(Arc::clone(&login), Arc::clone(&self.keys));
        Dialing { login: session::Login::Postgres(login), machine: session::Connect::Postgres(machine) }
    }

    fn cancel(&self, facts: &Facts) -> Option<Dialing> {
        let (process_id, key) = facts.cancel.clone()?;
        let login = self.account(None);
        let machine = Connect::cancelling(Arc::clone(&login), process_id, key);
        Some(Dialing { login: session::Login::Postgres(login), machine: session::Connect::Postgres(machine) })
    }

    fn facts(&mut self, key: &Key, info: ServerInfo) -> Option<Facts> {
        let ServerInfo::Postgres(info) = info else { return None };
        let facts = Facts::new(info);
        if self.pooling == Pooling::Transaction
            && (self.known.len() < MAX_KNOWN || self.known.contains_key(key))
        {
            self.known.insert(key.clone(), facts.base.clone());
        }
        Some(facts)
    }

    fn greet_early(&self, key: &Key, wanted: &mut Wanted, ticket: Ticket, out: &mut Vec<u8>) -> Greeted {
        let Some(known) = self.known.get(key) else { return Greeted::NotYet };
        let settings = wanted.differing(known);
        // Whether others are right only the server knows.
        if !settings.iter().all(|(name, value)| cannot_fail(name, value, known)) {
            return Greeted::NotYet;
        }
        let mut parameters = known.clone();
        for (name, value) in settings {
            if parameters.set(name.as_bytes(), value.as_bytes()).is_err() {
                return Greeted::NotYet;
            }
        }
        wanted.told = digest(&parameters);
        if write_greeting(&parameters, ticket, out).is_err() { Greeted::NotYet } else { Greeted::Done }
    }

    fn begin(
        &self,
        wanted: Wanted,
        place: Place,
        facts: &mut Facts,
        to_server: &mut Vec<u8>,
    ) -> Result<Session, (Wanted, session::Error)> {
        match self.pooling {
            Pooling::Session => {
                Session::begin(&wanted, facts, to_server).map_err(|error| (wanted, error.into()))
            }
            Pooling::Transaction => Session::share(wanted, place, facts, to_server)
                .map_err(|not_begun| (not_begun.wanted, not_begun.error.into())),
        }
    }

    fn reset(
        &self,
        remains: TransactionStatus,
        facts: &mut Facts,
        to_server: &mut Vec<u8>,
    ) -> Result<Errand, session::Error> {
        facts.prepared.clear();
        Ok(Errand::reset(remains, to_server)?)
    }

    fn nothing(&self) -> Errand {
        Errand::nothing()
    }

    fn goodbye(&self, to_server: &mut Vec<u8>) {
        encode_terminate(to_server);
    }
}

impl dialect::Key for Key {
    fn database(&self) -> &str {
        &self.database
    }
}

impl dialect::Front for Front {
    type Wanted = Wanted;

    fn step(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> FrontStep<Wanted> {
        Self::step(self, input, out)
    }

    fn refuse(&self, refusal: &Refusal, out: &mut Vec<u8>) {
        refusal.write(out);
    }
}

impl dialect::Wanted for Wanted {
    fn refuse(&self, refusal: &Refusal, out: &mut Vec<u8>) {
        refusal.write(out);
    }

    fn is_goodbye(&self, input: &[u8]) -> bool {
        input.first() == Some(&b'X')
    }

    fn cancel(&self, input: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        let bytes = first_command_bytes(input)?;
        let report = Report {
            severity: Severity::Error,
            sqlstate: *b"57014",
            message: b"canceling statement due to user request, while it waited for a server connection",
        };
        write_error(out, &report).ok()?;
        write_ready_for_query(out, TransactionStatus::Idle);
        Some(bytes)
    }
}

impl dialect::Session for Session {
    type Wanted = Wanted;
    type Facts = Facts;
    type Remains = TransactionStatus;

    fn start(&self) -> Start {
        Self::start(self)
    }

    fn greet(&self, facts: &Facts, ticket: Ticket, out: &mut Vec<u8>) -> Result<(), session::Error> {
        Ok(write_greeting(&facts.parameters, ticket, out)?)
    }

    fn greet_again(&self, facts: &Facts, out: &mut Vec<u8>) -> Result<(), session::Error> {
        for (name, value) in self.untold(facts).into_iter().flat_map(Parameters::iter) {
            write_parameter_status(out, name, value)?;
        }
        Ok(())
    }

    fn client_said(&mut self, input: &[u8], facts: &mut Facts) -> Result<FromClient, session::Error> {
        Ok(self.from_client(input, facts)?)
    }

    fn server_said(&mut self, input: &[u8], facts: &mut Facts) -> Result<FromServer, session::Error> {
        Ok(self.from_server(input, facts)?)
    }

    fn wants_a_reason(&self) -> bool {
        Self::wants_a_reason(self)
    }

    fn refuse(&self, refusal: &Refusal, out: &mut Vec<u8>) {
        refusal.write(out);
    }

    fn ask(&mut self, to_server: &mut Vec<u8>) -> Result<(), session::Error> {
        Ok(Self::ask(self, to_server)?)
    }

    fn can_be_parted(&self) -> bool {
        Self::can_be_parted(self)
    }

    fn part(self, facts: &mut Facts) -> Result<Parted<Wanted, TransactionStatus>, session::Error> {
        Ok(Self::part(self, facts)?)
    }

    fn leave(self, facts: &mut Facts) -> Result<Leaving<TransactionStatus>, session::Error> {
        Ok(Self::leave(self, facts)?)
    }
}

impl dialect::Errand for Errand {
    type Facts = Facts;

    fn step(&mut self, input: &mut &[u8], facts: &mut Facts) -> Result<Response<Settled>, session::Error> {
        Ok(match Self::step(self, input, &mut facts.parameters)? {
            Response::NeedInput => Response::NeedInput,
            Response::Done(TransactionStatus::Idle) => Response::Done(Settled::Idle),
            Response::Done(_) => Response::Done(Settled::Spoilt("the reset left a transaction open")),
        })
    }
}

fn write_greeting(parameters: &Parameters, ticket: Ticket, out: &mut Vec<u8>) -> Result<(), Error> {
    write_authentication(out, &Authentication::Ok)?;
    for (name, value) in parameters.iter() {
        write_parameter_status(out, name, value)?;
    }
    if let Some(key) = CancelKey::new(ticket.secret.to_vec()) {
        write_backend_key_data(out, ticket.process_id, &key)?;
    }
    write_ready_for_query(out, TransactionStatus::Idle);
    Ok(())
}
