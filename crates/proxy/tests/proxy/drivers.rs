//! Drivers that applications use: each does the same with a proxy in between as without, line by line.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use ciphertoll_lab::Server;

use crate::Case;
use crate::say;
use crate::site::Site;

pub(crate) const CASES: [Case; 6] = [
    ("driver: psycopg2", |site| python(site, "psycopg2")),
    ("driver: psycopg", |site| python(site, "psycopg")),
    ("driver: asyncpg", |site| python(site, "asyncpg")),
    ("driver: JDBC", jdbc),
    ("driver: node-postgres", node),
    ("driver: pgx", pgx),
];

/// What the packages of the drivers are for; another one may be earlier in PATH.
const PYTHON: &str = "/usr/bin/python3";
const JDBC: &str = "/usr/share/java/postgresql.jar";

fn python(site: &mut Site, driver: &str) {
    let imports = Command::new(PYTHON)
        .args(["-c", &format!("import {driver}")])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !imports {
        return missing(&format!("{driver} is not here (the package python3-{driver})"), Required::Always);
    }
    same(site, || {
        let mut command = Command::new(PYTHON);
        command.arg(sources().join("drivers.py")).arg(driver);
        command
    });
}

fn jdbc(site: &mut Site) {
    let compiles = Command::new("javac").arg("-version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if compiles.is_err() || !Path::new(JDBC).exists() {
        let what = "JDBC is not here (the packages default-jdk-headless and libpostgresql-jdbc-java)";
        return missing(what, Required::Always);
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
        return missing("node-postgres is not here (scripts/fetch-drivers, npm)", Required::WhereFetched);
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
        return missing("pgx is not here (scripts/fetch-drivers, go)", Required::WhereFetched);
    }
    same(site, || Command::new(&program));
}

/// Whether CI has it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Required {
    /// Our set-up installs it.
    Always,
    /// Only where its language is.
    WhereFetched,
}

fn missing(what: &str, required: Required) {
    let in_ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    assert!(!in_ci || required == Required::WhereFetched, "in CI nothing is skipped: {what}");
    say(&format!("skipped: {what}"));
}

/// Runs the program without a proxy and with one; it must print the same, and something.
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
        let Output { status, stdout, stderr } = command.output().expect("the program runs");
        let stderr = String::from_utf8_lossy(&stderr);
        assert!(status.success(), "by {encryption}: {stderr}");
        String::from_utf8(stdout).expect("text")
    };
    let direct = through(site.server_port(), "require", site.server());
    assert!(direct.lines().count() > 5, "it has done too little: {direct}");
    let proxy = site.proxy_at("tcp:127.0.0.1:0", &site.url(""), PathBuf::new(), 0, &["--pool-size", "2"]);
    for round in ["first", "second"] {
        let proxied = through(proxy.port, "disable", site.server());
        assert_eq!(proxied, direct, "for the {round} time");
    }
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/drivers")
}

/// Where scripts/fetch-drivers puts what it fetches: `drivers` in the target directory.
fn fetched() -> PathBuf {
    let test = std::env::current_exe().expect("our own path");
    test.ancestors().nth(3).expect("tests lie three below the target directory").join("drivers")
}
