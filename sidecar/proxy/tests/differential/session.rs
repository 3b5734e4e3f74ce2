//! What a session is, and what comes of one: independent of the protocol.

use std::fmt::{Debug, Display};

use crate::documented::Documented;

/// Steps of up to three clients. The same session runs directly and through each proxy.
#[derive(Clone)]
pub(crate) struct Session<M, L> {
    /// How each client logs in; as many as there are clients.
    pub(crate) logins: Vec<L>,
    pub(crate) steps: Vec<Step<M>>,
}

#[derive(Clone)]
pub(crate) enum Step<M> {
    /// A client sends messages. It logs in first if it has no connection.
    Send { client: usize, messages: Vec<M>, cuts: Cuts },
    /// Other clients run transactions on every connection that no client may hold.
    Steal,
    /// An administrator, connected to the server directly, executes this text.
    Admin(String),
}

/// Where a batch is cut into packets: parts of its length, in 1/65536.
pub(crate) type Cuts = Vec<u16>;

/// The parts of these bytes.
pub(crate) fn cut<'a>(bytes: &'a [u8], cuts: &Cuts) -> Vec<&'a [u8]> {
    let mut ends: Vec<usize> = cuts.iter().map(|&cut| bytes.len() * usize::from(cut) / 65_536).collect();
    ends.push(bytes.len());
    ends.sort_unstable();
    let mut start = 0;
    let mut parts = Vec::new();
    for end in ends {
        if end > start {
            parts.push(&bytes[start..end]);
        }
        start = end;
    }
    parts
}

impl<M: Display, L: Debug> Session<M, L> {
    /// One line per login, step and message.
    pub(crate) fn text(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (client, login) in self.logins.iter().enumerate() {
            lines.push(format!("client {client} logs in with {login:?}"));
        }
        for (number, step) in self.steps.iter().enumerate() {
            match step {
                Step::Send { client, messages, cuts } => {
                    lines.push(format!("step {number}: client {client} sends, cut at {cuts:?}:"));
                    lines.extend(messages.iter().map(|message| format!("    {message}")));
                }
                Step::Steal => lines.push(format!("step {number}: other clients use all connections")),
                Step::Admin(sql) => lines.push(format!("step {number}: administrator: {sql}")),
            }
        }
        lines
    }
}

/// How the session through a proxy differs from the direct one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A message differs, or there is one more or less.
    Answer,
    /// Messages are missing after the deadline.
    Silence,
    /// The login fails or differs.
    Login,
    /// Reported settings differ at the end of an answer.
    Settings,
    /// A client that is in no transaction and not pinned holds a connection.
    Stuck,
    /// The next client is not served.
    NotServed,
    /// The next client finds state of this session.
    NotClean,
}

#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) kind: Kind,
    pub(crate) step: Option<usize>,
    /// The first difference in few words: failures that have it in common are reported once.
    pub(crate) signature: String,
    pub(crate) direct: Vec<String>,
    pub(crate) proxied: Vec<String>,
}

impl Failure {
    /// Whether time decides: another run may tell more.
    pub(crate) fn may_be_late(&self) -> bool {
        // A connection that has just been closed may still have locks.
        let waits = ["became free within", "Lock wait timeout"];
        let waited_in_vain = waits.iter().any(|text| self.signature.contains(text));
        matches!(self.kind, Kind::Silence | Kind::NotServed | Kind::Stuck) || waited_in_vain
    }
}

/// How an answer compares with the direct one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Equal {
    Exactly,
    But(Documented),
}

/// What was done on one route.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) sessions: u64,
    pub(crate) messages: u64,
    pub(crate) moves: u64,
    pub(crate) documented: u64,
}

impl Counts {
    pub(crate) fn note(&mut self, equal: Equal) {
        if let Equal::But(_) = equal {
            self.documented += 1;
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.sessions += other.sessions;
        self.messages += other.messages;
        self.moves += other.moves;
        self.documented += other.documented;
    }
}
