//! The coordinator's end of `__link`.

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

use crate::clock::now_ns;
use crate::made::lack;
use crate::process::{Answer, CarriedAnswer, End, Interface, Order, ReadyAnswer, SetAnswer};
use crate::{BY_ARGUMENT, Error, LINK_COMMAND};

/// Of making networks.
const START_LIMIT: Duration = Duration::from_mins(1);
/// Of what takes it no time. A machine with too much to do answers late, too; a process that ended or was stopped is noticed
/// before.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Of calibrating, beside what round trips take.
const SET_LIMIT: Duration = Duration::from_secs(16);
/// How often a wait for an answer looks whether it still can be given.
const GLANCE: Duration = Duration::from_millis(50);

/// A running link. It ends when dropped, and its networks with the last process in them.
pub struct LinkProcess {
    talk: Talk,
    about: ReadyAnswer,
    /// Ports at the servers' end that were asked for, and where they are found.
    addresses: Vec<(u16, SocketAddr)>,
}

/// The process, and what is said to it and by it.
struct Talk {
    child: Child,
    orders: Option<ChildStdin>,
    answers: Receiver<Result<Answer, Error>>,
    is_lost: bool,
}

/// What a link was made like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// What of a round trip is the line's own, and was taken off: ns.
    pub overhead_ns: u64,
    /// The median round trip of connects over it: ns.
    pub round_trip_ns_p50: u64,
}

/// What a link has carried, both ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    /// Packets, where those that the kernel hands on in one piece are one.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Lost by the link's own nature.
    pub lost: u64,
    /// Dropped for want of room, or because the other end did not take them.
    pub dropped: u64,
    /// How late they were sent on: mean, ns.
    pub late_ns_mean: u64,
    /// Median, ns.
    pub late_ns_p50: u64,
    /// 99th percentile, ns.
    pub late_ns_p99: u64,
    /// The latest, ns.
    pub late_ns_max: u64,
    /// CPU time of its process, ns.
    pub cpu_ns: u64,
}

impl LinkProcess {
    /// Starts `program`'s hidden command and waits for the best link that can be made here. To be called on the
    /// coordinator's main thread.
    pub fn start(program: &Path) -> Result<Self, Error> {
        Self::start_with(program, None)
    }

    /// The same with a link of this kind.
    pub fn start_by(program: &Path, kind: LinkKind) -> Result<Self, Error> {
        Self::start_with(program, Some(kind))
    }

    fn start_with(program: &Path, kind: Option<LinkKind>) -> Result<Self, Error> {
        let mut command = Command::new(program);
        command.arg(LINK_COMMAND).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        if let Some(kind) = kind {
            command.args([BY_ARGUMENT, kind.label()]);
        }
        let mut child = command.spawn().map_err(Error::process("start it"))?;
        let orders = child.stdin.take();
        let answers = match child.stdout.take() {
            Some(stdout) => read(stdout),
            None => return Err(Error::Down("it has no output")),
        };
        let mut talk = Talk { child, orders, answers, is_lost: false };
        match talk.answer(START_LIMIT)? {
            Answer::Ready(ready) => Ok(Self { talk, about: *ready, addresses: Vec::new() }),
            _ => Err(Error::Down("it did not say that it is ready")),
        }
    }

    /// How it is made.
    pub fn kind(&self) -> LinkKind {
        self.about.kind
    }

    /// Why it is of no better kind, where it is not of the best.
    pub fn instead(&self) -> Option<&str> {
        self.about.instead.as_deref()
    }

    /// Where clients of servers behind the link are; nowhere special, where it has no networks.
    pub fn clients(&self) -> Option<&Namespace> {
        self.about.namespaces.as_ref().map(|[clients, _]| clients)
    }

    /// Where servers are, and clients that have no link to them; nowhere special, where it has no networks.
    pub fn servers(&self) -> Option<&Namespace> {
        self.about.namespaces.as_ref().map(|[_, servers]| servers)
    }

    /// The largest packet that it takes whole, bytes.
    pub fn mtu_bytes(&self) -> u32 {
        self.about.mtu_bytes
    }

    /// TCP's congestion control at both ends.
    pub fn congestion_control(&self) -> &str {
        &self.about.congestion_control
    }

    /// Its process.
    pub fn pid(&self) -> i32 {
        self.talk.pid()
    }

    /// CPU time that its process has used, ns; absent where its clock cannot be read.
    pub fn cpu_ns(&self) -> Option<u64> {
        clock_getcpuclockid(Pid::from_raw(self.pid())).ok().map(now_ns)
    }

    /// Whether it is gone, or carries nothing: one that was stopped is as good as gone, and stays so.
    pub fn is_down(&mut self) -> bool {
        self.talk.is_down()
    }

    /// What it cannot be, of what this asks; nothing, where it can be like this.
    pub fn lacks(&self, shape: LinkShape) -> Option<String> {
        let kind = self.kind();
        lack(kind, shape).map(|lacks| Error::Unlike { kind, lacks }.to_string())
    }

    /// Makes it like this from now on.
    pub fn set(&mut self, shape: LinkShape) -> Result<Made, Error> {
        match self.talk.order(&Order::Set(shape), limit_of_setting(shape))? {
            Answer::Set(SetAnswer { overhead_ns, round_trip_ns_p50 }) => {
                Ok(Made { overhead_ns, round_trip_ns_p50 })
            }
            _ => Err(Error::Down("it did not say what it is like")),
        }
    }

    /// What it has carried since the last time, or since it is as it is.
    pub fn carried(&mut self) -> Result<Carried, Error> {
        match self.talk.order(&Order::Carried, ANSWER_LIMIT)? {
            Answer::Carried(carried) => Ok(carried.into()),
            _ => Err(Error::Down("it did not say what it has carried")),
        }
    }

    /// Takes an interface up that somebody at an end has made, and gives it an address.
    pub fn configure(&mut self, interface: Interface) -> Result<(), Error> {
        self.act(&Order::Configure(interface))
    }

    /// Makes an interface at an end, of a kind that the kernel has: `wireguard`.
    pub fn make_interface(&mut self, end: End, name: &str, kind: &str) -> Result<(), Error> {
        self.act(&Order::Make { end, name: name.to_owned(), kind: kind.to_owned() })
    }

    /// Removes an interface at an end.
    pub fn remove_interface(&mut self, end: End, name: &str) -> Result<(), Error> {
        self.act(&Order::Remove { end, name: name.to_owned() })
    }

    fn act(&mut self, order: &Order) -> Result<(), Error> {
        match self.talk.order(order, ANSWER_LIMIT)? {
            Answer::Configured => Ok(()),
            _ => Err(Error::Down("it did not say that it has obeyed")),
        }
    }

    /// Where its clients find what listens on this port at the servers' end.
    pub fn address_of(&mut self, port: u16) -> Result<SocketAddr, Error> {
        if let Some((_, address)) = self.addresses.iter().find(|(known, _)| *known == port) {
            return Ok(*address);
        }
        match self.talk.order(&Order::Address(port), ANSWER_LIMIT)? {
            Answer::Address(address) => {
                self.addresses.push((port, address));
                Ok(address)
            }
            _ => Err(Error::Down("it did not say where a port is")),
        }
    }
}

impl Talk {
    fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    fn is_down(&mut self) -> bool {
        // One that cannot be asked after is as good as gone.
        self.is_lost = self.is_lost || !matches!(self.child.try_wait(), Ok(None)) || !runs(self.pid());
        self.is_lost
    }

    fn order(&mut self, order: &Order, limit: Duration) -> Result<Answer, Error> {
        if self.is_down() {
            return Err(Error::Down("its process has ended, or was stopped"));
        }
        let mut line = serde_json::to_string(order)?;
        line.push('\n');
        let orders = self.orders.as_mut().ok_or(Error::Down("it takes no orders"))?;
        orders.write_all(line.as_bytes()).map_err(Error::process("tell it what to do"))?;
        let answer = self.answer(limit);
        // What it still says would be taken for the answer to the next order.
        self.is_lost = matches!(&answer, Err(error) if !matches!(error, Error::Failed(_)));
        answer
    }

    fn answer(&mut self, limit: Duration) -> Result<Answer, Error> {
        let asked = Instant::now();
        loop {
            return match self.answers.recv_timeout(GLANCE) {
                Ok(Ok(Answer::Failed(reason))) => Err(Error::Failed(reason)),
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

/// A calibration takes dozens of round trips; TCP waits for what gets lost by a clock of its own.
fn limit_of_setting(shape: LinkShape) -> Duration {
    const ROUND_TRIPS: u32 = 120;
    const LOST: Duration = Duration::from_mins(2);
    let round_trips = Duration::from_nanos(shape.rtt_ns() + 2 * shape.jitter_ns()) * ROUND_TRIPS;
    let lost = if shape.loss() > 0.0 { LOST } else { Duration::ZERO };
    SET_LIMIT + round_trips + lost
}

/// Whether a process is there and not stopped, traced or dead: `proc_pid_stat(5)`. One that ends in this moment runs:
/// that it has ended is noticed by others.
fn runs(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| state_runs(&stat))
}

/// The state's letter is behind the name, which may have any letters, parentheses included.
fn state_runs(stat: &str) -> bool {
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    state.is_some_and(|state| !"TtZXx".contains(state))
}

fn read(stdout: ChildStdout) -> Receiver<Result<Answer, Error>> {
    let (sender, answers) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines() {
            let answer = match line {
                Ok(line) => serde_json::from_str(&line).map_err(Error::from),
                Err(error) => Err(Error::process("hear what it says")(error)),
            };
            if sender.send(answer).is_err() {
                return;
            }
        }
    });
    answers
}

impl From<CarriedAnswer> for Carried {
    fn from(answer: CarriedAnswer) -> Self {
        let CarriedAnswer {
            packets,
            bytes,
            lost,
            dropped,
            late_ns_mean,
            late_ns_p50,
            late_ns_p99,
            late_ns_max,
            cpu_ns,
        } = answer;
        Self { packets, bytes, lost, dropped, late_ns_mean, late_ns_p50, late_ns_p99, late_ns_max, cpu_ns }
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        // It ends with its stdin; stopped as it may be, it must not outlive us.
        self.orders = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_process_is_told_from_one_that_waits() {
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
    fn a_long_link_is_waited_for_longer() {
        let limit = |level: &str| limit_of_setting(level.parse().unwrap());
        assert!(limit("1ms") < Duration::from_secs(20));
        assert!(limit("1s") > Duration::from_secs(64));
        assert!(limit("1ms+loss=10%") > limit("1ms"));
    }
}
