//! `pgbench -S`, on the lab's tables.

use std::process::Command;

use anyhow::{Context, Result, bail};
use ciphertoll_model::{StatementProtocol, TlsVersion};

use super::kinds::{BenchArm, OperationKind, Route, Sample, TOOL_THREADS};
use super::tool::{GeneratorResult, ToolRun, number_after, write_private};
use crate::setup::BenchSetup;

/// Longer than any run. With --progress, pgbench measures each transaction; otherwise its latency is clients ÷ rate.
const NEVER_S: &str = "3600";

pub(super) fn run(arm: &BenchArm, setup: &BenchSetup<'_>) -> Result<Sample> {
    let short = ToolRun::of(command(arm, setup)?.args(["--transactions", "1"]), setup)?;
    let seconds = setup.seconds.ceil().to_string();
    let run = ToolRun::of(command(arm, setup)?.args(["--time", &seconds]), setup)?;
    let result = parse(&run.printed)?;
    run.sample(result, &short, f64::from(arm.work.clients()))
}

fn command(arm: &BenchArm, setup: &BenchSetup<'_>) -> Result<Command> {
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
    let password_file = setup.private.join("pgpass");
    write_private(&password_file, &format!("*:*:*:*:{}\n", setup.password(arm.auth)?))?;
    command.env("PGPASSFILE", password_file).env("PGGSSENCMODE", "disable");
    set_tls(&mut command, arm.route, setup)?;
    Ok(command)
}

/// Unless told otherwise, libpq takes TLS where the server has it.
pub(super) fn set_tls(command: &mut Command, route: Route, setup: &BenchSetup<'_>) -> Result<()> {
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

pub(crate) fn parse(printed: &str) -> Result<GeneratorResult> {
    const US_PER_MS: f64 = 1e3;
    let number = |label| {
        let found = number_after(printed, label);
        found.with_context(|| format!("pgbench printed no {label:?}: {printed}"))
    };
    // The latency of a transaction excludes its connect.
    let connect_ms = number_after(printed, "average connection time =").unwrap_or(0.0);
    Ok(GeneratorResult {
        operations: number("number of transactions actually processed:")?,
        rate_per_s: number("tps =")?,
        mean_us: (number("latency average =")? + connect_ms) * US_PER_MS,
        p95_us: None,
    })
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
        let (operations, rate_per_s, mean_us) = (41_234.0, 41_345.678_901, 193.0);
        let result = GeneratorResult { operations, rate_per_s, mean_us, p95_us: None };
        assert_eq!(parse(printed).unwrap(), result);
        assert!(parse("pgbench: error: no").is_err());
    }

    #[test]
    fn the_latency_includes_the_connect() {
        let printed = "number of transactions actually processed: 100\n\
            latency average = 0.193 ms\n\
            average connection time = 1.807 ms\n\
            tps = 500.000000 (including reconnection times)\n";
        assert_eq!(parse(printed).ok().map(|result| result.mean_us), Some(2_000.0));
    }
}
