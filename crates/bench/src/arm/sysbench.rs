//! sysbench's OLTP scripts, on the lab's table.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use ciphertoll_model::Engine;

use super::pgbench::set_tls;
use super::tool::{ToolRun, number_after, write_private};
use super::{ArmSetup, BenchArm, OperationKind, Route, Sample};

pub(super) fn run(arm: &BenchArm, setup: &ArmSetup<'_>) -> Result<Sample> {
    let short = ToolRun::of(&mut command(arm, setup, &["--time=0", "--events=1"])?, setup)?;
    let seconds = format!("--time={}", setup.seconds.ceil());
    let run = ToolRun::of(&mut command(arm, setup, &[&seconds])?, setup)?;
    let result = SysbenchResult::of(&run.printed).context("sysbench printed no result")?;
    let short_transactions =
        number_after(&short.printed, TRANSACTIONS).context("sysbench printed no count")?;
    let cpu = run.cpu_beyond(result.transactions, &short, short_transactions)?;
    Ok(Sample {
        rate_per_s: result.rate_per_s,
        cpu_us_per_op: cpu.client_us,
        server_cpu_us_per_op: Some(cpu.server_us),
        mean_us: result.mean_us,
        p95_us: Some(result.p95_us),
    })
}

fn command(arm: &BenchArm, setup: &ArmSetup<'_>, limits: &[&str]) -> Result<Command> {
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
        .arg(format!("--config-file={}", config(arm, setup)?.display()))
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
fn config(arm: &BenchArm, setup: &ArmSetup<'_>) -> Result<PathBuf> {
    let path = setup.private.join("sysbench.cnf");
    let account = setup.server.account(arm.auth);
    let password = fs::read_to_string(&account.password_file).context("cannot read the password")?;
    let driver = driver(setup.engine());
    let config = format!(
        "{driver}-user={}\n{driver}-password={password}\n{driver}-db={}\ntables=1\ntable-size={}\n",
        account.user,
        setup.server.database(),
        arm.work.scale(setup).rows()
    );
    write_private(&path, &config)?;
    Ok(path)
}

const TRANSACTIONS: &str = "transactions:";

#[derive(Debug, PartialEq)]
pub(crate) struct SysbenchResult {
    pub(crate) transactions: f64,
    pub(crate) rate_per_s: f64,
    pub(crate) mean_us: f64,
    p95_us: f64,
}

impl SysbenchResult {
    pub(crate) fn of(printed: &str) -> Option<Self> {
        const US_PER_MS: f64 = 1e3;
        let transactions = number_after(printed, TRANSACTIONS)?;
        let line = printed.lines().find_map(|line| line.trim().strip_prefix(TRANSACTIONS))?;
        let (_, rate) = line.split_once('(')?;
        Some(Self {
            transactions,
            rate_per_s: rate.split_whitespace().next()?.parse().ok()?,
            // More precise than the printed average, which has only two decimals.
            mean_us: number_after(printed, "sum:")? * US_PER_MS / transactions,
            p95_us: number_after(printed, "95th percentile:")? * US_PER_MS,
        })
    }
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
        let result =
            SysbenchResult { transactions: 94_310.0, rate_per_s: 47_143.41, mean_us: 168.0, p95_us: 290.0 };
        assert_eq!(SysbenchResult::of(printed), Some(result));
        assert_eq!(SysbenchResult::of("nothing"), None);
    }
}
