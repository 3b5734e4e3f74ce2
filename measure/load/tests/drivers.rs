//! Drivers against real servers of the lab. This program is all ends: started as `PROGRAM __exec` it becomes a
//! server, as `PROGRAM __drive` it is a tool's adapter, else it runs the tests. What is not installed is skipped.

#![expect(clippy::print_stdout, reason = "in place of the harness that this program cannot have")]

use std::env;
use std::ffi::OsString;
use std::fs::{Permissions, set_permissions, write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use ciphertoll_host::exec::{EXEC_COMMAND, run_exec_helper};
use ciphertoll_lab::{Lab, Server, ServerStart, Tables, find as find_server};
use ciphertoll_load::driver::{
    DRIVE_COMMAND, Driver, PreparedDriver, Task, available, find, run_drive_process,
};
use ciphertoll_load::{Error, LoadProcess, work};
use ciphertoll_model::{
    Auth, Clients, Ctx, Dataset, Engine, FailureOrigin, LoadMessage, QueryLanguage, Scale, SecurityLevel,
    ServerKey, ServerLevel, TlsParameters, TlsSpec, TlsVersion, TrialPace, TrialResult, TrialSpec, Workload,
};
use ciphertoll_testing::{missing, no_server};
use libtest_mimic::{Arguments, Trial};
use tempfile::TempDir;

const TIME_LIMIT: Duration = Duration::from_mins(2);
/// A trial in a window of this length must complete an operation on any machine.
const LONGEST_WINDOW_NS: u64 = 4_000_000_000;
const ROWS: &str = "10000";
const PGBENCH_ROWS: &str = "100000";
const DOCUMENTS: &str = "1000";

/// What each driver is asked to do. A tool's window is a second at least, and its warm-up, so few do.
const TRIALS: [(&str, Engine, &[Way], &[&str]); 14] = [
    ("libpq", Engine::Postgres, &Way::ALL, &PROGRAM_WORKLOADS),
    ("libmariadb", Engine::MariaDb, &Way::ALL, &PROGRAM_WORKLOADS),
    ("pgbench", Engine::Postgres, &[Way::Tls], &["select-only", "tpcb-like"]),
    ("pgbench", Engine::Postgres, &[Way::Unix], &["point-select", "connect-query"]),
    ("sysbench", Engine::Postgres, &[Way::Tls], &["point-select"]),
    ("sysbench", Engine::MariaDb, &[Way::Plain], &["oltp-read-only"]),
    ("sysbench", Engine::MariaDb, &[Way::Unix], &["oltp-read-write"]),
    ("mysqlslap", Engine::MariaDb, &[Way::Plain, Way::Tls], &["connect-query"]),
    (
        "libmariadb",
        Engine::MySql,
        &Way::ALL,
        &["connect", "first-query", "tpcb-like", "oltp-read-write", "bulk-read"],
    ),
    ("sysbench", Engine::MySql, &[Way::Plain], &["oltp-read-only"]),
    ("sysbench", Engine::MySql, &[Way::Unix], &["oltp-read-write"]),
    ("mysqlslap", Engine::MySql, &[Way::Plain, Way::Tls], &["connect-query"]),
    ("pymongo", Engine::MongoDb, &Way::OF_DOCUMENTS, &DOCUMENT_WORKLOADS),
    ("pymongo", Engine::FerretDb, &Way::OF_DOCUMENTS, &DOCUMENT_WORKLOADS),
];
const DOCUMENT_WORKLOADS: [&str; 4] = ["connect", "connect-query", "first-query", "find-one"];
const PROGRAM_WORKLOADS: [&str; 8] = [
    "connect",
    "connect-query",
    "first-query",
    "point-select",
    "tpcb-like",
    "oltp-read-only",
    "oltp-read-write",
    "bulk-read",
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Plain,
    Unix,
    Tls,
}

impl Way {
    const ALL: [Self; 3] = [Self::Plain, Self::Unix, Self::Tls];
    const OF_DOCUMENTS: [Self; 2] = [Self::Plain, Self::Tls];
}

fn main() -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    match arguments.first().and_then(|first| first.to_str()) {
        Some(EXEC_COMMAND) => {
            let request = arguments.get(1).and_then(|request| request.to_str()).unwrap_or_default();
            println!("{}", run_exec_helper(request));
            return ExitCode::FAILURE;
        }
        Some(DRIVE_COMMAND) => {
            let done = run_drive_process(&arguments[1..]).is_ok();
            return if done { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
        _ => {}
    }
    let tests = Engine::ALL.map(|engine| {
        Trial::test(format!("the drivers of {engine} do what they are asked"), move || {
            match Fixture::new(engine) {
                Ok(fixture) => test_engine(&fixture),
                Err(reason) => no_server(engine, &reason),
            }
            Ok(())
        })
    });
    libtest_mimic::run(&Arguments::from_args(), tests.into()).exit_code()
}

fn test_engine(fixture: &Fixture) {
    for (name, engine, ways, workloads) in TRIALS {
        let driver = find(name).expect("a built-in driver");
        if engine != fixture.engine {
            continue;
        }
        // What pip would fetch is kept from one test to the next; what is compiled is compiled.
        let cache = if name == "pymongo" { fixture.cache.as_path() } else { fixture.place.path() };
        let ready = match driver.prepare(cache) {
            Ok(ready) => ready,
            Err(error) => {
                missing(&error);
                continue;
            }
        };
        for way in ways {
            for workload in workloads {
                trial(fixture, &driver, &ready, *way, workload.parse().expect("a workload"));
            }
        }
        if name.starts_with("lib") || name == "pymongo" {
            failures(fixture, &ready);
        }
        println!("test {name} on {engine} ... ok");
    }
    assert!(available().iter().all(|listed| listed.about.is_ok()), "every file can be read");
}

/// A trial that must succeed, and must have done what it was asked for.
fn trial(fixture: &Fixture, driver: &Driver, ready: &PreparedDriver, way: Way, workload: Workload) {
    let scale = scale_of(fixture.engine, workload);
    let mut spec = fixture.spec(way, workload, scale);
    let what = format!("{} {} {workload} {way:?}", driver.name(), fixture.engine);
    // A machine that is busy with other tests may well stand still for as long as a short window, which is repeated longer.
    let stood_still = |result: &Result<TrialResult, Error>| match result {
        Ok(result) => result.operations == 0 && result.errors.is_empty(),
        Err(error) => error.to_string().contains("no operation"),
    };
    let result = loop {
        let result = outcome(ready, &spec, Task { workload, scale });
        if !stood_still(&result) || spec.window_ns >= LONGEST_WINDOW_NS {
            break result;
        }
        spec.window_ns *= 4;
    };
    let result = result.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(result.operations > 0 && result.errors.is_empty(), "{what}: {result:?}");
    assert!(result.latency.sum_ns > 0 && result.latency.count > 0, "{what}: {result:?}");
    assert!(result.client_cpu_ns > 0 && result.client_rss_peak_bytes > 1 << 20, "{what}: {result:?}");
    // Clients were inside operations no longer than there was; the first may have begun with the warm-up.
    let spent_ns = result.latency.sum_ns / u64::from(spec.clients.count());
    assert!(spent_ns <= result.window_ns + spec.warm_up_ns + 50_000_000, "{what}: {spent_ns}");
    let version = spec.tls.is_some().then_some("tls1.3");
    for counted in &result.legs {
        assert_eq!(counted.leg.tls_version.as_deref(), version, "{what}");
        assert!(counted.connections > 0 && counted.leg.key.is_none(), "{what}");
    }
    assert_eq!(result.legs.len(), usize::from(driver.name().starts_with("lib")), "{what}");
}

/// Trials that must fail, and how.
fn failures(fixture: &Fixture, ready: &PreparedDriver) {
    let workload = match fixture.engine.query_language() {
        QueryLanguage::Sql => Workload::PointSelect,
        QueryLanguage::Documents => Workload::FindOne,
    };
    let scale = scale_of(fixture.engine, workload);
    let task = Task { workload, scale };
    let failed = |change: &dyn Fn(&mut TrialSpec)| {
        let mut spec = fixture.spec(Way::Tls, workload, scale);
        change(&mut spec);
        match outcome(ready, &spec, task) {
            Err(Error::Reported { fault, message, .. }) => (fault, message),
            other => panic!("{:?} should have failed: {other:?}", fixture.engine),
        }
    };
    let wrong = fixture.place.path().join("wrong");
    write(&wrong, "a-wrong-password").expect("a file");
    let (fault, message) = failed(&|spec| spec.password_file.clone_from(&wrong));
    assert_eq!(fault, FailureOrigin::Server, "{message}");
    assert!(!message.contains("a-wrong-password"), "{message}");

    let other = ciphertoll_lab::Authority::generate().expect("an authority");
    let ca = fixture.place.path().join("other.pem");
    write(&ca, other.certificate_pem().expect("PEM")).expect("a file");
    let with_ca = |spec: &mut TrialSpec| spec.tls.iter_mut().for_each(|tls| tls.ca_file = Some(ca.clone()));
    let (fault, message) = failed(&with_ca);
    assert_eq!(fault, FailureOrigin::Tls, "{message}");

    let (fault, message) = failed(&|spec| spec.pace = TrialPace::Open { per_s: 10.0 });
    assert_eq!(
        (fault, message.contains("does not support a schedule")),
        (FailureOrigin::Internal, true),
        "{message}"
    );
    let (_, message) = failed(&|spec| spec.tls.iter_mut().for_each(|tls| tls.ctx = Ctx::Shared));
    assert!(message.contains("builds its TLS context"), "{message}");
}

/// All that a driver says, up to its last word.
fn outcome(ready: &PreparedDriver, spec: &TrialSpec, task: Task) -> Result<TrialResult, Error> {
    let exe = env::current_exe().expect("this program");
    let mut process = LoadProcess::start_command(ready.command(&exe, &task), spec, ready.grace(spec))?;
    let mut edges = Vec::new();
    loop {
        match process.next_message(TIME_LIMIT)? {
            Some(LoadMessage::Finished(result)) => {
                assert_eq!(edges, [LoadMessage::WindowOpened, LoadMessage::WindowClosed]);
                return Ok(*result);
            }
            Some(message) => edges.push(message),
            None => panic!("a driver said nothing for {TIME_LIMIT:?}"),
        }
    }
}

/// The server of `engine` that was asked for beside those that are found, such as
/// `CIPHERTOLL_EXTRA_SERVERS=mysql=/opt/mysql`; else the one that is found.
fn level_of(engine: Engine) -> ServerLevel {
    let extra = env::var("CIPHERTOLL_EXTRA_SERVERS").unwrap_or_default();
    let mut levels = extra.split(',').filter_map(|text| text.parse::<ServerLevel>().ok());
    let found = ServerLevel::of(engine);
    // What is here is looked at in any case.
    let asked = levels.find(|level| level.engine == engine && find_server(&found).is_err());
    asked.unwrap_or(found)
}

/// A server with rows, and a place for what is built.
struct Fixture {
    // Dropped in this order: the server's files lie in the lab's scratch directory, that in the place.
    server: Server,
    _lab: Lab,
    place: TempDir,
    cache: PathBuf,
    engine: Engine,
}

impl Fixture {
    fn new(engine: Engine) -> Result<Self, String> {
        let build = find_server(&level_of(engine)).map_err(|error| error.to_string())?;
        // Short, as sockets' paths are; servers of another user pass through.
        let place = tempfile::Builder::new().prefix("toll").tempdir_in("/var/tmp").expect("a place");
        set_permissions(place.path(), Permissions::from_mode(0o711)).expect("a place that can be passed");
        let cache = format!("{}/ciphertoll-cache-{}", env!("CARGO_TARGET_TMPDIR"), nix::unistd::geteuid());
        let cache = PathBuf::from(cache);
        let exe = env::current_exe().expect("this program");
        let lab = Lab::open_in(exe, &place.path().join("scratch"), cache.clone()).expect("a lab of our own");
        let scale = |text: &str| text.parse::<Scale>().expect("a scale");
        let tables = match engine.query_language() {
            QueryLanguage::Sql => Tables {
                sysbench: Some(scale(ROWS)),
                pgbench: Some(scale(PGBENCH_ROWS)),
                ..Tables::default()
            },
            QueryLanguage::Documents => Tables { ycsb: Some(scale(DOCUMENTS)), ..Tables::default() },
        };
        let template = lab.template(&build, &tables, &mut |_| {}, &|| false).expect("a template is made");
        let start = ServerStart {
            build: &build,
            template: &template,
            name: "d1",
            key: ServerKey::P256,
            log: place.path().join("server.log"),
            preferred_port: None,
            processors: None,
            strength: SecurityLevel::Default,
        };
        let mut server = lab.start(&start).expect("the server starts");
        server.prepare_auth(Auth::default_of(engine)).expect("an account");
        Ok(Self { server, _lab: lab, place, cache, engine })
    }

    fn spec(&self, way: Way, workload: Workload, scale: Scale) -> TrialSpec {
        let auth = Auth::default_of(self.engine);
        let account = self.server.account(auth);
        TrialSpec {
            engine: self.engine,
            endpoint: match way {
                Way::Unix => self.server.unix_endpoint(),
                Way::Plain => self.server.tcp_endpoint(),
                Way::Tls => self.server.tls_endpoint(),
            },
            auth,
            user: account.user,
            password_file: account.password_file,
            database: Some(self.server.database().to_owned()),
            startup: Vec::new(),
            documents: None,
            tls: (way == Way::Tls).then(|| {
                let parameters = TlsParameters::new(TlsVersion::Tls13);
                TlsSpec::new(parameters, Some(self.server.ca_file()), self.server.server_name())
            }),
            work: work(self.engine, workload, scale, None),
            pace: TrialPace::Closed,
            clients: Clients::new(3).expect("a number of clients"),
            threads: 2,
            warm_up_ns: 100_000_000,
            // PostgreSQL looks for a deadlock after a second.
            window_ns: if workload.writes() { 1_500_000_000 } else { 300_000_000 },
            seed: u64::MAX - 7,
            compressor: None,
            first_insert: None,
            max_per_s: None,
            processors: None,
            namespace: None,
            injected_delay_ns: 0,
            repeated_share: 0.0,
            start: ciphertoll_model::TrialStart::AtOnce,
        }
    }
}

/// The rows of the tables that a workload uses.
fn scale_of(engine: Engine, workload: Workload) -> Scale {
    let rows = match workload.dataset(engine) {
        Some(Dataset::Pgbench) => PGBENCH_ROWS,
        Some(Dataset::Ycsb) => DOCUMENTS,
        Some(Dataset::Sysbench) | None => ROWS,
    };
    rows.parse().expect("a scale")
}
