//! go-ycsb: YCSB in Go, on MongoDB's own driver for Go. It is told a number of operations and no time: how many fill a
//! window is known from a short run.

use std::process::Command;

use anyhow::{Context, Result, bail};
use ciphertoll_model::{Auth, ycsb};

use super::tool::{ToolRun, write_private};
use super::{Arm, Place, Route, Sample, Work};

/// Its hash takes a number's bytes in the other order, so that its keys are none of ours.
const OWN_COLLECTION: &str = "usertable_go_ycsb";
/// Of the run that tells what starting costs, and how fast it goes.
const SHORT_OPERATIONS: u64 = 50;

/// One of its commands, and what it is told for it.
#[derive(Clone, Debug, PartialEq)]
struct Job<'a> {
    phase: Phase,
    url: &'a str,
    collection: &'a str,
    records: u32,
    operations: u64,
    threads: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Load,
    Run,
}

pub(super) fn run(arm: &Arm, place: &Place<'_>) -> Result<Sample> {
    if (arm.route, arm.work) != (Route::Plain, Work::FindOne) {
        bail!("go-ycsb is compared at finding documents, by TCP without TLS");
    }
    let (host, port) = place.address()?;
    let job = Job {
        phase: Phase::Run,
        url: &format!("mongodb://{host}:{port}/"),
        collection: OWN_COLLECTION,
        records: arm.work.scale(place).rows(),
        operations: SHORT_OPERATIONS,
        threads: arm.work.clients().into(),
    };
    let (short, told_short) = job.run(place)?;
    let operations = (told_short.rate_per_s * place.seconds) as u64;
    let job = Job { operations: operations.max(2 * SHORT_OPERATIONS), ..job };
    let (run, told) = job.run(place)?;
    let cpu = run.beyond(told.operations, &short, told_short.operations)?;
    Ok(Sample {
        rate_per_s: told.rate_per_s,
        cpu_us_per_op: cpu.client_us,
        server_cpu_us_per_op: Some(cpu.server_us),
        mean_us: told.mean_us,
        p95_us: Some(told.p95_us),
    })
}

/// Makes the collection that [`run`] reads.
pub(crate) fn load_own(place: &Place<'_>) -> Result<()> {
    let (host, port) = place.address()?;
    load(place, &format!("mongodb://{host}:{port}/"), OWN_COLLECTION, 1).map(drop)
}

/// Loads as many records as the place has into YCSB's collection; records per second, as go-ycsb says.
pub(crate) fn load_records(place: &Place<'_>, url: &str, threads: usize) -> Result<f64> {
    load(place, url, ycsb::COLLECTION, threads)
}

fn load(place: &Place<'_>, url: &str, collection: &str, threads: usize) -> Result<f64> {
    let records = place.rows.rows();
    let job = Job { phase: Phase::Load, url, collection, records, operations: 0, threads };
    let (_, told) = job.run(place)?;
    if told.operations < f64::from(records) {
        bail!("go-ycsb loaded {} of {records} records", told.operations);
    }
    Ok(told.rate_per_s)
}

impl Job<'_> {
    fn run(&self, place: &Place<'_>) -> Result<(ToolRun, Told)> {
        let program = place.tools.go_ycsb.as_ref().context("there is no go-ycsb")?;
        let account = place.server.account(Auth::default_of(place.engine()));
        let password = std::fs::read_to_string(&account.password_file).context("cannot read the password")?;
        let file = place.private.join("go-ycsb.properties");
        write_private(&file, &self.properties(&account.user, &password))?;
        let mut command = Command::new(program);
        command.args([self.phase.command(), "mongodb", "-P"]).arg(file);
        let run = ToolRun::of(&mut command, place)?;
        // It prints its password as well: nothing of it is shown but its own figures.
        let told = Told::of(&run.printed, self.phase.operation())?;
        Ok((run, told))
    }

    /// Its file of properties. The password is in it: as an argument all could see it.
    fn properties(&self, user: &str, password: &str) -> String {
        let Self { url, collection, records, operations, threads, .. } = self;
        let (fields, field_bytes) = (ycsb::FIELDS, ycsb::FIELD_BYTES);
        // It listens on a port for whoever profiles it, unless that is no address.
        format!(
            "workload=core\ndebug.pprof=none\n\
             mongodb.url={url}\nmongodb.authdb=admin\nmongodb.username={user}\nmongodb.password={password}\n\
             table={collection}\nrecordcount={records}\noperationcount={operations}\nthreadcount={threads}\n\
             fieldcount={fields}\nfieldlength={field_bytes}\nreadallfields=true\nrequestdistribution=uniform\n\
             readproportion=1\nupdateproportion=0\ninsertproportion=0\nscanproportion=0\n"
        )
    }
}

impl Phase {
    fn command(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Run => "run",
        }
    }

    /// As it names it in its summary.
    fn operation(self) -> &'static str {
        match self {
            Self::Load => "INSERT",
            Self::Run => "READ",
        }
    }
}

/// What it prints of one kind of operation.
#[derive(Debug, PartialEq)]
struct Told {
    operations: f64,
    /// From the end of the first to the end of the last: its clock starts with the first.
    rate_per_s: f64,
    mean_us: f64,
    p95_us: f64,
}

impl Told {
    /// Of its last summary: every ten seconds it prints one of what was done so far.
    fn of(printed: &str, operation: &str) -> Result<Self> {
        if let Some(failed) = figures(printed, &format!("{operation}_ERROR")) {
            bail!("operations of go-ycsb failed: {}", number(failed, "Count").unwrap_or_default());
        }
        let figures = figures(printed, operation).context("go-ycsb printed no result")?;
        let number = |name: &str| number(figures, name).with_context(|| format!("go-ycsb told no {name}"));
        Ok(Self {
            operations: number("Count")?,
            rate_per_s: number("OPS")?,
            mean_us: number("Avg(us)")?,
            p95_us: number("95th(us)")?,
        })
    }
}

/// `Takes(s): 100.0, Count: 4270, …` of the line of this operation.
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
    fn reads_what_go_ycsb_prints_last() {
        let told = Told { operations: 4_270.0, rate_per_s: 42.7, mean_us: 23_398.0, p95_us: 31_007.0 };
        assert_eq!(Told::of(PRINTED, "READ").unwrap(), told);
        assert_eq!(Told::of(PRINTED, "INSERT").unwrap_err().to_string(), "go-ycsb printed no result");
        assert!(Told::of("READ   - Takes(s): 1", "READ").is_err());
    }

    #[test]
    fn what_failed_is_no_result() {
        let failed = format!("{PRINTED}READ_ERROR - Takes(s): 0.1, Count: 3, OPS: 9.9\n");
        assert_eq!(Told::of(&failed, "READ").unwrap_err().to_string(), "operations of go-ycsb failed: 3");
    }

    #[test]
    fn its_records_are_ycsbs() {
        let job = Job {
            phase: Phase::Run,
            url: "mongodb://127.0.0.1:1/",
            collection: OWN_COLLECTION,
            records: 1_000,
            operations: 50,
            threads: 1,
        };
        let properties = job.properties("somebody", "secret");
        for line in ["mongodb.password=secret", "recordcount=1000", "operationcount=50", "fieldlength=100"] {
            assert!(properties.lines().any(|known| known == line), "{line}");
        }
    }
}
