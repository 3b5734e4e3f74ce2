//! SIGKILL at moments that nobody chose: whatever was recorded until then, the run is gone on with.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_record::{ProcessIdentity, scratch_root, sweep};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::resumed::{ASKED, BLOCKS, every_block_is_there_once};
use crate::support::{
    MOMENT, Session, answer, assert_blocks_used, beside_others, one_document, real_server, text, until,
};

const ROUNDS: u32 = 6;
/// Names the moments of a run of this test that failed.
const SEED: &str = "CIPHERTOLL_TEST_SEED";

#[test]
fn a_run_killed_anywhere_is_gone_on_with() {
    if !real_server() {
        return;
    }
    let seed = match std::env::var(SEED) {
        Ok(seed) => seed.parse().expect("a seed is a number"),
        Err(_) => rand::random::<u32>(),
    };
    let mut random = StdRng::seed_from_u64(u64::from(seed));
    let _machine = beside_others();
    let whole = duration_of_a_run();
    for round in 1..=ROUNDS {
        let moment = whole.mul_f64(random.random());
        let again = random.random::<bool>().then(|| whole.mul_f64(random.random()));
        let what = format!("{SEED}={seed}, round {round}: killed after {moment:?}, resumed, then {again:?}");
        one_round(moment, again, &what);
    }
}

/// Also makes the template, which no round is to wait for.
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
        // What was started too late for the ledger may have written there while it was cleared: then that was told.
        let told = resumed.told().iter().any(|line| line.contains(text(scratch)));
        assert!(told || !scratch.exists(), "{what}: {} is left", scratch.display());
        until("a sweep", || {
            sweep(&scratch_root()).expect("a sweep");
            (!scratch.exists()).then_some(())
        });
    }
}

/// What the killed program had made, as its ledger has it.
type Left = (PathBuf, Vec<ProcessIdentity>);

/// Kills the program after `moment`, unless it was over before.
#[track_caller]
fn killed_after(mut session: Session, moment: Duration, what: &str) -> Option<Left> {
    // Nothing is waited for: any moment will do, and this one is as good as another.
    thread::sleep(moment);
    let left = session.kill_where_it_is();
    let finished = session.finish();
    assert!(matches!(finished.code, None | Some(0)), "{what}: {:?}", finished.told());
    left
}

/// The run's directory, once its events have begun.
fn begun_record(runs: &Path) -> Option<PathBuf> {
    let record = fs::read_dir(runs).expect("the runs").next()?.expect("an entry").path();
    let events = fs::read_to_string(record.join("events.jsonl")).unwrap_or_default();
    events.contains('\n').then_some(record)
}

/// Killed before its first event: nothing was measured, which resuming says, and the next run is a new one.
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

/// Neither what the ledger names, nor what was started too late to be named.
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
