//! The comparisons of `make bench`.

use ciphertoll_model::{Auth, Engine, Iterations, StatementProtocol, TlsVersion};

use crate::arm::{BenchArm, FloorMode, Generator, OperationKind, Route};

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

/// All comparisons, grouped by engine.
pub fn comparisons() -> Vec<PeerComparison> {
    let mut all = mariadb();
    all.extend(postgres());
    all.extend(postgres_logins());
    all
}

fn mariadb() -> Vec<PeerComparison> {
    use OperationKind::{Connect, OltpReadOnly, PointSelect};
    use Route::{Plain, Unix};
    let comparisons = [
        ("MariaDB: connect, 1 client, plain", Connect, Plain, LIBMARIADB),
        ("MariaDB: connect, 1 client, TLS 1.3, a context per connect", Connect, TLS_1_3, LIBMARIADB),
        ("MariaDB: connect, 1 client, TLS 1.2, a context per connect", Connect, TLS_1_2, LIBMARIADB),
        ("MariaDB: point-select, 8 clients, plain", PointSelect, Plain, FLOORS_AND_SYSBENCH),
        ("MariaDB: point-select, 8 clients, unix socket", PointSelect, Unix, FLOORS),
        ("MariaDB: point-select, 8 clients, TLS 1.3", PointSelect, TLS_1_3, FLOORS),
        ("MariaDB: oltp-read-only, 8 clients, plain", OltpReadOnly, Plain, SYSBENCH),
    ];
    with_default_auth(Engine::MariaDb, comparisons)
}

fn postgres() -> Vec<PeerComparison> {
    use OperationKind::{OltpReadOnly, PointSelect, SelectOnly};
    use Route::Plain;
    let (prepared, text) = (SelectOnly(StatementProtocol::Prepared), SelectOnly(StatementProtocol::Text));
    let comparisons = [
        ("PostgreSQL: select-only, prepared, 8 clients, plain", prepared, Plain, FLOORS_AND_PGBENCH),
        ("PostgreSQL: select-only, prepared, 8 clients, TLS 1.3", prepared, TLS_1_3, FLOORS_AND_PGBENCH),
        ("PostgreSQL: select-only, as text, 8 clients, plain", text, Plain, PGBENCH),
        ("PostgreSQL: point-select, 8 clients, plain", PointSelect, Plain, FLOORS_AND_SYSBENCH),
        ("PostgreSQL: oltp-read-only, 8 clients, plain", OltpReadOnly, Plain, SYSBENCH),
    ];
    with_default_auth(Engine::Postgres, comparisons)
}

fn postgres_logins() -> Vec<PeerComparison> {
    let scram = Auth::scram(Iterations::POSTGRES_DEFAULT);
    let logins = [
        ("PostgreSQL: connect and select, 1 client, plain, scram-4096", scram),
        ("PostgreSQL: connect and select, 1 client, plain, trust", Auth::Trust),
    ];
    let comparison = |(title, auth)| PeerComparison {
        engine: Engine::Postgres,
        title,
        work: OperationKind::ConnectSelect,
        route: Route::Plain,
        auth,
        peers: PGBENCH,
    };
    logins.map(comparison).into()
}

type Row = (&'static str, OperationKind, Route, &'static [Generator]);

fn with_default_auth(engine: Engine, rows: impl IntoIterator<Item = Row>) -> Vec<PeerComparison> {
    let auth = Auth::default_of(engine);
    let comparison = |(title, work, route, peers)| PeerComparison { engine, title, work, route, auth, peers };
    rows.into_iter().map(comparison).collect()
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
        let all = comparisons();
        for comparison in &all {
            assert!(comparison.title.starts_with(comparison.engine.display_name()), "{}", comparison.title);
            assert_eq!(comparison.auth.impossible(comparison.engine, ciphertoll_model::Path::Plain), None);
            assert!(!comparison.peers.is_empty());
        }
        let mut titles: Vec<&str> = all.iter().map(|comparison| comparison.title).collect();
        titles.sort_unstable();
        titles.dedup();
        assert_eq!(titles.len(), all.len());
    }
}
