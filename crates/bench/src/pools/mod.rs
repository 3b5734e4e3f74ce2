//! Pooling proxies beside one another, each in front of the same server, and beside the server itself: driven by pgbench on
//! libpq, and by a loop on libmariadb and sysbench, all unmodified, in shuffled rounds ([`work`] lists what is done,
//! [`run`] does it once). What is compared is the rate, and what an operation costs the proxy: CPU, and system calls
//! ([`calls`]). What many clients cost is in [`crowd`].

pub mod calls;
pub mod crowd;
pub mod run;
pub mod work;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use ciphertoll_lab::proxy::{ProxyStart, RunningProxy, SocketAuth};
use ciphertoll_lab::{Lab, Server};
use ciphertoll_model::{Auth, Clients, Endpoint, Engine, Path as PathLevel};

use self::work::{Act, Work};
use crate::arm::Tools;

/// Where everything is.
pub struct Place<'a> {
    /// Starts the pools.
    pub lab: &'a Lab,
    /// The one server.
    pub server: &'a Server,
    /// pgbench and sysbench.
    pub tools: &'a Tools,
    /// The compiled C peers.
    pub peers: PathBuf,
    /// A directory for files that hold the password: ours alone.
    pub private: PathBuf,
}

/// The way to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Its unix socket, not encrypted.
    Unix,
    /// TCP and TLS 1.3, verified.
    Tls,
    /// By the proxy that is written like this as a level of path.
    Proxy(&'static str),
}

/// A way to the server that can be gone.
pub struct Pool {
    /// Which.
    pub way: Way,
    proxy: Option<RunningProxy>,
    endpoint: Endpoint,
}

impl Way {
    /// Those that are compared, in the order in which they are printed: ours before its peer of the same mode.
    pub fn of(engine: Engine, admission: SocketAuth) -> &'static [Self] {
        match (engine, admission) {
            (Engine::Postgres, SocketAuth::Trusted) => &[
                Self::Unix,
                Self::Proxy("proxy"),
                Self::Proxy("pgbouncer"),
                Self::Proxy("proxy+mode=transaction"),
                Self::Proxy("pgbouncer+mode=transaction"),
            ],
            (Engine::Postgres, SocketAuth::Password) => &[
                Self::Proxy("proxy"),
                Self::Proxy("pgbouncer"),
                Self::Proxy("proxy+mode=transaction"),
                Self::Proxy("pgbouncer+mode=transaction"),
            ],
            (Engine::MariaDb | Engine::MySql, _) => {
                &[Self::Unix, Self::Tls, Self::Proxy("proxy"), Self::Proxy("proxysql")]
            }
            (Engine::MongoDb | Engine::FerretDb, _) => &[],
        }
    }

    /// For the table.
    pub fn label(self) -> &'static str {
        match self {
            Self::Unix => "no proxy, unix, plain",
            Self::Tls => "no proxy, TCP, TLS 1.3",
            Self::Proxy(label) => label,
        }
    }

    /// Whether the one is ours and the other one a peer that does the same.
    pub fn is_ours_beside(self, peer: Self) -> bool {
        let (Self::Proxy(ours), Self::Proxy(peer)) = (self, peer) else { return false };
        let mode = |label: &str| label.contains("transaction");
        ours.starts_with("proxy") && !ours.starts_with("proxysql") && mode(ours) == mode(peer) && ours != peer
    }

    /// Whether the generators can go it for this work.
    pub fn is_for(self, work: Work) -> bool {
        match self {
            Self::Tls => matches!(work.act, Act::Connect | Act::ConnectQuery),
            Self::Unix | Self::Proxy(_) => true,
        }
    }
}

impl Pool {
    /// Starts what there is to start; it has a connection to the server when this returns.
    pub fn start(way: Way, admission: SocketAuth, place: &Place<'_>) -> Result<Self> {
        let proxy = match way {
            Way::Unix | Way::Tls => None,
            Way::Proxy(label) => Some(start(label, admission, place)?),
        };
        let endpoint = match (&proxy, way) {
            (Some(proxy), _) => proxy.endpoint(),
            (None, Way::Tls) => place.server.tcp_endpoint(),
            (None, _) => place.server.unix_endpoint(),
        };
        Ok(Self { way, proxy, endpoint })
    }

    /// The proxy, where there is one.
    pub fn proxy(&self) -> Option<&RunningProxy> {
        self.proxy.as_ref()
    }
}

fn start(label: &str, admission: SocketAuth, place: &Place<'_>) -> Result<RunningProxy> {
    let level: PathLevel = label.parse().with_context(|| format!("{label} is no level of path"))?;
    let PathLevel::Proxy(proxy) = level else { bail!("{label} is no proxy") };
    let Endpoint::Tcp(behind) = place.server.tcp_endpoint() else {
        bail!("the server does not listen on TCP")
    };
    let most = Work::ALL.map(|work| work.clients).into_iter().max().unwrap_or(1);
    let account = place.server.account(Auth::default_of(place.server.engine()));
    let start = ProxyStart {
        proxy,
        server: place.server,
        behind,
        account: &account,
        admission,
        clients: Clients::new(most).context("a number of clients")?,
        name: &label.replace(['+', '='], "-"),
        namespace: None,
        processors: None,
        logs: place.lab.scratch().path(),
    };
    Ok(place.lab.start_proxy(&start)?)
}
