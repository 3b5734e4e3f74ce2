//! sysbench's OLTP scripts, on the lab's table.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use ciphertoll_model::{Auth, Engine, Scale};

use super::kinds::{BenchArm, OperationKind, Route, Sample};
use super::pgbench::set_tls;
use super::tool::{GeneratorResult, ToolRun, number_after, write_private};
use crate::setup::BenchSetup;

pub(super) fn run(arm: &BenchArm, setup: &BenchSetup<'_>) -> Result<Sample> {
    let short = ToolRun::of(&mut command(arm, setup, &["--time=0", "--events=1"])?, setup)?;
    let seconds = format!("--time={}", setup.seconds.ceil());
    let run = ToolRun::of(&mut command(arm, setup, &[&seconds])?, setup)?;
    let short_transactions =
        number_after(&short.printed, TRANSACTIONS).context("sysbench printed no count")?;
    run.sample(parse(&run.printed)?, &short, short_transactions)
}

fn command(arm: &BenchArm, setup: &BenchSetup<'_>, limits: &[&str]) -> Result<Command> {
    if arm.route != Route::Plain {
        bail!("sysbench is only compared over TCP without TLS");
    }
    let (script, keys) = match arm.work {
        OperationKind::PointSelect => ("oltp_point_select", "uniform"),
        OperationKind::OltpReadOnly => ("oltp_read_only", "special"),
        work => bail!("sysbench has no {work:?}"),
    };
    let program = setup.tools.sysbench.as_ref().context("sysbench is not installed")?;
    let (host, port) = setup.address()?;
    let driver = driver(setup.engine());
    let mut command = Command::new(program);
    command
        .arg(format!("--config-file={}", config(setup, arm.auth, setup.scale(arm.work))?.display()))
        .args([format!("--db-driver={driver}"), format!("--rand-type={keys}")])
        .args([format!("--{driver}-host={host}"), format!("--{driver}-port={port}")])
        .arg(format!("--threads={}", arm.work.clients()))
        .args(limits)
        .args([script, "run"]);
    if setup.engine() == Engine::Postgres {
        set_tls(&mut command, arm.route, setup)?;
    }
    Ok(command)
}

fn driver(engine: Engine) -> &'static str {
    match engine {
        Engine::MariaDb | Engine::MySql => "mysql",
        Engine::Postgres => "pgsql",
        Engine::MongoDb | Engine::FerretDb => "",
    }
}

/// Writes the password to a private file, because arguments are visible to other users.
pub(crate) fn config(setup: &BenchSetup<'_>, auth: Auth, rows: Scale) -> Result<PathBuf> {
    let path = setup.private.join("sysbench.cnf");
    let (user, database) = (setup.server.account(auth).user, setup.server.database());
    let (driver, password, rows) = (driver(setup.engine()), setup.password(auth)?, rows.rows());
    let config = format!(
        "{driver}-user={user}\n{driver}-password={password}\n{driver}-db={database}\ntables=1\ntable-size={rows}\n"
    );
    write_private(&path, &config)?;
    Ok(path)
}

const TRANSACTIONS: &str = "transactions:";

pub(crate) fn parse(printed: &str) -> Result<GeneratorResult> {
    const US_PER_MS: f64 = 1e3;
    let number = |label| {
        let found = number_after(printed, label);
        found.with_context(|| format!("sysbench printed no {label:?}: {printed}"))
    };
    let operations = number(TRANSACTIONS)?;
    let line = printed.lines().find_map(|line| line.trim().strip_prefix(TRANSACTIONS));
    let rate = line.and_then(|line| line.split_once('(')?.1.split_whitespace().next()?.parse().ok());
    Ok(GeneratorResult {
        operations,
        rate_per_s: rate.context("sysbench printed no rate")?,
        // More precise than the printed average, which has only two decimals.
        mean_us: number("sum:")? * US_PER_MS / operations,
        p95_us: Some(number("95th percentile:")? * US_PER_MS),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_sysbench_is_read() {
        let printed = "SQL statistics:\n    \
            transactions:                        94310  (47143.41 per sec.)\n\
            Latency (ms):\n         \
            min:                                    0.05\n         \
            avg:                                    0.17\n         \
            95th percentile:                        0.29\n         \
            sum:                                15844.08\n";
        let (operations, rate_per_s, mean_us) = (94_310.0, 47_143.41, 168.0);
        let result = GeneratorResult { operations, rate_per_s, mean_us, p95_us: Some(290.0) };
        assert_eq!(parse(printed).unwrap(), result);
        assert!(parse("nothing").is_err());
    }
}
