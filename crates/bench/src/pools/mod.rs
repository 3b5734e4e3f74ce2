//! Compares pooling proxies with each other and with direct connections, on the same server. Unmodified generators create
//! the load: pgbench on libpq, a loop on libmariadb, and sysbench ([`work`] lists the workloads, [`run`] runs one). Compared
//! are throughput, and the proxy's CPU time and system calls per operation ([`calls`]). [`crowd`] measures the cost of many
//! clients.

pub mod calls;
pub mod crowd;
pub mod run;
pub mod work;

use anyhow::{Context, Result, bail};
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

    pub fn label(self) -> &'static str {
        match self {
            Self::Unix => "no proxy, unix, plain",
            Self::Tls => "no proxy, TCP, TLS 1.3",
            Self::Proxy(label) => label,
        }
    }

    /// Whether this is ciphertoll-proxy, and `peer` another proxy in the same mode.
    pub fn is_peer_of(self, peer: Self) -> bool {
        let (Self::Proxy(ours), Self::Proxy(peer)) = (self, peer) else { return false };
        let mode = |label: &str| label.contains("transaction");
        ours.starts_with("proxy") && !ours.starts_with("proxysql") && mode(ours) == mode(peer) && ours != peer
    }

    /// Whether the generators support this workload over the route.
    pub fn is_for(self, work: PoolWorkload) -> bool {
        match self {
            Self::Tls => matches!(work.act, ClientAction::Connect | ClientAction::ConnectQuery),
            Self::Unix | Self::Proxy(_) => true,
        }
    }
}

impl PooledServer {
    /// Starts the proxy, if any. It has a connection to the server when this returns.
    pub fn start(route: PoolRoute, admission: SocketAuth, setup: &BenchSetup<'_>) -> Result<Self> {
        let proxy = match route {
            PoolRoute::Unix | PoolRoute::Tls => None,
            PoolRoute::Proxy(label) => Some(start(label, admission, setup)?),
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

fn start(label: &str, admission: SocketAuth, setup: &BenchSetup<'_>) -> Result<RunningProxy> {
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
        logs: setup.lab.scratch().path(),
    };
    Ok(setup.lab.start_proxy(&start)?)
}
