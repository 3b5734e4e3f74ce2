//! `pgbench -S`, on the lab's tables.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};
use ciphertoll_model::{StatementProtocol, TlsVersion};

use super::tool::{ToolRun, number_after, write_private};
use super::{Arm, Place, Route, Sample, TOOL_THREADS, Work};

/// Longer than any run. That it is to report progress makes pgbench time each transaction, where it else
/// prints clients ÷ rate for their time.
const NEVER_S: &str = "3600";

pub(super) fn run(arm: &Arm, place: &Place<'_>) -> Result<Sample> {
    let short = ToolRun::of(command(arm, place)?.args(["--transactions", "1"]), place)?;
    let seconds = place.seconds.ceil().to_string();
    let run = ToolRun::of(command(arm, place)?.args(["--time", &seconds]), place)?;
    let told = Told::of(&run.printed).context("pgbench printed no result")?;
    let cpu = run.beyond(told.transactions, &short, f64::from(arm.work.clients()))?;
    Ok(Sample {
        rate_per_s: told.rate_per_s,
        cpu_us_per_op: cpu.client_us,
        server_cpu_us_per_op: Some(cpu.server_us),
        mean_us: told.mean_us,
        p95_us: None,
    })
}

fn command(arm: &Arm, place: &Place<'_>) -> Result<Command> {
    let program = place.tools.pgbench.as_ref().context("there is no pgbench")?;
    let (host, port) = place.address()?;
    let account = place.server.account(arm.auth);
    let clients = arm.work.clients();
    let mut command = Command::new(program);
    command
        .args(["--select-only", "--no-vacuum", "--progress", NEVER_S])
        .args(["--client", &clients.to_string(), "--jobs", &clients.min(TOOL_THREADS).to_string()])
        .args(["--host", &host, "--port", &port, "--username", &account.user]);
    match arm.work {
        Work::SelectOnly(StatementProtocol::Prepared) => command.args(["--protocol", "prepared"]),
        Work::SelectOnly(StatementProtocol::Text) => command.args(["--protocol", "simple"]),
        Work::ConnectSelect => command.args(["--protocol", "simple", "--connect"]),
        work => bail!("pgbench has no {work:?}"),
    };
    command.arg(place.server.database());
    let password = fs::read_to_string(&account.password_file).context("cannot read the password")?;
    let password_file = place.private.join("pgpass");
    write_private(&password_file, &format!("*:*:*:*:{password}\n"))?;
    command.env("PGPASSFILE", password_file).env("PGGSSENCMODE", "disable");
    set_tls(&mut command, arm.route, place)?;
    Ok(command)
}

/// Unless told otherwise, libpq takes TLS where the server has it.
pub(super) fn set_tls(command: &mut Command, route: Route, place: &Place<'_>) -> Result<()> {
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
        .env("PGSSLROOTCERT", place.server.ca_file())
        .env("PGSSLMINPROTOCOLVERSION", version)
        .env("PGSSLMAXPROTOCOLVERSION", version);
    Ok(())
}

/// What pgbench prints.
#[derive(Debug, PartialEq)]
struct Told {
    transactions: f64,
    rate_per_s: f64,
    mean_us: f64,
}

impl Told {
    fn of(printed: &str) -> Option<Self> {
        const US_PER_MS: f64 = 1e3;
        // A transaction's time leaves out the connect that was made for it.
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
    fn reads_what_pgbench_prints() {
        let printed = "transaction type: <builtin: select only>\n\
            number of transactions actually processed: 41234\n\
            latency average = 0.193 ms\n\
            latency stddev = 0.080 ms\n\
            initial connection time = 12.502 ms\n\
            tps = 41345.678901 (without initial connection time)\n";
        let told = Told { transactions: 41_234.0, rate_per_s: 41_345.678_901, mean_us: 193.0 };
        assert_eq!(Told::of(printed), Some(told));
        assert_eq!(Told::of("pgbench: error: no"), None);
    }

    #[test]
    fn a_connect_of_its_own_belongs_to_the_time() {
        let printed = "number of transactions actually processed: 100\n\
            latency average = 0.193 ms\n\
            average connection time = 1.807 ms\n\
            tps = 500.000000 (including reconnection times)\n";
        assert_eq!(Told::of(printed).map(|told| told.mean_us), Some(2_000.0));
    }
}
