//! `ciphertoll tde verify`: real clusters that run, are stopped, have crashed, or are base backups, and everything in them
//! that must be found.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use ciphertoll_model::Engine;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{real_server_of, text};
use crate::tde::Workspace;

const VERIFY: &str = "verify -D data --key-file kek";
const PAGE_BYTES: u64 = 8192;
const SETTINGS: &str = "listen_addresses = ''\nmax_prepared_transactions = 3\nwal_level = logical\ntrack_commit_timestamp = on\n\
                        shared_buffers = 16MB\n";

impl Workspace {
    /// An encrypted cluster that runs, with tables, a slot and a prepared transaction.
    fn running(&self, data: &str, options: &str) {
        if !self.path("kek").exists() {
            self.done("keygen kek", "");
        }
        self.done(&format!("init -D {data} --key-file kek"), "");
        self.done(
            &format!(
                "exec -D {data} --key-file kek -- initdb -D {data} -U user -A trust --no-sync {options}"
            ),
            "",
        );
        let settings = format!("{SETTINGS}unix_socket_directories = '{}'\n", text(&self.work()));
        let path = self.path(data).join("postgresql.conf");
        fs::write(&path, fs::read_to_string(&path).expect("settings") + &settings).expect("settings");
        self.start_sealed(data);
        for statement in [
            "CREATE TABLE rows AS SELECT n, md5(n::text) AS text FROM generate_series(1, 20000) n",
            "CREATE INDEX ON rows (text)",
            "SELECT pg_create_logical_replication_slot('slot', 'test_decoding')",
            "BEGIN; INSERT INTO rows VALUES (0, 'prepared'); PREPARE TRANSACTION 'two'",
            "CHECKPOINT",
        ] {
            self.ask(statement);
        }
    }

    fn verify(&self, arguments: &str) -> (Option<i32>, String) {
        let Output { status, stdout, stderr } = self.tde(arguments, "");
        (status.code(), String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned())
    }

    #[track_caller]
    fn is_encrypted(&self, arguments: &str) {
        let (code, said) = self.verify(arguments);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("everything is encrypted"), "{said}");
    }

    /// Changes a file, expects exactly this finding, and restores the file.
    #[track_caller]
    fn finds(&self, below: &str, change: impl FnOnce(&Path), expected: &str) {
        let path = self.path("data").join(below);
        let before = fs::read(&path).ok();
        change(&path);
        let (code, said) = self.verify(VERIFY);
        match before {
            Some(before) => fs::write(&path, before).expect("restored"),
            None => fs::remove_file(&path).expect("removed"),
        }
        assert_eq!(code, Some(10), "{below}: {said}");
        let lines: Vec<&str> = said.lines().filter(|line| line.contains(", offset ")).collect();
        assert_eq!(lines, [format!("{below}, {expected}")], "{said}");
    }

    /// The only file in a directory of the cluster.
    fn only_file(&self, below: &str) -> String {
        let mut names = fs::read_dir(self.path("data").join(below)).expect("a directory").flatten();
        let name = names.next().expect("a file").file_name().into_string().expect("a name");
        assert!(names.next().is_none(), "{below}");
        format!("{below}/{name}")
    }

    fn current_segment(&self, data: &str) -> String {
        let mut names: Vec<String> = fs::read_dir(self.path(data).join("pg_wal"))
            .expect("a directory")
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| name.len() == 24)
            .collect();
        names.sort();
        format!("pg_wal/{}", names.swap_remove(0))
    }
}

fn page(path: &Path, number: u64) -> [u8; PAGE_BYTES as usize] {
    let mut page = [0; PAGE_BYTES as usize];
    fs::File::open(path).and_then(|file| file.read_exact_at(&mut page, number * PAGE_BYTES)).expect("a page");
    page
}

fn put(path: &Path, offset: u64, bytes: &[u8]) {
    let file = fs::OpenOptions::new().write(true).open(path).expect("a file");
    file.write_all_at(bytes, offset).expect("written");
}

/// An empty page, as PostgreSQL would write it without the library.
fn plain_page() -> [u8; PAGE_BYTES as usize] {
    let mut page = [0; PAGE_BYTES as usize];
    for (at, value) in [(12, 24_u16), (14, 8192), (16, 8192), (18, 0x2004)] {
        page[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }
    page
}

const PLAINTEXT: &str = "plaintext";
const MISPLACED: &str = "not ciphertext of this place: from another place or another cluster, or overwritten";

#[test]
fn clusters_that_run_are_stopped_crashed_or_backups_are_encrypted() {
    if !real_server_of(Engine::Postgres) {
        return;
    }
    let workspace = Workspace::new();
    workspace.running("data", "--data-checksums");
    let work = workspace.work();
    let work = text(&work);
    let load = workspace.succeeds(&format!("pgbench -i -q -s 2 -h {work} -U user postgres 2>&1; echo done"));
    assert!(load.ends_with("done"), "{load}");
    let mut load = workspace.command(Path::new("/bin/sh"));
    load.args(["-c", &format!("exec pgbench -c 4 -T 600 -h {work} -U user postgres")]);
    let mut load = load.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("pgbench starts");
    for _ in 0..3 {
        workspace.is_encrypted(VERIFY);
    }
    workspace.done(
        &format!(
            "exec -D copy --keys data.tde --key-file kek -- pg_basebackup -D copy -c fast -h {work} -U user"
        ),
        "",
    );
    workspace.is_encrypted("verify -D copy --keys data.tde --key-file kek");
    load.kill().expect("killed");
    load.wait().expect("a status");
    workspace.stop("data", "immediate");
    workspace.is_encrypted(VERIFY);
    workspace.start_sealed("data");
    workspace.stop("data", "fast");
    workspace.is_encrypted(VERIFY);
}

#[test]
fn everything_that_is_not_ciphertext_of_its_place_is_named() {
    if !real_server_of(Engine::Postgres) {
        return;
    }
    let workspace = Workspace::new();
    workspace.running("data", "--data-checksums");
    let rows = workspace.ask("SELECT pg_relation_filepath('rows')");
    workspace.stop("data", "fast");
    workspace.running("other", "--data-checksums");
    workspace.stop("other", "fast");
    workspace.is_encrypted(VERIFY);
    let other = workspace.path("other");

    let at = |number: u64, bytes: u64, what: &str| {
        format!("offset {}, {bytes} bytes: {what}", number * PAGE_BYTES)
    };
    workspace.finds(&rows, |path| put(path, 3 * PAGE_BYTES, &plain_page()), &at(3, PAGE_BYTES, PLAINTEXT));
    // Part of a page, which has the right header.
    workspace.finds(&rows, |path| put(path, 3 * PAGE_BYTES + 4096, &[7; 64]), &at(3, PAGE_BYTES, PLAINTEXT));
    workspace.finds(&rows, |path| put(path, 2 * PAGE_BYTES, &page(path, 3)), &at(2, PAGE_BYTES, MISPLACED));
    let two_pages = |path: &Path| {
        put(path, 2 * PAGE_BYTES, &page(path, 4));
        put(path, 3 * PAGE_BYTES, &page(path, 5));
    };
    workspace.finds(&rows, two_pages, &at(2, 2 * PAGE_BYTES, MISPLACED));
    let from_other = |path: &Path| put(path, PAGE_BYTES, &page(&other.join(&rows), 1));
    workspace.finds(&rows, from_other, &at(1, PAGE_BYTES, MISPLACED));
    let flip = |path: &Path| {
        let mut page = page(path, 4);
        page[5000] ^= 1;
        put(path, 4 * PAGE_BYTES, &page);
    };
    let damaged = "ciphertext of this place, but its checksum is wrong";
    workspace.finds(&rows, flip, &at(4, PAGE_BYTES, damaged));

    let segment = workspace.current_segment("data");
    let plain_wal = |path: &Path| {
        let mut page = page(path, 2);
        page[16..].fill(0);
        page[100..108].copy_from_slice(b"a record");
        put(path, 2 * PAGE_BYTES, &page);
    };
    workspace.finds(&segment, plain_wal, &at(2, PAGE_BYTES, PLAINTEXT));
    workspace.finds(&segment, |path| put(path, PAGE_BYTES, &page(path, 2)), &at(1, PAGE_BYTES, MISPLACED));
    let other_wal = other.join(workspace.current_segment("other"));
    workspace.finds(
        &segment,
        |path| put(path, PAGE_BYTES, &page(&other_wal, 1)),
        &at(1, PAGE_BYTES, MISPLACED),
    );

    let state = "pg_replslot/slot/state";
    let plain_slot = [&0x0105_1CA1_u32.to_le_bytes()[..], &[0; 196]].concat();
    workspace.finds(state, |path| fs::write(path, &plain_slot).expect("written"), &at(0, 200, PLAINTEXT));
    let other_slot = fs::read(other.join(state)).expect("a slot");
    let size = other_slot.len() as u64;
    workspace.finds(state, |path| fs::write(path, &other_slot).expect("written"), &at(0, size, MISPLACED));
    let prepared = workspace.only_file("pg_twophase");
    let size = fs::metadata(workspace.path("data").join(&prepared)).expect("a file").len();
    let plain = |path: &Path| put(path, 0, &vec![0x11; size as usize]);
    workspace.finds(&prepared, plain, &at(0, size, PLAINTEXT));

    workspace.finds("pg_xact/0000", |path| put(path, 0, &[0x55; 8192]), &at(0, PAGE_BYTES, PLAINTEXT));
    let from_other = |path: &Path| put(path, 0, &page(&other.join("pg_xact/0000"), 0));
    workspace.finds("pg_xact/0000", from_other, &at(0, PAGE_BYTES, MISPLACED));
    let other_map = fs::read(other.join("base/1/pg_filenode.map")).expect("a map");
    let size = other_map.len() as u64;
    let map = |path: &Path| fs::write(path, &other_map).expect("written");
    workspace.finds("base/1/pg_filenode.map", map, &at(0, size, MISPLACED));
}

#[test]
fn unknown_files_and_seals_are_named() {
    if !real_server_of(Engine::Postgres) {
        return;
    }
    let workspace = Workspace::new();
    workspace.running("data", "");
    let write = |path: &Path| fs::write(path, "12345").expect("written");
    let unknown = "offset 0, 5 bytes: not a file of PostgreSQL: stored in plaintext";
    workspace.finds("dump.sql", write, unknown);
    let among = "offset 0, 5 bytes: not a file of PostgreSQL, among the encrypted ones: stored in plaintext";
    workspace.finds("base/1/copy", write, among);
    workspace.finds("pg_wal/copy", write, among);
    let link = |path: &Path| std::os::unix::fs::symlink("../../dump.sql", path).expect("a link");
    workspace.finds(
        "base/1/99999",
        link,
        "offset 0, 0 bytes: a symbolic link, a pipe or a device in place of a file",
    );
    let seal = "not sealed with these keys, changed, or missing";
    workspace.finds(
        "PG_VERSION",
        |path| fs::write(path, "15\n").expect("written"),
        &format!("offset 0, 3 bytes: {seal}"),
    );
    let zeros = |path: &Path| put(path, 4000, &[1]);
    workspace.finds("global/pg_control", zeros, &format!("offset 0, 8192 bytes: {seal}"));

    fs::write(workspace.path("data").join("dump.sql"), "12345").expect("written");
    let (code, said) = workspace.verify("verify -D data --key-file kek --json");
    assert_eq!(code, Some(10), "{said}");
    let document: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(document["encrypted"], false);
    let finding = serde_json::json!({ "path": "dump.sql", "offset": 0, "bytes": 5, "kind": "unknown-file" });
    assert_eq!(document["findings"], serde_json::json!([finding]));
    workspace.is_encrypted("verify -D data --key-file kek --allow-plaintext dump.sql");
    // Allowing a directory of encrypted files changes nothing.
    let (code, _) = workspace.verify("verify -D data --key-file kek --allow-plaintext base");
    assert_eq!(code, Some(10));
    workspace.stop("data", "fast");
}

#[test]
fn what_cannot_be_verified_is_refused() {
    if !real_server_of(Engine::Postgres) {
        return;
    }
    let workspace = Workspace::new();
    workspace.done("keygen kek", "");
    workspace.done("init -D data --key-file kek", "");
    let refused = |why: &str| {
        let (code, said) = workspace.verify(VERIFY);
        assert_eq!(code, Some(10), "{said}");
        assert!(said.contains(why), "{said}");
    };
    fs::create_dir(workspace.path("data")).expect("a directory");
    refused("it holds no cluster");
    fs::remove_dir(workspace.path("data")).expect("removed");
    workspace.succeeds("mkdir plain; initdb -D plain -U user -A trust --no-sync >/dev/null; mv plain data");
    refused("the cluster is not encrypted");
}

/// Verifies slowly, ends in the middle by a signal, and continues with what was found before.
#[test]
fn an_interrupted_verification_continues() {
    if !real_server_of(Engine::Postgres) {
        return;
    }
    let workspace = Workspace::new();
    workspace.running("data", "");
    workspace.stop("data", "fast");
    let path = workspace.path("data").join("base/1/1259");
    put(&path, 0, &plain_page());
    let (code, _) = workspace.verify("verify -D data --key-file kek --state data/state");
    assert_eq!(code, Some(2), "the state is in the data directory");
    let state = workspace.path("state");
    let mut command = workspace.command(&workspace.work().join("../ciphertoll"));
    command.args(["tde", "verify", "-D", "data", "--key-file", "kek", "--max-rate", "3", "--state", "state"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let deadline = Instant::now() + Duration::from_mins(1);
    let has_found =
        |state: &PathBuf| fs::read_to_string(state).is_ok_and(|text| text.contains("base/1/1259"));
    while !has_found(&state) {
        assert!(
            child.try_wait().expect("a status").is_none() && Instant::now() < deadline,
            "no state is stored"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).expect("a signal");
    let output = child.wait_with_output().expect("a status");
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("interrupted: ") && said.contains("run the same command again to continue"),
        "{said}"
    );

    let (code, said) = workspace.verify("verify -D data --key-file kek --state state");
    assert_eq!(code, Some(10), "{said}");
    assert!(
        said.contains("continuing at ") && said.contains("base/1/1259, offset 0, 8192 bytes: plaintext"),
        "{said}"
    );
    assert!(!state.exists(), "a complete verification leaves no state");
    let (_, again) = workspace.verify(VERIFY);
    let verified = |said: &str| said.lines().find(|line| line.starts_with("verified: ")).map(str::to_owned);
    assert_eq!(verified(&said), verified(&again));
}
