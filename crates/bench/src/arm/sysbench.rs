//! sysbench's OLTP scripts, on the lab's table.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use ciphertoll_model::Engine;

use super::pgbench::set_tls;
use super::tool::{ToolRun, number_after, write_private};
use super::{Arm, Place, Route, Sample, Work};

pub(super) fn run(arm: &Arm, place: &Place<'_>) -> Result<Sample> {
    let short = ToolRun::of(&mut command(arm, place, &["--time=0", "--events=1"])?, place)?;
    let seconds = format!("--time={}", place.seconds.ceil());
    let run = ToolRun::of(&mut command(arm, place, &[&seconds])?, place)?;
    let told = Told::of(&run.printed).context("sysbench printed no result")?;
    let short_transactions =
        number_after(&short.printed, TRANSACTIONS).context("sysbench counted nothing")?;
    let cpu = run.beyond(told.transactions, &short, short_transactions)?;
    Ok(Sample {
        rate_per_s: told.rate_per_s,
        cpu_us_per_op: cpu.client_us,
        server_cpu_us_per_op: Some(cpu.server_us),
        mean_us: told.mean_us,
        p95_us: Some(told.p95_us),
    })
}

fn command(arm: &Arm, place: &Place<'_>, limits: &[&str]) -> Result<Command> {
    if arm.route != Route::Plain {
        bail!("sysbench is compared by TCP without TLS");
    }
    let (script, keys) = match arm.work {
        Work::PointSelect => ("oltp_point_select", "uniform"),
        Work::OltpReadOnly => ("oltp_read_only", "special"),
        work => bail!("sysbench has no {work:?}"),
    };
    let program = place.tools.sysbench.as_ref().context("there is no sysbench")?;
    let (host, port) = place.address()?;
    let driver = driver(place.engine());
    let mut command = Command::new(program);
    command
        .arg(format!("--config-file={}", config(arm, place)?.display()))
        .args([format!("--db-driver={driver}"), format!("--rand-type={keys}")])
        .args([format!("--{driver}-host={host}"), format!("--{driver}-port={port}")])
        .arg(format!("--threads={}", arm.work.clients()))
        .args(limits)
        .args([script, "run"]);
    if place.engine() == Engine::Postgres {
        set_tls(&mut command, arm.route, place)?;
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

/// The password goes by a file of ours: sysbench would take it as an argument, for all to see.
fn config(arm: &Arm, place: &Place<'_>) -> Result<PathBuf> {
    let path = place.private.join("sysbench.cnf");
    let account = place.server.account(arm.auth);
    let password = fs::read_to_string(&account.password_file).context("cannot read the password")?;
    let driver = driver(place.engine());
    let config = format!(
        "{driver}-user={}\n{driver}-password={password}\n{driver}-db={}\ntables=1\ntable-size={}\n",
        account.user,
        place.server.database(),
        arm.work.scale(place).rows()
    );
    write_private(&path, &config)?;
    Ok(path)
}

const TRANSACTIONS: &str = "transactions:";

/// What sysbench prints.
#[derive(Debug, PartialEq)]
pub(crate) struct Told {
    pub(crate) transactions: f64,
    pub(crate) rate_per_s: f64,
    pub(crate) mean_us: f64,
    p95_us: f64,
}

impl Told {
    pub(crate) fn of(printed: &str) -> Option<Self> {
        const US_PER_MS: f64 = 1e3;
        let transactions = number_after(printed, TRANSACTIONS)?;
        let line = printed.lines().find_map(|line| line.trim().strip_prefix(TRANSACTIONS))?;
        let (_, rate) = line.split_once('(')?;
        Some(Self {
            transactions,
            rate_per_s: rate.split_whitespace().next()?.parse().ok()?,
            // The average that it prints has two decimals; the sum has as many, and is larger.
            mean_us: number_after(printed, "sum:")? * US_PER_MS / transactions,
            p95_us: number_after(printed, "95th percentile:")? * US_PER_MS,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_sysbench_prints() {
        let printed = "SQL statistics:\n    \
            transactions:                        94310  (47143.41 per sec.)\n\
            Latency (ms):\n         \
            min:                                    0.05\n         \
            avg:                                    0.17\n         \
            95th percentile:                        0.29\n         \
            sum:                                15844.08\n";
        let told = Told { transactions: 94_310.0, rate_per_s: 47_143.41, mean_us: 168.0, p95_us: 290.0 };
        assert_eq!(Told::of(printed), Some(told));
        assert_eq!(Told::of("nothing"), None);
    }
}
