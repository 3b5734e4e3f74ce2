//! Processes of the proxy.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::Process;

/// Lines of a proxy's log that are kept.
const LOG_LINES: usize = 200;

/// How a route pools connections.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pooling {
    Direct,
    Session,
    Transaction,
}

pub(crate) struct Plan {
    pub(crate) name: &'static str,
    pub(crate) pooling: Pooling,
    /// A pool of one connection serves one client at a time: it moves whenever another one comes.
    pub(crate) pool_size: usize,
    arguments: &'static [&'static str],
}

pub(crate) const DIRECT: Plan =
    Plan { name: "direct", pooling: Pooling::Direct, pool_size: 0, arguments: &[] };

const fn plan(
    name: &'static str,
    pooling: Pooling,
    pool_size: usize,
    arguments: &'static [&'static str],
) -> Plan {
    Plan { name, pooling, pool_size, arguments }
}

pub(crate) const PLANS: [Plan; 6] = [
    plan("session", Pooling::Session, 1, &[]),
    plan("session-3", Pooling::Session, 3, &[]),
    plan("transaction", Pooling::Transaction, 1, &["--mode", "transaction"]),
    plan("transaction-3", Pooling::Transaction, 3, &["--mode", "transaction"]),
    plan("tracked", Pooling::Transaction, 1, &["--mode", "transaction", "--reset", "tracked"]),
    plan("tracked-3", Pooling::Transaction, 3, &["--mode", "transaction", "--reset", "tracked"]),
];

/// A proxy and what it has logged.
pub(crate) struct Proxy {
    process: Process,
    pins: usize,
}

impl Proxy {
    /// Listens when this returns.
    pub(crate) fn start(
        program: &PathBuf,
        plan: &Plan,
        socket: &Path,
        url: &str,
        password: (&str, Vec<u8>),
    ) -> Self {
        let (variable, password) = password;
        let listen = format!("unix:{}", socket.display());
        let mut command = Command::new(program);
        command
            .args(["--listen", &listen, "--server", url, "--log", "info", "--threads", "1"])
            .args(["--queue-time", "1s", "--drain-time", "1s"])
            .args(["--pool-size", &plan.pool_size.to_string()])
            .args(plan.arguments)
            .env(variable, String::from_utf8(password).expect("passwords here are text"));
        let mut process = Process::start(&mut command);
        process.await_line("event=listening");
        Self { process, pins: 0 }
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// The number of clients that the proxy has pinned since it started.
    pub(crate) fn pins(&mut self) -> usize {
        let known = self.process.log.len();
        self.process.read_on();
        self.pins += self.process.log[known..].iter().filter(|line| line.contains("event=pinned")).count();
        if self.process.log.len() > LOG_LINES {
            self.process.log.drain(..self.process.log.len() - LOG_LINES);
        }
        self.pins
    }
}
