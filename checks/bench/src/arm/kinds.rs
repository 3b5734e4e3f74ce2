//! What is measured: generators, operations and routes, the tools for it, and the figures.

use std::path::PathBuf;

use ciphertoll_lab::Build;
use ciphertoll_load::driver::PreparedDriver;
use ciphertoll_model::{Auth, Engine, StatementProtocol, TlsVersion, Workload};

pub(super) const WARM_UP_S: f64 = 0.25;
/// Number of clients of concurrent workloads, and of threads of tools that distribute clients over threads.
pub(super) const MANY_CLIENTS: u16 = 8;
pub(super) const TOOL_THREADS: u16 = 2;

#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub rate_per_s: f64,
    pub cpu_us_per_op: f64,
    /// CPU time of the server, if measured.
    pub server_cpu_us_per_op: Option<f64>,
    /// Mean latency, as reported by the generator.
    pub mean_us: f64,
    /// 95th percentile of latency, if the generator reports it.
    pub p95_us: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    Plain,
    Unix,
    /// TLS with verification, and a new context per connect.
    Tls(TlsVersion),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    Connect,
    /// pgbench `-S -C`: connect, read an account as text, close; one client.
    ConnectSelect,
    /// pgbench `-S`: read an account by key; eight clients.
    SelectOnly(StatementProtocol),
    /// sysbench `oltp_point_select`: read a row by key, prepared, uniform keys; eight clients.
    PointSelect,
    /// sysbench `oltp_read_only`, with its own key distribution; eight clients.
    OltpReadOnly,
    /// YCSB read: find a document by key, uniform keys; one client.
    FindOne,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generator {
    /// ciphertoll's own driver, or its loader.
    Native,
    Libmariadb,
    /// A C loop that exchanges pre-encoded messages: the lower bound of client CPU time.
    Floor(FloorMode),
    Pgbench,
    Sysbench,
    Pymongo,
    /// `go-ycsb`; it runs on its own collection, because its keys differ.
    GoYcsb,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloorMode {
    Epoll,
    /// One blocking thread per connection.
    Threads,
}

#[derive(Clone, Copy, Debug)]
pub struct BenchArm {
    pub generator: Generator,
    pub work: OperationKind,
    pub route: Route,
    pub auth: Auth,
}

impl Generator {
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

    pub fn is_installed(self, tools: &Tools) -> bool {
        match self {
            Self::Pgbench => tools.pgbench.is_some(),
            Self::Sysbench => tools.sysbench.is_some(),
            Self::Pymongo => tools.pymongo.is_some(),
            Self::GoYcsb => tools.go_ycsb.is_some(),
            Self::Native | Self::Libmariadb | Self::Floor(_) => true,
        }
    }

    /// Whether it reports its own latencies, to compare with ciphertoll's.
    pub fn is_tool(self) -> bool {
        matches!(self, Self::Pgbench | Self::Sysbench)
    }
}

impl OperationKind {
    pub fn clients(self) -> u16 {
        match self {
            Self::Connect | Self::ConnectSelect | Self::FindOne => 1,
            Self::SelectOnly(_) | Self::PointSelect | Self::OltpReadOnly => MANY_CLIENTS,
        }
    }

    pub(super) fn workload(self) -> Workload {
        match self {
            Self::Connect => Workload::Connect,
            Self::ConnectSelect | Self::SelectOnly(_) => Workload::SelectOnly,
            Self::PointSelect => Workload::PointSelect,
            Self::OltpReadOnly => Workload::OltpReadOnly,
            Self::FindOne => Workload::FindOne,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Tools {
    pub pgbench: Option<PathBuf>,
    pub sysbench: Option<PathBuf>,
    pub go_ycsb: Option<PathBuf>,
    /// ciphertoll's driver on pymongo, after its preparation.
    pub pymongo: Option<PreparedDriver>,
}

impl Tools {
    /// Searches PATH, and for pgbench also the directories of the servers.
    pub fn find() -> Self {
        let builds = ciphertoll_lab::installed(Engine::Postgres);
        let beside = |build: &Build| Some(build.server_program.parent()?.join("pgbench"));
        let pgbench = builds.iter().filter_map(beside).find(|program| program.is_file());
        Self {
            pgbench: pgbench.or_else(|| on_path("pgbench")),
            sysbench: on_path("sysbench"),
            go_ycsb: on_path("go-ycsb"),
            pymongo: None,
        }
    }
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|program| program.is_file())
}
