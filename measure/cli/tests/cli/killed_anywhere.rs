//! SIGKILL at random moments: the run can always be resumed.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_record::{ProcessIdentity, scratch_root, sweep};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::resumed::{ASKED, BLOCKS, every_block_is_there_once};
use crate::support::{MOMENT, Session, answer, assert_blocks_used, one_document, real_server, text, until};

const ROUNDS: u32 = 6;
/// Set to the seed of a failed test run to repeat its moments.
const SEED: &str = "CIPHERTOLL_TEST_SEED";

#[test]
fn a_run_killed_at_any_moment_can_be_resumed() {
    if !real_server() {
        return;
    }
    let seed = match std::env::var(SEED) {
        Ok(seed) => seed.parse().expect("a seed is a number"),
        Err(_) => rand::random::<u32>(),
    };
    let mut random = StdRng::seed_from_u64(u64::from(seed));
    let whole = duration_of_a_run();
    for round in 1..=ROUNDS {
        let moment = whole.mul_f64(random.random());
        let again = random.random::<bool>().then(|| whole.mul_f64(random.random()));
        let what = format!("{SEED}={seed}, round {round}: killed after {moment:?}, resumed, then {again:?}");
        one_round(moment, again, &what);
    }
}

/// Also creates the template, so that no round has to.
fn duration_of_a_run() -> Duration {
    let place = tempfile::tempdir().expect("a temporary directory");
    let run = || Session::start(place.path(), &ASKED).finish();
    assert_eq!(run().code, Some(0));
    let began = Instant::now();
    assert_eq!(run().code, Some(0));
    began.elapsed()
}

#[track_caller]
fn one_round(moment: Duration, again: Option<Duration>, what: &str) {
    let place = tempfile::tempdir().expect("a temporary directory");
    let runs = place.path();
    let mut left = Vec::new();
    left.extend(killed_after(Session::start(runs, &ASKED), moment, what));
    let Some(record) = begun_record(runs) else { return there_is_nothing_to_resume(runs, &left, what) };
    let plan = fs::read(record.join("plan.json")).expect("the plan");
    left.extend(again.and_then(|again| killed_after(Session::resume(runs), again, what)));
    let resumed = Session::resume(runs).finish();
    assert_eq!(resumed.code, Some(0), "{what}: {:?}", resumed.told());
    assert_eq!(fs::read(record.join("plan.json")).expect("the plan"), plan, "{what}");
    every_block_is_there_once(&record, what);
    let document = one_document(&resumed.stdout);
    assert_eq!(document["complete"], true, "{what}");
    assert_blocks_used(&document, BLOCKS, what);
    let report = answer(&["report", "--run-dir", text(runs), "--format", "json"], runs);
    assert_eq!((report.code, &report.stdout), (Some(0), &resumed.stdout), "{what}");
    for (scratch, processes) in &left {
        nothing_runs(scratch, processes, what);
        // A process that started too late for the ledger may have written there during the cleanup, which is reported.
        let told = resumed.told().iter().any(|line| line.contains(text(scratch)));
        assert!(told || !scratch.exists(), "{what}: {} is left", scratch.display());
        until("a sweep", || {
            sweep(&scratch_root()).expect("a sweep");
            (!scratch.exists()).then_some(())
        });
    }
}

/// The scratch directory and the processes in the ledger of the killed program.
type Left = (PathBuf, Vec<ProcessIdentity>);

/// Kills the program after `moment`, unless it has exited.
#[track_caller]
fn killed_after(mut session: Session, moment: Duration, what: &str) -> Option<Left> {
    // Not a synchronisation: the moment is random.
    thread::sleep(moment);
    let left = session.kill_where_it_is();
    let finished = session.finish();
    assert!(matches!(finished.code, None | Some(0)), "{what}: {:?}", finished.told());
    left
}

/// The run's directory, if it has events.
fn begun_record(runs: &Path) -> Option<PathBuf> {
    let record = fs::read_dir(runs).expect("the runs").next()?.expect("an entry").path();
    let events = fs::read_to_string(record.join("events.jsonl")).unwrap_or_default();
    events.contains('\n').then_some(record)
}

/// The run was killed before its first event: `resume` refuses it, and a new run works.
#[track_caller]
fn there_is_nothing_to_resume(runs: &Path, left: &[Left], what: &str) {
    let refused = answer(&["resume", "--run-dir", text(runs)], runs);
    assert!(matches!(refused.code, Some(2 | 8)), "{what}: {refused:?}");
    refused.one_line();
    let anew = Session::start(runs, &ASKED).finish();
    assert_eq!(anew.code, Some(0), "{what}: {:?}", anew.told());
    for (scratch, processes) in left {
        nothing_runs(scratch, processes, what);
    }
}

/// Checks processes in the ledger, and those that were started too late for it.
#[track_caller]
fn nothing_runs(scratch: &Path, processes: &[ProcessIdentity], what: &str) {
    for process in processes {
        assert!(process.wait(MOMENT).expect("wait for a process"), "{what}: {process:?} is left");
    }
    until(&format!("the end of all that runs in {}: {what}", scratch.display()), || {
        let commands = fs::read_dir("/proc").expect("/proc").flatten();
        let mut named = commands.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok());
        named.all(|command| !command.contains(text(scratch))).then_some(())
    });
}
