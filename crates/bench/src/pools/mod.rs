//! Pooling proxies beside one another: each in front of the same server, driven by pgbench on unmodified libpq, in shuffled
//! rounds. What is compared is the rate, and what an operation costs the proxy: CPU, and system calls.

mod calls;
mod run;

use anyhow::{Context, Result};
use ciphertoll_lab::proxy::RunningProxy;
use ciphertoll_lab::{Lab, Server};
use ciphertoll_model::{Auth, Clients, Engine, Path as PathLevel, Proxy};

pub use calls::calls_per_op;
pub use run::run;

use crate::arm::Sample;

/// One who pools, and how it is written as a level.
pub const POOLS: [&str; 4] = ["proxy", "pgbouncer", "proxy+mode=transaction", "pgbouncer+mode=transaction"];

/// What one operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Connect, `SELECT 1`, disconnect.
    Connect {
        /// Clients, each on a thread of pgbench's two.
        clients: u16,
    },
    /// An account read by its key on a standing connection, as text; eight clients.
    Simple,
    /// The same, prepared.
    Prepared,
}

impl Work {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::Connect { clients: 1 }, Self::Connect { clients: 8 }, Self::Simple, Self::Prepared];

    /// For people, and for `--only`.
    pub fn title(self) -> String {
        match self {
            Self::Connect { clients: 1 } => "connect, SELECT 1, disconnect; 1 client".to_owned(),
            Self::Connect { clients } => format!("connect, SELECT 1, disconnect; {clients} clients"),
            Self::Simple => "query on a standing connection, text; 8 clients".to_owned(),
            Self::Prepared => "query on a standing connection, prepared; 8 clients".to_owned(),
        }
    }

    /// How many come at once.
    pub fn clients(self) -> u16 {
        match self {
            Self::Connect { clients } => clients,
            Self::Simple | Self::Prepared => 8,
        }
    }
}

/// A proxy that runs, in front of a server.
pub struct Pool {
    /// As a level of path.
    pub label: &'static str,
    proxy: RunningProxy,
}

impl Pool {
    /// Starts what this level names; it has a connection when this returns.
    pub fn start(label: &'static str, lab: &Lab, server: &Server) -> Result<Self> {
        let level: PathLevel = label.parse().with_context(|| format!("{label} is no level of path"))?;
        let PathLevel::Proxy(proxy) = level else { anyhow::bail!("{label} is no proxy") };
        let proxy = start(proxy, label, lab, server)?;
        Ok(Self { label, proxy })
    }

    /// Runs pgbench through it for so many seconds.
    pub fn sample(
        &self,
        pgbench: &std::path::Path,
        work: Work,
        server: &Server,
        seconds: f64,
    ) -> Result<Sample> {
        run(pgbench, work, server, &self.proxy, seconds)
    }

    /// System calls of the proxy for one operation.
    pub fn calls(&self, pgbench: &std::path::Path, work: Work, server: &Server) -> Result<Option<f64>> {
        calls_per_op(pgbench, work, server, &self.proxy)
    }
}

fn start(proxy: Proxy, name: &str, lab: &Lab, server: &Server) -> Result<RunningProxy> {
    let ciphertoll_model::Endpoint::Tcp(behind) = server.tcp_endpoint() else {
        anyhow::bail!("the server does not listen on TCP")
    };
    let name = name.replace(['+', '='], "-");
    let most = Work::ALL.map(Work::clients).into_iter().max().unwrap_or(1);
    let account = server.account(Auth::default_of(Engine::Postgres));
    let start = ciphertoll_lab::proxy::ProxyStart {
        proxy,
        server,
        behind,
        account: &account,
        clients: Clients::new(most).context("a number of clients")?,
        name: &name,
        namespace: None,
        processors: None,
        logs: lab.scratch().path(),
    };
    Ok(RunningProxy::start(lab, &start)?)
}
