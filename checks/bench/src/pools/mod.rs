//! Compares pooling proxies with each other, with direct connections and with relay floors, on the same server. One C client
//! on libpq and libmariadb creates the load ([`work`] lists the workloads, [`run`] runs one). Compared are throughput,
//! latency, the CPU time of client, server and proxy, and the proxy's system calls per operation ([`calls`]). [`route`]
//! lists the routes and their comparisons, [`goal`] the goals. [`crowd`] measures the cost of many clients.

pub mod calls;
pub mod crowd;
pub mod floor;
pub mod goal;
pub mod report;
pub mod route;
pub mod run;
pub mod work;

use anyhow::{Context, Result, bail};
use ciphertoll_lab::Lab;
use ciphertoll_lab::proxy::{ProxyStart, RunningProxy, SocketAuth};
use ciphertoll_model::{Auth, Clients, Endpoint, Engine, Path as PathLevel};

pub use self::route::PoolRoute;

use self::floor::RelayFloor;
use self::work::PoolWorkload;
use crate::setup::BenchSetup;

/// SCRAM iterations of PostgreSQL and PgBouncer. ciphertoll-proxy's own default on unix sockets is 1.
const SCRAM_CONFIG: &str = "scram-iterations = 4096\n";

/// A route to the server, with the process of its proxy.
pub struct PooledServer {
    pub route: PoolRoute,
    relay: Relay,
    endpoint: Endpoint,
}

enum Relay {
    None,
    Proxy(Box<RunningProxy>),
    Floor(RelayFloor),
}

/// How a route is used.
#[derive(Clone, Copy, Debug)]
pub struct PoolUse {
    pub admission: SocketAuth,
    /// Determines the size of the pool.
    pub clients: u16,
}

impl PoolUse {
    /// For all workloads with this admission.
    pub fn of(admission: SocketAuth) -> Self {
        Self { admission, clients: PoolWorkload::most_clients() }
    }
}

impl PooledServer {
    /// Starts the proxy, if any. It has a connection to the server when this returns.
    pub fn start(
        route: PoolRoute,
        pool_use: PoolUse,
        setup: &BenchSetup<'_>,
        baseline: Option<&Lab>,
    ) -> Result<Self> {
        let start = |level: &str, arguments: &[String], lab: &Lab| {
            start_proxy(level, &route.label(), arguments, pool_use, setup, lab)
                .map(|proxy| Relay::Proxy(Box::new(proxy)))
        };
        let relay = match (route, baseline) {
            (PoolRoute::Unix | PoolRoute::Tls, _) => Relay::None,
            (PoolRoute::Sidecar(sidecar), _) => start(sidecar.level(), &sidecar.arguments(), setup.lab)?,
            (PoolRoute::Baseline(sidecar), Some(lab)) => start(sidecar.level(), &sidecar.arguments(), lab)?,
            (PoolRoute::Baseline(_), None) => bail!("there is no other build"),
            (PoolRoute::Peer(level), _) => start(level, &[], setup.lab)?,
            (PoolRoute::Floor(floor), _) => {
                Relay::Floor(RelayFloor::start(floor, 2 * pool_use.clients, setup)?)
            }
        };
        let endpoint = match (&relay, route) {
            (Relay::Proxy(proxy), _) => proxy.endpoint(),
            (Relay::Floor(floor), _) => floor.endpoint(),
            (Relay::None, PoolRoute::Tls) => setup.server.tcp_endpoint(),
            (Relay::None, _) => setup.server.unix_endpoint(),
        };
        Ok(Self { route, relay, endpoint })
    }

    /// The process of the proxy or floor.
    pub fn pid(&self) -> Result<Option<i32>> {
        match &self.relay {
            Relay::None => Ok(None),
            Relay::Proxy(proxy) => Ok(Some(proxy.pid())),
            Relay::Floor(floor) => floor.pid().map(Some),
        }
    }

    /// Fails if its process has ended.
    pub fn check(&mut self) -> Result<()> {
        match &mut self.relay {
            Relay::None => Ok(()),
            Relay::Proxy(proxy) => Ok(proxy.check()?),
            Relay::Floor(floor) => floor.check(),
        }
    }
}

fn start_proxy(
    level: &str,
    label: &str,
    arguments: &[String],
    PoolUse { admission, clients }: PoolUse,
    setup: &BenchSetup<'_>,
    lab: &Lab,
) -> Result<RunningProxy> {
    let path: PathLevel = level.parse().with_context(|| format!("{level} is not a level of --path"))?;
    let PathLevel::Proxy(proxy) = path else { bail!("{level} is not a proxy") };
    let Endpoint::Tcp(behind) = setup.server.tcp_endpoint() else {
        bail!("the server does not listen on TCP")
    };
    let account = setup.server.account(Auth::default_of(setup.server.engine()));
    let mut arguments = arguments.to_vec();
    if admission == SocketAuth::Password && setup.engine() == Engine::Postgres {
        // Not secret, and the proxy may run as another user.
        let config = lab.scratch().path().join("scram.toml");
        std::fs::write(&config, SCRAM_CONFIG).context("cannot write a configuration file")?;
        arguments.extend(["--config".to_owned(), config.display().to_string()]);
    }
    let start = ProxyStart {
        proxy,
        server: setup.server,
        behind,
        account: &account,
        admission,
        arguments: &arguments,
        clients: Clients::new(clients).context("a number of clients")?,
        name: &label.replace(['+', '=', ' ', ','], "-"),
        namespace: None,
        processors: None,
        logs: lab.scratch().path(),
    };
    Ok(lab.start_proxy(&start)?)
}
