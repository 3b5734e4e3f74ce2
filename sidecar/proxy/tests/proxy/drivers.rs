//! Drivers of applications: each prints the same with and without the proxy.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use ciphertoll_lab::Server;
use ciphertoll_testing::missing;

use crate::Case;
use crate::fixture::Fixture;

pub(crate) const CASES: [Case; 8] = [
    ("driver: psql", psql),
    ("driver: tokio-postgres", tokio_postgres),
    ("driver: psycopg2", |fixture| python(fixture, "psycopg2")),
    ("driver: psycopg", |fixture| python(fixture, "psycopg")),
    ("driver: asyncpg", |fixture| python(fixture, "asyncpg")),
    ("driver: JDBC", jdbc),
    ("driver: node-postgres", node),
    ("driver: pgx", pgx),
];

/// The interpreter that has the drivers' packages; another one may come first in PATH.
pub(crate) const PYTHON: &str = "/usr/bin/python3";
const JDBC: &str = "/usr/share/java/postgresql.jar";

fn psql(fixture: &mut Fixture) {
    // Fixture::open has checked that psql is installed.
    same(fixture, || {
        let mut command = Command::new("psql");
        command.args(["-X", "-A", "-v", "ON_ERROR_STOP=1", "-f"]).arg(sources().join("drivers.sql"));
        command
    });
}

fn tokio_postgres(fixture: &mut Fixture) {
    let Some(program) = example("driver_tokio_postgres") else { return };
    same(fixture, || Command::new(&program));
}

pub(crate) fn imports(module: &str) -> bool {
    let mut python = Command::new(PYTHON);
    python.args(["-c", &format!("import {module}")]).stderr(Stdio::null());
    python.status().is_ok_and(|status| status.success())
}

/// Whether Java and the driver in this file are installed.
pub(crate) fn compiles_with(driver: &str) -> bool {
    let compiles = Command::new("javac").arg("-version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    compiles.is_ok() && Path::new(driver).exists()
}

fn python(fixture: &mut Fixture, driver: &str) {
    if !imports(driver) {
        return missing(&format!("{driver} is not here (the package python3-{driver})"));
    }
    same(fixture, || {
        let mut command = Command::new(PYTHON);
        command.arg(sources().join("drivers.py")).arg(driver);
        command
    });
}

fn jdbc(fixture: &mut Fixture) {
    if !compiles_with(JDBC) {
        let what = "JDBC is not here (the packages default-jdk-headless and libpostgresql-jdbc-java)";
        return missing(what);
    }
    same(fixture, || {
        let mut command = Command::new("java");
        command.args(["-cp", JDBC]).arg(sources().join("Drivers.java"));
        command
    });
}

fn node(fixture: &mut Fixture) {
    let modules = fetched().join("node_modules");
    if !modules.join("pg").is_dir() {
        return missing("node-postgres is not here (scripts/fetch-drivers, npm)");
    }
    same(fixture, || {
        let mut command = Command::new("node");
        command.arg(sources().join("drivers.js")).env("NODE_PATH", &modules);
        command
    });
}

fn pgx(fixture: &mut Fixture) {
    let program = fetched().join("pgx");
    if !program.is_file() {
        return missing("pgx is not here (scripts/fetch-drivers, go)");
    }
    same(fixture, || Command::new(&program));
}

/// Runs the program without and with a proxy: both must print the same, and something.
fn same(fixture: &mut Fixture, program: impl Fn() -> Command) {
    let password = String::from_utf8(fixture.password()).expect("passwords here are text");
    let through = |port: u16, encryption: &str, server: &Server| {
        let mut command = program();
        command
            .env("PGHOST", "127.0.0.1")
            .env("PGPORT", port.to_string())
            .env(
                "PGUSER",
                server.account(ciphertoll_model::Auth::default_of(ciphertoll_model::Engine::Postgres)).user,
            )
            .env("PGPASSWORD", &password)
            .env("PGDATABASE", server.database())
            .env("PGSSLMODE", encryption)
            .stdin(Stdio::null());
        output_of(&mut command, encryption)
    };
    let direct = through(fixture.server_port(), "require", fixture.server());
    let proxy =
        fixture.proxy_at("tcp:127.0.0.1:0", &fixture.url(""), PathBuf::new(), 0, &["--pool-size", "2"]);
    for round in ["first", "second"] {
        let proxied = through(proxy.port, "disable", fixture.server());
        assert_eq!(proxied, direct, "for the {round} time");
    }
}

/// The program's output, which must not be empty.
pub(crate) fn output_of(command: &mut Command, way: &str) -> String {
    let Output { status, stdout, stderr } = command.output().expect("the program runs");
    let stderr = String::from_utf8_lossy(&stderr);
    let printed = String::from_utf8(stdout).expect("text");
    assert!(status.success(), "by {way}: {printed}{stderr}");
    assert!(printed.lines().count() > 2, "by {way} it has done too little: {printed}");
    printed
}

pub(crate) fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/drivers")
}

/// Where scripts/fetch-drivers puts what it fetches: `drivers` in the target directory.
pub(crate) fn fetched() -> PathBuf {
    let test = std::env::current_exe().expect("our own path");
    test.ancestors().nth(3).expect("tests lie three below the target directory").join("drivers")
}

/// An example of `oracles`, which has drivers among its dependencies; reports if it is missing.
pub(crate) fn example(name: &str) -> Option<PathBuf> {
    let test = std::env::current_exe().expect("our own path");
    let profile = test.ancestors().nth(2).expect("tests lie two below the profile");
    let program = profile.join("examples").join(name);
    if !program.is_file() {
        let what = format!("{name} is not here (cargo build -p ciphertoll-oracles --examples)");
        missing(&what);
        return None;
    }
    Some(program)
}
