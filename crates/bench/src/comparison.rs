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

/// All comparisons, grouped by engine.
pub fn comparisons() -> Vec<PeerComparison> {
    let mut all = Vec::new();
    let mut add = |engine, title, work, route, peers| {
        all.push(PeerComparison { engine, title, work, route, auth: Auth::default_of(engine), peers });
    };
    let mariadb = Engine::MariaDb;
    let libmariadb = &[Generator::Libmariadb];
    let floors = &[EPOLL, THREADS];
    add(mariadb, "MariaDB: connect, 1 client, plain", OperationKind::Connect, Route::Plain, libmariadb);
    add(
        mariadb,
        "MariaDB: connect, 1 client, TLS 1.3, a context per connect",
        OperationKind::Connect,
        TLS_1_3,
        libmariadb,
    );
    add(
        mariadb,
        "MariaDB: connect, 1 client, TLS 1.2, a context per connect",
        OperationKind::Connect,
        TLS_1_2,
        libmariadb,
    );
    let with_sysbench = &[EPOLL, THREADS, Generator::Sysbench];
    add(
        mariadb,
        "MariaDB: point-select, 8 clients, plain",
        OperationKind::PointSelect,
        Route::Plain,
        with_sysbench,
    );
    add(
        mariadb,
        "MariaDB: point-select, 8 clients, unix socket",
        OperationKind::PointSelect,
        Route::Unix,
        floors,
    );
    add(mariadb, "MariaDB: point-select, 8 clients, TLS 1.3", OperationKind::PointSelect, TLS_1_3, floors);
    let sysbench = &[Generator::Sysbench];
    add(
        mariadb,
        "MariaDB: oltp-read-only, 8 clients, plain",
        OperationKind::OltpReadOnly,
        Route::Plain,
        sysbench,
    );

    let postgres = Engine::Postgres;
    let prepared = OperationKind::SelectOnly(StatementProtocol::Prepared);
    let with_pgbench = &[EPOLL, THREADS, Generator::Pgbench];
    add(
        postgres,
        "PostgreSQL: select-only, prepared, 8 clients, plain",
        prepared,
        Route::Plain,
        with_pgbench,
    );
    add(postgres, "PostgreSQL: select-only, prepared, 8 clients, TLS 1.3", prepared, TLS_1_3, with_pgbench);
    add(
        postgres,
        "PostgreSQL: select-only, as text, 8 clients, plain",
        OperationKind::SelectOnly(StatementProtocol::Text),
        Route::Plain,
        &[Generator::Pgbench],
    );
    add(
        postgres,
        "PostgreSQL: point-select, 8 clients, plain",
        OperationKind::PointSelect,
        Route::Plain,
        with_sysbench,
    );
    add(
        postgres,
        "PostgreSQL: oltp-read-only, 8 clients, plain",
        OperationKind::OltpReadOnly,
        Route::Plain,
        sysbench,
    );
    let logins = [
        (
            "PostgreSQL: connect and select, 1 client, plain, scram-4096",
            Auth::scram(Iterations::POSTGRES_DEFAULT),
        ),
        ("PostgreSQL: connect and select, 1 client, plain, trust", Auth::Trust),
    ];
    all.extend(logins.map(|(title, auth)| PeerComparison {
        engine: postgres,
        title,
        work: OperationKind::ConnectSelect,
        route: Route::Plain,
        auth,
        peers: &[Generator::Pgbench],
    }));
    all
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
