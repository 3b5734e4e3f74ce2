//! The comparisons of `make bench`.

use ciphertoll_model::{Auth, Engine, Iterations, StatementProtocol, TlsVersion};

use crate::arm::OperationKind::{self, Connect, ConnectSelect, OltpReadOnly, PointSelect};
use crate::arm::Route::{self, Plain, Unix};
use crate::arm::{BenchArm, FloorMode, Generator};

/// ciphertoll compared with other generators, for one kind of operation.
#[derive(Clone, Debug)]
pub struct PeerComparison {
    pub engine: Engine,
    /// Shown, and matched by `--only`.
    pub title: &'static str,
    pub work: OperationKind,
    pub route: Route,
    pub auth: Auth,
    pub peers: &'static [Generator],
}

const EPOLL: Generator = Generator::Floor(FloorMode::Epoll);
const THREADS: Generator = Generator::Floor(FloorMode::Threads);
const TLS_1_3: Route = Route::Tls(TlsVersion::Tls13);
const TLS_1_2: Route = Route::Tls(TlsVersion::Tls12);

const FLOORS: &[Generator] = &[EPOLL, THREADS];
const SYSBENCH: &[Generator] = &[Generator::Sysbench];
const FLOORS_AND_SYSBENCH: &[Generator] = &[EPOLL, THREADS, Generator::Sysbench];
const PGBENCH: &[Generator] = &[Generator::Pgbench];
const FLOORS_AND_PGBENCH: &[Generator] = &[EPOLL, THREADS, Generator::Pgbench];
const LIBMARIADB: &[Generator] = &[Generator::Libmariadb];

const PREPARED: OperationKind = OperationKind::SelectOnly(StatementProtocol::Prepared);
const TEXT: OperationKind = OperationKind::SelectOnly(StatementProtocol::Text);

/// All comparisons, grouped by engine.
pub const COMPARISONS: [PeerComparison; 14] = [
    mariadb("MariaDB: connect, 1 client, plain", Connect, Plain, LIBMARIADB),
    mariadb("MariaDB: connect, 1 client, TLS 1.3, a context per connect", Connect, TLS_1_3, LIBMARIADB),
    mariadb("MariaDB: connect, 1 client, TLS 1.2, a context per connect", Connect, TLS_1_2, LIBMARIADB),
    mariadb("MariaDB: point-select, 8 clients, plain", PointSelect, Plain, FLOORS_AND_SYSBENCH),
    mariadb("MariaDB: point-select, 8 clients, unix socket", PointSelect, Unix, FLOORS),
    mariadb("MariaDB: point-select, 8 clients, TLS 1.3", PointSelect, TLS_1_3, FLOORS),
    mariadb("MariaDB: oltp-read-only, 8 clients, plain", OltpReadOnly, Plain, SYSBENCH),
    postgres("PostgreSQL: select-only, prepared, 8 clients, plain", PREPARED, Plain, FLOORS_AND_PGBENCH),
    postgres("PostgreSQL: select-only, prepared, 8 clients, TLS 1.3", PREPARED, TLS_1_3, FLOORS_AND_PGBENCH),
    postgres("PostgreSQL: select-only, as text, 8 clients, plain", TEXT, Plain, PGBENCH),
    postgres("PostgreSQL: point-select, 8 clients, plain", PointSelect, Plain, FLOORS_AND_SYSBENCH),
    postgres("PostgreSQL: oltp-read-only, 8 clients, plain", OltpReadOnly, Plain, SYSBENCH),
    postgres("PostgreSQL: connect and select, 1 client, plain, scram-4096", ConnectSelect, Plain, PGBENCH),
    PeerComparison {
        auth: Auth::Trust,
        ..postgres("PostgreSQL: connect and select, 1 client, plain, trust", ConnectSelect, Plain, PGBENCH)
    },
];

const fn mariadb(
    title: &'static str,
    work: OperationKind,
    route: Route,
    peers: &'static [Generator],
) -> PeerComparison {
    PeerComparison { engine: Engine::MariaDb, title, work, route, auth: Auth::Native, peers }
}

const fn postgres(
    title: &'static str,
    work: OperationKind,
    route: Route,
    peers: &'static [Generator],
) -> PeerComparison {
    let auth = Auth::scram(Iterations::POSTGRES_DEFAULT);
    PeerComparison { engine: Engine::Postgres, title, work, route, auth, peers }
}

impl PeerComparison {
    pub fn arms(&self, generators: &[Generator]) -> Vec<BenchArm> {
        let &Self { work, route, auth, .. } = self;
        generators.iter().map(|&generator| BenchArm { generator, work, route, auth }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_unique_and_begin_with_the_engine() {
        for comparison in &COMPARISONS {
            assert!(comparison.title.starts_with(comparison.engine.display_name()), "{}", comparison.title);
            assert_eq!(comparison.auth.impossible(comparison.engine, ciphertoll_model::Path::Plain), None);
            assert!(!comparison.peers.is_empty());
        }
        let mut titles: Vec<&str> = COMPARISONS.iter().map(|comparison| comparison.title).collect();
        titles.sort_unstable();
        titles.dedup();
        assert_eq!(titles.len(), COMPARISONS.len());
    }
}
