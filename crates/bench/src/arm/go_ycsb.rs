//! go-ycsb: YCSB in Go, with MongoDB's Go driver. It runs a number of operations, not a time; a short run determines how
//! many operations fill the measurement window.

use std::process::Command;

use anyhow::{Context, Result, bail};
use ciphertoll_model::{Auth, ycsb};

use super::tool::{ToolRun, write_private};
use super::{ArmSetup, BenchArm, OperationKind, Route, Sample};

/// go-ycsb hashes the bytes of a number in reverse order, so its keys differ from ciphertoll's.
const OWN_COLLECTION: &str = "usertable_go_ycsb";
/// Operations of the short run, which measures startup cost and throughput.
const SHORT_OPERATIONS: u64 = 50;

#[derive(Clone, Debug, PartialEq)]
struct GoYcsbCommand<'a> {
    phase: YcsbPhase,
    url: &'a str,
    collection: &'a str,
    records: u32,
    operations: u64,
    threads: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum YcsbPhase {
    Load,
    Run,
}

pub(super) fn run(arm: &BenchArm, setup: &ArmSetup<'_>) -> Result<Sample> {
    if (arm.route, arm.work) != (Route::Plain, OperationKind::FindOne) {
        bail!("go-ycsb is only compared for finding documents over TCP without TLS");
    }
    let (host, port) = setup.address()?;
    let command = GoYcsbCommand {
        phase: YcsbPhase::Run,
        url: &format!("mongodb://{host}:{port}/"),
        collection: OWN_COLLECTION,
        records: arm.work.scale(setup).rows(),
        operations: SHORT_OPERATIONS,
        threads: arm.work.clients().into(),
    };
    let (short, told_short) = command.run(setup)?;
    let operations = (told_short.rate_per_s * setup.seconds) as u64;
    let command = GoYcsbCommand { operations: operations.max(2 * SHORT_OPERATIONS), ..command };
    let (run, result) = command.run(setup)?;
    let cpu = run.cpu_beyond(result.operations, &short, told_short.operations)?;
    Ok(Sample {
        rate_per_s: result.rate_per_s,
        cpu_us_per_op: cpu.client_us,
        server_cpu_us_per_op: Some(cpu.server_us),
        mean_us: result.mean_us,
        p95_us: Some(result.p95_us),
    })
}

/// Loads the collection that [`run`] reads.
pub(crate) fn load_own(setup: &ArmSetup<'_>) -> Result<()> {
    let (host, port) = setup.address()?;
    load(setup, &format!("mongodb://{host}:{port}/"), OWN_COLLECTION, 1).map(drop)
}

/// Loads records into the YCSB collection. Returns records per second, as go-ycsb reports.
pub(crate) fn load_records(setup: &ArmSetup<'_>, url: &str, threads: usize) -> Result<f64> {
    load(setup, url, ycsb::COLLECTION, threads)
}

fn load(setup: &ArmSetup<'_>, url: &str, collection: &str, threads: usize) -> Result<f64> {
    let records = setup.rows.rows();
    let command = GoYcsbCommand { phase: YcsbPhase::Load, url, collection, records, operations: 0, threads };
    let (_, result) = command.run(setup)?;
    if result.operations < f64::from(records) {
        bail!("go-ycsb loaded {} of {records} records", result.operations);
    }
    Ok(result.rate_per_s)
}

impl GoYcsbCommand<'_> {
    fn run(&self, setup: &ArmSetup<'_>) -> Result<(ToolRun, GoYcsbResult)> {
        let program = setup.tools.go_ycsb.as_ref().context("go-ycsb is not installed")?;
        let account = setup.server.account(Auth::default_of(setup.engine()));
        let password = std::fs::read_to_string(&account.password_file).context("cannot read the password")?;
        let file = setup.private.join("go-ycsb.properties");
        write_private(&file, &self.properties(&account.user, &password))?;
        let mut command = Command::new(program);
        command.args([self.phase.command(), "mongodb", "-P"]).arg(file);
        let run = ToolRun::of(&mut command, setup)?;
        // Its output contains the password: only the parsed figures may be shown.
        let result = GoYcsbResult::of(&run.printed, self.phase.operation())?;
        Ok((run, result))
    }

    /// The properties file. It contains the password, which would be visible in an argument.
    fn properties(&self, user: &str, password: &str) -> String {
        let Self { url, collection, records, operations, threads, .. } = self;
        let (fields, field_bytes) = (ycsb::FIELDS, ycsb::FIELD_BYTES);
        // An invalid address disables the profiling port of go-ycsb.
        format!(
            "workload=core\ndebug.pprof=none\n\
             mongodb.url={url}\nmongodb.authdb=admin\nmongodb.username={user}\nmongodb.password={password}\n\
             table={collection}\nrecordcount={records}\noperationcount={operations}\nthreadcount={threads}\n\
             fieldcount={fields}\nfieldlength={field_bytes}\nreadallfields=true\nrequestdistribution=uniform\n\
             readproportion=1\nupdateproportion=0\ninsertproportion=0\nscanproportion=0\n"
        )
    }
}

impl YcsbPhase {
    fn command(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Run => "run",
        }
    }

    /// The name of the operation in go-ycsb's summary.
    fn operation(self) -> &'static str {
        match self {
            Self::Load => "INSERT",
            Self::Run => "READ",
        }
    }
}

/// go-ycsb's figures for one kind of operation.
#[derive(Debug, PartialEq)]
struct GoYcsbResult {
    operations: f64,
    /// Measured from the end of the first operation to the end of the last.
    rate_per_s: f64,
    mean_us: f64,
    p95_us: f64,
}

impl GoYcsbResult {
    /// Parses the last summary: go-ycsb prints one every ten seconds.
    fn of(printed: &str, operation: &str) -> Result<Self> {
        if let Some(failed) = figures(printed, &format!("{operation}_ERROR")) {
            bail!("operations of go-ycsb failed: {}", number(failed, "Count").unwrap_or_default());
        }
        let figures = figures(printed, operation).context("go-ycsb printed no result")?;
        let number = |name: &str| number(figures, name).with_context(|| format!("go-ycsb printed no {name}"));
        Ok(Self {
            operations: number("Count")?,
            rate_per_s: number("OPS")?,
            mean_us: number("Avg(us)")?,
            p95_us: number("95th(us)")?,
        })
    }
}

/// The part `Takes(s): 100.0, Count: 4270, …` of the operation's line.
fn figures<'a>(printed: &'a str, operation: &str) -> Option<&'a str> {
    printed.lines().rev().find_map(|line| {
        let (name, figures) = line.split_once(" - ")?;
        (name.trim() == operation).then_some(figures)
    })
}

fn number(figures: &str, name: &str) -> Option<f64> {
    let values = figures.split(", ").filter_map(|figure| figure.split_once(": "));
    let (_, value) = values.into_iter().find(|(known, _)| *known == name)?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "\"mongodb.password\"=\"x\"\n\
        Run finished, takes 1m40.01s\n\
        READ   - Takes(s): 50.0, Count: 2100, OPS: 42.0, Avg(us): 23400, 95th(us): 30000\n\
        READ   - Takes(s): 100.0, Count: 4270, OPS: 42.7, Avg(us): 23398, Min(us): 9, 95th(us): 31007, 99th(us): 1\n\
        TOTAL  - Takes(s): 100.0, Count: 4271, OPS: 42.8, Avg(us): 23399, 95th(us): 31008\n";

    #[test]
    fn the_last_summary_of_go_ycsb_is_read() {
        let result =
            GoYcsbResult { operations: 4_270.0, rate_per_s: 42.7, mean_us: 23_398.0, p95_us: 31_007.0 };
        assert_eq!(GoYcsbResult::of(PRINTED, "READ").unwrap(), result);
        assert_eq!(GoYcsbResult::of(PRINTED, "INSERT").unwrap_err().to_string(), "go-ycsb printed no result");
        assert!(GoYcsbResult::of("READ   - Takes(s): 1", "READ").is_err());
    }

    #[test]
    fn failed_operations_are_an_error() {
        let failed = format!("{PRINTED}READ_ERROR - Takes(s): 0.1, Count: 3, OPS: 9.9\n");
        assert_eq!(
            GoYcsbResult::of(&failed, "READ").unwrap_err().to_string(),
            "operations of go-ycsb failed: 3"
        );
    }

    #[test]
    fn properties_describe_ycsb_records() {
        let command = GoYcsbCommand {
            phase: YcsbPhase::Run,
            url: "mongodb://127.0.0.1:1/",
            collection: OWN_COLLECTION,
            records: 1_000,
            operations: 50,
            threads: 1,
        };
        let properties = command.properties("user", "secret");
        for line in ["mongodb.password=secret", "recordcount=1000", "operationcount=50", "fieldlength=100"] {
            assert!(properties.lines().any(|known| known == line), "{line}");
        }
    }
}
