//! PostgreSQL's protocol, as the engine speaks it.

use std::collections::HashMap;
use std::sync::Arc;

use ciphertoll_wire::postgres::command::encode_terminate;
use ciphertoll_wire::postgres::relay::{InternalCommand, first_command_bytes};
use ciphertoll_wire::postgres::server::{
    Authentication, Report, write_authentication, write_backend_key_data, write_error,
    write_parameter_status, write_ready_for_query,
};
use ciphertoll_wire::postgres::{
    CancelKey, ChannelBinding, Error, Parameters, PostgresConnect, PostgresLogin, PostgresTlsMode, Severity,
    TransactionStatus,
};
use ciphertoll_wire::scram::KeyCache;
use ciphertoll_wire::session::{self, ServerInfo};
use ciphertoll_wire::{Response, Secret};

use crate::dialect::{
    self, Admission, Beginning, Dialect, Dialing, FirstWord, FromClient, FromServer, FrontStep, Greeted,
    Leaving, Parted, Place, Pooling, Settled, Start, Takeover, Ticket, Way,
};
use crate::facts::Facts;
use crate::front::{self, Front, Gate};
use crate::mark::{Mark, Marker};
use crate::refusal::Refusal;
use crate::session::{Session, digest};
use crate::settings::{Listen, Settings, StartError, UnixAuth, User};
use crate::url;
use crate::wanted::{Wanted, cannot_fail};

/// Databases whose settings are remembered; clients of others are greeted by the server's own word.
const MAX_KNOWN: usize = 64;

/// The protocol, with the users that log in.
#[derive(Clone)]
pub struct Postgres {
    accounts: HashMap<Arc<str>, Account>,
    /// Each user with his database, the server's URL's first.
    usual: Vec<Key>,
    encryption: PostgresTlsMode,
    /// What clients must know that come by unix socket; none where the kernel's word is enough.
    by_unix: Option<Arc<Gate>>,
    /// What clients must know that come by TCP; none where they show certificates, or cannot come.
    by_tcp: Option<Arc<Gate>>,
    pooling: Pooling,
    /// What the server says of a new connection's settings.
    known: HashMap<Key, Parameters>,
}

/// A user whom the server knows.
#[derive(Clone)]
struct Account {
    /// What clients get that name no database.
    usual: Key,
    password: Secret,
    /// So that no password is hashed for each connection.
    keys: Arc<KeyCache>,
    mark: Mark,
}

/// A role and a database.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    user: Arc<str>,
    database: Arc<str>,
}

impl Postgres {
    fn login_as(&self, user: &str, password: Secret, database: Option<&str>) -> Arc<PostgresLogin> {
        let binding = match self.encryption {
            PostgresTlsMode::Plain => ChannelBinding::Disabled,
            _ => ChannelBinding::Preferred,
        };
        Arc::new(PostgresLogin {
            user: user.to_owned(),
            password,
            database: database.map(ToOwned::to_owned),
            encryption: self.encryption,
            channel_binding: binding,
        })
    }

    fn not_known(&self, other: &str) -> Refusal {
        let message = match self.usual.as_slice() {
            [own] => format!("this proxy logs in as \"{}\" only, and not as \"{other}\"", own.user),
            _ => format!("this proxy does not log in as \"{other}\""),
        };
        Refusal::new(Refusal::WHO, message)
    }
}

impl Account {
    fn of(user: &User, max_iterations: u32) -> Self {
        let mut marker = Marker::default();
        marker.add(user.name.as_bytes());
        marker.add(user.password.expose());
        Self {
            usual: Key {
                user: user.name.as_str().into(),
                database: user.database.as_deref().unwrap_or(&user.name).into(),
            },
            password: user.password.clone(),
            keys: Arc::new(KeyCache::with_max_iterations(max_iterations)),
            mark: marker.finish(),
        }
    }
}

fn gate(settings: &Settings, iterations: u32) -> Result<Arc<Gate>, StartError> {
    if let Some(user) = settings.users.iter().find(|user| user.password.expose().is_empty()) {
        return Err(StartError::NoPassword(user.name.clone()));
    }
    let users = settings.users.iter().map(|user| (user.name.as_str(), &user.password));
    Ok(Arc::new(Gate::of(users, iterations)?))
}

impl Dialect for Postgres {
    type Key = Key;
    type Front = Front;
    type Wanted = Wanted;
    type Facts = Facts;
    type Session = Session;
    type Errand = InternalCommand;
    type Remains = TransactionStatus;
    type Lore = (Key, Parameters);

    const FIRST_WORD: FirstWord = FirstWord::Client;

    fn of(settings: &Settings) -> Result<Self, StartError> {
        let comes = |by_tcp: bool| settings.listen.iter().any(|at| matches!(at, Listen::Tcp(_)) == by_tcp);
        let certificates = settings.tls.as_ref().is_some_and(|service| service.clients.is_some());
        let proves_by_unix = comes(false) && settings.unix_auth != UnixAuth::Peer;
        let proves_by_tcp = comes(true) && !certificates;
        let gate = |wanted: bool, iterations| wanted.then(|| gate(settings, iterations)).transpose();
        let accounts: Vec<Account> =
            settings.users.iter().map(|user| Account::of(user, settings.limits.scram_iterations)).collect();
        Ok(Self {
            usual: accounts.iter().map(|account| account.usual.clone()).collect(),
            accounts: accounts
                .into_iter()
                .map(|account| (Arc::clone(&account.usual.user), account))
                .collect(),
            encryption: match settings.server.encryption {
                url::Encryption::None => PostgresTlsMode::Plain,
                url::Encryption::Tls { .. } => PostgresTlsMode::Tls,
            },
            by_unix: gate(proves_by_unix, settings.iterations.by_unix)?,
            by_tcp: gate(proves_by_tcp, settings.iterations.by_tcp)?,
            pooling: settings.pooling,
            known: HashMap::new(),
        })
    }

    fn renew(&mut self, newer: Self) {
        let Self { accounts, usual, encryption, by_unix, by_tcp, pooling: _, known: _ } = newer;
        let older = std::mem::replace(&mut self.accounts, accounts);
        for (user, account) in &mut self.accounts {
            let limit = account.keys.max_iterations();
            let is_same =
                |known: &&Account| known.mark == account.mark && known.keys.max_iterations() == limit;
            if let Some(known) = older.get(user).filter(is_same) {
                account.keys = Arc::clone(&known.keys);
            }
        }
        let mark = |accounts: &HashMap<_, Account>, key: &Key| accounts.get(&key.user).map(|own| own.mark);
        let accounts = &self.accounts;
        self.known.retain(|key, _| mark(&older, key) == mark(accounts, key));
        self.usual = usual;
        self.encryption = encryption;
        (self.by_unix, self.by_tcp) = (by_unix, by_tcp);
    }

    fn forget(&mut self) {
        self.known.clear();
    }

    fn unknown(&self) -> Option<Key> {
        None
    }

    fn doubt(&mut self, _: &ciphertoll_net::Error) {}

    fn lore(&self, key: &Key) -> Option<Self::Lore> {
        self.known.get(key).map(|known| (key.clone(), known.clone()))
    }

    fn learn(&mut self, (key, known): Self::Lore) {
        if self.known.len() < MAX_KNOWN || self.known.contains_key(&key) {
            self.known.insert(key, known);
        }
    }

    fn front(&self, admission: Admission) -> Front {
        let password = |gate: &Option<Arc<Gate>>| {
            // Nobody comes in because there is nothing to prove.
            gate.clone().map_or(front::Admission::Denied { uid: None }, front::Admission::Password)
        };
        match admission {
            Admission::Granted => Front::new(front::Admission::Granted),
            Admission::Denied { uid } => Front::new(front::Admission::Denied { uid: Some(uid) }),
            Admission::PasswordByUnix => Front::new(password(&self.by_unix)),
            Admission::PasswordByTcp(Way::Plain) => Front::new(password(&self.by_tcp)),
            Admission::PasswordByTcp(Way::Tls) => Front::by_tls(password(&self.by_tcp)),
            Admission::Certificate => Front::by_tls(front::Admission::Certificate),
        }
    }

    fn key(&self, wanted: &Wanted) -> Result<Key, Refusal> {
        let account = self.accounts.get(wanted.user.as_str());
        let own = account.map(|account| &account.usual).ok_or_else(|| self.not_known(&wanted.user))?;
        Ok(match &wanted.database {
            Some(name) if **name != *own.database => {
                Key { user: Arc::clone(&own.user), database: name.as_str().into() }
            }
            _ => own.clone(),
        })
    }

    fn usual_keys(&self) -> &[Key] {
        &self.usual
    }

    fn mark(&self, key: &Key) -> Option<Mark> {
        self.accounts.get(&key.user).map(|account| account.mark)
    }

    fn login(&self, key: &Key) -> Option<Dialing> {
        let account = self.accounts.get(&key.user)?;
        let login = self.login_as(&key.user, account.password.clone(), Some(&key.database));
        let machine = PostgresConnect::pooled(Arc::clone(&login), Arc::clone(&account.keys));
        Some(Dialing { login: session::Login::Postgres(login), machine: session::Connect::Postgres(machine) })
    }

    fn cancel(&self, facts: &Facts) -> Option<Dialing> {
        let (process_id, key) = facts.cancel.clone()?;
        let user = &self.usual.first()?.user;
        // Nobody logs in for that.
        let login = self.login_as(user, Secret::new(Vec::new()), None);
        let machine = PostgresConnect::cancelling(Arc::clone(&login), process_id, key);
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
        wanted.process_id = Some(ticket.process_id);
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
    ) -> Result<InternalCommand, session::Error> {
        facts.prepared.clear();
        Ok(InternalCommand::reset(remains, to_server)?)
    }

    fn takeover(&self, remains: TransactionStatus) -> Takeover {
        match (self.pooling, remains) {
            (Pooling::Transaction, TransactionStatus::Idle) => Takeover::AtOnce,
            _ => Takeover::WhenReset,
        }
    }

    fn ping(&self, _: &mut Facts, to_server: &mut Vec<u8>) -> Result<InternalCommand, session::Error> {
        Ok(InternalCommand::ping(to_server)?)
    }

    fn nothing(&self) -> InternalCommand {
        InternalCommand::nothing()
    }

    fn goodbye(&self, to_server: &mut Vec<u8>) {
        encode_terminate(to_server);
    }
}

impl dialect::Key for Key {
    fn user(&self) -> &str {
        &self.user
    }

    fn database(&self) -> &str {
        &self.database
    }
}

impl dialect::Front for Front {
    type Wanted = Wanted;

    fn step(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> FrontStep<Wanted> {
        Self::step(self, input, out)
    }

    fn encrypted(&mut self, name: Option<String>) {
        Self::encrypted(self, name);
    }

    fn refuse(&self, refusal: &Refusal, out: &mut Vec<u8>) {
        refusal.write(out);
    }
}

impl dialect::Wanted for Wanted {
    fn refuse(&self, refusal: &Refusal, out: &mut Vec<u8>) {
        refusal.write(out);
    }

    fn beginning(&self, input: &[u8]) -> Beginning {
        match input {
            [b'X', ..] => Beginning::Goodbye,
            // A kind and a length.
            [_, _, _, _, _, ..] => Beginning::Command,
            _ => Beginning::NotYet,
        }
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

    fn greet(&mut self, facts: &Facts, ticket: Ticket, out: &mut Vec<u8>) -> Result<(), session::Error> {
        self.tells_process(facts, ticket.process_id);
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

    fn is_full(&self) -> bool {
        Self::is_full(self)
    }

    fn wants_a_reason(&self) -> bool {
        Self::wants_a_reason(self)
    }

    fn refuse(&self, refusal: &Refusal, out: &mut Vec<u8>) {
        refusal.write(out);
    }

    fn ask(&mut self, _: &Facts, to_server: &mut Vec<u8>) -> Result<(), session::Error> {
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

impl dialect::Errand for InternalCommand {
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

#[cfg(test)]
mod tests;
