//! Connecting hosts, first and again.

use std::thread;
use std::time::{Duration, Instant};

use super::{Fleet, HostFacts, Incoming, Member, MemberState, POLL_INTERVAL};
use crate::connection::Connection;
use crate::error::HostError;
use crate::protocol::{FromHost, Hello, PROTOCOL_VERSION};

/// A connection that moves no byte for this long before the agent's first message is given up.
const STALLED: Duration = Duration::from_mins(1);
/// Pauses before the attempts to reach a lost host.
const RECONNECTS: [Duration; 3] = [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(3)];

const VERSION: &str = env!("CARGO_PKG_VERSION");

impl Fleet {
    /// Connects every host that is not connected. Each is tried once if it was never reached, and a few times if it was
    /// lost. Returns the hosts that were connected now; `None` if `is_interrupted` ended that early.
    pub fn connect(
        &mut self,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<HostFacts>>, HostError> {
        let missing: Vec<usize> =
            (0..self.members.len()).filter(|&host| !self.members[host].is_ready()).collect();
        if self.connect_missing(is_interrupted)? {
            return Ok(None);
        }
        self.content = None;
        Ok(Some(missing.into_iter().filter_map(|host| self.members[host].facts.clone()).collect()))
    }

    /// Returns whether it was interrupted.
    fn connect_missing(&mut self, is_interrupted: &dyn Fn() -> bool) -> Result<bool, HostError> {
        let attempts = if self.members.iter().all(|member| member.facts.is_some()) {
            &RECONNECTS[..]
        } else {
            &RECONNECTS[..1]
        };
        for (attempt, pause) in attempts.iter().enumerate() {
            if self.members.iter().all(Member::is_ready) {
                return Ok(false);
            }
            let until = Instant::now() + *pause;
            while Instant::now() < until && !is_interrupted() {
                thread::sleep(POLL_INTERVAL);
            }
            match self.start_all(is_interrupted) {
                Err(HostError::Interrupted) => return Ok(true),
                started => started?,
            }
            if self.greet_all(is_interrupted)? {
                return Ok(true);
            }
            let lost = self.members.iter().position(|member| !member.is_ready());
            if let Some(host) = lost.filter(|_| attempt + 1 == attempts.len()) {
                let MemberState::Lost { reason } = &self.members[host].state else { continue };
                return Err(self.unreachable(host, reason.clone()));
            }
        }
        Ok(false)
    }

    fn start_all(&mut self, is_interrupted: &dyn Fn() -> bool) -> Result<(), HostError> {
        for host in 0..self.members.len() {
            let member = &mut self.members[host];
            if !matches!(member.state, MemberState::Lost { .. }) {
                continue;
            }
            let command = member.transport.command(is_interrupted)?;
            let program = command.get_program().to_string_lossy().into_owned();
            match Connection::start(command, host, self.poll.registry()) {
                Ok(connection) => member.state = MemberState::Greeting { connection, skipped_bytes: 0 },
                Err(error) => {
                    let reason = format!("cannot start {program}: {error}");
                    return Err(self.unreachable(host, reason));
                }
            }
        }
        Ok(())
    }

    /// Waits until every connection has become an agent or ended.
    fn greet_all(&mut self, is_interrupted: &dyn Fn() -> bool) -> Result<bool, HostError> {
        loop {
            if !self.members.iter().any(|member| matches!(member.state, MemberState::Greeting { .. })) {
                return Ok(false);
            }
            if is_interrupted() {
                return Ok(true);
            }
            for incoming in self.look(Instant::now() + POLL_INTERVAL)? {
                if let Incoming::Said { host, message, .. } = incoming {
                    self.greeted(host, message)?;
                }
            }
            self.give_up_stalled();
        }
    }

    fn greeted(&mut self, host: usize, message: FromHost) -> Result<(), HostError> {
        match message {
            // The host was connected before, and still talks of a trial that was given up.
            _ if self.members[host].is_ready() => Ok(()),
            FromHost::Hello(hello) => self.accept(host, hello),
            FromHost::Refused { reason } => Err(self.unreachable(host, reason)),
            _ => Err(self.unreachable(host, "its agent did not say hello first".to_owned())),
        }
    }

    /// Another version might misunderstand a trial.
    fn accept(&mut self, host: usize, hello: Hello) -> Result<(), HostError> {
        if (hello.protocol_version, hello.tool_version.as_str()) != (PROTOCOL_VERSION, VERSION) {
            return Err(HostError::Version {
                host: self.name(host).to_owned(),
                theirs: hello.tool_version,
                their_protocol: hello.protocol_version,
                ours: VERSION.to_owned(),
                our_protocol: PROTOCOL_VERSION,
            });
        }
        let name = self.name(host).to_owned();
        let member = &mut self.members[host];
        let lost = MemberState::Lost { reason: String::new() };
        member.state = match std::mem::replace(&mut member.state, lost) {
            MemberState::Greeting { connection, .. } => MemberState::Ready(connection),
            other => other,
        };
        let node = member.transport.node().map(ToOwned::to_owned);
        member.facts = Some(HostFacts { name, node, hello });
        Ok(())
    }

    fn give_up_stalled(&mut self) {
        for member in &mut self.members {
            if let MemberState::Greeting { connection, .. } = &member.state
                && connection.moved.elapsed() > STALLED
            {
                let reason = format!("no answer within {} s", STALLED.as_secs());
                member.state = MemberState::Lost { reason };
            }
        }
    }
}
