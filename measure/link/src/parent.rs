//! The coordinator's side of `__link`.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_model::{LinkKind, LinkShape, Namespace};
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;

use crate::backend::missing_feature;
use crate::clock::now_ns;
use crate::messages::{
    Interface, LinkCalibration, LinkCommand, LinkCounters, LinkEnd, LinkReply, ReadyReply,
};
use crate::{BY_ARGUMENT, Error, LINK_COMMAND};

/// For making networks.
const START_LIMIT: Duration = Duration::from_mins(1);
/// For commands that need no time by themselves: a busy machine answers late. A process that ended or was stopped is
/// noticed earlier.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// For calibrating, in addition to the round trips.
const SET_LIMIT: Duration = Duration::from_secs(16);
/// How often a wait checks whether the process still runs.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A running link. Dropping it ends the process; its networks disappear with the last process in them.
pub struct LinkProcess {
    pipe: ControlPipe,
    about: ReadyReply,
    /// Ports of servers whose address was asked for.
    addresses: Vec<(u16, SocketAddr)>,
}

struct ControlPipe {
    child: Child,
    commands: Option<ChildStdin>,
    answers: Receiver<Result<LinkReply, Error>>,
    is_lost: bool,
}

impl LinkProcess {
    /// Starts `program`'s hidden command and waits for a link of this kind, or else of the best kind that this machine
    /// permits. Call this on the coordinator's main thread.
    pub fn start(program: &Path, kind: Option<LinkKind>) -> Result<Self, Error> {
        let mut command = Command::new(program);
        command.arg(LINK_COMMAND).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        if let Some(kind) = kind {
            command.args([BY_ARGUMENT, kind.label()]);
        }
        let mut child = command.spawn().map_err(Error::process("start it"))?;
        let commands = child.stdin.take();
        let answers = match child.stdout.take() {
            Some(stdout) => read(stdout),
            None => return Err(Error::Down("it has no output")),
        };
        let mut pipe = ControlPipe { child, commands, answers, is_lost: false };
        match pipe.answer(START_LIMIT)? {
            LinkReply::Ready(ready) => Ok(Self { pipe, about: *ready, addresses: Vec::new() }),
            _ => Err(Error::Down("it did not report that it is ready")),
        }
    }

    pub fn kind(&self) -> LinkKind {
        self.about.kind
    }

    /// Why no better kind could be made.
    pub fn fallback_reason(&self) -> Option<&str> {
        self.about.fallback_reason.as_deref()
    }

    /// The clients' network; `None` for a relay.
    pub fn clients(&self) -> Option<&Namespace> {
        self.about.namespaces.as_ref().map(|[clients, _]| clients)
    }

    /// The servers' network, also for clients that must not be delayed; `None` for a relay.
    pub fn servers(&self) -> Option<&Namespace> {
        self.about.namespaces.as_ref().map(|[_, servers]| servers)
    }

    pub fn mtu_bytes(&self) -> u32 {
        self.about.mtu_bytes
    }

    pub fn congestion_control(&self) -> &str {
        &self.about.congestion_control
    }

    pub fn pid(&self) -> i32 {
        self.pipe.pid()
    }

    /// CPU time of its process, ns; `None` if its clock cannot be read.
    pub fn cpu_ns(&self) -> Option<u64> {
        clock_getcpuclockid(Pid::from_raw(self.pid())).ok().map(now_ns)
    }

    /// Whether the process has ended or was ever stopped.
    pub fn is_down(&mut self) -> bool {
        self.pipe.is_down()
    }

    /// What this kind of link cannot do of `shape`, if anything.
    pub fn missing_feature(&self, shape: LinkShape) -> Option<String> {
        let kind = self.kind();
        missing_feature(kind, shape).map(|missing| Error::Unsupported { kind, missing }.to_string())
    }

    pub fn set(&mut self, shape: LinkShape) -> Result<LinkCalibration, Error> {
        match self.pipe.command(&LinkCommand::Set(shape), limit_of_setting(shape))? {
            LinkReply::Set(calibration) => Ok(calibration),
            _ => Err(Error::Down("it did not report its calibration")),
        }
    }

    /// The traffic since the last call, or since the link was set.
    pub fn read_counters(&mut self) -> Result<LinkCounters, Error> {
        match self.pipe.command(&LinkCommand::Counters, ANSWER_LIMIT)? {
            LinkReply::Counters(counters) => Ok(counters),
            _ => Err(Error::Down("it did not report its traffic")),
        }
    }

    /// Brings up an interface that another process has made at an end, and gives it an address.
    pub fn configure(&mut self, interface: Interface) -> Result<(), Error> {
        self.act(&LinkCommand::Configure(interface))
    }

    /// Makes an interface at an end, such as `wireguard`.
    pub fn make_interface(&mut self, end: LinkEnd, name: &str, kind: &str) -> Result<(), Error> {
        self.act(&LinkCommand::Make { end, name: name.to_owned(), kind: kind.to_owned() })
    }

    pub fn remove_interface(&mut self, end: LinkEnd, name: &str) -> Result<(), Error> {
        self.act(&LinkCommand::Remove { end, name: name.to_owned() })
    }

    fn act(&mut self, command: &LinkCommand) -> Result<(), Error> {
        match self.pipe.command(command, ANSWER_LIMIT)? {
            LinkReply::Configured => Ok(()),
            _ => Err(Error::Down("it did not acknowledge a command")),
        }
    }

    /// The address at which clients reach this port of the servers' network.
    pub fn find_address(&mut self, port: u16) -> Result<SocketAddr, Error> {
        if let Some((_, address)) = self.addresses.iter().find(|(known, _)| *known == port) {
            return Ok(*address);
        }
        match self.pipe.command(&LinkCommand::Address(port), ANSWER_LIMIT)? {
            LinkReply::Address(address) => {
                self.addresses.push((port, address));
                Ok(address)
            }
            _ => Err(Error::Down("it did not report an address")),
        }
    }
}

impl ControlPipe {
    fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    fn is_down(&mut self) -> bool {
        // If the process cannot be queried, it counts as gone.
        self.is_lost = self.is_lost || !matches!(self.child.try_wait(), Ok(None)) || !runs(self.pid());
        self.is_lost
    }

    fn command(&mut self, command: &LinkCommand, limit: Duration) -> Result<LinkReply, Error> {
        if self.is_down() {
            return Err(Error::Down("its process has ended, or was stopped"));
        }
        let mut line = serde_json::to_string(command)?;
        line.push('\n');
        let commands = self.commands.as_mut().ok_or(Error::Down("its stdin is closed"))?;
        commands.write_all(line.as_bytes()).map_err(Error::process("send a command"))?;
        let answer = self.answer(limit);
        // After a timeout, a late reply would be taken for the reply to the next command.
        self.is_lost = matches!(&answer, Err(error) if !matches!(error, Error::Failed(_)));
        answer
    }

    fn answer(&mut self, limit: Duration) -> Result<LinkReply, Error> {
        let asked = Instant::now();
        loop {
            return match self.answers.recv_timeout(POLL_INTERVAL) {
                Ok(Ok(LinkReply::Failed(reason))) => Err(Error::Failed(reason)),
                Ok(answer) => answer,
                Err(RecvTimeoutError::Disconnected) => Err(Error::Down("its process has ended")),
                Err(RecvTimeoutError::Timeout) if asked.elapsed() > limit => {
                    Err(Error::Down("it does not answer"))
                }
                Err(RecvTimeoutError::Timeout) if !runs(self.pid()) => Err(Error::Down("it was stopped")),
                Err(RecvTimeoutError::Timeout) => continue,
            };
        }
    }
}

/// A calibration takes dozens of round trips; after a loss, TCP waits for its retransmission timer.
fn limit_of_setting(shape: LinkShape) -> Duration {
    const ROUND_TRIPS: u32 = 120;
    const LOST: Duration = Duration::from_mins(2);
    let round_trips = Duration::from_nanos(shape.rtt_ns() + 2 * shape.jitter_ns()) * ROUND_TRIPS;
    let lost = if shape.loss() > 0.0 { LOST } else { Duration::ZERO };
    SET_LIMIT + round_trips + lost
}

/// Whether a process exists and is not stopped, traced or dead (`proc_pid_stat(5)`). A process that exits right now may
/// still count as running.
fn runs(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| state_runs(&stat))
}

/// The state follows the name, which may contain any character, parentheses included.
fn state_runs(stat: &str) -> bool {
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    state.is_some_and(|state| !"TtZXx".contains(state))
}

fn read(stdout: ChildStdout) -> Receiver<Result<LinkReply, Error>> {
    let (sender, answers) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines() {
            let answer = match line {
                Ok(line) => serde_json::from_str(&line).map_err(Error::from),
                Err(error) => Err(Error::process("read a reply")(error)),
            };
            if sender.send(answer).is_err() {
                return;
            }
        }
    });
    answers
}

impl Drop for ControlPipe {
    fn drop(&mut self) {
        // The process exits at the end of stdin; a stopped process must be killed.
        self.commands = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_process_differs_from_a_waiting_one() {
        for (stat, expected) in [
            ("7 (ciphertoll) S 1 7", true),
            ("7 (ciphertoll) R 1 7", true),
            ("7 (a) S b) T 1 7", false),
            ("7 (ciphertoll) t 1 7", false),
            ("7 (ciphertoll) Z 1 7", false),
            ("7 (S", false),
        ] {
            assert_eq!(state_runs(stat), expected, "{stat}");
        }
        assert!(runs(std::process::id().cast_signed()));
    }

    #[test]
    fn the_time_limit_grows_with_the_link() {
        let limit = |level: &str| limit_of_setting(level.parse().unwrap());
        assert!(limit("1ms") < Duration::from_secs(20));
        assert!(limit("1s") > Duration::from_secs(64));
        assert!(limit("1ms+loss=10%") > limit("1ms"));
    }
}
