//! Who makes the load: ciphertoll's own generator, pgbench, sysbench, go-ycsb, pymongo, or a C loop. Each runs once and
//! says its rate, its times and what CPU an operation cost.

pub(crate) mod go_ycsb;
mod native;
mod peer;
mod pgbench;
mod sysbench;
mod tool;

use std::path::PathBuf;

use anyhow::{Result, bail};
use ciphertoll_lab::Server;
use ciphertoll_model::{Auth, Endpoint, Engine, Scale, StatementProtocol, TlsVersion, Workload};

pub use native::{Moment, trial};
pub(crate) use sysbench::Told as SysbenchTold;
pub(crate) use tool::write_private;
pub use tool::{Tools, number_after};

/// Seconds before a window that do not count.
const WARM_UP_S: f64 = 0.25;
/// Clients where there is more than one, and the threads of a tool that shares them out.
const MANY_CLIENTS: u16 = 8;
const TOOL_THREADS: u16 = 2;

/// What one run of an arm yields.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Operations per second.
    pub rate_per_s: f64,
    /// CPU of the client per operation.
    pub cpu_us_per_op: f64,
    /// CPU of the server per operation, where it was read.
    pub server_cpu_us_per_op: Option<f64>,
    /// Mean time of an operation, as the generator itself says.
    pub mean_us: f64,
    /// Its 95th percentile, where the generator says it.
    pub p95_us: Option<f64>,
}

/// How the bytes get to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// TCP, not encrypted.
    Plain,
    /// A unix socket.
    Unix,
    /// TLS over TCP, verified, a new context for each connect.
    Tls(TlsVersion),
}

/// What one operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Connect and close, one client.
    Connect,
    /// pgbench's `-S -C`: connect, read an account as text, close; one client.
    ConnectSelect,
    /// pgbench's `-S`: read an account by key, eight clients.
    SelectOnly(StatementProtocol),
    /// sysbench's `oltp_point_select`: read a row by key, prepared, keys uniform, eight clients.
    PointSelect,
    /// sysbench's `oltp_read_only`, keys by its own distribution, eight clients.
    OltpReadOnly,
    /// YCSB's read: find a document by its key, keys uniform, one client.
    FindOne,
}

/// Who makes the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generator {
    /// ciphertoll's own.
    Native,
    /// A C loop on libmariadb.
    Libmariadb,
    /// A C loop that sends and receives messages encoded beforehand, with this I/O.
    Floor(FloorMode),
    /// `pgbench -S`.
    Pgbench,
    /// sysbench's `oltp_point_select` or `oltp_read_only`.
    Sysbench,
    /// The built-in driver on pymongo.
    Pymongo,
    /// `go-ycsb run`, on the collection that it has loaded itself: its keys are others.
    GoYcsb,
}

/// How the floor waits for its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloorMode {
    /// One thread, epoll.
    Epoll,
    /// A blocking thread for each connection.
    Threads,
}

/// One arm of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Arm {
    /// Who.
    pub generator: Generator,
    /// What.
    pub work: Work,
    /// Which way.
    pub route: Route,
    /// Logged in how.
    pub auth: Auth,
}

/// Where arms are run.
pub struct Place<'a> {
    /// The server, which has an account for each arm's authentication.
    pub server: &'a Server,
    /// The `ciphertoll` program.
    pub program: PathBuf,
    /// The compiled C peers.
    pub peers: PathBuf,
    /// The tools that are here.
    pub tools: Tools,
    /// A directory for files that hold the password: ours alone.
    pub private: PathBuf,
    /// Rows of sysbench's table, or records of YCSB's collection.
    pub rows: Scale,
    /// Rows of pgbench's accounts.
    pub accounts: Scale,
    /// Length of a run's window. Tools take whole seconds.
    pub seconds: f64,
}

impl Generator {
    /// For the table of results.
    pub fn label(self) -> &'static str {
        match self {
            Self::Native => "ciphertoll",
            Self::Libmariadb => "libmariadb loop",
            Self::Floor(FloorMode::Epoll) => "floor, epoll",
            Self::Floor(FloorMode::Threads) => "floor, threads",
            Self::Pgbench => "pgbench",
            Self::Sysbench => "sysbench",
            Self::Pymongo => "pymongo",
            Self::GoYcsb => "go-ycsb",
        }
    }

    /// Whether it can be run here.
    pub fn is_here(self, tools: &Tools) -> bool {
        match self {
            Self::Pgbench => tools.pgbench.is_some(),
            Self::Sysbench => tools.sysbench.is_some(),
            Self::Pymongo => tools.pymongo.is_some(),
            Self::GoYcsb => tools.go_ycsb.is_some(),
            Self::Native | Self::Libmariadb | Self::Floor(_) => true,
        }
    }

    /// Whether it prints times of its own that ours can be held against.
    pub fn is_tool(self) -> bool {
        matches!(self, Self::Pgbench | Self::Sysbench)
    }
}

impl Work {
    /// How many clients work at once.
    pub fn clients(self) -> u16 {
        match self {
            Self::Connect | Self::ConnectSelect | Self::FindOne => 1,
            Self::SelectOnly(_) | Self::PointSelect | Self::OltpReadOnly => MANY_CLIENTS,
        }
    }

    fn workload(self) -> Workload {
        match self {
            Self::Connect => Workload::Connect,
            Self::ConnectSelect | Self::SelectOnly(_) => Workload::SelectOnly,
            Self::PointSelect => Workload::PointSelect,
            Self::OltpReadOnly => Workload::OltpReadOnly,
            Self::FindOne => Workload::FindOne,
        }
    }

    /// The rows it draws its keys from.
    fn scale(self, place: &Place<'_>) -> Scale {
        match self {
            Self::ConnectSelect | Self::SelectOnly(_) => place.accounts,
            Self::Connect | Self::PointSelect | Self::OltpReadOnly | Self::FindOne => place.rows,
        }
    }
}

impl Arm {
    /// Runs it once.
    pub fn run(&self, place: &Place<'_>) -> Result<Sample> {
        match self.generator {
            Generator::Native | Generator::Pymongo => native::run(self, place),
            Generator::Libmariadb => peer::connect_loop(self, place),
            Generator::Floor(mode) => peer::floor(self, place, mode),
            Generator::Pgbench => pgbench::run(self, place),
            Generator::Sysbench => sysbench::run(self, place),
            Generator::GoYcsb => go_ycsb::run(self, place),
        }
    }
}

impl Place<'_> {
    fn engine(&self) -> Engine {
        self.server.engine()
    }

    /// Host and port.
    fn address(&self) -> Result<(String, String)> {
        match self.server.tcp_endpoint() {
            Endpoint::Tcp(address) => Ok((address.ip().to_string(), address.port().to_string())),
            Endpoint::Host { .. } | Endpoint::Unix(_) => bail!("the server does not listen on TCP"),
        }
    }
}
