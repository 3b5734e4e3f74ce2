//! `pgbench -S`, on the lab's tables.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};
use ciphertoll_model::{StatementProtocol, TlsVersion};

use super::tool::{ToolRun, number_after, write_private};
use super::{ArmSetup, BenchArm, OperationKind, Route, Sample, TOOL_THREADS};

/// Longer than any run. With --progress, pgbench measures each transaction; otherwise its latency is clients ÷ rate.
const NEVER_S: &str = "3600";

pub(super) fn run(arm: &BenchArm, setup: &ArmSetup<'_>) -> Result<Sample> {
    let short = ToolRun::of(command(arm, setup)?.args(["--transactions", "1"]), setup)?;
    let seconds = setup.seconds.ceil().to_string();
    let run = ToolRun::of(command(arm, setup)?.args(["--time", &seconds]), setup)?;
    let result = PgbenchResult::of(&run.printed).context("pgbench printed no result")?;
    let cpu = run.cpu_beyond(result.transactions, &short, f64::from(arm.work.clients()))?;
    Ok(Sample {
        rate_per_s: result.rate_per_s,
        cpu_us_per_op: cpu.client_us,
        server_cpu_us_per_op: Some(cpu.server_us),
        mean_us: result.mean_us,
        p95_us: None,
    })
}

fn command(arm: &BenchArm, setup: &ArmSetup<'_>) -> Result<Command> {
    let program = setup.tools.pgbench.as_ref().context("pgbench is not installed")?;
    let (host, port) = setup.address()?;
    let account = setup.server.account(arm.auth);
    let clients = arm.work.clients();
    let mut command = Command::new(program);
    command
        .args(["--select-only", "--no-vacuum", "--progress", NEVER_S])
        .args(["--client", &clients.to_string(), "--jobs", &clients.min(TOOL_THREADS).to_string()])
        .args(["--host", &host, "--port", &port, "--username", &account.user]);
    match arm.work {
        OperationKind::SelectOnly(StatementProtocol::Prepared) => command.args(["--protocol", "prepared"]),
        OperationKind::SelectOnly(StatementProtocol::Text) => command.args(["--protocol", "simple"]),
        OperationKind::ConnectSelect => command.args(["--protocol", "simple", "--connect"]),
        work => bail!("pgbench has no {work:?}"),
    };
    command.arg(setup.server.database());
    let password = fs::read_to_string(&account.password_file).context("cannot read the password")?;
    let password_file = setup.private.join("pgpass");
    write_private(&password_file, &format!("*:*:*:*:{password}\n"))?;
    command.env("PGPASSFILE", password_file).env("PGGSSENCMODE", "disable");
    set_tls(&mut command, arm.route, setup)?;
    Ok(command)
}

/// Unless told otherwise, libpq takes TLS where the server has it.
pub(super) fn set_tls(command: &mut Command, route: Route, setup: &ArmSetup<'_>) -> Result<()> {
    let version = match route {
        Route::Plain => {
            command.env("PGSSLMODE", "disable");
            return Ok(());
        }
        Route::Unix => bail!("tools are compared by TCP"),
        Route::Tls(TlsVersion::Tls10) => "TLSv1",
        Route::Tls(TlsVersion::Tls11) => "TLSv1.1",
        Route::Tls(TlsVersion::Tls12) => "TLSv1.2",
        Route::Tls(TlsVersion::Tls13) => "TLSv1.3",
    };
    command
        .env("PGSSLMODE", "verify-full")
        .env("PGSSLROOTCERT", setup.server.ca_file())
        .env("PGSSLMINPROTOCOLVERSION", version)
        .env("PGSSLMAXPROTOCOLVERSION", version);
    Ok(())
}

#[derive(Debug, PartialEq)]
struct PgbenchResult {
    transactions: f64,
    rate_per_s: f64,
    mean_us: f64,
}

impl PgbenchResult {
    fn of(printed: &str) -> Option<Self> {
        const US_PER_MS: f64 = 1e3;
        // The latency of a transaction excludes its connect.
        let connect_ms = number_after(printed, "average connection time =").unwrap_or(0.0);
        Some(Self {
            transactions: number_after(printed, "number of transactions actually processed:")?,
            rate_per_s: number_after(printed, "tps =")?,
            mean_us: (number_after(printed, "latency average =")? + connect_ms) * US_PER_MS,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_pgbench_is_read() {
        let printed = "transaction type: <builtin: select only>\n\
            number of transactions actually processed: 41234\n\
            latency average = 0.193 ms\n\
            latency stddev = 0.080 ms\n\
            initial connection time = 12.502 ms\n\
            tps = 41345.678901 (without initial connection time)\n";
        let result = PgbenchResult { transactions: 41_234.0, rate_per_s: 41_345.678_901, mean_us: 193.0 };
        assert_eq!(PgbenchResult::of(printed), Some(result));
        assert_eq!(PgbenchResult::of("pgbench: error: no"), None);
    }

    #[test]
    fn the_latency_includes_the_connect() {
        let printed = "number of transactions actually processed: 100\n\
            latency average = 0.193 ms\n\
            average connection time = 1.807 ms\n\
            tps = 500.000000 (including reconnection times)\n";
        assert_eq!(PgbenchResult::of(printed).map(|result| result.mean_us), Some(2_000.0));
    }
}
