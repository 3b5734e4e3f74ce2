//! The compared routes, and which of them are compared with each other.

use ciphertoll_lab::proxy::SocketAuth;
use ciphertoll_model::{Engine, PoolMode};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolRoute {
    /// Directly over the unix socket, unencrypted.
    Unix,
    /// Directly over TCP and TLS 1.3, with verification.
    Tls,
    Sidecar(SidecarRoute),
    /// The same of another build.
    Baseline(SidecarRoute),
    /// Another proxy, with this level of `--path`.
    Peer(&'static str),
    Floor(FloorReset),
}

/// ciphertoll-proxy with these settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SidecarRoute {
    pub mode: PoolMode,
    /// `--reset tracked`.
    pub tracked: bool,
    pub threads: u8,
}

/// When a floor resets a connection. A floor is a C loop that relays with the fewest possible instructions: the lower bound
/// of a proxy's CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloorReset {
    /// Never, except after a client with prepared statements.
    Never,
    /// After each client; a client keeps its connection until then.
    Always,
    /// In front of the first command of the next client.
    First,
}

const fn sidecar(mode: PoolMode, tracked: bool, threads: u8) -> PoolRoute {
    PoolRoute::Sidecar(SidecarRoute { mode, tracked, threads })
}

impl PoolRoute {
    const DIRECT: [Self; 2] = [Self::Unix, Self::Tls];
    const SIDECARS: [Self; 4] = [
        sidecar(PoolMode::Session, false, 1),
        sidecar(PoolMode::Session, false, 2),
        sidecar(PoolMode::Transaction, false, 1),
        sidecar(PoolMode::Transaction, false, 2),
    ];
    /// PostgreSQL only.
    const TRACKED: [Self; 1] = [sidecar(PoolMode::Transaction, true, 1)];
    const FLOORS: [Self; 3] =
        [Self::Floor(FloorReset::Always), Self::Floor(FloorReset::First), Self::Floor(FloorReset::Never)];
    const POSTGRES_PEERS: [Self; 4] = [
        Self::Peer("pgbouncer"),
        Self::Peer("pgbouncer+mode=transaction"),
        Self::Peer("odyssey"),
        Self::Peer("odyssey+mode=transaction"),
    ];
    /// With a reset per client, and multiplexing without resets.
    const PROXYSQL: [Self; 2] = [Self::Peer("proxysql"), Self::MULTIPLEXING];
    const MULTIPLEXING: Self = Self::Peer("proxysql+mode=transaction");
    /// It does not pool connections to MariaDB.
    const MYSQL_ROUTER: [Self; 2] = [Self::Peer("mysqlrouter"), Self::Peer("mysqlrouter+mode=transaction")];

    /// Routes of the measurement with many clients.
    pub const CROWD: [Self; 3] = [
        sidecar(PoolMode::Transaction, false, 1),
        sidecar(PoolMode::Transaction, true, 1),
        Self::Peer("pgbouncer+mode=transaction"),
    ];

    /// Whether a connection is reset whenever it goes to another client.
    pub fn resets_between_clients(self) -> bool {
        matches!(self, Self::Sidecar(SidecarRoute { tracked: false, .. }))
    }

    /// The compared routes, in the order of the output.
    pub fn of(engine: Engine, admission: SocketAuth) -> Vec<Self> {
        let parts: &[&[Self]] = match (engine, admission) {
            (Engine::Postgres, SocketAuth::Trusted) => {
                &[&Self::DIRECT, &Self::SIDECARS, &Self::TRACKED, &Self::POSTGRES_PEERS, &Self::FLOORS]
            }
            // The floors check no password.
            (Engine::Postgres, SocketAuth::Password) => {
                &[&Self::DIRECT, &Self::SIDECARS, &Self::TRACKED, &Self::POSTGRES_PEERS]
            }
            (Engine::MariaDb, _) => &[&Self::DIRECT, &Self::SIDECARS, &Self::PROXYSQL, &Self::FLOORS],
            // The floors do not log in as MySQL requires.
            (Engine::MySql, _) => &[&Self::DIRECT, &Self::SIDECARS, &Self::PROXYSQL, &Self::MYSQL_ROUTER],
            (Engine::MongoDb | Engine::FerretDb, _) => &[],
        };
        parts.concat()
    }

    /// The same route through ciphertoll-proxy of another build.
    pub fn in_baseline(self) -> Option<Self> {
        match self {
            Self::Sidecar(sidecar) => Some(Self::Baseline(sidecar)),
            _ => None,
        }
    }

    pub fn label(self) -> String {
        match self {
            Self::Unix => "no proxy, unix, plain".into(),
            Self::Tls => "no proxy, TCP, TLS 1.3".into(),
            Self::Sidecar(sidecar) => format!("proxy{}", sidecar.modifiers()),
            Self::Baseline(sidecar) => format!("baseline{}", sidecar.modifiers()),
            Self::Peer(label) => label.into(),
            Self::Floor(reset) => format!("floor epoll, reset {}", reset.argument()),
        }
    }

    /// Whether the figures of this route are divided by those of `peer`: routes of ciphertoll-proxy by peers and floors
    /// that reset alike, two threads by one, and by another build. `engine` is that of the workload.
    pub fn is_compared_with(self, peer: Self, engine: Engine) -> bool {
        let Self::Sidecar(own) = self else { return false };
        match peer {
            Self::Unix => self == Self::SIDECARS[0],
            Self::Tls => false,
            Self::Sidecar(other) => own.threads > 1 && other == SidecarRoute { threads: 1, ..own },
            Self::Baseline(other) => own == other,
            // The usual configuration of ProxySQL, which both modes replace.
            _ if peer == Self::MULTIPLEXING => own.threads == 1,
            Self::Peer(label) => {
                own.threads == 1 && label.contains("transaction") == (own.mode == PoolMode::Transaction)
            }
            // MariaDB tells a proxy whether a session has changed, so the reset may be saved.
            Self::Floor(reset) => {
                own.threads == 1
                    && (reset == own.reset(engine)
                        || engine != Engine::Postgres
                            && own.mode == PoolMode::Transaction
                            && reset == FloorReset::Never)
            }
        }
    }
}

impl SidecarRoute {
    /// The floor's policy that equals that of the sidecar. The sessions of the connect workloads are short and plain.
    pub fn reset(self, engine: Engine) -> FloorReset {
        match (self.mode, self.tracked) {
            (PoolMode::Session, _) if engine != Engine::Postgres => FloorReset::Always,
            (PoolMode::Session, _) | (PoolMode::Transaction, false) => FloorReset::First,
            (PoolMode::Transaction, true) => FloorReset::Never,
        }
    }

    fn modifiers(self) -> String {
        let mode = if self.mode == PoolMode::Transaction { "+mode=transaction" } else { "" };
        let tracked = if self.tracked { ", tracked" } else { "" };
        let threads = if self.threads == 1 { String::new() } else { format!(", {} threads", self.threads) };
        format!("{mode}{tracked}{threads}")
    }

    /// The level of `--path` without the other settings.
    pub(super) fn level(self) -> &'static str {
        match self.mode {
            PoolMode::Session => "proxy",
            PoolMode::Transaction => "proxy+mode=transaction",
        }
    }

    pub(super) fn arguments(self) -> Vec<String> {
        let mut arguments = Vec::new();
        if self.tracked {
            arguments.extend(["--reset", "tracked"].map(ToOwned::to_owned));
        }
        // One thread is the default.
        if self.threads > 1 {
            arguments.extend(["--threads".to_owned(), self.threads.to_string()]);
        }
        arguments
    }
}

impl FloorReset {
    /// `--reset` of the floors.
    pub fn argument(self) -> &'static str {
        match self {
            Self::Never => "none",
            Self::Always => "always",
            Self::First => "first",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(engine: Engine, admission: SocketAuth) -> Vec<String> {
        let routes = PoolRoute::of(engine, admission);
        let peers = |own: PoolRoute| {
            let compared = routes.iter().filter(move |peer| own.is_compared_with(**peer, engine));
            compared.map(move |peer| format!("{} ÷ {}", own.label(), peer.label()))
        };
        routes.iter().flat_map(|own| peers(*own)).collect()
    }

    #[test]
    fn labels_are_unique() {
        let mut labels: Vec<String> =
            PoolRoute::of(Engine::Postgres, SocketAuth::Trusted).into_iter().map(PoolRoute::label).collect();
        assert_eq!(labels[3], "proxy, 2 threads");
        labels.sort();
        labels.dedup();
        assert_eq!(labels.len(), PoolRoute::of(Engine::Postgres, SocketAuth::Trusted).len());
    }

    #[test]
    fn postgres_is_compared_with_the_same_resets() {
        let expected = [
            "proxy ÷ no proxy, unix, plain",
            "proxy ÷ pgbouncer",
            "proxy ÷ odyssey",
            "proxy ÷ floor epoll, reset first",
            "proxy, 2 threads ÷ proxy",
            "proxy+mode=transaction ÷ pgbouncer+mode=transaction",
            "proxy+mode=transaction ÷ odyssey+mode=transaction",
            "proxy+mode=transaction ÷ floor epoll, reset first",
            "proxy+mode=transaction, 2 threads ÷ proxy+mode=transaction",
            "proxy+mode=transaction, tracked ÷ pgbouncer+mode=transaction",
            "proxy+mode=transaction, tracked ÷ odyssey+mode=transaction",
            "proxy+mode=transaction, tracked ÷ floor epoll, reset none",
        ];
        assert_eq!(pairs(Engine::Postgres, SocketAuth::Trusted), expected);
        assert_eq!(pairs(Engine::Postgres, SocketAuth::Password).len(), 9);
    }

    #[test]
    fn mariadb_in_transaction_mode_is_compared_with_and_without_resets() {
        let pairs = pairs(Engine::MariaDb, SocketAuth::Trusted);
        for peer in ["proxysql+mode=transaction", "floor epoll, reset first", "floor epoll, reset none"] {
            assert!(pairs.contains(&format!("proxy+mode=transaction ÷ {peer}")), "{peer}: {pairs:?}");
        }
        assert!(!pairs.contains(&"proxy ÷ floor epoll, reset none".to_owned()));
    }

    #[test]
    fn both_modes_are_compared_with_proxysql_that_multiplexes() {
        for engine in [Engine::MariaDb, Engine::MySql] {
            let mut pairs = pairs(engine, SocketAuth::Trusted);
            pairs.retain(|pair| pair.contains("proxysql"));
            let expected = [
                "proxy ÷ proxysql",
                "proxy ÷ proxysql+mode=transaction",
                "proxy+mode=transaction ÷ proxysql+mode=transaction",
            ];
            assert_eq!(pairs, expected, "{engine}");
        }
    }

    #[test]
    fn mysql_is_compared_with_mysql_router_in_the_same_mode() {
        let pairs = pairs(Engine::MySql, SocketAuth::Trusted);
        for pair in ["proxy ÷ mysqlrouter", "proxy+mode=transaction ÷ mysqlrouter+mode=transaction"] {
            assert!(pairs.contains(&pair.to_owned()), "{pair}: {pairs:?}");
        }
        assert!(!pairs.contains(&"proxy ÷ mysqlrouter+mode=transaction".to_owned()), "{pairs:?}");
    }
}
