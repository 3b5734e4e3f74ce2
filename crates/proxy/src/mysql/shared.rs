//! A session that is parted from its connection at the end of each transaction, and goes on elsewhere.

use ciphertoll_wire::mysql::command::encode_statement_close;
use ciphertoll_wire::mysql::err::ErrPacket;
use ciphertoll_wire::mysql::ok::OkPacket;
use ciphertoll_wire::mysql::relay::{
    Diagnostics, InitialState, InitialStateQuery, MultiStatements, MySqlRelay, Reply, RestoredSession,
    SessionChanges, SessionFollower, SessionReset, SessionRestore, SessionState, StatusFlags, TextEncoding,
    Transaction, UNKNOWN_STATEMENT, encode_refusal, first_command_bytes, restorable,
};
use ciphertoll_wire::mysql::sql::{DefaultDatabase, Escapes};
use ciphertoll_wire::mysql::{Error, Response};
use ciphertoll_wire::relay::Goodbye;

use super::carried::{Carried, Risk, Told, Unportable};
use super::numbers::{Numbers, OWN};
use super::session::{Client, Facts, Known, Left, Session, Whose};
use super::wanted::Wanted;
use crate::dialect::{FromClient, FromServer, News, Order, Parted, Place, Start, Then};

/// A command that is to be refused is waited for up to this length.
const MAX_REFUSED_BYTES: usize = 1 << 16;
/// `ER_QUERY_INTERRUPTED`.
pub(super) const INTERRUPTED: ErrPacket<'static> =
    ErrPacket { code: 1317, sql_state: *b"70100", message: b"Query execution was interrupted" };
/// `ER_NEED_REPREPARE`.
const CHANGED: ErrPacket<'static> =
    ErrPacket { code: 1615, sql_state: *b"HY000", message: b"Prepared statement needs to be re-prepared" };
const NOT_SAID: &str = "a setting whose value the server does not say";
const NOT_PORTABLE: &str = "a setting that cannot be made elsewhere";

/// What goes on between a client and the connections that it has.
#[derive(Debug)]
pub(super) struct Shared {
    wanted: Wanted,
    pub(super) carried: Box<Carried>,
    follow: SessionFollower,
    pin: Pin,
    /// What the server must be asked for before the session can be parted.
    asks: Vec<Ask>,
    status: StatusFlags,
    /// What the last command has left to be asked for.
    pub(super) diagnostics: Diagnostics,
    /// A statement that must be prepared as soon as all is answered.
    pending: Option<u32>,
    /// One that could not be prepared here again.
    failed: Option<(u32, Error)>,
    first: First,
    kill: Kill,
    /// Whether the client has said anything here.
    spoken: Spoken,
}

/// What is said and asked for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Something that needs no answer, in front of whatever it says next.
    Early,
    /// Its settings, before it may say anything.
    Settings,
    /// What it has set, after which it may say something again.
    Values,
    /// A statement that it has prepared elsewhere.
    Prepare(u32),
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Ask {
    Setting(String),
    Database,
}

/// Whether a session must stay where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pin {
    None,
    Found(&'static str),
    /// Whoever needs to know has been told.
    Said,
}

/// What becomes of a client's first command here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    Passes,
    /// It was ended while it waited.
    IsRefused,
}

/// Whether a KILL was on its way to a session that could have been parted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kill {
    None,
    WaitedFor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spoken {
    Nothing,
    Something,
}

/// A session that cannot be begun, and who wanted it.
#[derive(Debug)]
pub struct NotBegun {
    /// The client.
    pub wanted: Wanted,
    /// Why not.
    pub error: Error,
}

impl Shared {
    /// Whether the client must wait for something to be asked.
    pub(super) fn is_stopped(&self) -> bool {
        self.pending.is_some()
    }

    fn pins(&mut self, reason: &'static str) {
        if self.pin == Pin::None {
            self.pin = Pin::Found(reason);
        }
    }

    fn asks(&mut self, ask: Ask) {
        if !self.asks.contains(&ask) {
            self.asks.push(ask);
        }
    }

    /// A transaction has done this.
    fn take_over(&mut self, done: SessionChanges) {
        if done.reset == SessionReset::Yes {
            self.carried.give_up();
            self.pin = Pin::None;
            self.asks.clear();
            InitialState::changed_by_reset().for_each(|name| self.asks(Ask::Setting(name.to_owned())));
        }
        if let Some(reason) = done.effects.pin {
            self.pins(reason);
        }
        for name in done.effects.settings {
            self.asks(Ask::Setting(name));
        }
        if done.effects.database == DefaultDatabase::MayDiffer {
            self.asks(Ask::Database);
        }
        self.carried.insert_id = done.insert_id.or(self.carried.insert_id);
        self.carried.option = done.option.or(self.carried.option);
        self.carried.escapes = self.follow.escapes();
        if done.status == StatusFlags::Unknown {
            self.status = StatusFlags::Unknown;
        }
        if let Some(diagnostics) = done.diagnostics {
            self.diagnostics = diagnostics;
        }
    }

    /// The server has said what was asked.
    fn learn(&mut self, adopted: RestoredSession, facts: &Facts) {
        let asks = std::mem::take(&mut self.asks);
        if asks.is_empty() {
            return;
        }
        // That was a statement, and what the one before had left is gone.
        self.diagnostics = Diagnostics::None;
        let Some(values) = adopted.values else { return self.pins(NOT_SAID) };
        for (ask, value) in asks.into_iter().zip(values) {
            let Some(value) = restorable(value) else {
                self.pins(NOT_PORTABLE);
                continue;
            };
            match ask {
                Ask::Setting(name) => self.acquire(&name, value, facts),
                Ask::Database if value.is_none() && facts.database.is_some() => {
                    self.pins("no default database");
                }
                Ask::Database => {
                    let chosen = value.filter(|name| facts.database.as_ref() != Some(name));
                    if let Err(Unportable(reason)) = self.carried.choose(chosen) {
                        self.pins(reason);
                    }
                }
            }
        }
    }

    fn acquire(&mut self, name: &str, value: Option<String>, facts: &Facts) {
        if name == "character_set_client"
            && value.as_deref().is_some_and(|set| TextEncoding::of(set) == TextEncoding::Ambiguous)
        {
            self.pins(MIXED);
        }
        if let Err(Unportable(reason)) = self.carried.acquire(facts.flavour.name(name), value) {
            self.pins(reason);
        }
    }
}

const MIXED: &str = "a character set whose texts cannot be read byte by byte";

impl Session {
    /// Begins a session that is parted after each transaction, on a connection that was reset or has been the client's own
    /// since. What it must be told and asked first is appended to `to_server`, which must be empty.
    pub fn share(
        mut wanted: Wanted,
        place: Place,
        facts: &Facts,
        numbers: &Numbers,
        to_server: &mut Vec<u8>,
    ) -> Result<Self, Box<NotBegun>> {
        let number = facts.connection_id;
        let carried = wanted.carried.take().unwrap_or_else(|| {
            let listed = numbers.list(wanted.connection_id, None);
            Box::new(Carried::new(listed, escapes(facts.status), Told::NotYet))
        });
        let begun = begin(&carried, place, facts, to_server);
        let order = carried.listed.order();
        carried.listed.forget_cancel();
        let (learning, errand) = match begun {
            Ok(begun) if order != Order::End => begun,
            ended => {
                let error = ended.err().unwrap_or_else(|| INTERRUPTED.into());
                wanted.carried = Some(carried);
                return Err(Box::new(NotBegun { wanted, error }));
            }
        };
        carried.listed.moves(Some(number));
        let mut relay = MySqlRelay::new(facts.capabilities).with_own_numbers(OWN).watched();
        if carried.option.is_some() {
            relay.set_statements(MultiStatements::Changed);
        }
        let waits = learning.is_some() || matches!(errand, Some((Purpose::Settings, _)));
        let sequence = wanted.sequence;
        let is_refused = order == Order::Cancel && place == Place::Fresh;
        let mut session = Self {
            relay,
            learning,
            touched: place == Place::Own || matches!(errand, Some((Purpose::Settings, _))),
            errand,
            client: if waits && carried.told == Told::NotYet {
                Client::LoggingIn { sequence }
            } else {
                Client::LoggedIn { sequence }
            },
            known: Known::of(&wanted),
            whose: Whose::Shared(Box::new(Shared {
                wanted,
                follow: SessionFollower::new(carried.escapes),
                carried,
                pin: Pin::None,
                asks: Vec::new(),
                status: StatusFlags::Reported,
                diagnostics: Diagnostics::None,
                pending: None,
                failed: None,
                first: if is_refused { First::IsRefused } else { First::Passes },
                kill: Kill::None,
                spoken: Spoken::Nothing,
            })),
        };
        session.look_at_texts(facts);
        Ok(session)
    }

    fn look_at_texts(&mut self, facts: &Facts) {
        if let Whose::Shared(shared) = &mut self.whose
            && facts
                .beginning
                .as_ref()
                .is_some_and(|beginning| beginning.text_encoding() == TextEncoding::Ambiguous)
        {
            shared.pins(MIXED);
        }
    }

    /// Looks at the next bytes of a client that shares its connection.
    pub(super) fn shared_from_client(
        &mut self,
        input: &[u8],
        facts: &mut Facts,
    ) -> Result<FromClient, Error> {
        let mut taken = FromClient::passes(0, Goodbye::None);
        if self.start() == Start::WhenSet {
            return Ok(taken);
        }
        if self.refuses_first(input, facts, &mut taken)? {
            return Ok(taken);
        }
        let Self { relay, whose: Whose::Shared(shared), .. } = self else { return Ok(taken) };
        let statements = &mut shared.carried.statements;
        let followed = shared.follow.from_client(relay, input, statements, &mut facts.prepared)?;
        taken.pass_bytes = followed.pass_bytes;
        taken.drop_bytes = followed.drop_bytes;
        taken.insert = followed.insert;
        taken.goodbye = followed.goodbye.unwrap_or(Goodbye::None);
        if taken.pass_bytes + taken.drop_bytes > 0 {
            shared.spoken = Spoken::Something;
            shared.kill = Kill::None;
            self.touched = true;
        }
        let rest = &input[taken.pass_bytes + taken.drop_bytes..];
        if let Some(own) = followed.needs {
            self.needs(own, rest, facts, &mut taken)?;
        } else if taken.drop_bytes == 0 && taken.goodbye == Goodbye::None {
            if let Some((kill, bytes)) = self.kill(rest, facts, &mut taken.insert)?
                && let Whose::Shared(shared) = &mut self.whose
            {
                shared.follow.replaced(&kill, &shared.carried.statements);
                shared.spoken = Spoken::Something;
                taken.drop_bytes = bytes;
            }
        } else if followed.reply == Reply::None && rest.is_empty() && self.is_clean() {
            // An answer tells that the session can be parted again.
            let mut adopt = SessionRestore::new(facts.capabilities);
            adopt.status(&mut taken.insert);
            self.errand = Some((Purpose::Early, adopt));
        }
        Ok(taken)
    }

    fn is_clean(&self) -> bool {
        self.errand.is_none() && matches!(self.relay.session_state(), SessionState::Clean(_))
    }

    /// Whether the client's first command here is refused, or will be when all of it is here.
    fn refuses_first(&mut self, input: &[u8], facts: &Facts, taken: &mut FromClient) -> Result<bool, Error> {
        let Self { relay, whose: Whose::Shared(shared), .. } = self else { return Ok(false) };
        if shared.first == First::Passes {
            return Ok(false);
        }
        let is_all_here = first_command_bytes(input).is_some();
        if !is_all_here && input.len() < MAX_REFUSED_BYTES && input.get(3..5).is_none_or(|begun| begun[1] > 1)
        {
            let length = input.first_chunk::<3>().map(|&[a, b, c]| u32::from_le_bytes([a, b, c, 0]) as usize);
            if length.is_none_or(|length| length < MAX_REFUSED_BYTES && input.len() < length + 4) {
                return Ok(true);
            }
        }
        shared.first = First::Passes;
        let Some(bytes) = shared.follow.replace(relay, input)? else { return Ok(false) };
        taken.drop_bytes = bytes;
        encode_refusal(facts.capabilities, &INTERRUPTED, &mut taken.insert)?;
        shared.spoken = Spoken::Something;
        self.touched = true;
        Ok(true)
    }

    /// The client's next command uses a statement that is not here.
    fn needs(
        &mut self,
        own: u32,
        rest: &[u8],
        facts: &mut Facts,
        taken: &mut FromClient,
    ) -> Result<(), Error> {
        // What was said early may not have been sent yet, and nothing else would have it sent.
        let is_early = matches!(self.errand, None | Some((Purpose::Early, _)));
        let is_clean = is_early && matches!(self.relay.session_state(), SessionState::Clean(_));
        let Self { relay, whose: Whose::Shared(shared), .. } = self else { return Ok(()) };
        shared.spoken = Spoken::Something;
        self.touched = true;
        if let Some((_, error)) = shared.failed.take_if(|(failed, _)| *failed == own) {
            if let Some(bytes) = shared.follow.replace(relay, rest)? {
                taken.drop_bytes = bytes;
                refuse_as(&error, facts, &mut taken.insert)?;
            } else {
                // In the server's words, who knows no such number.
                facts.prepared.insert(own, UNKNOWN_STATEMENT);
                // Nobody answers that, and the rest is looked at again.
                encode_statement_close(&mut taken.insert, UNKNOWN_STATEMENT);
            }
            return Ok(());
        }
        shared.pending = Some(own);
        if is_clean { self.prepare(facts, &mut taken.insert) } else { Ok(()) }
    }

    /// Has the pending statement prepared.
    fn prepare(&mut self, facts: &Facts, to_server: &mut Vec<u8>) -> Result<(), Error> {
        let Whose::Shared(shared) = &mut self.whose else { return Ok(()) };
        let Some(own) = shared.pending.take() else { return Ok(()) };
        let early = self.errand.take().map(|(_, adopt)| adopt);
        let mut adopt = early.unwrap_or_else(|| SessionRestore::new(facts.capabilities));
        adopt.prepare(shared.carried.statements.text(own).unwrap_or_default(), to_server)?;
        self.errand = Some((Purpose::Prepare(own), adopt));
        Ok(())
    }

    /// Looks at the server's next bytes, of which so many were looked at before.
    pub(super) fn shared_from_server(
        &mut self,
        input: &[u8],
        skip_bytes: usize,
        news: News,
        facts: &mut Facts,
    ) -> Result<FromServer, Error> {
        let mut taken = FromServer { skip_bytes, news, ..FromServer::default() };
        if self.learning.is_some() || matches!(taken.news, News::Refused(_)) {
            return Ok(taken);
        }
        if matches!(taken.news, News::Begins) {
            self.look_at_texts(facts);
        }
        let mut rest = &input[skip_bytes..];
        if self.errand.is_some() {
            taken.news = News::None;
            let before = self.adopted(&mut rest, facts, &mut taken.news)?;
            taken.skip_bytes = input.len() - rest.len();
            // What the client has said must wait no longer.
            let goes_on = matches!(before, Some(Purpose::Prepare(_)));
            if self.errand.is_some() || goes_on || matches!(taken.news, News::Refused(_)) {
                return Ok(taken);
            }
        }
        let Self { relay, whose: Whose::Shared(shared), .. } = self else { return Ok(taken) };
        let statements = &mut shared.carried.statements;
        let answers = shared.follow.from_server(relay, rest, statements, &mut facts.prepared)?;
        taken.pass_bytes = answers.bytes;
        taken.drop_bytes = answers.drop_bytes;
        taken.insert = answers.insert;
        if taken.drop_bytes == 0 {
            taken.then = self.rests(&taken.news);
        }
        Ok(taken)
    }

    /// Reads the answers to what was said for the client; what that was, if all is answered.
    fn adopted(
        &mut self,
        rest: &mut &[u8],
        facts: &mut Facts,
        news: &mut News,
    ) -> Result<Option<Purpose>, Error> {
        let Some((purpose, adopt)) = &mut self.errand else { return Ok(None) };
        let purpose = *purpose;
        let adopted = match adopt.step(rest) {
            Ok(Response::NeedInput) => return Ok(None),
            Ok(Response::Done(adopted)) => adopted,
            Err(error @ Error::Server { .. }) if purpose == Purpose::Settings => {
                self.errand = None;
                *news = News::Refused(error.into());
                return Ok(Some(purpose));
            }
            Err(error) => return Err(error),
        };
        self.errand = None;
        if let Some(status) = adopted.status {
            let is_open = status.is_in_transaction();
            self.relay.set_transaction(if is_open { Transaction::Open } else { Transaction::None });
        }
        if purpose != Purpose::Early {
            *news = News::Begins;
            self.begins();
        }
        let Whose::Shared(shared) = &mut self.whose else { return Ok(Some(purpose)) };
        match purpose {
            Purpose::Early | Purpose::Settings => {}
            Purpose::Values => {
                shared.status = StatusFlags::Reported;
                shared.learn(adopted, facts);
            }
            Purpose::Prepare(own) => {
                let params = shared.carried.statements.params(own);
                match adopted.prepared {
                    Some(Ok(here)) if Some(here.params) == params => {
                        facts.prepared.insert(own, here.statement_id);
                    }
                    Some(Err(error)) => shared.failed = Some((own, error)),
                    _ => shared.failed = Some((own, CHANGED.into())),
                }
            }
        }
        Ok(Some(purpose))
    }

    /// What can be done with the connection when all is answered.
    fn rests(&mut self, news: &News) -> Then {
        let SessionState::Clean(remains) = self.relay.session_state() else { return Then::GoesOn };
        self.listed().all_answered();
        let Whose::Shared(shared) = &mut self.whose else { return Then::GoesOn };
        if self.errand.is_some() {
            return Then::GoesOn;
        }
        if shared.pending.is_some() {
            return Then::Asks;
        }
        if shared.spoken == Spoken::Nothing || remains.transaction == Transaction::Open {
            return Then::GoesOn;
        }
        let done = shared.follow.settle();
        shared.take_over(done);
        match shared.pin {
            // The client is told first that it may go on.
            Pin::Found(_) if matches!(news, News::Begins) => return Then::GoesOn,
            Pin::Found(reason) => {
                shared.pin = Pin::Said;
                return Then::Pinned(reason);
            }
            Pin::Said => return Then::GoesOn,
            Pin::None => {}
        }
        if shared.follow.is_open() {
            return Then::GoesOn;
        }
        if !shared.asks.is_empty() || shared.status == StatusFlags::Unknown {
            return Then::Asks;
        }
        if shared.carried.listed.is_named() {
            // It has most likely arrived when the server has said something more.
            return match std::mem::replace(&mut shared.kill, Kill::WaitedFor) {
                Kill::None if !matches!(news, News::Begins) => Then::Asks,
                Kill::None | Kill::WaitedFor => Then::GoesOn,
            };
        }
        Then::Rests
    }

    /// Asks for what must be known before the session can be parted, or before the client can go on.
    pub fn ask(&mut self, facts: &Facts, to_server: &mut Vec<u8>) -> Result<(), Error> {
        let Whose::Shared(shared) = &mut self.whose else { return Ok(()) };
        if shared.pending.is_some() {
            return self.prepare(facts, to_server);
        }
        let mut adopt = SessionRestore::new(facts.capabilities);
        if !shared.asks.is_empty() {
            let expression = |ask: &Ask| match ask {
                Ask::Setting(name) => format!("@@{}", facts.flavour.name(name)),
                Ask::Database => "DATABASE()".to_owned(),
            };
            adopt.values(&shared.asks.iter().map(expression).collect::<Vec<_>>(), to_server)?;
        }
        adopt.status(to_server);
        self.errand = Some((Purpose::Values, adopt));
        Ok(())
    }

    /// Whether the session can be parted before the client has said anything.
    pub fn can_be_parted(&self) -> bool {
        matches!(&self.whose, Whose::Shared(shared) if shared.spoken == Spoken::Nothing)
            && self.start() == Start::Now
    }

    /// Ends a session that rests.
    pub fn part(self) -> Parted<Wanted, Left> {
        let leaving = self.leave();
        let wanted = match self.whose {
            Whose::Alone(_) => None,
            Whose::Shared(shared) => {
                let Shared { mut wanted, mut carried, .. } = *shared;
                carried.listed.moves(None);
                carried.told = Told::Begun;
                wanted.carried = Some(carried);
                Some(wanted)
            }
        };
        Parted { wanted, leaving }
    }
}

type Begun = (Option<InitialStateQuery>, Option<(Purpose, SessionRestore)>);

/// Appends what a connection must be told and asked first.
fn begin(carried: &Carried, place: Place, facts: &Facts, to_server: &mut Vec<u8>) -> Result<Begun, Error> {
    if place == Place::Own {
        return Ok((None, None));
    }
    let learning = match facts.beginning {
        Some(_) => None,
        None => Some(InitialStateQuery::begin(facts.capabilities, facts.database.clone(), to_server)?),
    };
    let purpose = match carried.risk() {
        Risk::Nothing => return Ok((learning, None)),
        Risk::None if learning.is_none() => Purpose::Early,
        Risk::None | Risk::Some => Purpose::Settings,
    };
    Ok((learning, Some((purpose, carried.make(facts.capabilities, to_server)?))))
}

/// How a session with these status flags takes backslashes.
pub(super) fn escapes(status: u16) -> Escapes {
    let status = OkPacket { status, ..OkPacket::default() };
    if status.takes_backslashes_as_they_are() { Escapes::None } else { Escapes::Backslash }
}

/// Appends a statement that the server refuses as it has refused another one.
fn refuse_as(error: &Error, facts: &Facts, to_server: &mut Vec<u8>) -> Result<(), Error> {
    match error {
        Error::Server { code, sql_state, message } => {
            let sql_state = sql_state.as_bytes().first_chunk().copied().unwrap_or(*b"HY000");
            let err = ErrPacket { code: *code, sql_state, message: message.as_bytes() };
            encode_refusal(facts.capabilities, &err, to_server)
        }
        _ => encode_refusal(facts.capabilities, &CHANGED, to_server),
    }
}

#[cfg(test)]
mod tests;
