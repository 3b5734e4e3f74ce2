//! go-ycsb: YCSB in Go, with MongoDB's Go driver. It runs a number of operations, not a time; a short run determines how
//! many operations fill the measurement window.

use std::process::Command;

use anyhow::{Context, Result, bail};
use ciphertoll_model::{Auth, ycsb};

use super::kinds::{BenchArm, OperationKind, Route, Sample};
use super::tool::{GeneratorResult, ToolRun, write_private};
use crate::setup::BenchSetup;

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

pub(super) fn run(arm: &BenchArm, setup: &BenchSetup<'_>) -> Result<Sample> {
    if (arm.route, arm.work) != (Route::Plain, OperationKind::FindOne) {
        bail!("go-ycsb is only compared for finding documents over TCP without TLS");
    }
    let (host, port) = setup.address()?;
    let command = GoYcsbCommand {
        phase: YcsbPhase::Run,
        url: &format!("mongodb://{host}:{port}/"),
        collection: OWN_COLLECTION,
        records: setup.scale(arm.work).rows(),
        operations: SHORT_OPERATIONS,
        threads: arm.work.clients().into(),
    };
    let (short, told_short) = command.run(setup)?;
    let operations = (told_short.rate_per_s * setup.seconds) as u64;
    let command = GoYcsbCommand { operations: operations.max(2 * SHORT_OPERATIONS), ..command };
    let (run, result) = command.run(setup)?;
    run.sample(result, &short, told_short.operations)
}

/// Loads the collection that [`run`] reads.
pub(crate) fn load_own(setup: &BenchSetup<'_>) -> Result<()> {
    let (host, port) = setup.address()?;
    load(setup, &format!("mongodb://{host}:{port}/"), OWN_COLLECTION, 1).map(drop)
}

/// Loads records into the YCSB collection. Returns records per second, as go-ycsb reports.
pub(crate) fn load_records(setup: &BenchSetup<'_>, url: &str, threads: usize) -> Result<f64> {
    load(setup, url, ycsb::COLLECTION, threads)
}

fn load(setup: &BenchSetup<'_>, url: &str, collection: &str, threads: usize) -> Result<f64> {
    let records = setup.rows.rows();
    let command = GoYcsbCommand { phase: YcsbPhase::Load, url, collection, records, operations: 0, threads };
    let (_, result) = command.run(setup)?;
    if result.operations < f64::from(records) {
        bail!("go-ycsb loaded {} of {records} records", result.operations);
    }
    Ok(result.rate_per_s)
}

impl GoYcsbCommand<'_> {
    fn run(&self, setup: &BenchSetup<'_>) -> Result<(ToolRun, GeneratorResult)> {
        let program = setup.tools.go_ycsb.as_ref().context("go-ycsb is not installed")?;
        let auth = Auth::default_of(setup.engine());
        let file = setup.private.join("go-ycsb.properties");
        let user = setup.server.account(auth).user;
        write_private(&file, &self.properties(&user, &setup.password(auth)?))?;
        let (phase, operation) = self.phase.names();
        let mut command = Command::new(program);
        command.args([phase, "mongodb", "-P"]).arg(file);
        let run = ToolRun::of(&mut command, setup)?;
        // Its output contains the password: only the parsed figures may be shown.
        let result = parse(&run.printed, operation)?;
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
    /// go-ycsb's command, and the name of the operation in its summary.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Load => ("load", "INSERT"),
            Self::Run => ("run", "READ"),
        }
    }
}

/// Parses the last summary of one kind of operation: go-ycsb prints one every ten seconds.
fn parse(printed: &str, operation: &str) -> Result<GeneratorResult> {
    if let Some(failed) = figures(printed, &format!("{operation}_ERROR")) {
        bail!("operations of go-ycsb failed: {}", number(failed, "Count").unwrap_or_default());
    }
    let figures = figures(printed, operation).context("go-ycsb printed no result")?;
    let number = |name: &str| number(figures, name).with_context(|| format!("go-ycsb printed no {name}"));
    Ok(GeneratorResult {
        operations: number("Count")?,
        // Measured from the end of the first operation to the end of the last.
        rate_per_s: number("OPS")?,
        mean_us: number("Avg(us)")?,
        p95_us: Some(number("95th(us)")?),
    })
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
        let (operations, rate_per_s, mean_us) = (4_270.0, 42.7, 23_398.0);
        let result = GeneratorResult { operations, rate_per_s, mean_us, p95_us: Some(31_007.0) };
        assert_eq!(parse(PRINTED, "READ").unwrap(), result);
        assert_eq!(parse(PRINTED, "INSERT").unwrap_err().to_string(), "go-ycsb printed no result");
        assert!(parse("READ   - Takes(s): 1", "READ").is_err());
    }

    #[test]
    fn failed_operations_are_an_error() {
        let failed = format!("{PRINTED}READ_ERROR - Takes(s): 0.1, Count: 3, OPS: 9.9\n");
        assert_eq!(parse(&failed, "READ").unwrap_err().to_string(), "operations of go-ycsb failed: 3");
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
