//! Checks with strace that the library handles every call on encrypted files. It only reads and writes at offsets, so any
//! other call that moves bytes bypassed it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use ciphertoll_tde::FileClass;
use ciphertoll_testing::missing;

use crate::fixture::{Cluster, Fixture, Server, Under, succeeds};
use crate::{MARKER, until};

/// Permitted calls on encrypted files: reads and writes at offsets, and calls that move no bytes.
const HANDLED: [&str; 17] = [
    "openat",
    "close",
    "pread64",
    "pwrite64",
    "ftruncate",
    "fallocate",
    "renameat2",
    "linkat",
    "lseek",
    "fstat",
    "newfstatat",
    "fsync",
    "fdatasync",
    "sync_file_range",
    "fadvise64",
    "fcntl",
    "flock",
];
/// Calls that name a file without accessing its bytes.
const NAMED: [&str; 6] = ["stat", "lstat", "access", "unlink", "chmod", "statx"];
/// Options of strace: calls on descriptors and paths, with children, with the paths of descriptors, without content.
const STRACE: [&str; 7] = ["-D", "-f", "-y", "-s0", "-e", "trace=%desc,%file", "-o"];

/// Statements that use all kinds of files.
const SESSION: &str = "
    CREATE TABLE t (id serial PRIMARY KEY, text text) WITH (fillfactor = 50);
    INSERT INTO t (text) SELECT 'MARKER' || n FROM generate_series(1, 5000) n;
    CREATE TABLE long (text text); INSERT INTO long SELECT repeat(md5(n::text), 1000) FROM generate_series(1, 20) n;
    CREATE UNLOGGED TABLE loose AS SELECT n FROM generate_series(1, 1000) n;
    CREATE TEMP TABLE own AS SELECT n FROM generate_series(1, 50000) n; SELECT count(*) FROM own;
    CHECKPOINT;
    UPDATE t SET text = text || 'x'; VACUUM t; VACUUM FULL t; CLUSTER t USING t_pkey; REINDEX TABLE t;
    ALTER TABLE t SET UNLOGGED; ALTER TABLE t SET LOGGED;
    SELECT count(*) FROM (SELECT a.text FROM t a, generate_series(1, 3) ORDER BY md5(a.text)) sorted;
    CREATE DATABASE copied STRATEGY file_copy;
    CREATE DATABASE logged STRATEGY wal_log;
    SELECT pg_create_logical_replication_slot('slot', 'test_decoding');
    INSERT INTO t (text) SELECT 'spilled' || n FROM generate_series(1, 3000) n;
    SET logical_decoding_work_mem = '64kB'; SELECT count(*) FROM pg_logical_slot_get_changes('slot', NULL, NULL);
    SELECT pg_drop_replication_slot('slot');
    BEGIN; INSERT INTO t (text) VALUES ('MARKER'); PREPARE TRANSACTION 'two';
    CHECKPOINT;
    COMMIT PREPARED 'two';
    NOTIFY channel, 'MARKER';
    TRUNCATE long; DELETE FROM t WHERE id > 10; VACUUM t; DROP DATABASE copied; DROP TABLE loose;
    SELECT pg_switch_wal(); CHECKPOINT;";

#[test]
fn no_call_on_an_encrypted_file_gets_past_the_library() {
    if Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_err() {
        return missing("no strace found; install it (Debian and Ubuntu: strace)");
    }
    for fixture in Fixture::all(&[]) {
        traced(&fixture);
    }
}

fn traced(fixture: &Fixture) {
    let cluster = fixture.cluster("traced");
    let (kek, kek_file) = fixture.kek("kek");
    fixture.make_keys(&cluster.data, &kek);
    let under = Under::Library(&kek_file);
    cluster.init(under);
    let traces = fixture.directory("traces");
    let trace = traces.join("server");
    let mut before: Vec<&OsStr> = vec![OsStr::new("strace")];
    before.extend(STRACE.iter().map(OsStr::new));
    before.push(trace.as_os_str());
    let server =
        cluster.try_start(under, &[], &before).unwrap_or_else(|said| panic!("it does not start: {said}"));
    let postmaster = server.process();
    session(&server);
    let backup = fixture.version.has("pg_basebackup").then(|| base_backup(&cluster, &kek_file, &traces));
    server.stop();
    let whole = |trace: &Path, process: Option<u32>| {
        let text = String::from_utf8_lossy(&fs::read(trace).unwrap_or_default()).into_owned();
        let ended = process.map_or("+++ exited".to_owned(), |process| format!("{process} +++ exited"));
        // strace pads the process ID with spaces.
        let held = text.lines().rev().any(|line| {
            line.split_whitespace().collect::<Vec<_>>().join(" ").starts_with(&ended) || process.is_none()
        });
        held.then_some(text)
    };
    until("the end of the trace", || whole(&trace, Some(postmaster)).is_some());
    let text = whole(&trace, Some(postmaster)).expect("a trace");
    let seen = look_at(&text, &cluster.data);
    for kind in ["relation", "log", "area", "temporary", "state", "map"] {
        assert!(seen.contains_key(kind), "the session has no {kind}: {seen:?}");
    }
    fixture.tell("calls on encrypted files, all handled", &seen);
    if let Some(target) = backup {
        let text = fs::read_to_string(traces.join("backup")).expect("a trace");
        let seen = look_at(&text, &target);
        assert!(seen.contains_key("relation") && seen.contains_key("log"), "{seen:?}");
        fixture.tell("calls of pg_basebackup, all handled", &seen);
    }
}

fn session(server: &Server<'_>) {
    let clones = server.ask("SELECT count(*) FROM pg_settings WHERE name = 'file_copy_method'") == "1";
    for line in SESSION.lines().map(str::trim).filter(|line| !line.is_empty()) {
        // One by one, because some statements cannot run in a transaction.
        let whole = ["BEGIN", "SET", "CREATE TEMP"].iter().any(|start| line.starts_with(start));
        let parts = if whole { vec![line] } else { line.split_inclusive(';').collect() };
        for part in parts {
            server.ask(&server.version().statement(part).replace("MARKER", MARKER));
        }
    }
    if clones {
        let made = "CREATE DATABASE cloned STRATEGY file_copy";
        let set = "ALTER SYSTEM SET file_copy_method = clone";
        server.ask(set);
        server.ask("SELECT pg_reload_conf()");
        until("a setting", || server.ask("SHOW file_copy_method") == "clone");
        server.ask(made);
        server.ask("DROP DATABASE cloned");
    }
}

fn base_backup(cluster: &Cluster<'_>, kek_file: &Path, traces: &Path) -> std::path::PathBuf {
    let target = cluster.fixture.cluster("traced-backup");
    let keys = |cluster: &Cluster<'_>| ciphertoll_tde::KeyFile::path_beside(&cluster.data);
    succeeds(Command::new("cp").arg("-a").arg(keys(cluster)).arg(keys(&target)));
    let own = cluster.program("pg_basebackup", Under::Nothing);
    let mut command = cluster.program("strace", Under::Nothing);
    target.set(&mut command, Under::Library(kek_file));
    // Not detached: strace exits with the traced program.
    command.args(&STRACE[1..]).arg(traces.join("backup")).arg(own.get_program());
    succeeds(command.args(["-Fp", "-Xstream", "-cfast", "-D"]).arg(&target.data));
    target.data.clone()
}

/// Counts the calls per kind of encrypted file. Fails if a call bypassed the library.
fn look_at(trace: &str, data: &Path) -> BTreeMap<&'static str, BTreeMap<String, usize>> {
    let data = fs::canonicalize(data).expect("a directory");
    let mut seen: BTreeMap<&str, BTreeMap<String, usize>> = BTreeMap::new();
    for line in trace.lines() {
        let call = line.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
        let Some((name, arguments)) = call.split_once('(') else { continue };
        for path in paths(arguments) {
            let path = data.join(path);
            let Ok(below) = path.strip_prefix(&data) else { continue };
            let Some(kind) = kind(FileClass::of(below.as_os_str().as_encoded_bytes())) else { continue };
            let handled = HANDLED.contains(&name) || NAMED.contains(&name);
            assert!(handled, "past the library: {line}");
            *seen.entry(kind).or_default().entry(name.to_owned()).or_default() += 1;
        }
    }
    seen
}

/// Paths of descriptors (`7</path>`) and path arguments (`"path"`).
fn paths(arguments: &str) -> Vec<&str> {
    let described = arguments.split('<').skip(1).filter_map(|rest| rest.split('>').next());
    let given = arguments.split('"').skip(1).step_by(2);
    described
        .chain(given)
        .map(|path| path.trim_end_matches(" (deleted)"))
        .filter(|path| !path.is_empty())
        .collect()
}

fn kind(class: FileClass) -> Option<&'static str> {
    Some(match class {
        FileClass::Unencrypted => return None,
        FileClass::Relation { .. } => "relation",
        FileClass::Map { .. } => "map",
        FileClass::Wal | FileClass::XlogTemp => "log",
        FileClass::Slru { .. } => "area",
        FileClass::Temporary(_) => "temporary",
        FileClass::State(_) => "state",
        FileClass::Control => "control",
        FileClass::Version => "version",
    })
}
