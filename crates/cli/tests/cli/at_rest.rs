//! Encryption at rest in a run: what is found in the files, what is killed or left in the clear in mid-trial, and that
//! nothing stays mounted, not even after SIGKILL.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ciphertoll_model::Engine;
use ciphertoll_net::Address;
use ciphertoll_net::blocking::Client;
use ciphertoll_record::{is_mounted, sweep};
use ciphertoll_skip::{missing, not_for_all};
use ciphertoll_wire::session::Login;
use ciphertoll_wire::{Secret, mysql};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::{
    Finished, Session, alone, assert_gone, beside_others, is, items, one_document, real_server_of, text,
    until,
};
use crate::tde::built_library;

const LAYER: &str = "gocryptfs";
const FEW: [&str; 8] =
    ["--path", "plain", "--workload", "point-select", "--trial-time", "500ms", "--blocks", "2"];

/// A run that has its servers up, in the clear and with files encrypted by `level`; none where there is no such thing
/// here.
fn begun(place: &Path, engine: Engine, level: &str, more: &[&str]) -> Option<Session> {
    if !real_server_of(engine) {
        return None;
    }
    let (server, levels) = (engine.label(), format!("none,{level}"));
    let asked = ["--server", server, "--at-rest", &levels];
    let mut session = Session::start(place, &[&asked[..], &FEW, more].concat());
    // A run that can do nothing of it ends here.
    session.wait_for("calibration's end", |event| is(event, "block_finished") || is(event, "run_finished"));
    let skipped = session.events().iter().find(|event| is(event, "cell_skipped"));
    if let Some(skipped) = skipped {
        let told: fn(&Value) = if matches!(level, "native" | "fscrypt") { not_for_all } else { missing };
        told(skipped);
        return None;
    }
    Some(session)
}

/// The trial with encrypted files that begins next; its clients are at work when this returns.
#[track_caller]
fn encrypted_trial(session: &mut Session, level: &str) -> Value {
    let level = format!("/{level}/");
    let trial = session.wait_for("a trial with encrypted files", |event| {
        is(event, "trial_started") && event["cell"].as_str().is_some_and(|cell| cell.contains(&level))
    });
    session.load();
    trial
}

/// Why `trial` was voided; it was done again, and then it counted.
#[track_caller]
fn voided_once<'a>(finished: &'a Finished, trial: &Value) -> &'a Value {
    let same = |event: &&&Value| event["cell"] == trial["cell"] && event["block"] == trial["block"];
    let voided = finished.named("trial_voided");
    let reason = &voided.iter().find(same).expect("the trial was voided")["reason"];
    let again = finished.named("trial_finished");
    assert!(again.iter().any(|event| same(&event)), "{:?}", finished.told());
    reason
}

/// What was found of each server's files, whenever one was started.
fn found(finished: &Finished) -> Vec<(&str, bool)> {
    let proofs = finished.named("at_rest_proven").into_iter();
    proofs
        .map(|proof| (proof["at_rest"].as_str().expect("a level"), proof["files_with_marker"] != 0))
        .collect()
}

/// Where the file system of a run is mounted.
fn mounted(scratch: &Path) -> PathBuf {
    let servers = fs::read_dir(scratch).expect("the scratch directory").flatten();
    let mut mounts = servers.map(|server| server.path().join("gate/clear"));
    mounts.find(|mount| is_mounted(mount).expect("what is mounted")).expect("a file system")
}

fn layer_of(session: &mut Session) -> Pid {
    let processes = session.processes();
    Pid::from_raw(processes.iter().rfind(|noted| noted.what == LAYER).expect("its process").identity.pid)
}

/// Devices that make a disk of a file below `scratch`.
fn loops(scratch: &Path) -> Vec<String> {
    let devices = fs::read_dir("/sys/block").expect("/sys/block").flatten();
    let files = devices.filter_map(|device| fs::read_to_string(device.path().join("loop/backing_file")).ok());
    files.filter(|file| file.contains(text(scratch))).collect()
}

#[test]
fn a_killed_file_system_voids_its_trial_and_the_run_goes_on() {
    let _machine = alone();
    let place = tempfile::tempdir().expect("a directory");
    let Some(mut session) = begun(place.path(), Engine::Postgres, LAYER, &[]) else { return };
    let first = mounted(session.scratch());
    let trial = encrypted_trial(&mut session, LAYER);
    kill(layer_of(&mut session), Signal::SIGKILL).expect("it runs");
    session.wait_for("the end", |event| is(event, "looked"));
    let (processes, scratch) = (session.identities(), session.scratch().to_owned());
    let finished = session.finish();
    assert_gone(&processes, &scratch);
    assert!(!is_mounted(&first).expect("what is mounted"));
    assert_eq!(voided_once(&finished, &trial)["gate"], "at_rest");
    let again = [("none", true), (LAYER, false), (LAYER, false)];
    assert_eq!(found(&finished), again, "and again when it was started afresh");
    let document = one_document(&finished.stdout);
    let levels = |key: &str| -> Vec<String> {
        items(&document, key).iter().filter_map(|cell| Some(cell["at_rest"].as_str()?.to_owned())).collect()
    };
    assert_eq!(levels("cells"), ["none", LAYER]);
    assert_eq!(levels("at_rest_proofs"), ["none", LAYER]);
    let proofs = items(&document, "at_rest_proofs");
    assert!(proofs.iter().all(|proof| proof["bytes"].as_u64() > Some(1_000_000)), "{proofs:?}");
}

/// Its file system has lost its only user, and goes with it.
#[test]
fn a_killed_server_voids_its_trial_and_leaves_no_mount() {
    let _machine = alone();
    for level in [LAYER, "fscrypt"] {
        let place = tempfile::tempdir().expect("a directory");
        let Some(mut session) = begun(place.path(), Engine::MariaDb, level, &[]) else { continue };
        let trial = encrypted_trial(&mut session, level);
        kill(Pid::from_raw(session.server().pid), Signal::SIGKILL).expect("it runs");
        session.wait_for("the end", |event| is(event, "looked"));
        let (processes, scratch) = (session.identities(), session.scratch().to_owned());
        let finished = session.finish();
        assert_gone(&processes, &scratch);
        until("every device goes", || loops(&scratch).is_empty().then_some(()));
        let gate = &voided_once(&finished, &trial)["gate"];
        assert_eq!(gate, "server_died", "{:?}", finished.told());
        assert_eq!(found(&finished), [("none", true), (level, false), (level, false)]);
    }
}

/// What somebody's migration might leave behind.
#[test]
fn a_table_in_the_clear_voids_the_trials_that_it_is_there_in() {
    let _machine = beside_others();
    let place = tempfile::tempdir().expect("a directory");
    // Under FORCE nobody can.
    let allowed = ["--set", "mariadb.innodb_encrypt_tables=ON"];
    let Some(mut session) = begun(place.path(), Engine::MariaDb, "native", &allowed) else { return };
    let trial = encrypted_trial(&mut session, "native");
    let servers = fs::read_dir(session.scratch()).expect("the scratch directory").flatten();
    let mut servers = servers.map(|server| server.path()).filter(|server| server.join("password").exists());
    let encrypted = servers.find(|server| server.join("keys").is_dir()).expect("a server with keys");
    let password = Secret::new(fs::read(encrypted.join("password")).expect("a password"));
    let login = mysql::Login {
        database: Some("sbtest".to_owned()),
        transport: mysql::Transport::UnixSocket,
        ..mysql::Login::new("ciphertoll".to_owned(), password)
    };
    let address = Address::Unix(encrypted.join("run/socket"));
    let mut client =
        Client::connect(&address, Login::MySql(Arc::new(login)), None).expect("a connection of its own");
    client.execute("CREATE TABLE leak (id INT PRIMARY KEY) ENCRYPTED=NO").expect("a table in the clear");
    let voided = session.wait_for("a voided trial", |event| is(event, "trial_voided"));
    client.execute("DROP TABLE leak").expect("it is there");
    session.wait_for("the end", |event| is(event, "looked"));
    let (processes, scratch) = (session.identities(), session.scratch().to_owned());
    let finished = session.finish();
    assert_gone(&processes, &scratch);
    assert_eq!(voided["cell"], trial["cell"], "files in the clear are as they should be: {voided}");
    assert_eq!(voided_once(&finished, &trial)["message"], "not encrypted: sbtest/leak", "{voided}");
}

#[test]
fn a_killed_run_leaves_mounts_to_the_sweep_and_to_nobody_else() {
    let _machine = alone();
    for (level, more) in [(LAYER, &[][..]), ("fscrypt", &[]), (LAYER, &["--storage", "tmpfs"])] {
        let place = tempfile::tempdir().expect("a directory");
        let Some(mut session) = begun(place.path(), Engine::Postgres, level, more) else { continue };
        let mount = mounted(session.scratch());
        let (scratch, processes) = session.kill_where_it_is().expect("it runs");
        session.finish();
        assert_eq!(loops(&scratch).len(), usize::from(level == "fscrypt"), "it is there to be swept");
        let root = scratch.parent().expect("the root of all scratch directories");
        until("a sweep", || sweep(root).expect("a sweep").left.is_empty().then_some(()));
        assert!(!is_mounted(&mount).expect("what is mounted"), "{}", mount.display());
        assert_gone(&processes, &scratch);
        until("every device goes", || loops(&scratch).is_empty().then_some(()));
    }
}

#[test]
fn a_run_in_memory_says_so_and_leaves_none() {
    let _machine = beside_others();
    let place = tempfile::tempdir().expect("a directory");
    let more = ["--storage", "tmpfs"];
    let Some(mut session) = begun(place.path(), Engine::Postgres, "fscrypt", &more) else { return };
    let (processes, scratch) = (session.identities(), session.scratch().to_owned());
    let mounts = fs::read_to_string("/proc/mounts").expect("/proc/mounts");
    let of_memory = |line: &&str| line.contains(text(&scratch)) && line.starts_with("tmpfs ");
    assert_eq!(mounts.lines().filter(of_memory).count(), 2, "each server has its own: {mounts}");
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
    let _machine = alone();
    let place = tempfile::tempdir().expect("a directory");
    let asked = ["--server", "postgres", "--at-rest", "none,tde,tde+cipher=null"];
    let mut session = Session::start(place.path(), &[&asked[..], &FEW].concat());
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
