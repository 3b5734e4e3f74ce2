//! MySQL's protocol, as the engine speaks it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ciphertoll_wire::mysql::auth::native_password::NONCE_BYTES;
use ciphertoll_wire::mysql::command::encode_quit;
use ciphertoll_wire::mysql::greeting_template::GreetingTemplate;
use ciphertoll_wire::mysql::relay::{
    Diagnostics, InternalCommand, ResetOutcome, begins_with_quit, first_command_bytes,
};
use ciphertoll_wire::mysql::server::write_err;
use ciphertoll_wire::mysql::ssl_request::UTF8MB4;
use ciphertoll_wire::mysql::{
    self, Capabilities, MySqlConnect, MySqlLogin, MySqlTlsMode, Plugin, Terms, Transport,
};
use ciphertoll_wire::session::{self, ServerInfo};
use ciphertoll_wire::{Response, Secret};

use super::front::{self, Front, Gate, Greeter};
use super::numbers::Numbers;
use super::refusal;
use super::session::{Facts, Left, Session};
use super::shared::INTERRUPTED;
use super::wanted::{Entry, Wanted};
use crate::dialect::{
    self, Admission, Beginning, Dialect, Dialing, FirstWord, FromClient, FromServer, FrontStep, Greeted,
    Leaving, Order, Parted, Place, Pooling, Settled, Start, Takeover, Ticket, Way,
};
use crate::mark::{Mark, Marker};
use crate::refusal::Refusal;
use crate::settings::{Listen, Settings, StartError, UnixAuth, User};
use crate::url;

/// Challenges for so many clients that nobody notices what drawing them costs.
const RANDOM_BYTES: usize = 64 * NONCE_BYTES;
/// Databases that are remembered; clients of others are let in by the server's own word.
const MAX_KNOWN: usize = 64;
/// What holds for one connection alone, and clients that share some are not offered: definitions that the server knows the
/// client to have, and attributes, which stand where texts are looked for.
const NOT_SHARED: Capabilities = Capabilities::CACHE_METADATA.with(Capabilities::QUERY_ATTRIBUTES);
/// The first packet of an answer.
const FIRST_ANSWER: u8 = 1;
/// What the connection agrees on by which the server becomes known, and those that are opened ahead as long as no client
/// of their user has come: as some drivers do that are asked for nothing.
const FIRST_TERMS: Terms = Terms {
    capabilities: Capabilities::LONG_FLAG.with(Capabilities::TRANSACTIONS).with(Capabilities::MULTI_RESULTS),
    character_set: UTF8MB4,
};

/// The protocol, with the users that log in.
#[derive(Clone)]
pub struct MySql {
    accounts: HashMap<Arc<str>, Account>,
    /// Each user with his database, the server's URL's first, on the terms that were seen last when a connection was opened.
    usual: Vec<Key>,
    /// What each user's last client has agreed on, of those that came to his database.
    seen: Arc<Mutex<HashMap<Arc<str>, Terms>>>,
    encryption: MySqlTlsMode,
    transport: Transport,
    /// What clients must know that the kernel says nothing of.
    gate: Option<Arc<Gate>>,
    /// As the server has greeted last; none before it has, and where that has shown not to hold.
    greeting: Option<Arc<GreetingTemplate>>,
    /// Random bytes that nobody has been given.
    random: Random,
    numbers: Numbers,
    pooling: Pooling,
    /// "Status flags" of new connections, on whatever terms, that were opened before.
    known: HashMap<Key, u16>,
}

/// What a connection has taught of the server.
#[derive(Clone, Debug)]
pub struct Lore {
    greeting: Option<Arc<GreetingTemplate>>,
    /// "Status flags" of new connections.
    status: Option<(Key, u16)>,
}

#[derive(Default)]
struct Random(RefCell<Vec<u8>>);

/// What was drawn is given once: a clone draws anew.
impl Clone for Random {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// An account, a database, and what was agreed on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    user: Arc<str>,
    database: Option<Arc<str>>,
    terms: Terms,
}

impl Key {
    /// The same account and database: on what terms a login is does not change whether it is let in.
    fn on_any_terms(&self) -> Self {
        Self { terms: FIRST_TERMS, ..self.clone() }
    }
}

/// A client's login, if there is anything to greet it with.
pub struct Entrance {
    admission: Admission,
    front: Option<Front>,
}

/// A user whom the server knows.
#[derive(Clone)]
struct Account {
    /// The user, and the database of clients that name none.
    usual: Key,
    password: Secret,
    mark: Mark,
}

impl MySql {
    fn greeter(&self) -> Option<Greeter> {
        let template = Arc::clone(self.greeting.as_ref()?);
        let mut random = self.random.0.borrow_mut();
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

    fn admitted(&self, admission: Admission) -> front::Admission {
        match (admission, &self.gate) {
            (Admission::Granted, _) => front::Admission::Granted,
            (Admission::Certificate, _) => front::Admission::Certificate,
            (Admission::PasswordByTcp(_) | Admission::PasswordByUnix, Some(gate)) => {
                front::Admission::Password(Arc::clone(gate))
            }
            (Admission::Denied { uid }, _) => front::Admission::Denied { uid: Some(uid) },
            // Nobody comes in because there is nothing to prove.
            (Admission::PasswordByTcp(_) | Admission::PasswordByUnix, None) => {
                front::Admission::Denied { uid: None }
            }
        }
    }

    fn not_known(&self, other: &str) -> Refusal {
        let message = match self.usual.as_slice() {
            [own] => format!("this proxy logs in as '{}' only, and not as '{other}'", own.user),
            _ => format!("this proxy does not log in as '{other}'"),
        };
        Refusal::new(Refusal::WHO, message)
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<Arc<str>, Terms>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens ahead from now on what clients have agreed on lately.
    fn follow_clients(&mut self) {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for key in &mut self.usual {
            if let Some(terms) = seen.get(&key.user) {
                key.terms = *terms;
            }
        }
    }
}

impl Account {
    fn of(user: &User) -> Self {
        let mut marker = Marker::default();
        marker.add(user.name.as_bytes());
        marker.add(user.password.expose());
        let database = user.database.as_deref().map(Into::into);
        Self {
            usual: Key { user: user.name.as_str().into(), database, terms: FIRST_TERMS },
            password: user.password.clone(),
            mark: marker.finish(),
        }
    }
}

/// What clients must know that the kernel says nothing of, or not enough.
fn gate(settings: &Settings) -> Result<Option<Arc<Gate>>, StartError> {
    let comes = |by_tcp: bool| settings.listen.iter().any(|at| matches!(at, Listen::Tcp(_)) == by_tcp);
    let certificates = settings.tls.as_ref().is_some_and(|service| service.clients.is_some());
    let proves_by_unix = comes(false) && settings.unix_auth != UnixAuth::Peer;
    if !proves_by_unix && (certificates || !comes(true)) {
        return Ok(None);
    }
    if let Some(user) = settings.users.iter().find(|user| user.password.expose().is_empty()) {
        return Err(StartError::NoPassword(user.name.clone()));
    }
    let users = settings.users.iter().map(|user| (user.name.as_str(), &user.password));
    Gate::of(users).map(Arc::new).map(Some).ok_or(StartError::NoRandomBytes)
}

impl Dialect for MySql {
    type Key = Key;
    type Front = Entrance;
    type Wanted = Wanted;
    type Facts = Facts;
    type Session = Session;
    type Errand = InternalCommand;
    type Remains = Left;
    type Lore = Lore;

    const FIRST_WORD: FirstWord = FirstWord::Proxy;

    fn of(settings: &Settings) -> Result<Self, StartError> {
        if settings.unix_auth == UnixAuth::Scram {
            return Err(StartError::ScramInMySql);
        }
        let server = &settings.server;
        let accounts: Vec<Account> = settings.users.iter().map(Account::of).collect();
        Ok(Self {
            usual: accounts.iter().map(|account| account.usual.clone()).collect(),
            accounts: accounts
                .into_iter()
                .map(|account| (Arc::clone(&account.usual.user), account))
                .collect(),
            seen: Arc::default(),
            encryption: match server.encryption {
                url::Encryption::None => MySqlTlsMode::Plain,
                url::Encryption::Tls { .. } => MySqlTlsMode::Tls,
            },
            transport: match server.place {
                url::Place::Host { .. } => Transport::Tcp,
                url::Place::Socket(_) => Transport::UnixSocket,
            },
            gate: gate(settings)?,
            greeting: None,
            random: Random::default(),
            numbers: Numbers::default(),
            pooling: settings.pooling,
            known: HashMap::new(),
        })
    }

    fn renew(&mut self, newer: Self) {
        let Self { accounts, usual, encryption, transport, gate, .. } = newer;
        (self.accounts, self.usual) = (accounts, usual);
        (self.encryption, self.transport, self.gate) = (encryption, transport, gate);
        self.known.clear();
        let accounts = &self.accounts;
        self.seen().retain(|user, _| accounts.contains_key(user));
        self.follow_clients();
    }

    fn forget(&mut self) {
        // Who greets is the same server still; whom it lets in may be others.
        self.known.clear();
    }

    fn unknown(&self) -> Option<Key> {
        if self.greeting.is_some() {
            return None;
        }
        // Whatever clients agree on, every server takes these.
        Some(Key { terms: FIRST_TERMS, ..self.usual.first()?.clone() })
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
            self.known.clear();
        }
    }

    fn lore(&self, key: &Key) -> Option<Lore> {
        let key = key.on_any_terms();
        let status = self.known.get(&key).copied();
        Some(Lore { greeting: self.greeting.clone(), status: status.map(|status| (key, status)) })
    }

    fn learn(&mut self, lore: Lore) {
        if self.greeting != lore.greeting {
            self.greeting = lore.greeting;
            self.known.clear();
        }
        if let Some((key, status)) = lore.status
            && (self.known.len() < MAX_KNOWN || self.known.contains_key(&key))
        {
            self.known.insert(key, status);
        }
    }

    fn front(&self, admission: Admission) -> Entrance {
        let greeter = self.greeter();
        let front = greeter.map(|greeter| match admission {
            Admission::Certificate | Admission::PasswordByTcp(Way::Tls) => {
                Front::by_tls(self.admitted(admission), greeter)
            }
            _ => Front::new(self.admitted(admission), greeter),
        });
        Entrance { admission, front }
    }

    fn front_anew(&self, session: &Session) -> Option<Entrance> {
        let known = session.known()?;
        let Entry { admission, way, nonce } = known.entry.clone()?;
        let template = Arc::clone(self.greeting.as_ref()?);
        let greeter = Greeter { template, connection_id: known.connection_id, nonce };
        let front = Front::anew(self.admitted(admission), way, greeter, known.terms);
        Some(Entrance { admission, front: Some(front) })
    }

    fn key(&self, wanted: &Wanted) -> Result<Key, Refusal> {
        let account = self.accounts.get(wanted.user.as_str());
        let own = account.map(|account| &account.usual).ok_or_else(|| self.not_known(&wanted.user))?;
        let (user, terms) = (Arc::clone(&own.user), wanted.terms);
        let database = match (&wanted.database, &own.database) {
            (Some(name), own) if own.as_deref() != Some(name) => Some(name.as_str().into()),
            (_, own) => own.clone(),
        };
        if database == own.database {
            self.seen().insert(Arc::clone(&user), terms);
        }
        Ok(Key { user, database, terms })
    }

    fn usual_keys(&self) -> &[Key] {
        &self.usual
    }

    fn mark(&self, key: &Key) -> Option<Mark> {
        self.accounts.get(&key.user).map(|account| account.mark)
    }

    fn login(&self, key: &Key) -> Option<Dialing> {
        let account = self.accounts.get(&key.user)?;
        let plugin = self.greeting.as_ref().map_or(Plugin::default(), |greeting| greeting.plugin());
        let login = Arc::new(MySqlLogin {
            database: key.database.as_deref().map(ToOwned::to_owned),
            encryption: self.encryption,
            transport: self.transport,
            plugin,
            ..MySqlLogin::new(key.user.to_string(), account.password.clone())
        });
        let machine = MySqlConnect::pooled(Arc::clone(&login), key.terms);
        Some(Dialing { login: session::Login::MySql(login), machine: session::Connect::MySql(machine) })
    }

    fn cancel(&self, _: &Facts) -> Option<Dialing> {
        None
    }

    fn facts(&mut self, key: &Key, info: ServerInfo) -> Option<Facts> {
        let ServerInfo::MySql(info) = info else { return None };
        self.follow_clients();
        let greeting = match self.pooling {
            Pooling::Session => info.greeting.clone(),
            Pooling::Transaction => info.greeting.clone().without(NOT_SHARED),
        };
        if self.greeting.as_deref() != Some(&greeting) {
            self.greeting = Some(Arc::new(greeting));
            self.known.clear();
        }
        let facts = Facts::of(&info, key.database.as_deref().map(ToOwned::to_owned));
        if self.pooling == Pooling::Transaction
            && (self.known.len() < MAX_KNOWN || self.known.contains_key(&key.on_any_terms()))
        {
            self.known.insert(key.on_any_terms(), facts.status);
        }
        Some(facts)
    }

    fn greet_early(&self, key: &Key, wanted: &mut Wanted, _: Ticket, out: &mut Vec<u8>) -> Greeted {
        match self.known.get(&key.on_any_terms()) {
            Some(status) if wanted.greet(*status, &self.numbers, out).is_ok() => Greeted::Done,
            _ => Greeted::NotYet,
        }
    }

    fn begin(
        &self,
        wanted: Wanted,
        place: Place,
        facts: &mut Facts,
        to_server: &mut Vec<u8>,
    ) -> Result<Session, (Wanted, session::Error)> {
        match self.pooling {
            Pooling::Session => Session::begin(&wanted, facts, &self.numbers, to_server)
                .map_err(|error| (wanted, error.into())),
            Pooling::Transaction => Session::share(wanted, place, facts, &self.numbers, to_server)
                .map_err(|not_begun| (not_begun.wanted, not_begun.error.into())),
        }
    }

    fn reset(
        &self,
        left: Left,
        facts: &mut Facts,
        to_server: &mut Vec<u8>,
    ) -> Result<InternalCommand, session::Error> {
        facts.prepared.clear();
        // A session that was not told how it began has not begun, and leaves nothing to be reset.
        let beginning = facts.beginning.as_ref().ok_or(mysql::Error::NotReset)?;
        Ok(InternalCommand::reset(facts.capabilities, beginning, left.remains, to_server)?)
    }

    fn takeover(&self, _: Self::Remains) -> Takeover {
        // Commands are answered one by one: those behind a reset that has failed would be heard.
        Takeover::WhenReset
    }

    fn ping(&self, facts: &mut Facts, to_server: &mut Vec<u8>) -> Result<InternalCommand, session::Error> {
        Ok(InternalCommand::ping(facts.capabilities, to_server))
    }

    fn is_held(&self, left: &Left) -> bool {
        left.diagnostics == Diagnostics::Some
    }

    fn nothing(&self) -> InternalCommand {
        InternalCommand::nothing()
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
        let Some(front) = &mut self.front else {
            return FrontStep::HangUp("there is nothing to greet it with");
        };
        match front.step(input, out) {
            FrontStep::Login(mut wanted) => {
                wanted.entry = Some(front.entry(self.admission));
                FrontStep::Login(wanted)
            }
            step => step,
        }
    }

    fn encrypted(&mut self, name: Option<String>) {
        if let Some(front) = &mut self.front {
            front.encrypted(name);
        }
    }

    fn refuse(&self, refusal: &Refusal, out: &mut Vec<u8>) {
        match &self.front {
            Some(front) => front.refuse(refusal, out),
            None => refusal::write_unasked(refusal, out),
        }
    }
}

impl dialect::Wanted for Wanted {
    fn refuse(&self, refusal: &Refusal, out: &mut Vec<u8>) {
        let sequence = if self.was_greeted() { FIRST_ANSWER } else { self.sequence };
        refusal::write(refusal, sequence, out);
    }

    fn beginning(&self, input: &[u8]) -> Beginning {
        // It has just said something: nothing of that was ended yet.
        self.forget_cancel();
        match input {
            _ if begins_with_quit(input) => Beginning::Goodbye,
            // A header, and the command; one of no bytes is not for us to refuse.
            [_, _, _, _, _, ..] | [0, 0, 0, _] => Beginning::Command,
            _ => Beginning::NotYet,
        }
    }

    fn order(&self) -> Order {
        Self::order(self)
    }

    fn cancel(&self, input: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        let bytes = first_command_bytes(input)?;
        self.forget_cancel();
        write_err(out, FIRST_ANSWER, &INTERRUPTED).ok()?;
        Some(bytes)
    }
}

impl dialect::Session for Session {
    type Wanted = Wanted;
    type Facts = Facts;
    type Remains = Left;

    fn start(&self) -> Start {
        Self::start(self)
    }

    fn greet(&mut self, facts: &Facts, _: Ticket, out: &mut Vec<u8>) -> Result<(), session::Error> {
        Ok(Self::greet(self, facts, out)?)
    }

    fn greet_again(&self, _: &Facts, _: &mut Vec<u8>) -> Result<(), session::Error> {
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
        Self::refuse(self, refusal, out);
    }

    fn ask(&mut self, facts: &Facts, to_server: &mut Vec<u8>) -> Result<(), session::Error> {
        Ok(Self::ask(self, facts, to_server)?)
    }

    fn can_be_parted(&self) -> bool {
        Self::can_be_parted(self)
    }

    fn part(self, _: &mut Facts) -> Result<Parted<Wanted, Left>, session::Error> {
        Ok(Self::part(self))
    }

    fn leave(self, _: &mut Facts) -> Result<Leaving<Left>, session::Error> {
        Ok(Self::leave(&self))
    }
}

impl dialect::Errand for InternalCommand {
    type Facts = Facts;

    fn step(&mut self, input: &mut &[u8], facts: &mut Facts) -> Result<Response<Settled>, session::Error> {
        Ok(match Self::step(self, input, &mut facts.beginning)? {
            Response::NeedInput => Response::NeedInput,
            Response::Done(ResetOutcome::Restored) => Response::Done(Settled::Idle),
            Response::Done(ResetOutcome::OtherDatabase) => {
                Response::Done(Settled::Spoilt("a client has chosen a database, and there was none"))
            }
        })
    }
}
