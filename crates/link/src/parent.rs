//! The coordinator's end of `__link`.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use ciphertoll_model::{LinkShape, Namespace};

use crate::process::{Answer, CarriedAnswer, Interface, Order, SetAnswer};
use crate::{Error, LINK_COMMAND};

/// Of making networks.
const START_LIMIT: Duration = Duration::from_secs(10);
/// Of a calibration: dozens of round trips on a bad link.
const ANSWER_LIMIT: Duration = Duration::from_mins(2);

/// A running link. It ends when dropped, and its networks with the last process in them.
pub struct LinkProcess {
    child: Child,
    orders: Option<ChildStdin>,
    answers: Receiver<Result<Answer, Error>>,
    clients: Namespace,
    servers: Namespace,
    congestion_control: String,
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
}

impl LinkProcess {
    /// Starts `program`'s hidden command and waits for the networks. To be called on the coordinator's main thread.
    pub fn start(program: &Path) -> Result<Self, Error> {
        let mut command = Command::new(program);
        command.arg(LINK_COMMAND).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(Error::process("start it"))?;
        let orders = child.stdin.take();
        let answers = match child.stdout.take() {
            Some(stdout) => read(stdout),
            None => return Err(Error::Down("it has no output")),
        };
        let nowhere = Namespace { user: None, network: "/".into() };
        let mut link = Self {
            child,
            orders,
            answers,
            clients: nowhere.clone(),
            servers: nowhere,
            congestion_control: String::new(),
        };
        match link.answer(START_LIMIT)? {
            Answer::Ready { clients, servers, congestion_control } => {
                (link.clients, link.servers, link.congestion_control) =
                    (clients, servers, congestion_control);
                Ok(link)
            }
            _ => Err(Error::Down("it did not say that it is ready")),
        }
    }

    /// Where clients of servers behind the link are.
    pub fn clients(&self) -> &Namespace {
        &self.clients
    }

    /// Where servers are, and clients that have no link to them.
    pub fn servers(&self) -> &Namespace {
        &self.servers
    }

    /// TCP's congestion control at both ends.
    pub fn congestion_control(&self) -> &str {
        &self.congestion_control
    }

    /// Its process.
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Whether it is gone.
    pub fn has_ended(&mut self) -> bool {
        // One that cannot be asked after is as good as gone.
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Makes it like this from now on.
    pub fn set(&mut self, shape: LinkShape) -> Result<Made, Error> {
        match self.order(&Order::Set(shape))? {
            Answer::Set(SetAnswer { overhead_ns, round_trip_ns_p50 }) => {
                Ok(Made { overhead_ns, round_trip_ns_p50 })
            }
            _ => Err(Error::Down("it did not say what it is like")),
        }
    }

    /// What it has carried since the last time, or since it is as it is.
    pub fn carried(&mut self) -> Result<Carried, Error> {
        match self.order(&Order::Carried)? {
            Answer::Carried(carried) => Ok(carried.into()),
            _ => Err(Error::Down("it did not say what it has carried")),
        }
    }

    /// Takes an interface up that somebody at an end has made, and gives it an address.
    pub fn configure(&mut self, interface: Interface) -> Result<(), Error> {
        match self.order(&Order::Configure(interface))? {
            Answer::Configured => Ok(()),
            _ => Err(Error::Down("it did not say that it has configured an interface")),
        }
    }

    fn order(&mut self, order: &Order) -> Result<Answer, Error> {
        let mut line = serde_json::to_string(order)?;
        line.push('\n');
        let orders = self.orders.as_mut().ok_or(Error::Down("it takes no orders"))?;
        orders.write_all(line.as_bytes()).map_err(Error::process("tell it what to do"))?;
        self.answer(ANSWER_LIMIT)
    }

    fn answer(&mut self, limit: Duration) -> Result<Answer, Error> {
        match self.answers.recv_timeout(limit) {
            Ok(Ok(Answer::Failed(reason))) => Err(Error::Failed(reason)),
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => Err(Error::Down("it does not answer")),
            Err(RecvTimeoutError::Disconnected) => Err(Error::Down("its process has ended")),
        }
    }
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
        } = answer;
        Self { packets, bytes, lost, dropped, late_ns_mean, late_ns_p50, late_ns_p99, late_ns_max }
    }
}

impl Drop for LinkProcess {
    fn drop(&mut self) {
        // It ends with its stdin; stopped as it may be, it must not outlive us.
        self.orders = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
