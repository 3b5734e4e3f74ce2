//! The servers of this machine.

use ciphertoll_lab::{Build, find};
use ciphertoll_model::{Engine, ServerLevel};

/// Servers to test in addition to the installed ones, such as `mariadb=/opt/mariadb,postgres-18`.
const EXTRA_SERVERS: &str = "CIPHERTOLL_EXTRA_SERVERS";
/// Release series that distributions install in parallel; the newest is always found.
const MARIADB_SERIES: [&str; 4] = ["10.6", "10.11", "11.4", "11.8"];
const MYSQL_SERIES: [&str; 0] = [];
const POSTGRES_SERIES: [&str; 6] = ["13", "14", "15", "16", "17", "18"];

/// Each build once. Requested builds must exist.
pub(crate) fn builds() -> Vec<Build> {
    let mut builds: Vec<Build> = Vec::new();
    let mut add = |build: Build| {
        if !builds.iter().any(|known| known.server_program == build.server_program) {
            builds.push(build);
        }
    };
    for engine in Engine::ALL {
        // A test reports a missing one.
        if let Ok(build) = find(&ServerLevel::of(engine)) {
            add(build);
        }
        let series = series(engine)
            .iter()
            .map(|version| ServerLevel { version: Some((*version).to_owned()), ..ServerLevel::of(engine) });
        series.filter_map(|level| find(&level).ok()).for_each(&mut add);
    }
    let extra = std::env::var(EXTRA_SERVERS).unwrap_or_default();
    for text in extra.split(',').filter(|text| !text.is_empty()) {
        let level: ServerLevel = text.parse().expect(EXTRA_SERVERS);
        add(find(&level).expect(EXTRA_SERVERS));
    }
    builds
}

fn series(engine: Engine) -> &'static [&'static str] {
    match engine {
        Engine::MariaDb => &MARIADB_SERIES,
        Engine::MySql => &MYSQL_SERIES,
        Engine::Postgres => &POSTGRES_SERIES,
        Engine::MongoDb | Engine::FerretDb => &[],
    }
}
