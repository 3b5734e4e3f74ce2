//! What `make bench` compares with what.

use ciphertoll_model::{Auth, Engine, Iterations, StatementProtocol, TlsVersion};

use crate::arm::{Arm, FloorMode, Generator, Route, Work};

/// ciphertoll beside its peers at one kind of work.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// On which engine.
    pub engine: Engine,
    /// For people, and for `--only`.
    pub title: &'static str,
    /// What one operation is.
    pub work: Work,
    /// How bytes get to the server.
    pub route: Route,
    /// How everybody logs in.
    pub auth: Auth,
    /// Beside whom.
    pub peers: &'static [Generator],
}

const EPOLL: Generator = Generator::Floor(FloorMode::Epoll);
const THREADS: Generator = Generator::Floor(FloorMode::Threads);
const TLS_1_3: Route = Route::Tls(TlsVersion::Tls13);
const TLS_1_2: Route = Route::Tls(TlsVersion::Tls12);

/// All of them, an engine's one after the other.
pub fn comparisons() -> Vec<Comparison> {
    let mut all = Vec::new();
    let mut add = |engine, title, work, route, peers| {
        all.push(Comparison { engine, title, work, route, auth: Auth::default_of(engine), peers });
    };
    let mariadb = Engine::MariaDb;
    let libmariadb = &[Generator::Libmariadb];
    let floors = &[EPOLL, THREADS];
    add(mariadb, "MariaDB: connect, 1 client, plain", Work::Connect, Route::Plain, libmariadb);
    add(
        mariadb,
        "MariaDB: connect, 1 client, TLS 1.3, a context per connect",
        Work::Connect,
        TLS_1_3,
        libmariadb,
    );
    add(
        mariadb,
        "MariaDB: connect, 1 client, TLS 1.2, a context per connect",
        Work::Connect,
        TLS_1_2,
        libmariadb,
    );
    let with_sysbench = &[EPOLL, THREADS, Generator::Sysbench];
    add(mariadb, "MariaDB: point-select, 8 clients, plain", Work::PointSelect, Route::Plain, with_sysbench);
    add(mariadb, "MariaDB: point-select, 8 clients, unix socket", Work::PointSelect, Route::Unix, floors);
    add(mariadb, "MariaDB: point-select, 8 clients, TLS 1.3", Work::PointSelect, TLS_1_3, floors);
    let sysbench = &[Generator::Sysbench];
    add(mariadb, "MariaDB: oltp-read-only, 8 clients, plain", Work::OltpReadOnly, Route::Plain, sysbench);

    let postgres = Engine::Postgres;
    let prepared = Work::SelectOnly(StatementProtocol::Prepared);
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
        Work::SelectOnly(StatementProtocol::Text),
        Route::Plain,
        &[Generator::Pgbench],
    );
    add(
        postgres,
        "PostgreSQL: point-select, 8 clients, plain",
        Work::PointSelect,
        Route::Plain,
        with_sysbench,
    );
    add(postgres, "PostgreSQL: oltp-read-only, 8 clients, plain", Work::OltpReadOnly, Route::Plain, sysbench);
    let logins = [
        (
            "PostgreSQL: connect and select, 1 client, plain, scram-4096",
            Auth::scram(Iterations::POSTGRES_DEFAULT),
        ),
        ("PostgreSQL: connect and select, 1 client, plain, trust", Auth::Trust),
    ];
    all.extend(logins.map(|(title, auth)| Comparison {
        engine: postgres,
        title,
        work: Work::ConnectSelect,
        route: Route::Plain,
        auth,
        peers: &[Generator::Pgbench],
    }));
    all
}

impl Comparison {
    /// Its arms with these generators.
    pub fn arms(&self, generators: &[Generator]) -> Vec<Arm> {
        let &Self { work, route, auth, .. } = self;
        generators.iter().map(|&generator| Arm { generator, work, route, auth }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_begin_with_their_engine_and_tell_apart() {
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
