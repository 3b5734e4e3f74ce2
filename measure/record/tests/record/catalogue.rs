//! Listing and removing runs: whole, damaged, in progress, and directories that are no runs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ciphertoll_model::{Ending, Event, ExitCode};
use ciphertoll_record::{
    CatalogueEntry, Error, ObservationDirectory, RunContents, RunDirectory, RunState, Selection,
    find_removable, finish_removals, list_runs, read_observation, remove_run,
};
use jiff::Timestamp;
use tempfile::TempDir;

use crate::run_directory::{at, block, create, started};

const FIRST: &str = "2026-11-01T00:00:00Z";
const NOW: &str = "2026-11-21T12:00:00Z";

/// A run that began at `time` and ended like this; still open.
fn run(runs: &Path, time: &str, ending: Option<Ending>) -> RunDirectory {
    let mut run = create(runs, "quick", at(time)).unwrap();
    let end = ending.map(|ending| Event::Finished { ending });
    for event in [started(), block(0), block(1)].into_iter().chain(end) {
        run.append(&event).unwrap();
    }
    run
}

fn closed(runs: &Path, time: &str) -> PathBuf {
    run(runs, time, Some(Ending::Complete)).path().to_owned()
}

fn runs() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn states(runs: &Path) -> Vec<RunState> {
    list_runs(runs).unwrap().runs.into_iter().map(|entry| entry.state).collect()
}

fn names(runs: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(runs).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn refusal(runs: &Path, asked: &str) -> Error {
    find_removable(runs, Selection::Named(&[asked.to_owned()]), at(NOW)).unwrap_err()
}

#[track_caller]
fn remove(runs: &Path, selection: Selection<'_>) -> usize {
    let found = find_removable(runs, selection, at(NOW)).unwrap();
    let removed = found.runs.into_iter().map(|run| remove_run(run).unwrap()).count();
    assert!(found.in_progress.is_empty());
    removed
}

#[test]
fn runs_are_listed_by_age_with_their_states() {
    let runs = runs();
    let path = runs.path();
    assert!(list_runs(&path.join("none")).unwrap().runs.is_empty());
    let _running = run(path, "2026-11-04T00:00:00Z", None);
    drop(run(path, "2026-11-03T00:00:00Z", Some(Ending::Interrupted)));
    drop(run(path, "2026-11-02T00:00:00Z", None));
    let whole = closed(path, FIRST);
    let damaged = closed(path, "2026-11-05T00:00:00Z");
    fs::write(damaged.join("plan.json"), "{\"schema_version\":99}").unwrap();
    fs::create_dir(path.join("other")).unwrap();
    fs::write(path.join("file"), "").unwrap();
    symlink(&whole, path.join("20261106T000000Z-quick-0000")).unwrap();
    let labels: Vec<&str> = states(path).iter().map(RunState::label).collect();
    assert_eq!(labels, ["complete", "incomplete", "incomplete", "in progress", "unreadable"]);
    let entry = list_runs(path).unwrap().runs.swap_remove(0);
    assert_eq!((entry.began_at, entry.path), (at(FIRST), whole));
    assert!(entry.size_bytes > 1_000, "{}", entry.size_bytes);
    assert!(matches!(entry.contents.unwrap(), RunContents::Run { blocks_completed: 1, .. }));
}

#[test]
fn a_resumed_run_is_in_progress_again() {
    let runs = runs();
    let path = run(runs.path(), FIRST, Some(Ending::Interrupted)).path().to_owned();
    let (_running, _) = RunDirectory::resume(&path).unwrap();
    assert_eq!(states(runs.path()), [RunState::InProgress]);
    let error = refusal(runs.path(), "latest");
    assert!(matches!(error, Error::Locked { .. }), "{error}");
    assert_eq!(error.exit_code(), ExitCode::RecordUnusable);
}

#[test]
fn a_renamed_run_has_the_time_of_its_first_event() {
    let runs = runs();
    let renamed = runs.path().join("baseline.run");
    fs::rename(closed(runs.path(), FIRST), &renamed).unwrap();
    let entry = CatalogueEntry::inspect(&renamed).unwrap();
    assert_eq!((entry.name.as_str(), entry.state), ("baseline.run", RunState::Complete));
    assert!(entry.began_at > at(NOW) || Timestamp::now() < at(NOW), "{}", entry.began_at);
    fs::write(renamed.join("events.jsonl"), "").unwrap();
    let entry = CatalogueEntry::inspect(&renamed).unwrap();
    assert!(matches!(entry.state, RunState::Unreadable { .. }), "{entry:?}");
}

#[test]
fn runs_are_removed_by_name_path_age_and_all() {
    let runs = runs();
    let path = runs.path();
    let [one, two, three, four] = ["2026-11-01", "2026-11-02", "2026-11-20", "2026-11-21"]
        .map(|day| closed(path, &format!("{day}T00:00:00Z")));
    let name = one.file_name().unwrap().to_str().unwrap().to_owned();
    // Once, although it is named twice.
    assert_eq!(remove(path, Selection::Named(&[name, one.to_str().unwrap().to_owned()])), 1);
    assert!(!one.exists() && two.exists());
    assert_eq!(remove(path, Selection::OlderThan(Duration::from_hours(24 * 18))), 1);
    assert!(!two.exists() && three.exists());
    assert_eq!(remove(path, Selection::Named(&["latest".to_owned()])), 1);
    assert!(!four.exists());
    assert_eq!(remove(path, Selection::All), 1);
    assert_eq!(names(path), [""; 0]);
    assert_eq!(remove(path, Selection::All), 0);
}

#[test]
fn damaged_and_half_made_runs_can_be_removed() {
    let runs = runs();
    let damaged = closed(runs.path(), FIRST);
    fs::remove_file(damaged.join("plan.json")).unwrap();
    let half_made = runs.path().join("20261102T000000Z-quick-a3f1");
    fs::create_dir(&half_made).unwrap();
    assert!(states(runs.path()).iter().all(|state| matches!(state, RunState::Unreadable { .. })));
    assert_eq!(remove(runs.path(), Selection::All), 2);
    assert_eq!(names(runs.path()), [""; 0]);
}

#[test]
fn what_is_no_run_is_refused_and_kept() {
    let runs = runs();
    let path = runs.path();
    let whole = closed(path, FIRST);
    fs::create_dir(path.join("precious")).unwrap();
    fs::write(path.join("precious/plan.json"), "{}").unwrap();
    fs::write(path.join("file"), "").unwrap();
    // A name of a run, but with a file that no run has.
    let other = path.join("20261103T000000Z-quick-a3f1");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("thesis.tex"), "").unwrap();
    symlink(&whole, path.join("link")).unwrap();
    let slashed = format!("{}/link/", path.display());
    for asked in ["precious", "file", "20261103T000000Z-quick-a3f1", "link", &slashed, path.to_str().unwrap()]
    {
        let error = refusal(path, asked);
        assert!(matches!(error, Error::NotARun { .. }), "{asked}: {error}");
        assert_eq!(error.exit_code(), ExitCode::RecordUnusable);
    }
    for asked in ["nothing", "quick", "", ".."] {
        let error = refusal(path, asked);
        assert!(
            !asked.starts_with('q') || error.to_string().contains("the newest of this experiment is"),
            "{error}"
        );
        assert!(matches!(error.exit_code(), ExitCode::Usage | ExitCode::RecordUnusable), "{asked}: {error}");
    }
    assert_eq!(remove(path, Selection::All), 1);
    assert_eq!(names(path), ["20261103T000000Z-quick-a3f1", "file", "link", "precious"]);
}

#[test]
fn a_refusal_comes_before_the_first_removal() {
    let runs = runs();
    let kept = closed(runs.path(), FIRST);
    let running = run(runs.path(), "2026-11-02T00:00:00Z", None);
    let asked = [&kept, running.path()].map(|path: &Path| path.to_str().unwrap().to_owned());
    let error = find_removable(runs.path(), Selection::Named(&asked), at(NOW)).unwrap_err();
    assert!(matches!(error, Error::Locked { .. }), "{error}");
    assert!(kept.is_dir());
    // By age or all, the others are removed.
    let found = find_removable(runs.path(), Selection::All, at(NOW)).unwrap();
    assert_eq!((found.runs.len(), found.in_progress.len()), (1, 1));
    assert_eq!(found.in_progress[0].state, RunState::InProgress);
    assert_eq!(found.runs[0].entry().state, RunState::Complete);
    // It is locked for its removal.
    assert!(matches!(RunDirectory::resume(&kept), Err(Error::Locked { .. })));
}

#[test]
fn links_within_a_run_are_not_followed() {
    let runs = runs();
    let elsewhere = tempfile::tempdir().unwrap();
    fs::write(elsewhere.path().join("file"), "").unwrap();
    let path = closed(runs.path(), FIRST);
    symlink(elsewhere.path(), path.join("logs/link")).unwrap();
    symlink(elsewhere.path(), path.join("link")).unwrap();
    assert_eq!(remove(runs.path(), Selection::All), 1);
    assert!(elsewhere.path().join("file").is_file());
}

#[test]
fn an_interrupted_removal_is_finished_later() {
    let runs = runs();
    let path = closed(runs.path(), FIRST);
    // Renamed aside, and killed.
    let aside = runs.path().join(".ciphertoll-removed-0000dead");
    fs::rename(&path, &aside).unwrap();
    let catalogue = list_runs(runs.path()).unwrap();
    assert_eq!((catalogue.runs.len(), catalogue.removals_to_finish), (0, 1));
    // Its name does not give it back.
    assert!(matches!(find_removable(runs.path(), Selection::All, at(NOW)).unwrap().runs[..], []));
    // Killed before the last step; and a link with such a name, which is not ours.
    fs::create_dir(runs.path().join(".ciphertoll-removed-0000beef")).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    fs::write(elsewhere.path().join("lock"), "").unwrap();
    symlink(elsewhere.path(), runs.path().join(".ciphertoll-removed-link")).unwrap();
    assert_eq!(finish_removals(runs.path()).unwrap(), 1);
    assert_eq!(names(runs.path()), [".ciphertoll-removed-link"]);
    assert!(elsewhere.path().join("lock").is_file());
}

#[test]
fn a_removal_that_another_process_does_is_left_to_it() {
    let runs = runs();
    let running = run(runs.path(), FIRST, None);
    let aside = runs.path().join(".ciphertoll-removed-0000dead");
    fs::rename(running.path(), &aside).unwrap();
    assert_eq!(finish_removals(runs.path()).unwrap(), 0);
    assert!(aside.join("plan.json").is_file());
    drop(running);
    assert_eq!(finish_removals(runs.path()).unwrap(), 1);
    assert!(!aside.exists());
}

#[test]
fn observations_are_listed_and_removed_like_runs() {
    let directory = tempfile::tempdir().unwrap();
    let now: Timestamp = "2026-11-21T01:15:00Z".parse().unwrap();
    let writing = ObservationDirectory::create(directory.path(), now).unwrap();
    let name = writing.path().file_name().unwrap().to_string_lossy().into_owned();
    let entry = CatalogueEntry::inspect(writing.path()).unwrap();
    assert_eq!((entry.state, entry.began_at), (RunState::InProgress, now));
    assert!(read_observation(directory.path(), "latest").is_err(), "nothing is written yet");
    let document = r#"{"source":"a.pcap","seconds":2.5,"pairs":[{"connections":{"begun":3}},{"connections":{"begun":4}}]}"#;
    writing.finish(document).unwrap();
    for asked in [name.as_str(), "latest"] {
        assert_eq!(read_observation(directory.path(), asked).unwrap(), (name.clone(), document.to_owned()));
    }
    let listed = list_runs(directory.path()).unwrap().runs;
    let [entry] = listed.as_slice() else { panic!("{listed:?}") };
    assert_eq!(entry.state, RunState::Complete);
    let Some(RunContents::Observation(seen)) = &entry.contents else { panic!("{entry:?}") };
    assert_eq!((seen.pairs(), seen.connects(), seen.seconds), (2, 7, 2.5));
    // It is no run that a report could be made of.
    assert!(ciphertoll_record::resolve(directory.path(), "latest").is_err());
    let mut removable = find_removable(directory.path(), Selection::All, Timestamp::now()).unwrap();
    remove_run(removable.runs.pop().unwrap()).unwrap();
    assert!(list_runs(directory.path()).unwrap().runs.is_empty());
}

#[test]
fn an_observation_that_was_killed_is_incomplete_and_can_be_removed() {
    let directory = tempfile::tempdir().unwrap();
    drop(ObservationDirectory::create(directory.path(), Timestamp::now()).unwrap());
    let listed = list_runs(directory.path()).unwrap().runs;
    assert_eq!(listed[0].state, RunState::Incomplete);
    let removable = find_removable(directory.path(), Selection::All, Timestamp::now()).unwrap();
    assert_eq!(removable.runs.len(), 1);
    drop(removable);
    // The next observer removes it, and leaves those alone that are still observing.
    let observing = ObservationDirectory::create(directory.path(), Timestamp::now()).unwrap();
    ObservationDirectory::create(directory.path(), Timestamp::now()).unwrap().abandon();
    let listed = list_runs(directory.path()).unwrap().runs;
    let [entry] = listed.as_slice() else { panic!("{listed:?}") };
    assert_eq!((&entry.state, entry.path.as_path()), (&RunState::InProgress, observing.path()));
}
