//! The C loops of `bench/`.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use ciphertoll_model::{Endpoint, Engine, TlsVersion};
use serde::Deserialize;

use super::{ArmSetup, BenchArm, FloorMode, OperationKind, Route, Sample, WARM_UP_S};

#[derive(Deserialize)]
struct PeerResult {
    rate_per_s: f64,
    cpu_us_per_op: f64,
    mean_ns: f64,
}

/// Connects and closes through libmariadb.
pub(super) fn connect_loop(arm: &BenchArm, setup: &ArmSetup<'_>) -> Result<Sample> {
    run(arm, setup, "connect_libmariadb", &[])
}

/// Exchanges pre-encoded messages.
pub(super) fn floor(arm: &BenchArm, setup: &ArmSetup<'_>, mode: FloorMode) -> Result<Sample> {
    let mode = match mode {
        FloorMode::Epoll => "epoll",
        FloorMode::Threads => "threads",
    };
    let rows = arm.work.scale(setup).rows().to_string();
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

fn run(arm: &BenchArm, setup: &ArmSetup<'_>, name: &str, extra: &[&str]) -> Result<Sample> {
    let mut command = Command::new(setup.peers.join(name));
    match (arm.route, setup.address()?) {
        (Route::Unix, _) => {
            let Endpoint::Unix(socket) = setup.server.unix_endpoint() else { bail!("no unix socket") };
            command.arg("--socket").arg(socket)
        }
        (_, (host, port)) => command.args(["--host", &host, "--port", &port]),
    };
    if let Route::Tls(version) = arm.route {
        let version = match version {
            TlsVersion::Tls10 => "1.0",
            TlsVersion::Tls11 => "1.1",
            TlsVersion::Tls12 => "1.2",
            TlsVersion::Tls13 => "1.3",
        };
        command.args(["--tls", version]).arg("--ca").arg(setup.server.ca_file());
    }
    let account = setup.server.account(arm.auth);
    command
        .args(["--user", &account.user, "--database", setup.server.database()])
        .args(["--clients", &arm.work.clients().to_string()])
        .arg("--password-file")
        .arg(account.password_file)
        .args(["--seconds", &setup.seconds.to_string(), "--warm-up", &WARM_UP_S.to_string()])
        .args(extra);
    let output = command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot run {name}"))?;
    if !output.status.success() {
        bail!("{name} failed: {}", output.status);
    }
    let PeerResult { rate_per_s, cpu_us_per_op, mean_ns } =
        serde_json::from_slice(&output.stdout).with_context(|| format!("{name} printed no result"))?;
    let mean_us = mean_ns * 1e-3;
    Ok(Sample { rate_per_s, cpu_us_per_op, server_cpu_us_per_op: None, mean_us, p95_us: None })
}
