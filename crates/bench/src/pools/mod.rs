//! Compares pooling proxies with each other and with direct connections, on the same server. Unmodified generators create
//! the load: pgbench on libpq, a loop on libmariadb, and sysbench ([`work`] lists the workloads, [`run`] runs one). Compared
//! are throughput, and the proxy's CPU time and system calls per operation ([`calls`]). [`crowd`] measures the cost of many
//! clients.

pub mod calls;
pub mod crowd;
pub mod run;
pub mod work;

use anyhow::{Context, Result, bail};
use ciphertoll_lab::Lab;
use ciphertoll_lab::proxy::{ProxyStart, RunningProxy, SocketAuth};
use ciphertoll_model::{Auth, Clients, Endpoint, Engine, Path as PathLevel};

use self::work::{ClientAction, PoolWorkload};
use crate::setup::BenchSetup;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolRoute {
    /// Directly over the unix socket, unencrypted.
    Unix,
    /// Directly over TCP and TLS 1.3, with verification.
    Tls,
    /// Through the proxy with this level of `--path`.
    Proxy(&'static str),
    /// Through the same proxy of another build.
    Baseline(&'static str),
}

pub struct PooledServer {
    pub route: PoolRoute,
    proxy: Option<RunningProxy>,
    endpoint: Endpoint,
}

impl PoolRoute {
    const POSTGRES: [Self; 5] = [
        Self::Unix,
        Self::Proxy("proxy"),
        Self::Proxy("pgbouncer"),
        Self::Proxy("proxy+mode=transaction"),
        Self::Proxy("pgbouncer+mode=transaction"),
    ];

    /// The compared routes, in the order of the output.
    pub fn of(engine: Engine, admission: SocketAuth) -> &'static [Self] {
        match (engine, admission) {
            (Engine::Postgres, SocketAuth::Trusted) => &Self::POSTGRES,
            // Directly, the server trusts the peer.
            (Engine::Postgres, SocketAuth::Password) => &Self::POSTGRES[1..],
            (Engine::MariaDb | Engine::MySql, _) => {
                &[Self::Unix, Self::Tls, Self::Proxy("proxy"), Self::Proxy("proxysql")]
            }
            (Engine::MongoDb | Engine::FerretDb, _) => &[],
        }
    }

    /// The same route through ciphertoll-proxy of another build.
    pub fn in_baseline(self) -> Option<Self> {
        match self {
            Self::Proxy(label) if self.is_ours() => Some(Self::Baseline(label)),
            _ => None,
        }
    }

    pub fn label(self) -> String {
        match self {
            Self::Unix => "no proxy, unix, plain".into(),
            Self::Tls => "no proxy, TCP, TLS 1.3".into(),
            Self::Proxy(label) => label.into(),
            Self::Baseline(label) => label.replacen("proxy", "baseline", 1),
        }
    }

    fn is_ours(self) -> bool {
        matches!(self, Self::Proxy(label) if label.starts_with("proxy") && !label.starts_with("proxysql"))
    }

    /// Whether this is ciphertoll-proxy, and `peer` another proxy in the same mode, or the same of another build.
    pub fn is_peer_of(self, peer: Self) -> bool {
        let mode = |label: &str| label.contains("transaction");
        match (self, peer) {
            (Self::Proxy(ours), Self::Proxy(peer)) => {
                self.is_ours() && mode(ours) == mode(peer) && ours != peer
            }
            (Self::Proxy(ours), Self::Baseline(peer)) => ours == peer,
            _ => false,
        }
    }

    /// Whether the generators support this workload over the route.
    pub fn is_for(self, work: PoolWorkload) -> bool {
        match self {
            Self::Tls => matches!(work.act, ClientAction::Connect | ClientAction::ConnectQuery),
            Self::Unix | Self::Proxy(_) | Self::Baseline(_) => true,
        }
    }
}

impl PooledServer {
    /// Starts the proxy, if any. It has a connection to the server when this returns.
    pub fn start(
        route: PoolRoute,
        admission: SocketAuth,
        setup: &BenchSetup<'_>,
        baseline: Option<&Lab>,
    ) -> Result<Self> {
        let proxy = match (route, baseline) {
            (PoolRoute::Unix | PoolRoute::Tls, _) => None,
            (PoolRoute::Proxy(label), _) => Some(start(label, admission, setup, setup.lab)?),
            (PoolRoute::Baseline(label), Some(lab)) => Some(start(label, admission, setup, lab)?),
            (PoolRoute::Baseline(_), None) => bail!("there is no other build"),
        };
        let endpoint = match (&proxy, route) {
            (Some(proxy), _) => proxy.endpoint(),
            (None, PoolRoute::Tls) => setup.server.tcp_endpoint(),
            (None, _) => setup.server.unix_endpoint(),
        };
        Ok(Self { route, proxy, endpoint })
    }

    pub fn proxy(&self) -> Option<&RunningProxy> {
        self.proxy.as_ref()
    }
}

fn start(label: &str, admission: SocketAuth, setup: &BenchSetup<'_>, lab: &Lab) -> Result<RunningProxy> {
    let level: PathLevel = label.parse().with_context(|| format!("{label} is not a level of --path"))?;
    let PathLevel::Proxy(proxy) = level else { bail!("{label} is not a proxy") };
    let Endpoint::Tcp(behind) = setup.server.tcp_endpoint() else {
        bail!("the server does not listen on TCP")
    };
    let most = PoolWorkload::ALL.map(|work| work.clients).into_iter().max().unwrap_or(1);
    let account = setup.server.account(Auth::default_of(setup.server.engine()));
    let start = ProxyStart {
        proxy,
        server: setup.server,
        behind,
        account: &account,
        admission,
        clients: Clients::new(most).context("a number of clients")?,
        name: &label.replace(['+', '='], "-"),
        namespace: None,
        processors: None,
        logs: lab.scratch().path(),
    };
    Ok(lab.start_proxy(&start)?)
}
