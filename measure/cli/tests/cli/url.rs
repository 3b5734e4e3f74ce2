//! Servers at URLs: measuring a server that the program did not start, without side effects.

use std::fs;
use std::path::Path;
use std::process::Command;

use ciphertoll_host::port::free_port;
use ciphertoll_lab::{Lab, Server, ServerStart, Tables, find};
use ciphertoll_model::{Auth, Endpoint, Engine, Namespace, SecurityLevel, ServerKey, ServerLevel};
use ciphertoll_net::Address;
use ciphertoll_net::blocking::Client;
use ciphertoll_testing::{no_server, not_for_all};
use ciphertoll_wire::session::Login;
use ciphertoll_wire::{Secret, postgres};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Answer, ciphertoll, items, one_document, text};

/// A server that the program did not start.
pub(crate) struct Elsewhere {
    // Dropped in this order: the server's files lie in the lab's scratch directory.
    pub(crate) server: Server,
    lab: Lab,
    place: TempDir,
}

impl Elsewhere {
    pub(crate) fn start(engine: Engine) -> Self {
        Self::start_in(engine, None)
    }

    /// The same in this network.
    pub(crate) fn start_in(engine: Engine, network: Option<Namespace>) -> Self {
        let place = tempfile::tempdir().expect("a directory");
        let mut lab = Lab::open(env!("CARGO_BIN_EXE_ciphertoll").into()).expect("a lab");
        if let Some(network) = network {
            lab.move_servers_to(network);
        }
        let build = find(&level_here(engine)).expect("a build");
        let template = lab
            .template(&build, &Tables::default(), &mut |_| {}, &|| false)
            .expect("a template without tables");
        let (name, log) = ("u1", place.path().join("server.log"));
        let (key, preferred_port, processors) = (ServerKey::P256, None, None);
        let strength = SecurityLevel::Default;
        let start = ServerStart {
            build: &build,
            template: &template,
            name,
            key,
            log,
            preferred_port,
            processors,
            strength,
        };
        let server = lab.start(&start).expect("a server");
        Self { server, lab, place }
    }

    /// The lab's directory, with the server's files.
    pub(crate) fn scratch(&self) -> &Path {
        self.lab.scratch().path()
    }

    pub(crate) fn port(&self) -> u16 {
        match self.server.tcp_endpoint() {
            Endpoint::Tcp(address) => address.port(),
            other => panic!("no TCP: {other:?}"),
        }
    }

    pub(crate) fn password(&self) -> String {
        fs::read_to_string(self.server.password_file()).expect("a password")
    }

    /// The URL of its default account at `host`, with these options.
    pub(crate) fn url(&self, host: &str, options: &str) -> String {
        let (scheme, user) = (scheme(self.server.engine()), self.server.user());
        format!("there={scheme}://{user}@{host}:{}/{}?{options}", self.port(), self.server.database())
    }

    /// Runs `run --url URL ARGUMENTS` with the correct password.
    pub(crate) fn run(&self, url: &str, arguments: &[&str]) -> Answer {
        self.run_with(&self.password(), url, arguments)
    }

    pub(crate) fn run_with(&self, password: &str, url: &str, arguments: &[&str]) -> Answer {
        let mut command = self.command(url, arguments);
        command.env("CIPHERTOLL_PASSWORD_THERE", password);
        answer_of(command)
    }

    /// The same without a password.
    pub(crate) fn run_without_password(&self, url: &str) -> Answer {
        let mut command = self.command(url, &[]);
        command.env_remove("CIPHERTOLL_PASSWORD").env_remove("PGPASSWORD").env_remove("PGPASSFILE");
        command.env_remove("MYSQL_PWD").env_remove("MYSQL_DEFAULTS_FILE");
        answer_of(command)
    }

    fn command(&self, url: &str, arguments: &[&str]) -> Command {
        let runs = self.runs();
        let fixed = ["run", "--url", url, "--size", "smoke", "--json", "-q", "--run-dir", text(&runs)];
        let mut command = ciphertoll(&[&fixed, arguments].concat());
        command.env("HOME", self.place.path()).stdin(std::process::Stdio::null());
        command
    }

    pub(crate) fn runs(&self) -> std::path::PathBuf {
        self.place.path().join("runs")
    }

    pub(crate) fn ca_file(&self) -> String {
        text(&self.server.ca_file()).to_owned()
    }

    /// Over the unix socket, as the server's owner.
    pub(crate) fn execute(&self, sql: &str) {
        let Endpoint::Unix(socket) = self.server.unix_endpoint() else { panic!("no socket") };
        let login = postgres::PostgresLogin {
            startup: Vec::new(),
            user: "ciphertoll".to_owned(),
            password: Secret::new(Vec::new()),
            database: Some(self.server.database().to_owned()),
            encryption: postgres::PostgresTlsMode::Plain,
            channel_binding: postgres::ChannelBinding::Disabled,
        };
        let mut client = Client::connect(&Address::Unix(socket), Login::Postgres(login.into()), None)
            .expect("a connection");
        client.execute(sql).expect("the owner may do that");
    }
}

/// Additional servers to test, such as `mysql=/opt/mysql`.
const EXTRA_SERVERS: &str = "CIPHERTOLL_EXTRA_SERVERS";

/// The level for a server of `engine`: the engine, or an additional server if it is not installed.
pub(crate) fn level_here(engine: Engine) -> ServerLevel {
    let alone = ServerLevel::of(engine);
    let extra = std::env::var(EXTRA_SERVERS).unwrap_or_default();
    let mut extra =
        extra.split(',').filter(|text| !text.is_empty()).map(|text| text.parse().expect(EXTRA_SERVERS));
    let named = extra.find(|level: &ServerLevel| level.engine == engine && find(&alone).is_err());
    named.unwrap_or(alone)
}

/// The engines with an installed server.
pub(crate) fn engines_here() -> impl Iterator<Item = Engine> {
    Engine::SQL.into_iter().filter(|&engine| real_server(engine))
}

/// Whether a server of `engine` is installed. In CI all must be, except MySQL, which is too large to fetch; elsewhere the
/// test reports why it is skipped.
pub(crate) fn real_server(engine: Engine) -> bool {
    let found = find(&level_here(engine));
    if engine == Engine::MySql && found.is_err() {
        not_for_all(&format!("needs MySQL 8.0: make test-full, or {EXTRA_SERVERS}=mysql=DIR"));
    }
    found.inspect_err(|error| no_server(engine, error)).is_ok()
}

fn answer_of(mut command: Command) -> Answer {
    let output = command.output().expect("the program starts");
    Answer {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("UTF-8 on stdout"),
        stderr: String::from_utf8(output.stderr).expect("UTF-8 on stderr"),
    }
}

fn scheme(engine: Engine) -> &'static str {
    match engine {
        Engine::MariaDb => "mariadb",
        Engine::MySql => "mysql",
        Engine::Postgres => "postgres",
        engine @ (Engine::MongoDb | Engine::FerretDb) => panic!("{engine} is not asked in SQL"),
    }
}

fn authority(engine: Engine) -> &'static str {
    match engine {
        Engine::MariaDb | Engine::MySql => "ssl-ca",
        Engine::Postgres => "sslrootcert",
        engine @ (Engine::MongoDb | Engine::FerretDb) => panic!("{engine} is not asked in SQL"),
    }
}

/// The options that ask for TLS and for plaintext.
fn compared(there: &Elsewhere) -> String {
    let engine = there.server.engine();
    let mode = if engine == Engine::Postgres { "sslmode=compare" } else { "ssl-mode=COMPARE" };
    format!("{}={}&{mode}", authority(engine), there.ca_file())
}

/// The cells' ids, and a number of each.
pub(crate) fn cells(document: &Value, metric: &str) -> Vec<(String, Option<f64>)> {
    let cell = |cell: &Value| {
        let id = cell["id"].as_str().expect("an id").to_owned();
        (id, cell["metrics"][metric]["value"].as_f64())
    };
    items(document, "cells").iter().map(cell).collect()
}

/// Every file below `directory` whose bytes hold `needle`.
pub(crate) fn files_with(directory: &Path, needle: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files_with(&path, needle));
        } else if String::from_utf8_lossy(&fs::read(&path).expect("a file")).contains(needle) {
            found.push(path.display().to_string());
        }
    }
    found
}

#[test]
fn with_tls_and_without_and_nobody_learns_the_password() {
    for engine in engines_here() {
        let there = Elsewhere::start(engine);
        let url = there.url("127.0.0.1", &compared(&there));
        let answer = there.run(&url, &[]);
        assert_eq!(answer.code, Some(0), "{engine}: {answer:?}");
        let rates = cells(&one_document(&answer.stdout), "rate_per_s");
        let names: Vec<String> =
            rates.iter().map(|(id, _)| id.split('/').take(3).collect::<Vec<_>>().join("/")).collect();
        let of_server = ["there/plain/as-asked", "there/tls1.3/as-asked", "there/tls1.2/as-asked"];
        assert_eq!(names, of_server.repeat(2), "{engine}");
        for (id, rate) in rates.iter().filter(|(id, _)| id.contains("/connect/")) {
            let rate = rate.expect("a rate");
            assert!(rate > 1.0 && rate < 25.0, "{id}: {rate} connects a second");
        }
        assert_eq!(files_with(&there.runs(), &there.password()), Vec::<String>::new());
        assert!(!answer.stderr.contains(&there.password()));
    }
}

#[test]
fn who_answers_under_the_other_scheme_is_called_what_it_is() {
    for (engine, other, name) in [(Engine::MariaDb, "mysql", "MariaDB"), (Engine::MySql, "mariadb", "MySQL")]
    {
        if !real_server(engine) {
            continue;
        }
        let there = Elsewhere::start(engine);
        let url = there.url("127.0.0.1", "ssl-mode=DISABLED");
        let (right, wrong) = (format!("{}://", scheme(engine)), format!("{other}://"));
        let answer =
            there.run(&url.replacen(&right, &wrong, 1), &["--workload", "connect", "--path", "plain"]);
        assert_eq!(answer.code, Some(0), "{engine}: {answer:?}");
        assert!(answer.stderr.contains(&format!("there is a {name}, and is measured as such")), "{answer:?}");
        assert_eq!(files_with(&there.runs(), &wrong), Vec::<String>::new());
        assert!(!files_with(&there.runs(), &right).is_empty(), "the record has the URL as it should be");
        let plan = there.run(&url, &["--workload", "connect", "--path", "plain"]);
        assert_eq!((plan.code, plan.stderr.contains("measured as such")), (Some(0), false), "{plan:?}");
    }
}

#[test]
fn a_name_is_looked_up_and_its_time_is_a_phase() {
    if !real_server(Engine::Postgres) {
        return;
    }
    let there = Elsewhere::start(Engine::Postgres);
    // The certificate names an address.
    let url = there.url("localhost", &format!("sslmode=verify-ca&sslrootcert={}", there.ca_file()));
    let answer = there.run(&url, &["--path", "tls1.3,plain", "--max-rate", "200"]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let document = one_document(&answer.stdout);
    let [(id, Some(dns))] = &cells(&document, "phase_ns_dns")[..] else { panic!("{}", answer.stdout) };
    assert!(id.starts_with("there/tls1.3/") && *dns > 0.0, "{id}: {dns}");
    let skipped = items(&document, "skipped");
    assert!(
        skipped[0]["reason"].as_str().is_some_and(|reason| reason.contains("requires TLS")),
        "{skipped:?}"
    );
}

#[test]
fn whoever_is_not_let_in_learns_why() {
    for engine in engines_here() {
        let there = Elsewhere::start(engine);
        let url = there.url("127.0.0.1", &format!("{}={}", authority(engine), there.ca_file()));
        let wrong = there.run_with("wrong", &url, &[]);
        assert_eq!(wrong.code, Some(7), "{wrong:?}");
        assert!(wrong.one_line().contains("cannot log in to there"), "{wrong:?}");
        let unknown = there.run(&there.url("127.0.0.1", ""), &[]);
        assert_eq!(unknown.code, Some(7), "{unknown:?}");
        let said = unknown.one_line();
        assert!(said.contains("does not verify") && said.contains(authority(engine)), "{said}");
        assert!(!there.runs().exists(), "nothing half-made is left");
    }
}

#[test]
fn a_missing_password_is_reported_with_its_possible_sources() {
    for engine in engines_here() {
        let there = Elsewhere::start(engine);
        let url = there.url("127.0.0.1", &compared(&there));
        let answer = there.run_without_password(&url);
        assert_eq!(answer.code, Some(7), "{engine}: {answer:?}");
        let own = match engine {
            Engine::Postgres => "PGPASSWORD, PGPASSFILE, ~/.pgpass",
            _ => "MYSQL_PWD, MYSQL_DEFAULTS_FILE, ~/.my.cnf",
        };
        let said = format!(
            "no password found for {} at there; looked in CIPHERTOLL_PASSWORD_THERE, CIPHERTOLL_PASSWORD, {own}",
            there.server.user()
        );
        assert!(answer.one_line().contains(&said), "{engine}: {answer:?}");
        assert!(!there.runs().exists(), "nothing half-made is left");
    }
}

#[test]
fn a_server_without_plaintext_has_tls_as_its_baseline() {
    if !real_server(Engine::Postgres) {
        return;
    }
    let mut there = Elsewhere::start(Engine::Postgres);
    there.server.prepare_auth(Auth::Cert).expect("an account");
    let account = there.server.account(Auth::Cert);
    let identity = account.identity.expect("a certificate");
    let url = format!(
        "there=postgres://{}@127.0.0.1:{}/{}?sslmode=compare&sslrootcert={}&sslcert={}&sslkey={}",
        account.user,
        there.port(),
        there.server.database(),
        there.ca_file(),
        text(&identity.certificate_file),
        text(&identity.key_file)
    );
    let answer = there.run(&url, &["--workload", "connect", "--path", "plain,tls1.3,tls1.2"]);
    // Done in part: plaintext was asked for.
    let document = one_document(&answer.stdout);
    let reason = items(&document, "skipped")[0]["reason"].as_str().unwrap_or_default();
    assert!(reason.starts_with("there refuses connections without TLS"), "{reason}");
    let report = answer_of(ciphertoll(&["report", "--run-dir", text(&there.runs())]));
    assert!(report.stdout.contains("refuses connections without TLS"), "{}", report.stdout);
    assert!(report.stdout.contains("TLS 1.2"), "{}", report.stdout);
}

#[test]
fn the_run_stops_where_there_is_no_room() {
    if !real_server(Engine::Postgres) {
        return;
    }
    let there = Elsewhere::start(Engine::Postgres);
    there.execute(&format!("ALTER ROLE {} CONNECTION LIMIT 1", there.server.user()));
    let url = there.url("127.0.0.1", &compared(&there));
    let answer = there.run(&url, &["--workload", "bulk-read", "--clients", "3"]);
    assert_eq!(answer.code, Some(7), "{answer:?}");
    assert!(answer.stderr.contains("no room for more connections"), "{answer:?}");
    let runs: Vec<_> = fs::read_dir(there.runs()).expect("runs").collect();
    let directory = runs[0].as_ref().expect("a run").path();
    let events = fs::read_to_string(directory.join("events.jsonl")).expect("events");
    let trials = events.lines().filter(|line| line.contains("\"trial_started\"")).count();
    assert_eq!(trials, 1, "it stopped at the first");
}

#[test]
fn tables_are_made_where_that_was_asked_for_and_found_again() {
    if !real_server(Engine::Postgres) {
        return;
    }
    let there = Elsewhere::start(Engine::Postgres);
    let Endpoint::Unix(socket) = there.server.unix_endpoint() else { panic!("no socket") };
    let directory = socket.parent().expect("a directory");
    let url = format!(
        "there=postgres://ciphertoll@localhost:{}/{}?host={}",
        there.port(),
        there.server.database(),
        text(directory)
    );
    let arguments = ["--path", "unix", "--workload", "point-select", "--scale", "1000"];
    let refused = there.run(&url, &arguments);
    assert_eq!(refused.code, Some(2), "nothing is left to measure: {refused:?}");
    for _ in 0..2 {
        let answer = there.run(&url, &[&arguments[..], &["--prepare"]].concat());
        assert_eq!(answer.code, Some(0), "{answer:?}");
        let rates = cells(&one_document(&answer.stdout), "rate_per_s");
        assert!(rates[0].1.is_some_and(|rate| rate > 0.0), "{rates:?}");
    }
}

#[test]
fn a_statement_of_ones_own_is_measured() {
    if !real_server(Engine::MariaDb) {
        return;
    }
    let there = Elsewhere::start(Engine::MariaDb);
    let url = there.url("127.0.0.1", &compared(&there));
    for prepare in [&[][..], &["--prepare"]] {
        let wrong = there.run(&url, &[&["--query", "SELECT nothing FROM nowhere"], prepare].concat());
        assert_eq!(wrong.code, Some(2), "{wrong:?}");
        let line = wrong.one_line();
        assert!(line.contains("refuses the statement of --query") && line.contains("nowhere"), "{line}");
        assert!(!there.runs().exists(), "no record is made");
    }
    let answer = there.run(&url, &["--query", "SELECT 'a?b', 42"]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let rates = cells(&one_document(&answer.stdout), "rate_per_s");
    assert_eq!(rates.iter().filter(|(id, _)| id.contains("/query/4/")).count(), 3, "{rates:?}");
}

#[test]
fn a_password_in_the_url_is_taken_with_a_warning_and_not_kept() {
    if !real_server(Engine::Postgres) {
        return;
    }
    let there = Elsewhere::start(Engine::Postgres);
    let password = there.password();
    let url = there.url("127.0.0.1", "sslmode=disable").replace('@', &format!(":{password}@"));
    let answer = answer_of(there.command(&url, &["--workload", "connect", "--path", "plain"]));
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert!(answer.stderr.contains("is visible in the process list"), "{answer:?}");
    assert_eq!(files_with(&there.runs(), &password), Vec::<String>::new());
}

/// For each protocol its scheme, and options with a short time limit.
const PROTOCOLS: [(&str, &str, &str); 3] = [
    ("PostgreSQL", "postgres", "connect_timeout=1"),
    ("MySQL", "mysql", "connect-timeout=1000"),
    ("MongoDB", "mongodb", "connectTimeoutMS=1000"),
];

#[test]
fn a_server_of_another_protocol_is_named() {
    for (engine, own) in [(Engine::Postgres, "PostgreSQL"), (Engine::MariaDb, "MySQL")] {
        if !real_server(engine) {
            continue;
        }
        let there = Elsewhere::start(engine);
        for (protocol, scheme, options) in PROTOCOLS.into_iter().filter(|(protocol, ..)| *protocol != own) {
            let url = format!("there={scheme}://app@127.0.0.1:{}/?{options}", there.port());
            let answer = there.run(&url, &[]);
            assert_eq!(answer.code, Some(7), "{answer:?}");
            let line = answer.one_line();
            assert!(line.contains(&format!("this port does not speak {protocol}")), "{line}");
            assert!(line.contains(&format!("it answered like {own}")), "{line}");
        }
    }
}

#[test]
fn a_listener_that_never_answers_is_not_waited_for() {
    let listener = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).expect("a listener");
    let at = listener.local_addr().expect("an address");
    for (protocol, scheme, options) in PROTOCOLS {
        let url = format!("there={scheme}://app@{at}/?{options}");
        let mut command = ciphertoll(&["run", "--size", "smoke", "-q", "--url", &url]);
        command.env("CIPHERTOLL_PASSWORD", "x").stdin(std::process::Stdio::null());
        let answer = answer_of(command);
        assert_eq!(answer.code, Some(7), "{answer:?}");
        let said = format!("this port does not speak {protocol}: it sent no ");
        assert!(answer.stderr.contains(&said) && answer.stderr.contains("within 1 s"), "{answer:?}");
    }
}

/// What libpq accepts besides URLs, and options that it sends: the statement fails without them.
#[test]
fn servers_are_named_as_for_libpq() {
    if !real_server(Engine::Postgres) {
        return;
    }
    let there = Elsewhere::start(Engine::Postgres);
    let Endpoint::Unix(socket) = there.server.unix_endpoint() else { panic!("no socket") };
    let (directory, port) = (text(socket.parent().expect("a directory")), there.port());
    let (user, database) = (there.server.user(), there.server.database());
    let services = there.place.path().join("services");
    let service = format!("[shop]\nhost=127.0.0.1\nport={port}\ndbname={database}\napplication_name=shop\n");
    fs::write(&services, service).expect("a file");
    let sent = "options=-c%20statement_timeout%3D7s&application_name=shop&connect_timeout=20";
    for (dsn, path) in [
        (
            format!(
                "host=127.0.0.1 port={port} user={user} dbname='{database}' sslmode=disable \
                  options='-c statement_timeout=7s' application_name=shop"
            ),
            "plain",
        ),
        (format!("service=shop user={user} sslmode=disable options='-cstatement_timeout=7s'"), "plain"),
        (
            format!("postgres://{user}@/?service=shop&sslmode=disable&options=-cstatement_timeout%3D7s"),
            "plain",
        ),
        (format!("postgres://{user}@127.0.0.1:{port}/{database}?sslmode=disable&{sent}"), "plain"),
        (format!("postgres://ciphertoll@/{database}?host={directory}&port={port}&{sent}"), "unix"),
        (
            format!("postgresql://ciphertoll@{}:{port}/{database}?{sent}", directory.replace('/', "%2F")),
            "unix",
        ),
    ] {
        let statement = "SELECT 1 / (current_setting('statement_timeout') = '7s' \
                   AND current_setting('application_name') = 'shop')::int";
        let mut command = there.command(&format!("there={dsn}"), &["--path", path, "--query", statement]);
        let password = there.password();
        command
            .env("CIPHERTOLL_PASSWORD_THERE", password)
            .env("PGSERVICEFILE", &services)
            .env_remove("PGSERVICE");
        let answer = answer_of(command);
        assert_eq!(answer.code, Some(0), "{dsn}: {answer:?}");
    }
    let mut command =
        there.command(&format!("there=postgres://{user}@/?sslmode=disable"), &["--path", "plain"]);
    command.args(["--query", "SELECT 1 / (current_setting('application_name') = 'shop')::int"]);
    command.env("CIPHERTOLL_PASSWORD_THERE", there.password()).env("PGSERVICEFILE", &services);
    let answer = answer_of({
        command.env("PGSERVICE", "shop");
        command
    });
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let unknown = there.run("there=service=nowhere user=a", &[]);
    assert!(unknown.one_line().contains("the service \"nowhere\" is not defined in "), "{unknown:?}");
    let ports = there.run("there=host=h1,h2 user=a port=1,2,3", &[]);
    assert!(ports.one_line().contains("it names 2 hosts and 3 ports"), "{ports:?}");
}

#[test]
fn of_several_hosts_the_first_that_is_wanted_is_measured() {
    if !real_server(Engine::Postgres) {
        return;
    }
    let there = Elsewhere::start(Engine::Postgres);
    let (port, user, database) = (there.port(), there.server.user(), there.server.database());
    // Nothing listens there.
    let closed = format!("127.0.0.1:{}", free_port(&[]).expect("a free port"));
    let run = |wanted: &str, hosts: &str| {
        let url = format!("there=postgres://{user}@{hosts}/{database}?sslmode=disable{wanted}");
        there.run(&url, &["--path", "plain", "--workload", "connect", "--blocks", "1"])
    };
    let both = format!("{closed},127.0.0.1:{port}");
    let found = run("&target_session_attrs=read-write", &both);
    assert_eq!(found.code, Some(0), "{found:?}");
    let told = |words: &str| found.stderr.lines().any(|line| line.contains(words));
    assert!(told(&format!("there: not using {closed}: ")), "{found:?}");
    assert!(told(&format!("there: using 127.0.0.1:{port}")), "{found:?}");
    assert_eq!(files_with(&there.runs(), &closed), [""; 0], "the record has the host that was measured");
    for (wanted, reason) in [
        ("&target_session_attrs=read-only", "no host is read-only (target_session_attrs=read-only): "),
        ("&target_session_attrs=standby", "no host is a standby (target_session_attrs=standby): "),
    ] {
        let refused = run(wanted, &both);
        let line = refused.one_line();
        assert!(line.contains(reason) && line.contains(&closed), "{wanted}: {line}");
    }
    assert_eq!(run("&target_session_attrs=prefer-standby", &both).code, Some(0));
    assert_eq!(run("&target_session_attrs=primary", &format!("127.0.0.1:{port}")).code, Some(0));
    there.execute(&format!("ALTER ROLE {user} SET default_transaction_read_only = on"));
    assert!(run("&target_session_attrs=read-write", &both).one_line().contains("no host is writable"));
    assert_eq!(run("&target_session_attrs=read-only", &both).code, Some(0));
}
