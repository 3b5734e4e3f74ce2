//! Encryption at rest in a run: the check of the files, processes killed and unencrypted tables created during a trial, and
//! that no file system stays mounted, even after SIGKILL.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ciphertoll_model::Engine;
use ciphertoll_net::Address;
use ciphertoll_net::blocking::Client;
use ciphertoll_record::{ProcessIdentity, is_mounted, sweep};
use ciphertoll_testing::{missing, not_for_all};
use ciphertoll_wire::session::Login;
use ciphertoll_wire::{Secret, mysql};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::{
    Attack, Finished, Session, assert_gone, is, is_noise, items, one_document, real_server_of, text, unswept,
    until,
};
use crate::tde::built_library;

const LAYER: &str = "gocryptfs";
const FEW: [&str; 4] = ["--path", "plain", "--workload", "point-select"];
const SHORT: [&str; 4] = ["--trial-time", "500ms", "--blocks", "2"];
/// For a run that is interrupted.
const LONG: [&str; 4] = ["--trial-time", "500ms", "--blocks", "30"];
/// More blocks than needed, because a trial may end before the test can attack it.
const ATTACKED: [&str; 4] = ["--trial-time", "500ms", "--blocks", "4"];
/// Duration of each of these trials, including warm-up.
const TRIAL: Duration = Duration::from_millis(750);

/// Starts a run with two servers, unencrypted and encrypted with `level`. `None` if the level is not supported here.
fn begun(place: &Path, engine: Engine, level: &str, more: &[&str]) -> Option<Session> {
    const TRIES: u32 = 3;
    if !real_server_of(engine) {
        return None;
    }
    let (server, levels) = (engine.label(), format!("none,{level}"));
    let asked = ["--server", server, "--at-rest", &levels];
    for _ in 0..TRIES {
        let mut session = Session::start(place, &[&asked[..], &FEW, more].concat());
        session.wait_for("calibration's end", |event| is(event, "block_finished"));
        let skipped = session.events().iter().find(|event| is(event, "cell_skipped"));
        let Some(skipped) = skipped else { return Some(session) };
        // It is here, and the machine had no time for it.
        if session.lost_to_noise(skipped) {
            continue;
        }
        let told: fn(&Value) = if matches!(level, "native" | "fscrypt") { not_for_all } else { missing };
        let reason = skipped["skipped"]["reason"].as_str().expect("a reason");
        assert!(!reason.starts_with("failed"), "it is here, and does not work: {skipped}");
        told(skipped);
        return None;
    }
    panic!("no time for a trial in {TRIES} calibrations");
}

fn is_encrypted(trial: &Value, level: &str) -> bool {
    trial["cell"].as_str().is_some_and(|cell| cell.contains(&format!("/{level}/")))
}

/// Waits for the next trial with encrypted files, and until its clients work.
#[track_caller]
fn encrypted_trial(session: &mut Session, level: &str) -> Value {
    let trial = session.wait_for("a trial with encrypted files", |event| {
        is(event, "trial_started") && is_encrypted(event, level)
    });
    session.load();
    trial
}

/// Kills the process `chosen` in a trial with encrypted files. Returns the event that `gate` voided the trial, and the
/// number of missed trials.
#[track_caller]
fn kill_in_mid_trial(
    session: &mut Session,
    level: &str,
    gate: &'static str,
    chosen: fn(&mut Session) -> ProcessIdentity,
) -> (Value, usize) {
    session.attack_one(
        |event| is_encrypted(event, level),
        |session| Attack { process: chosen(session), signal: Signal::SIGKILL, gate, trial: TRIAL },
    )
}

/// Fails unless the voided trial was repeated and counted.
#[track_caller]
fn was_done_again(finished: &Finished, voided: &Value) {
    let again = finished.named("trial_finished");
    let same = |event: &&Value| ["cell", "block", "arm"].iter().all(|key| event[*key] == voided[*key]);
    assert!(again.into_iter().any(|event| same(&event)), "{:?}", finished.told());
}

/// The results of the checks of files, for each start of a server.
fn found(finished: &Finished) -> Vec<(&str, bool)> {
    let proofs = finished.named("at_rest_proven").into_iter();
    proofs
        .map(|proof| (proof["at_rest"].as_str().expect("a level"), proof["files_with_marker"] != 0))
        .collect()
}

/// Fails unless one server was found unencrypted, and the other one and its replacement encrypted. More replacements are
/// accepted for missed trials.
#[track_caller]
fn was_found_afresh(finished: &Finished, level: &str, missed: usize) {
    let found = found(finished);
    let (clear, encrypted) = found.split_first().expect("what was found");
    assert_eq!(*clear, ("none", true));
    assert!(encrypted.iter().all(|found| *found == (level, false)), "{encrypted:?}");
    assert!(
        (2..=2 + missed).contains(&encrypted.len()),
        "and again when it was started afresh: {encrypted:?}"
    );
}

/// The mount point of a run's file system.
fn mounted(scratch: &Path) -> PathBuf {
    let servers = fs::read_dir(scratch).expect("the scratch directory").flatten();
    let mut mounts = servers.map(|server| server.path().join("gate/clear"));
    mounts.find(|mount| is_mounted(mount).expect("what is mounted")).expect("a file system")
}

fn layer_of(session: &mut Session) -> ProcessIdentity {
    let processes = session.processes();
    processes.iter().rfind(|noted| noted.what == LAYER).expect("its process").identity
}

/// Loop devices on files below `scratch`.
fn loops(scratch: &Path) -> Vec<String> {
    let devices = fs::read_dir("/sys/block").expect("/sys/block").flatten();
    let files = devices.filter_map(|device| fs::read_to_string(device.path().join("loop/backing_file")).ok());
    files.filter(|file| file.contains(text(scratch))).collect()
}

#[test]
fn a_killed_file_system_voids_its_trial_and_the_run_goes_on() {
    let place = tempfile::tempdir().expect("a directory");
    let Some(mut session) = begun(place.path(), Engine::Postgres, LAYER, &ATTACKED) else { return };
    let first = mounted(session.scratch());
    let (voided, missed) = kill_in_mid_trial(&mut session, LAYER, "at_rest", layer_of);
    session.wait_for("the end", |event| is(event, "looked"));
    let (processes, scratch) = (session.identities(), session.scratch().to_owned());
    let finished = session.finish();
    assert_gone(&processes, &scratch);
    assert!(!is_mounted(&first).expect("what is mounted"));
    was_done_again(&finished, &voided);
    was_found_afresh(&finished, LAYER, missed);
    let document = one_document(&finished.stdout);
    let levels = |key: &str| -> Vec<String> {
        items(&document, key).iter().filter_map(|cell| Some(cell["at_rest"].as_str()?.to_owned())).collect()
    };
    assert_eq!(levels("cells"), ["none", LAYER]);
    assert_eq!(levels("at_rest_proofs"), ["none", LAYER]);
    let proofs = items(&document, "at_rest_proofs");
    assert!(proofs.iter().all(|proof| proof["bytes"].as_u64() > Some(1_000_000)), "{proofs:?}");
}

/// The file system is unmounted with its only user.
#[test]
fn a_killed_server_voids_its_trial_and_leaves_no_mount() {
    for level in [LAYER, "fscrypt"] {
        let place = tempfile::tempdir().expect("a directory");
        let Some(mut session) = begun(place.path(), Engine::MariaDb, level, &ATTACKED) else { continue };
        let (voided, missed) = kill_in_mid_trial(&mut session, level, "server_died", Session::server);
        session.wait_for("the end", |event| is(event, "looked"));
        let (processes, scratch) = (session.identities(), session.scratch().to_owned());
        let finished = session.finish();
        assert_gone(&processes, &scratch);
        until("every device goes", || loops(&scratch).is_empty().then_some(()));
        was_done_again(&finished, &voided);
        was_found_afresh(&finished, level, missed);
    }
}

/// A migration could create such a table.
#[test]
fn a_table_in_the_clear_voids_the_trials_that_it_is_there_in() {
    let place = tempfile::tempdir().expect("a directory");
    // With FORCE, no unencrypted table can be created.
    let allowed = ["--set", "mariadb.innodb_encrypt_tables=ON"];
    // The table must be dropped before the repeated trial ends.
    let more = [&allowed[..], &["--trial-time", "2s", "--blocks", "2"]].concat();
    let Some(mut session) = begun(place.path(), Engine::MariaDb, "native", &more) else { return };
    let trial = encrypted_trial(&mut session, "native");
    let servers = fs::read_dir(session.scratch()).expect("the scratch directory").flatten();
    let mut servers = servers.map(|server| server.path()).filter(|server| server.join("password").exists());
    let encrypted = servers.find(|server| server.join("keys").is_dir()).expect("a server with keys");
    let password = Secret::new(fs::read(encrypted.join("password")).expect("a password"));
    let login = mysql::MySqlLogin {
        database: Some("sbtest".to_owned()),
        transport: mysql::Transport::UnixSocket,
        ..mysql::MySqlLogin::new("ciphertoll".to_owned(), password)
    };
    let address = Address::Unix(encrypted.join("run/socket"));
    let mut client = Client::connect(&address, Login::MySql(Arc::new(login)), None).expect("a connection");
    client.execute("CREATE TABLE leak (id INT PRIMARY KEY) ENCRYPTED=NO").expect("a table in the clear");
    // Perhaps a later trial, if this one has ended.
    let voided = session.wait_for("a voided trial", |event| is(event, "trial_voided") && !is_noise(event));
    client.execute("DROP TABLE leak").expect("it is there");
    session.wait_for("the end", |event| is(event, "looked"));
    let (processes, scratch) = (session.identities(), session.scratch().to_owned());
    let finished = session.finish();
    assert_gone(&processes, &scratch);
    assert_eq!(voided["cell"], trial["cell"], "files in the clear are as they should be: {voided}");
    assert_eq!(voided["reason"]["message"], "not encrypted: sbtest/leak", "{voided}");
    was_done_again(&finished, &voided);
}

#[test]
fn a_killed_run_leaves_mounts_to_the_sweep_and_to_nobody_else() {
    for (level, more) in [(LAYER, &[][..]), ("fscrypt", &[]), (LAYER, &["--storage", "tmpfs"])] {
        let place = tempfile::tempdir().expect("a directory");
        let more = [&LONG[..], more].concat();
        let Some(mut session) = begun(place.path(), Engine::Postgres, level, &more) else { continue };
        let mount = mounted(session.scratch());
        let lock = unswept();
        let (scratch, processes) = session.kill_where_it_is().expect("it runs");
        session.finish();
        assert_eq!(loops(&scratch).len(), usize::from(level == "fscrypt"), "it is there to be swept");
        drop(lock);
        let root = scratch.parent().expect("the root of all scratch directories");
        until("a sweep", || sweep(root).expect("a sweep").left.is_empty().then_some(()));
        assert!(!is_mounted(&mount).expect("what is mounted"), "{}", mount.display());
        assert_gone(&processes, &scratch);
        until("every device goes", || loops(&scratch).is_empty().then_some(()));
    }
}

#[test]
fn a_run_in_memory_says_so_and_leaves_none() {
    let place = tempfile::tempdir().expect("a directory");
    let more = [&LONG[..], &["--storage", "tmpfs"]].concat();
    let Some(mut session) = begun(place.path(), Engine::Postgres, "fscrypt", &more) else { return };
    let (processes, scratch) = (session.identities(), session.scratch().to_owned());
    let mounts = fs::read_to_string("/proc/mounts").expect("/proc/mounts");
    let of_memory = |line: &&str| line.contains(text(&scratch)) && line.starts_with("tmpfs ");
    assert_eq!(mounts.lines().filter(of_memory).count(), 2, "each server has its own: {mounts}");
    session.signal(Signal::SIGINT);
    let finished = session.finish();
    assert_gone(&processes, &scratch);
    assert_eq!(one_document(&finished.stdout)["storage"], "tmpfs");
    assert_eq!(found(&finished), [("none", true), ("fscrypt", false)]);
}

/// The same PostgreSQL, under the library with its cipher and without.
#[test]
fn a_library_is_proven_in_the_files_and_seen_after_each_trial() {
    if !real_server_of(Engine::Postgres) {
        return;
    }
    built_library();
    let place = tempfile::tempdir().expect("a directory");
    let asked = ["--server", "postgres", "--at-rest", "none,tde,tde+cipher=null"];
    let mut session = Session::start(place.path(), &[&asked[..], &FEW, &SHORT].concat());
    session.wait_for("the end", |event| is(event, "looked"));
    let finished = session.finish();
    assert_eq!(found(&finished), [("none", true), ("tde", false), ("tde+cipher=null", true)]);
    let voided = finished.named("trial_voided");
    assert!(voided.iter().all(|event| event["reason"]["gate"] != "at_rest"), "{voided:?}");
    let measured = finished.named("trial_finished");
    let is_of = |cell: &str, level: &str| cell.contains(&format!("/{level}/"));
    for level in ["none", "tde", "tde+cipher=null"] {
        assert!(
            measured.iter().any(|event| event["cell"].as_str().is_some_and(|cell| is_of(cell, level))),
            "{level}: {:?}",
            finished.told()
        );
    }
}
