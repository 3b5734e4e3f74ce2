//! One client on one server connection: what is said between the two, and what must be said before and after.

use std::hash::{DefaultHasher, Hash, Hasher};

use ciphertoll_wire::Response;
use ciphertoll_wire::postgres::relay::{
    DatabaseCommandScanner, InternalCommand, PostgresRelay, SessionFollower, SessionState,
};
use ciphertoll_wire::postgres::sql::{Discard, Effects};
use ciphertoll_wire::postgres::{Error, Parameters, Severity, TransactionStatus};

use crate::dialect::{FromClient, FromServer, Leaving, News, Parted, Place, Start, Then};
use crate::facts::Facts;
use crate::wanted::{Wanted, cannot_fail};

/// A client's session on a server connection, all of it or as much as one transaction.
#[derive(Debug)]
pub struct Session {
    relay: PostgresRelay,
    databases: DatabaseCommandScanner,
    errand: Option<(Purpose, InternalCommand)>,
    /// The server was sent something that a reset must undo.
    touched: bool,
    /// What a setting was before one was put in front of whatever the client says first.
    before: Option<(String, Vec<u8>)>,
    /// What goes with the client where sessions are parted.
    shared: Option<Box<Shared>>,
}

/// What is asked of the server for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Its settings, in front of whatever it says first.
    Early,
    /// Its settings, before it may say anything.
    Settings,
    /// What it has set, after which it may say something again.
    Values,
    /// The end of the session before, and its settings, in front of whatever it says first, up to its first `Sync`: the
    /// server skips that much if it fails, and no more.
    TakeOver(FirstSync),
}

/// Where a client is on its way to its first `Sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstSync {
    /// So many bytes of a message are still to come.
    Ahead { left_bytes: usize },
    /// It was passed on. What is behind it must wait.
    Passed,
}

/// A session that may go on elsewhere.
#[derive(Debug)]
struct Shared {
    wanted: Wanted,
    place: Place,
    follow: SessionFollower,
    pin: Pin,
    /// Settings that the server does not report, and that may have been made.
    unknown: Vec<Vec<u8>>,
    /// What was known of those that it does report, see [`Parameters::changes`].
    changes: u64,
    /// Whether the server has reported any since the session began.
    news: NewsOfSettings,
    /// Whether the client has said anything here.
    spoken: Spoken,
}

/// Whether a session must stay where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pin {
    None,
    Found(&'static str),
    /// Whoever needs to know has been told.
    Said,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NewsOfSettings {
    None,
    Some,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spoken {
    Nothing,
    Something,
}

const ENCODING: &[u8] = b"client_encoding";
/// Settings that are reported, and that nobody can set.
const FIXED: [&str; 6] = [
    "server_version",
    "server_encoding",
    "is_superuser",
    "session_authorization",
    "integer_datetimes",
    "in_hot_standby",
];

impl Session {
    fn silent() -> Self {
        Self {
            relay: PostgresRelay::new(),
            databases: DatabaseCommandScanner::default(),
            errand: None,
            touched: false,
            before: None,
            shared: None,
        }
    }

    /// Begins a session of its own connection. What gives it the client's settings is appended to `to_server`, which
    /// must be empty; the settings that are sure to be taken are in `facts` then.
    pub fn begin(wanted: &Wanted, facts: &mut Facts, to_server: &mut Vec<u8>) -> Result<Self, Error> {
        let mut session = Self::silent();
        let differing = wanted.differing(&facts.parameters);
        let purpose = match differing.as_slice() {
            [] => return Ok(session),
            [(name, value)] if cannot_fail(name, value, &facts.parameters) => {
                let before = facts.parameters.get(name.as_bytes()).unwrap_or_default().to_vec();
                session.before = Some(((*name).to_owned(), before));
                facts.parameters.set(name.as_bytes(), value.as_bytes())?;
                Purpose::Early
            }
            _ => {
                session.touched = true;
                Purpose::Settings
            }
        };
        session.errand = Some((purpose, InternalCommand::settings(differing, to_server)?));
        Ok(session)
    }

    /// Begins a session where another one was, which has not been reset. Its client has been told that it may begin, and
    /// `facts` are as they will be when the server has done what is appended to `to_server`.
    fn take_over(wanted: &Wanted, facts: &mut Facts, to_server: &mut Vec<u8>) -> Result<Self, Error> {
        facts.prepared.clear();
        facts.parameters = facts.base.clone();
        let differing = wanted.differing(&facts.base);
        let errand = InternalCommand::take_over(differing.iter().copied(), to_server)?;
        for (name, value) in differing {
            if facts.base.get(name.as_bytes()).is_some() {
                facts.parameters.set(name.as_bytes(), value.as_bytes())?;
            }
        }
        let errand = Some((Purpose::TakeOver(FirstSync::Ahead { left_bytes: 0 }), errand));
        Ok(Self { errand, touched: true, ..Self::silent() })
    }

    /// Begins one that is parted after each transaction, on a connection that was reset or has been the client's own
    /// since, or that is taken from another one.
    pub fn share(
        wanted: Wanted,
        place: Place,
        facts: &mut Facts,
        to_server: &mut Vec<u8>,
    ) -> Result<Self, Box<NotBegun>> {
        let begun = match place {
            Place::Fresh => Self::begin(&wanted, facts, to_server),
            Place::Taken => Self::take_over(&wanted, facts, to_server),
            Place::Own => Ok(Self { touched: true, ..Self::silent() }),
        };
        let mut session = match begun {
            Ok(session) => session,
            Err(error) => return Err(Box::new(NotBegun { wanted, error })),
        };
        if let Some(process_id) = wanted.process_id {
            session.tells_process(facts, process_id);
        }
        session.shared = Some(Box::new(Shared {
            wanted,
            follow: SessionFollower::default(),
            place,
            pin: Pin::None,
            unknown: Vec::new(),
            changes: facts.parameters.changes(),
            news: NewsOfSettings::None,
            spoken: Spoken::Nothing,
        }));
        Ok(session)
    }

    /// The client is told this as its server process, or was before.
    pub fn tells_process(&mut self, facts: &Facts, process_id: u32) {
        if let Some((known, _)) = &facts.cancel {
            self.relay.names_process(*known, process_id);
        }
        if let Some(shared) = &mut self.shared {
            shared.wanted.process_id = Some(process_id);
        }
    }

    /// Whether the client must be answered before more of what it says is read.
    pub fn is_full(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.follow.is_full())
    }

    /// When the client is told that it may begin, or go on.
    pub fn start(&self) -> Start {
        match self.errand {
            None | Some((Purpose::Early | Purpose::TakeOver(FirstSync::Ahead { .. }), _)) => Start::Now,
            Some(_) => Start::WhenSet,
        }
    }

    /// Looks at the client's next bytes, those that were not passed on before and newer ones. An error is the client's.
    pub fn from_client(&mut self, input: &[u8], facts: &mut Facts) -> Result<FromClient, Error> {
        let input = match &self.errand {
            Some((Purpose::TakeOver(sync), _)) => &input[..sync.limit(input)],
            _ => input,
        };
        let (mut look, mut insert) = (input, Vec::new());
        if let Some(shared) = &mut self.shared {
            let statements = &mut shared.wanted.statements;
            let until =
                shared.follow.from_client(input, &facts.parameters, statements, &mut facts.prepared)?;
            (look, insert) = (&input[..until.bytes], until.insert);
        }
        let taken = self.relay.from_client(look)?;
        if let Some((Purpose::TakeOver(sync), _)) = &mut self.errand {
            sync.passes(&input[..taken.pass_bytes]);
        }
        let is_heard = taken.pass_bytes > 0 || !insert.is_empty();
        self.touched |= is_heard;
        if let Some(shared) = self.shared.as_mut().filter(|_| is_heard) {
            shared.spoken = Spoken::Something;
        }
        let mut vacates = Vec::new();
        self.databases.read(&input[..taken.pass_bytes], &mut vacates)?;
        Ok(FromClient {
            pass_bytes: taken.pass_bytes,
            drop_bytes: 0,
            insert,
            vacates,
            goodbye: taken.goodbye,
        })
    }

    /// Looks at the server's next bytes, those that were neither skipped nor passed on before and newer ones. What it
    /// says of its settings is kept in `facts`. After an error the connection is of no more use.
    pub fn from_server(&mut self, input: &[u8], facts: &mut Facts) -> Result<FromServer, Error> {
        let mut rest = input;
        let news = self.errand(&mut rest, facts)?;
        let skip_bytes = input.len() - rest.len();
        let mut taken = FromServer { skip_bytes, news, ..FromServer::default() };
        if self.errand.is_some() || matches!(taken.news, News::Refused(_)) {
            return Ok(taken);
        }
        let mut look = rest;
        if let Some(shared) = &mut self.shared {
            let answers =
                shared.follow.from_server(rest, &mut shared.wanted.statements, &mut facts.prepared)?;
            look = &rest[..answers.bytes];
            taken.drop_bytes = answers.skip_bytes;
        }
        taken.pass_bytes = self.relay.from_server(look, &mut facts.parameters)?;
        taken.patches = self.relay.patches();
        if taken.drop_bytes == 0 {
            taken.then = self.rests(&taken.news, facts);
        }
        Ok(taken)
    }

    /// Reads the answers to what was asked for the client, if there is something.
    fn errand(&mut self, rest: &mut &[u8], facts: &mut Facts) -> Result<News, Error> {
        let Some((purpose, errand)) = &mut self.errand else { return Ok(News::None) };
        let news = match (errand.step(rest, &mut facts.parameters), *purpose) {
            (Ok(Response::NeedInput), _) => return Ok(News::None),
            (Ok(Response::Done(_)), Purpose::Early | Purpose::TakeOver(FirstSync::Ahead { .. })) => {
                News::None
            }
            (Ok(Response::Done(_)), Purpose::Settings | Purpose::TakeOver(FirstSync::Passed)) => News::Begins,
            (Ok(Response::Done(_)), Purpose::Values) => {
                let values = errand.take_values();
                if let Some(shared) = &mut self.shared {
                    shared.learn(values);
                }
                News::Begins
            }
            (Err(error), Purpose::Settings) if awaits_commands(&error) => News::Refused(error.into()),
            (Err(error), _) => return Err(error),
        };
        facts.prepared.forget_unnamed();
        self.errand = None;
        Ok(news)
    }

    /// What can be done with the connection when all is answered.
    fn rests(&mut self, news: &News, facts: &Facts) -> Then {
        let Some(shared) = &mut self.shared else { return Then::GoesOn };
        let is_clean = self.relay.session_state() == SessionState::Clean(TransactionStatus::Idle);
        if !is_clean || self.errand.is_some() || shared.spoken == Spoken::Nothing {
            return Then::GoesOn;
        }
        let effects = shared.follow.settle();
        if !effects.is_none() {
            shared.take_over(effects, facts);
        }
        if has_ascii_within(facts.parameters.get(ENCODING)) {
            shared.pins("a client encoding whose texts cannot be read byte by byte");
        }
        if shared.changes != facts.parameters.changes() {
            shared.acquire(facts);
        }
        match shared.pin {
            // One thing at a time: it is said when the client has said something more.
            Pin::Found(_) if matches!(news, News::Begins) => Then::GoesOn,
            Pin::Found(reason) => {
                shared.pin = Pin::Said;
                Then::Pinned(reason)
            }
            Pin::Said => Then::GoesOn,
            Pin::None if !shared.unknown.is_empty() => Then::Asks,
            Pin::None => Then::Rests,
        }
    }

    /// Asks for the values of settings that the server does not report.
    pub fn ask(&mut self, to_server: &mut Vec<u8>) -> Result<(), Error> {
        let Some(shared) = &self.shared else { return Ok(()) };
        let errand = InternalCommand::values(shared.unknown.iter().map(Vec::as_slice), to_server)?;
        self.errand = Some((Purpose::Values, errand));
        Ok(())
    }

    /// Whether the session can be parted before the client has said anything.
    pub fn can_be_parted(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.spoken == Spoken::Nothing)
            && self.start() == Start::Now
    }

    /// Ends a session that rests.
    pub fn part(mut self, facts: &mut Facts) -> Result<Parted<Wanted, TransactionStatus>, Error> {
        let wanted = self.shared.take().map(|shared| {
            let mut wanted = shared.wanted;
            if shared.place != Place::Own || shared.news == NewsOfSettings::Some {
                wanted.told = digest(&facts.parameters);
            }
            wanted
        });
        Ok(Parted { wanted, leaving: self.leave(facts)? })
    }

    /// Whether the client can be told more of what has become of the server.
    pub fn wants_a_reason(&self) -> bool {
        self.relay.between_answers() && !self.relay.error_was_last()
    }

    /// What is left behind. `facts` are as before, where the server has not heard of the client.
    pub fn leave(self, facts: &mut Facts) -> Result<Leaving<TransactionStatus>, Error> {
        if !self.touched {
            if let Some((name, value)) = &self.before {
                facts.parameters.set(name.as_bytes(), value)?;
            }
            // Nothing was sent, but the server may have begun to say something unasked.
            return Ok(match self.relay.session_state() {
                SessionState::Unknown(reason) if !self.relay.between_answers() => Leaving::Close(reason),
                _ => Leaving::Untouched,
            });
        }
        if self.errand.is_some() {
            return Ok(Leaving::Close("the client left before its settings were made"));
        }
        Ok(match self.relay.session_state() {
            SessionState::Clean(transaction) => Leaving::Reset(transaction),
            SessionState::Unknown(reason) => Leaving::Close(reason),
        })
    }

    /// The settings whose newest values the client has not been told, if it has been elsewhere. Once it has said something
    /// they would come amid answers, and the server tells what is new.
    pub fn untold<'a>(&self, facts: &'a Facts) -> Option<&'a Parameters> {
        let is_due = |shared: &&Shared| shared.place != Place::Own && shared.spoken == Spoken::Nothing;
        let shared = self.shared.as_deref().filter(is_due)?;
        let told = shared.wanted.told;
        (told != digest(&facts.parameters)).then_some(&facts.parameters)
    }
}

impl FirstSync {
    /// A message's kind and length.
    const HEADER_BYTES: usize = 5;

    /// How many of these bytes may be passed on.
    fn limit(self, input: &[u8]) -> usize {
        let mut walked = self;
        walked.walk(input)
    }

    /// These bytes are passed on.
    fn passes(&mut self, bytes: &[u8]) {
        self.walk(bytes);
    }

    /// Goes on to the end of these bytes or of the first `Sync`, whichever comes first: where that is.
    fn walk(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while let Self::Ahead { left_bytes } = self {
            let step = (*left_bytes).min(bytes.len() - at);
            at += step;
            *left_bytes -= step;
            let Some(header) = bytes.get(at..at + Self::HEADER_BYTES).filter(|_| *left_bytes == 0) else {
                return bytes.len();
            };
            // What is too long, or too short to be a length, is for the relay to refuse.
            let length = header[1..].iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
            at += Self::HEADER_BYTES;
            *left_bytes = length.saturating_sub(Self::HEADER_BYTES - 1);
            if header[0] == b'S' {
                *self = Self::Passed;
            }
        }
        at
    }
}

impl Shared {
    fn pins(&mut self, reason: &'static str) {
        if self.pin == Pin::None {
            self.pin = Pin::Found(reason);
        }
    }

    /// A transaction has had these effects.
    fn take_over(&mut self, effects: Effects, facts: &Facts) {
        if effects.discard == Discard::All {
            self.wanted.give_up();
            self.unknown.clear();
            self.pin = Pin::None;
        }
        if let Some(reason) = effects.pin {
            self.pins(reason);
        }
        let reported = |name: &[u8]| facts.parameters.get(name).is_some();
        self.unknown.extend(effects.settings.into_iter().filter(|name| !reported(name)));
    }

    /// The server has reported new values of settings.
    fn acquire(&mut self, facts: &Facts) {
        self.changes = facts.parameters.changes();
        self.news = NewsOfSettings::Some;
        for (name, value) in facts.parameters.iter() {
            let is_fixed = FIXED.iter().any(|fixed| name.eq_ignore_ascii_case(fixed.as_bytes()));
            let wanted = std::str::from_utf8(name).ok().and_then(|name| self.wanted.value(name));
            let wanted = wanted.map(str::as_bytes).or_else(|| facts.base.get(name));
            if !is_fixed && wanted != Some(value) && self.wanted.acquire(name, value).is_err() {
                self.pins("a setting that cannot be made elsewhere");
            }
        }
    }

    /// The server has said what was asked.
    fn learn(&mut self, values: Vec<Option<Vec<u8>>>) {
        for (name, value) in std::mem::take(&mut self.unknown).iter().zip(values) {
            let Some(value) = value else { continue };
            if self.wanted.acquire(name, &value).is_err() {
                self.pins("a setting that cannot be made elsewhere");
            }
        }
    }
}

/// Whether characters of an encoding may have bytes in them that are others in ASCII, such as a backslash.
fn has_ascii_within(encoding: Option<&[u8]>) -> bool {
    const ENCODINGS: [&[u8]; 7] = [b"SJIS", b"SHIFT_JIS_2004", b"BIG5", b"GBK", b"GB18030", b"UHC", b"JOHAB"];
    encoding.is_some_and(|encoding| ENCODINGS.iter().any(|name| encoding.eq_ignore_ascii_case(name)))
}

/// A session that cannot be begun, and who wanted it.
#[derive(Debug)]
pub struct NotBegun {
    /// The client.
    pub wanted: Wanted,
    /// Why not.
    pub error: Error,
}

/// Tells whether two connections have the same settings.
pub(crate) fn digest(parameters: &Parameters) -> u64 {
    let mut hasher = DefaultHasher::new();
    parameters.iter().for_each(|pair| pair.hash(&mut hasher));
    hasher.finish()
}

/// Whether the server has only said no.
fn awaits_commands(error: &Error) -> bool {
    matches!(error, Error::Server { severity: Severity::Error, .. })
}

#[cfg(test)]
mod tests;
