//! All hosts of a run: one poll loop, on the thread that asks for something.

mod connecting;
mod pinging;
mod trial;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ciphertoll_load::monotonic_now_ns;
use mio::{Events, Poll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

pub use self::trial::{HostResult, TrialFailure, TrialOutcome, TrialWatch};
use crate::clock::ClockOffset;
use crate::connection::{Connection, Stream};
use crate::error::HostError;
use crate::protocol::{FromHost, Hello, ToHost, line};
use crate::share::Machine;
use crate::transport::{Announcement, Bootstrap, HostTransport, announcement};

/// Events of one look at the pipes.
const EVENTS: usize = 1_024;
/// What login shells may print before the agent's first line.
const MAX_GREETING_BYTES: usize = 1 << 16;
/// How often a wait looks for Ctrl-C.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The hosts of a run, in the order in which the user named them.
pub struct Fleet {
    members: Vec<Member>,
    poll: Poll,
    events: Events,
    bootstrap: Bootstrap,
    /// The program, while hosts receive it.
    content: Option<Arc<Vec<u8>>>,
    trials: u64,
    pings: u64,
}

struct Member {
    /// Dropped first: the end of a pod ends its agent less gently.
    state: MemberState,
    transport: Box<dyn HostTransport>,
    facts: Option<HostFacts>,
    offset: ClockOffset,
}

enum MemberState {
    Lost {
        reason: String,
    },
    /// Until the agent says hello.
    Greeting {
        connection: Connection,
        skipped_bytes: usize,
    },
    Ready(Connection),
}

/// What is known of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFacts {
    pub name: String,
    /// The node of a cluster that it is on.
    pub node: Option<String>,
    /// What its agent said first.
    pub hello: Hello,
}

/// What a look at the pipes found.
enum Incoming {
    Said { host: usize, at_ns: u64, message: FromHost },
    Lost { host: usize, reason: String },
}

impl Fleet {
    /// Hosts that are not connected yet.
    pub fn new(transports: Vec<Box<dyn HostTransport>>, bootstrap: Bootstrap) -> Result<Self, HostError> {
        allow_many_files();
        let member = |transport| Member {
            transport,
            state: MemberState::Lost { reason: "not connected".to_owned() },
            facts: None,
            offset: ClockOffset::default(),
        };
        Ok(Self {
            members: transports.into_iter().map(member).collect(),
            poll: Poll::new().map_err(HostError::io("cannot watch the load hosts"))?,
            events: Events::with_capacity(EVENTS),
            bootstrap,
            content: None,
            trials: 0,
            pings: 0,
        })
    }

    pub fn len(&self) -> usize {
        self.members.len()
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// What is known of each host that was ever connected.
    pub fn facts(&self) -> impl Iterator<Item = &HostFacts> {
        self.members.iter().filter_map(|member| member.facts.as_ref())
    }

    /// The processes that connect the hosts, for the ledger.
    pub fn pids(&self) -> impl Iterator<Item = (&str, u32)> {
        self.members.iter().filter_map(|member| Some((member.transport.name(), member.connection()?.pid())))
    }

    /// Sends a message to a host. If it is gone, what it does not answer says so.
    pub(crate) fn send(&mut self, host: usize, message: &ToHost) -> Result<(), HostError> {
        let line = line(message).map_err(HostError::io("cannot encode a message to a load host"))?;
        if let Some(connection) = self.members[host].connection_mut() {
            connection.send(line);
        }
        Ok(())
    }

    /// Looks at all pipes, waiting until `until` at most, and not longer than a glance.
    fn look(&mut self, until: Instant) -> Result<Vec<Incoming>, HostError> {
        let patience = until.saturating_duration_since(Instant::now()).min(POLL_INTERVAL);
        match self.poll.poll(&mut self.events, Some(patience)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                return Err(HostError::io("cannot watch the load hosts")(error));
            }
            _ => {}
        }
        let mut incoming = Vec::new();
        let ready: Vec<(usize, Stream)> = self.events.iter().map(|event| Stream::of(event.token())).collect();
        for (host, stream) in ready {
            let Some(connection) = self.members.get_mut(host).and_then(Member::connection_mut) else {
                continue;
            };
            match stream {
                Stream::Stdin => connection.write(),
                Stream::Stderr => connection.read_complaint(),
                Stream::Stdout => self.read(host, &mut incoming)?,
            }
        }
        Ok(incoming)
    }

    fn read(&mut self, host: usize, incoming: &mut Vec<Incoming>) -> Result<(), HostError> {
        let member = &mut self.members[host];
        let Some(connection) = member.connection_mut() else { return Ok(()) };
        let mut lines: Vec<Vec<u8>> = Vec::new();
        let is_open = connection.read(|line| lines.push(line.to_vec()));
        let at_ns = monotonic_now_ns();
        for line in lines {
            match self.interpret(host, &line)? {
                Ok(Some(message)) => incoming.push(Incoming::Said { host, at_ns, message }),
                Ok(None) => {}
                Err(reason) => {
                    incoming.push(self.lose(host, reason));
                    return Ok(());
                }
            }
        }
        if !is_open {
            let reason = self.members[host].connection_mut().map(Connection::how_it_ended);
            incoming.push(self.lose(host, reason.unwrap_or_default()));
        }
        Ok(())
    }

    /// The message of a line; `None` for what comes before the agent's first one. The inner error is why the host
    /// cannot be used.
    fn interpret(&mut self, host: usize, line: &[u8]) -> Result<Result<Option<FromHost>, String>, HostError> {
        let parsed = serde_json::from_slice::<FromHost>(line);
        let MemberState::Greeting { connection, skipped_bytes } = &mut self.members[host].state else {
            return Ok(parsed
                .map(Some)
                .map_err(|_| "it sent a line that is no message of ciphertoll".to_owned()));
        };
        if let Ok(message) = parsed {
            return Ok(Ok(Some(message)));
        }
        match announcement(line) {
            Some(Announcement::Present) => {}
            Some(Announcement::Absent) => {
                let content = match &self.content {
                    Some(content) => Arc::clone(content),
                    None => Arc::clone(self.content.insert(self.bootstrap.content()?)),
                };
                connection.send_content(content);
            }
            None => {
                *skipped_bytes += line.len() + 1;
                if *skipped_bytes > MAX_GREETING_BYTES {
                    return Ok(Err("it does not become ciphertoll's agent".to_owned()));
                }
            }
        }
        Ok(Ok(None))
    }

    /// Closes the connection.
    fn lose(&mut self, host: usize, reason: String) -> Incoming {
        self.members[host].state = MemberState::Lost { reason: reason.clone() };
        Incoming::Lost { host, reason }
    }

    fn name(&self, host: usize) -> &str {
        self.members[host].transport.name()
    }

    /// What the first host says, waiting until `until` at most, and not longer than a glance.
    pub(crate) fn messages(&mut self, until: Instant) -> Result<Vec<FromHost>, HostError> {
        let mut messages = Vec::new();
        for incoming in self.look(until)? {
            match incoming {
                Incoming::Said { message: FromHost::Refused { reason }, host, .. }
                | Incoming::Lost { host, reason } => return Err(self.unreachable(host, reason)),
                Incoming::Said { message, .. } => messages.push(message),
            }
        }
        Ok(messages)
    }

    pub(crate) fn unreachable_host(&self, reason: &str) -> HostError {
        self.unreachable(0, reason.to_owned())
    }

    fn unreachable(&self, host: usize, reason: String) -> HostError {
        HostError::Unreachable { host: self.name(host).to_owned(), reason }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // All of them at once, so that they tidy up at the same time.
        self.members.iter_mut().filter_map(Member::connection_mut).for_each(Connection::close_input);
    }
}

impl Member {
    fn machine(&self) -> Machine<'_> {
        let hello = self.facts.as_ref().map(|facts| &facts.hello);
        Machine {
            processors: hello.map_or(1, |hello| hello.processors),
            boot_id: hello.map_or("", |hello| &hello.boot_id),
        }
    }

    fn connection(&self) -> Option<&Connection> {
        match &self.state {
            MemberState::Lost { .. } => None,
            MemberState::Greeting { connection, .. } | MemberState::Ready(connection) => Some(connection),
        }
    }

    fn connection_mut(&mut self) -> Option<&mut Connection> {
        match &mut self.state {
            MemberState::Lost { .. } => None,
            MemberState::Greeting { connection, .. } | MemberState::Ready(connection) => Some(connection),
        }
    }

    fn is_ready(&self) -> bool {
        matches!(self.state, MemberState::Ready(_))
    }
}

/// Each host takes three descriptors, and many systems allow 1,024 unless asked for more.
fn allow_many_files() {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // If not even that is allowed, a host that cannot be started says so.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}
