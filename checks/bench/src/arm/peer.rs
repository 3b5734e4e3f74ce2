//! The C loops of `bench/`.

use std::process::Command;

use anyhow::{Context, Result, bail};
use ciphertoll_model::{Auth, Endpoint, Engine, TlsVersion};
use serde::Deserialize;

use super::kinds::{BenchArm, FloorMode, OperationKind, Route, Sample, WARM_UP_S};
use super::tool::output;
use crate::setup::BenchSetup;

#[derive(Deserialize)]
pub(crate) struct PeerResult {
    pub(crate) operations: f64,
    pub(crate) rate_per_s: f64,
    pub(crate) cpu_us_per_op: f64,
    mean_ns: f64,
    pub(crate) p50_ns: f64,
    pub(crate) p99_ns: f64,
}

pub(super) fn connect_loop(arm: &BenchArm, setup: &BenchSetup<'_>) -> Result<Sample> {
    run(arm, setup, "connect_libmariadb", &[])
}

pub(super) fn floor(arm: &BenchArm, setup: &BenchSetup<'_>, mode: FloorMode) -> Result<Sample> {
    let mode = match mode {
        FloorMode::Epoll => "epoll",
        FloorMode::Threads => "threads",
    };
    let rows = setup.scale(arm.work).rows().to_string();
    let mut extra = vec!["--mode", mode, "--rows", &rows];
    match (setup.engine(), arm.work) {
        (Engine::MariaDb, OperationKind::PointSelect) => run(arm, setup, "floor_mariadb", &extra),
        (Engine::Postgres, OperationKind::PointSelect) => {
            extra.extend(["--sql", "SELECT c FROM sbtest1 WHERE id = $1"]);
            run(arm, setup, "floor_postgres", &extra)
        }
        (Engine::Postgres, OperationKind::SelectOnly(_)) => {
            extra.extend(["--sql", "SELECT abalance FROM pgbench_accounts WHERE aid = $1"]);
            run(arm, setup, "floor_postgres", &extra)
        }
        (engine, work) => bail!("no C loop for {work:?} on {}", engine.display_name()),
    }
}

fn run(arm: &BenchArm, setup: &BenchSetup<'_>, name: &str, extra: &[&str]) -> Result<Sample> {
    let tls = match arm.route {
        Route::Plain | Route::Unix => None,
        Route::Tls(version) => Some(version),
    };
    let mut command = command(name, setup, &setup.endpoint(arm.route), tls, arm.auth)?;
    command
        .args(["--clients", &arm.work.clients().to_string()])
        .args(["--seconds", &setup.seconds.to_string(), "--warm-up", &WARM_UP_S.to_string()])
        .args(extra);
    let PeerResult { rate_per_s, cpu_us_per_op, mean_ns, .. } = result(&mut command)?;
    let mean_us = mean_ns * 1e-3;
    Ok(Sample { rate_per_s, cpu_us_per_op, server_cpu_us_per_op: None, mean_us, p95_us: None })
}

/// The command of a loop, with its connection and account.
fn command(
    name: &str,
    setup: &BenchSetup<'_>,
    endpoint: &Endpoint,
    tls: Option<TlsVersion>,
    auth: Auth,
) -> Result<Command> {
    let mut command = Command::new(setup.peers.join(name));
    add_connection(&mut command, setup, endpoint, tls, auth)?;
    Ok(command)
}

/// Adds the arguments for connection and account.
pub(crate) fn add_connection(
    command: &mut Command,
    setup: &BenchSetup<'_>,
    endpoint: &Endpoint,
    tls: Option<TlsVersion>,
    auth: Auth,
) -> Result<()> {
    match endpoint {
        Endpoint::Unix(socket) => _ = command.arg("--socket").arg(socket),
        Endpoint::Tcp(address) => {
            let (host, port) = (address.ip().to_string(), address.port().to_string());
            command.args(["--host", &host, "--port", &port]);
        }
        Endpoint::Host { .. } => bail!("the server is on another host"),
    }
    if let Some(version) = tls {
        let version = match version {
            TlsVersion::Tls10 => "1.0",
            TlsVersion::Tls11 => "1.1",
            TlsVersion::Tls12 => "1.2",
            TlsVersion::Tls13 => "1.3",
        };
        command.args(["--tls", version]).arg("--ca").arg(setup.server.ca_file());
    }
    let account = setup.server.account(auth);
    command.args(["--user", &account.user, "--database", setup.server.database()]);
    command.arg("--password-file").arg(account.password_file);
    Ok(())
}

fn result(command: &mut Command) -> Result<PeerResult> {
    parse(&output(command)?)
}

pub(crate) fn parse(printed: &str) -> Result<PeerResult> {
    serde_json::from_str(printed).context("the loop printed no result")
}
