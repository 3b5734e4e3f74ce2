//! MySQL's protocol, as the engine speaks it.

use std::cell::RefCell;
use std::sync::Arc;

use ciphertoll_wire::mysql::command::encode_quit;
use ciphertoll_wire::mysql::errand::{Condition, Errand};
use ciphertoll_wire::mysql::greeting_template::GreetingTemplate;
use ciphertoll_wire::mysql::native_password::NONCE_BYTES;
use ciphertoll_wire::mysql::relay::Remains;
use ciphertoll_wire::mysql::ssl_request::UTF8MB4;
use ciphertoll_wire::mysql::{self, Capabilities, Connect, Encryption, Login, Plugin, Terms, Transport};
use ciphertoll_wire::session::{self, ServerInfo};
use ciphertoll_wire::{Response, Secret};

use super::front::{self, Front, Gate, Greeter};
use super::numbers::Numbers;
use super::refusal;
use super::session::{Facts, Session};
use super::wanted::Wanted;
use crate::dialect::{
    self, Admission, Dialect, Dialing, FirstWord, FromClient, FromServer, FrontStep, Greeted, Leaving,
    Parted, Place, Pooling, Settled, Start, Ticket,
};
use crate::mark::{Mark, Marker};
use crate::refusal::Refusal;
use crate::settings::{Listen, Settings, StartError, UnixAuth, User};
use crate::url;

/// Challenges for so many clients that nobody notices what drawing them costs.
const RANDOM_BYTES: usize = 64 * NONCE_BYTES;
/// What the connection agrees on by which the server becomes known.
const FIRST_TERMS: Terms = Terms {
    capabilities: Capabilities::TRANSACTIONS.with(Capabilities::MULTI_RESULTS),
    character_set: UTF8MB4,
};

/// The protocol, with the one user that logs in.
pub struct MySql {
    user: Arc<str>,
    password: Secret,
    mark: Mark,
    /// The database of clients that name none.
    database: Option<Arc<str>>,
    encryption: Encryption,
    transport: Transport,
    /// What clients must know that the kernel says nothing of.
    gate: Option<Arc<Gate>>,
    /// As the server has greeted last; none before it has, and where that has shown not to hold.
    greeting: Option<Arc<GreetingTemplate>>,
    /// Random bytes that nobody has been given.
    random: RefCell<Vec<u8>>,
    numbers: Numbers,
}

/// An account, a database, and what was agreed on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    user: Arc<str>,
    database: Option<Arc<str>>,
    terms: Terms,
}

/// A client's login, if there is anything to greet it with.
pub struct Entrance(Option<Front>);

impl MySql {
    fn greeter(&self) -> Option<Greeter> {
        let template = Arc::clone(self.greeting.as_ref()?);
        let mut random = self.random.borrow_mut();
        if random.is_empty() {
            // Many at once: each draw costs OpenSSL a system call.
            random.resize(RANDOM_BYTES, 0);
            if openssl::rand::rand_bytes(&mut random).is_err() {
                random.clear();
            }
        }
        let start = random.len().checked_sub(NONCE_BYTES)?;
        let drawn = random.split_off(start);
        Some(Greeter::new(template, self.numbers.draw(), *drawn.first_chunk()?))
    }
}

fn mark_of(user: &User) -> Mark {
    let mut marker = Marker::default();
    marker.add(user.name.as_bytes());
    marker.add(user.password.expose());
    marker.finish()
}

fn gate(user: &User) -> Result<Arc<Gate>, StartError> {
    if user.password.expose().is_empty() {
        return Err(StartError::NoPassword(user.name.clone()));
    }
    Gate::new(&user.name, &user.password).map(Arc::new).ok_or(StartError::NoRandomBytes)
}

impl Dialect for MySql {
    type Key = Key;
    type Front = Entrance;
    type Wanted = Wanted;
    type Facts = Facts;
    type Session = Session;
    type Errand = Errand;
    type Remains = Remains;

    const FIRST_WORD: FirstWord = FirstWord::Proxy;

    fn of(settings: &Settings) -> Result<Self, StartError> {
        let [user] = settings.users.as_slice() else { return Err(StartError::PostgresOnly("[[user]]")) };
        if settings.pooling == Pooling::Transaction {
            return Err(StartError::SessionsOnly);
        }
        if settings.unix_auth == UnixAuth::Scram {
            return Err(StartError::PostgresOnly("a password on the unix socket"));
        }
        if settings.tls.is_some() {
            return Err(StartError::PostgresOnly("TLS in front"));
        }
        let by_tcp = settings.listen.iter().any(|place| matches!(place, Listen::Tcp(_)));
        let server = &settings.server;
        Ok(Self {
            user: user.name.as_str().into(),
            password: user.password.clone(),
            mark: mark_of(user),
            database: user.database.as_deref().map(Into::into),
            encryption: match server.encryption {
                url::Encryption::None => Encryption::Plain,
                url::Encryption::Tls { .. } => Encryption::Tls,
            },
            transport: match server.place {
                url::Place::Host { .. } => Transport::Tcp,
                url::Place::Socket(_) => Transport::UnixSocket,
            },
            gate: if by_tcp { Some(gate(user)?) } else { None },
            greeting: None,
            random: RefCell::default(),
            numbers: Numbers::default(),
        })
    }

    fn renew(&mut self, newer: Self) {
        let Self { user, password, mark, database, encryption, transport, gate, .. } = newer;
        (self.user, self.password, self.mark, self.database) = (user, password, mark, database);
        (self.encryption, self.transport, self.gate) = (encryption, transport, gate);
    }

    fn forget(&mut self) {
        // Who greets is the same server still.
    }

    fn unknown(&self) -> Option<Key> {
        if self.greeting.is_some() {
            return None;
        }
        Some(Key { user: Arc::clone(&self.user), database: self.database.clone(), terms: FIRST_TERMS })
    }

    fn doubt(&mut self, error: &ciphertoll_net::Error) {
        // A server that greets otherwise than it did: clients are not to be told the old any more.
        let greeting = matches!(
            error,
            ciphertoll_net::Error::Protocol(session::Error::MySql(mysql::Error::Protocol {
                message: "greeting",
                ..
            }))
        );
        if greeting {
            self.greeting = None;
        }
    }

    fn front(&self, admission: Admission) -> Entrance {
        let admission = match (admission, &self.gate) {
            (Admission::Granted, _) => front::Admission::Granted,
            (Admission::Denied { uid }, _) => front::Admission::Denied { uid: Some(uid) },
            (Admission::PasswordByTcp(_), Some(gate)) => front::Admission::Password(Arc::clone(gate)),
            _ => front::Admission::Denied { uid: None },
        };
        Entrance(self.greeter().map(|greeter| Front::new(admission, greeter)))
    }

    fn key(&self, wanted: &Wanted) -> Result<Key, Refusal> {
        if *wanted.user != *self.user {
            let (own, other) = (&self.user, &wanted.user);
            let message = format!("this proxy logs in as '{own}' only, and not as '{other}'");
            return Err(Refusal::new(Refusal::WHO, message));
        }
        let database = match (&wanted.database, &self.database) {
            (Some(name), Some(own)) if **name == **own => Some(Arc::clone(own)),
            (Some(name), _) => Some(name.as_str().into()),
            (None, own) => own.clone(),
        };
        Ok(Key { user: Arc::clone(&self.user), database, terms: wanted.terms })
    }

    fn usual_keys(&self) -> &[Key] {
        // What a client will agree on is not known before it comes.
        &[]
    }

    fn mark(&self, key: &Key) -> Option<Mark> {
        (key.user == self.user).then_some(self.mark)
    }

    fn login(&self, key: &Key) -> Option<Dialing> {
        if key.user != self.user {
            return None;
        }
        let plugin = self.greeting.as_ref().map_or(Plugin::default(), |greeting| greeting.plugin());
        let login = Arc::new(Login {
            database: key.database.as_deref().map(ToOwned::to_owned),
            encryption: self.encryption,
            transport: self.transport,
            plugin,
            ..Login::new(self.user.to_string(), self.password.clone())
        });
        let machine = Connect::pooled(Arc::clone(&login), key.terms);
        Some(Dialing { login: session::Login::MySql(login), machine: session::Connect::MySql(machine) })
    }

    fn cancel(&self, _: &Facts) -> Option<Dialing> {
        None
    }

    fn facts(&mut self, key: &Key, info: ServerInfo) -> Option<Facts> {
        let ServerInfo::MySql(info) = info else { return None };
        if self.greeting.as_deref() != Some(&info.greeting) {
            self.greeting = Some(Arc::new(info.greeting.clone()));
        }
        Some(Facts::of(&info, key.database.as_deref().map(ToOwned::to_owned)))
    }

    fn greet_early(&self, _: &Key, _: &mut Wanted, _: Ticket, _: &mut Vec<u8>) -> Greeted {
        Greeted::NotYet
    }

    fn begin(
        &self,
        wanted: Wanted,
        _: Place,
        facts: &mut Facts,
        to_server: &mut Vec<u8>,
    ) -> Result<Session, (Wanted, session::Error)> {
        Session::begin(&wanted, facts, &self.numbers, to_server).map_err(|error| (wanted, error.into()))
    }

    fn reset(
        &self,
        remains: Remains,
        facts: &mut Facts,
        to_server: &mut Vec<u8>,
    ) -> Result<Errand, session::Error> {
        // A session that was not told how it began has not begun, and leaves nothing to be reset.
        let beginning = facts.beginning.as_ref().ok_or(mysql::Error::NotReset)?;
        Ok(Errand::reset(facts.capabilities, beginning, remains, to_server)?)
    }

    fn ping(&self, facts: &mut Facts, to_server: &mut Vec<u8>) -> Result<Errand, session::Error> {
        Ok(Errand::ping(facts.capabilities, to_server))
    }

    fn nothing(&self) -> Errand {
        Errand::nothing()
    }

    fn goodbye(&self, to_server: &mut Vec<u8>) {
        encode_quit(to_server);
    }
}

impl dialect::Key for Key {
    fn user(&self) -> &str {
        &self.user
    }

    fn database(&self) -> &str {
        self.database.as_deref().unwrap_or_default()
    }
}

impl dialect::Front for Entrance {
    type Wanted = Wanted;

    fn step(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> FrontStep<Wanted> {
        match &mut self.0 {
            Some(front) => front.step(input, out),
            None => FrontStep::HangUp("there is nothing to greet it with"),
        }
    }

    fn encrypted(&mut self, _: Option<String>) {
        // It was not offered.
    }

    fn refuse(&self, refusal: &Refusal, out: &mut Vec<u8>) {
        match &self.0 {
            Some(front) => front.refuse(refusal, out),
            None => refusal::write_unasked(refusal, out),
        }
    }
}

impl dialect::Wanted for Wanted {
    fn refuse(&self, refusal: &Refusal, out: &mut Vec<u8>) {
        refusal::write(refusal, self.sequence, out);
    }

    fn is_goodbye(&self, _: &[u8]) -> bool {
        false
    }

    fn cancel(&self, _: &[u8], _: &mut Vec<u8>) -> Option<usize> {
        None
    }
}

impl dialect::Session for Session {
    type Wanted = Wanted;
    type Facts = Facts;
    type Remains = Remains;

    fn start(&self) -> Start {
        Self::start(self)
    }

    fn greet(&self, facts: &Facts, _: Ticket, out: &mut Vec<u8>) -> Result<(), session::Error> {
        Ok(Self::greet(self, facts, out)?)
    }

    fn greet_again(&self, _: &Facts, _: &mut Vec<u8>) -> Result<(), session::Error> {
        Ok(())
    }

    fn client_said(&mut self, input: &[u8], _: &mut Facts) -> Result<FromClient, session::Error> {
        Ok(self.from_client(input)?)
    }

    fn server_said(&mut self, input: &[u8], facts: &mut Facts) -> Result<FromServer, session::Error> {
        Ok(self.from_server(input, facts)?)
    }

    fn wants_a_reason(&self) -> bool {
        Self::wants_a_reason(self)
    }

    fn refuse(&self, refusal: &Refusal, out: &mut Vec<u8>) {
        Self::refuse(self, refusal, out);
    }

    fn ask(&mut self, _: &mut Vec<u8>) -> Result<(), session::Error> {
        Ok(())
    }

    fn can_be_parted(&self) -> bool {
        false
    }

    fn part(self, _: &mut Facts) -> Result<Parted<Wanted, Remains>, session::Error> {
        let leaving = Self::leave(&self);
        Ok(Parted { wanted: None, leaving })
    }

    fn leave(self, _: &mut Facts) -> Result<Leaving<Remains>, session::Error> {
        Ok(Self::leave(&self))
    }
}

impl dialect::Errand for Errand {
    type Facts = Facts;

    fn step(&mut self, input: &mut &[u8], facts: &mut Facts) -> Result<Response<Settled>, session::Error> {
        Ok(match Self::step(self, input, &mut facts.beginning)? {
            Response::NeedInput => Response::NeedInput,
            Response::Done(Condition::AsAsked) => Response::Done(Settled::Idle),
            Response::Done(Condition::OtherDatabase) => {
                Response::Done(Settled::Spoilt("a client has chosen a database, and there was none"))
            }
        })
    }
}
