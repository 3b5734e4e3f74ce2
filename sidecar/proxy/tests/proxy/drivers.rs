//! Drivers of applications: each prints the same with and without the proxy.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use ciphertoll_lab::Server;
use ciphertoll_skip::missing;

use crate::Case;
use crate::site::Site;

pub(crate) const CASES: [Case; 8] = [
    ("driver: psql", psql),
    ("driver: tokio-postgres", tokio_postgres),
    ("driver: psycopg2", |site| python(site, "psycopg2")),
    ("driver: psycopg", |site| python(site, "psycopg")),
    ("driver: asyncpg", |site| python(site, "asyncpg")),
    ("driver: JDBC", jdbc),
    ("driver: node-postgres", node),
    ("driver: pgx", pgx),
];

/// The interpreter that has the drivers' packages; another one may come first in PATH.
pub(crate) const PYTHON: &str = "/usr/bin/python3";
const JDBC: &str = "/usr/share/java/postgresql.jar";

fn psql(site: &mut Site) {
    // Site::open has checked that psql is installed.
    same(site, || {
        let mut command = Command::new("psql");
        command.args(["-X", "-A", "-v", "ON_ERROR_STOP=1", "-f"]).arg(sources().join("drivers.sql"));
        command
    });
}

fn tokio_postgres(site: &mut Site) {
    let Some(program) = example("driver_tokio_postgres") else { return };
    same(site, || Command::new(&program));
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

fn python(site: &mut Site, driver: &str) {
    if !imports(driver) {
        return missing(&format!("{driver} is not here (the package python3-{driver})"));
    }
    same(site, || {
        let mut command = Command::new(PYTHON);
        command.arg(sources().join("drivers.py")).arg(driver);
        command
    });
}

fn jdbc(site: &mut Site) {
    if !compiles_with(JDBC) {
        let what = "JDBC is not here (the packages default-jdk-headless and libpostgresql-jdbc-java)";
        return missing(what);
    }
    same(site, || {
        let mut command = Command::new("java");
        command.args(["-cp", JDBC]).arg(sources().join("Drivers.java"));
        command
    });
}

fn node(site: &mut Site) {
    let modules = fetched().join("node_modules");
    if !modules.join("pg").is_dir() {
        return missing("node-postgres is not here (scripts/fetch-drivers, npm)");
    }
    same(site, || {
        let mut command = Command::new("node");
        command.arg(sources().join("drivers.js")).env("NODE_PATH", &modules);
        command
    });
}

fn pgx(site: &mut Site) {
    let program = fetched().join("pgx");
    if !program.is_file() {
        return missing("pgx is not here (scripts/fetch-drivers, go)");
    }
    same(site, || Command::new(&program));
}

/// Runs the program without and with a proxy: both must print the same, and something.
fn same(site: &mut Site, program: impl Fn() -> Command) {
    let password = String::from_utf8(site.password()).expect("passwords here are text");
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
    let direct = through(site.server_port(), "require", site.server());
    let proxy = site.proxy_at("tcp:127.0.0.1:0", &site.url(""), PathBuf::new(), 0, &["--pool-size", "2"]);
    for round in ["first", "second"] {
        let proxied = through(proxy.port, "disable", site.server());
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
