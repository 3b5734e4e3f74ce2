//! The servers of this machine.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ciphertoll_lab::{Build, Lab, ServerStart, Tables, find};
use ciphertoll_model::{Engine, QueryLanguage, Scale, SecurityLevel, ServerKey, ServerLevel};
use ciphertoll_skip::no_server;
use tempfile::TempDir;

use crate::site::Site;

/// Servers to test in addition to the installed ones, such as `mariadb=/opt/mariadb,postgres-18`.
const EXTRA_SERVERS: &str = "CIPHERTOLL_EXTRA_SERVERS";
/// Release series that distributions install in parallel; the newest is always found.
const MARIADB_SERIES: [&str; 4] = ["10.6", "10.11", "11.4", "11.8"];
const MYSQL_SERIES: [&str; 0] = [];
const POSTGRES_SERIES: [&str; 6] = ["13", "14", "15", "16", "17", "18"];
/// The value of the lab's own tests, so that they share a template.
const ROWS: u32 = 1_500;

/// The servers of this machine and what is needed to start them.
pub(crate) struct Fleet {
    // Dropped in this order: the scratch directory is inside the other.
    lab: Lab,
    builds: Vec<Build>,
    place: TempDir,
    cache: PathBuf,
}

impl Fleet {
    pub(crate) fn new() -> Self {
        let place = place();
        // All tests share the templates, which are kept between runs.
        let cache = format!("{}/ciphertoll-cache-{}", env!("CARGO_TARGET_TMPDIR"), nix::unistd::geteuid());
        let cache = PathBuf::from(cache);
        let lab = Lab::open_in(helper(), &place.path().join("scratch"), cache.clone()).expect("a lab");
        Self { lab, builds: builds(), place, cache }
    }

    pub(crate) fn builds(&self) -> &[Build] {
        &self.builds
    }

    pub(crate) fn start(&self, build: &Build) -> Site {
        let scale: Scale = ROWS.to_string().parse().expect("a scale");
        let tables = match build.engine.query_language() {
            QueryLanguage::Sql => Tables { sysbench: Some(scale), ..Tables::default() },
            // Each case inserts its own documents.
            QueryLanguage::Documents => Tables::default(),
        };
        let template = self.lab.template(build, &tables, &mut |_| {}, &|| false).expect("a template is made");
        let start = ServerStart {
            build,
            template: &template,
            name: "o1",
            key: ServerKey::P256,
            log: self.place.path().join(format!("{}-{}.log", build.engine, build.version)),
            preferred_port: None,
            processors: None,
            strength: SecurityLevel::Default,
        };
        Site { server: self.lab.start(&start).expect("the server starts"), cache: self.cache.clone() }
    }
}

/// Each build once. Requested builds must exist.
fn builds() -> Vec<Build> {
    let mut builds: Vec<Build> = Vec::new();
    let mut add = |build: Build| {
        if !builds.iter().any(|known| known.server_program == build.server_program) {
            builds.push(build);
        }
    };
    for engine in Engine::ALL {
        match find(&ServerLevel::of(engine)) {
            Ok(build) => add(build),
            Err(error) => no_server(engine, &error),
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

/// The helper program that Cargo builds with the tests.
fn helper() -> PathBuf {
    let test = std::env::current_exe().expect("our own path");
    let profile = test.parent().and_then(Path::parent).expect("tests lie two below the profile");
    let helper = profile.join("examples/oracles_exec_helper");
    assert!(
        helper.is_file(),
        "{} is missing: cargo build -p ciphertoll-oracles --examples",
        helper.display()
    );
    helper
}

/// A directory that servers of another user can traverse; short because of the limit of socket paths.
fn place() -> TempDir {
    let place = tempfile::Builder::new().prefix("toll").tempdir_in("/var/tmp").expect("a directory");
    set_permissions(place.path(), Permissions::from_mode(0o711)).expect("ours to change");
    place
}
