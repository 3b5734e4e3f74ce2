//! Core dumps and `/proc/PID/environ` contain no keys.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ciphertoll_tde::{KEY_FILE_BYTES, Kek, KeyFile};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use openssl::md::Md;
use openssl::pkey::Id;
use openssl::pkey_ctx::PkeyCtx;
use openssl::symm::{Cipher, decrypt_aead};

use crate::fixture::{Cluster, Fixture, Server, Under, succeeds};
use crate::until;

/// Starts a program with core dumps as large as the hard limit allows.
const WITH_CORES: [&str; 4] = ["/bin/sh", "-c", "ulimit -Sc \"$(ulimit -Hc)\"; exec \"$@\"", "sh"];

/// Key bytes by name, computed here from the key file and the key-encryption key.
fn keys(kek: &Kek, key_file: &Path) -> Vec<(&'static str, Vec<u8>)> {
    let text = kek.text();
    let kek: Vec<u8> = (0..32)
        .map(|n| u8::from_str_radix(&text[2 * n..2 * n + 2], 16).expect("hexadecimal digits"))
        .collect();
    let mut wrapping = [0; 32];
    let mut hkdf = PkeyCtx::new_id(Id::HKDF).expect("HKDF");
    hkdf.derive_init().expect("HKDF");
    hkdf.set_hkdf_md(Md::sha256()).expect("SHA-256");
    hkdf.set_hkdf_salt(b"ciphertoll tde wrapping").expect("a salt");
    hkdf.set_hkdf_key(&kek).expect("a key");
    hkdf.derive(Some(&mut wrapping)).expect("derived");
    let file = fs::read(key_file).expect("a key file");
    assert_eq!(file.len(), KEY_FILE_BYTES);
    let unwrap = |purpose: &[u8], at: usize| {
        let associated = [&file[..40], purpose].concat();
        let (nonce, sealed, tag) = (&file[at..at + 12], &file[at + 12..at + 44], &file[at + 44..at + 60]);
        decrypt_aead(Cipher::aes_256_gcm(), &wrapping, Some(nonce), &associated, sealed, tag)
            .expect("unwrapped")
    };
    vec![
        ("the data key of relations", unwrap(b"relations", 40)),
        ("the data key of WAL", unwrap(b"wal", 100)),
        ("the key-encryption key", kek),
        ("the digits of the key-encryption key", text.trim_end().as_bytes().to_vec()),
    ]
}

/// Whether a file contains a key. `grep` searches lines, so the search is for eight bytes of the key without a newline.
fn contains(file: &Path, key: &[u8]) -> bool {
    let part = key.windows(8).find(|part| !part.contains(&b'\n')).expect("eight bytes without a newline");
    let pattern = part.iter().fold(String::new(), |pattern, byte| format!("{pattern}\\x{byte:02x}"));
    let found = Command::new("grep").env("LC_ALL", "C").args(["-qaP", &pattern]).arg(file).status();
    match found.expect("grep runs").code() {
        Some(0) => true,
        Some(1) => false,
        other => panic!("grep: {other:?}"),
    }
}

/// The core dumps in a data directory.
fn cores(cluster: &Cluster<'_>) -> Vec<PathBuf> {
    let entries = fs::read_dir(&cluster.data).expect("a data directory").flatten();
    let is_core =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("core"));
    entries.map(|entry| entry.path()).filter(is_core).collect()
}

/// Whether a process that may dump core does so into its working directory.
fn cores_are_files(pid: u32) -> bool {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").expect("a pattern");
    pattern.starts_with("core") && hard_limit(pid, "Max core file size") != "0"
}

/// A limit of a process that it cannot raise.
fn hard_limit(pid: u32, name: &str) -> String {
    limit(pid, name, 1)
}

fn limit(pid: u32, name: &str, column: usize) -> String {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).expect("limits");
    let values = limits.lines().find_map(|line| line.strip_prefix(name)).expect("a limit");
    values.split_whitespace().nth(column).expect("a value").to_owned()
}

/// The process of a backend that runs a statement until it is killed.
fn backend(server: &Server<'_>) -> u32 {
    let mut client = server.spawn("SELECT count(*) FROM t; SELECT pg_sleep(600) /* victim */");
    let pid = "SELECT pid FROM pg_stat_activity WHERE query LIKE '%victim%' AND wait_event = 'PgSleep' \
               AND pid <> pg_backend_pid()";
    until("a backend", || !server.ask(pid).is_empty());
    let found = server.ask(pid).parse().expect("a process");
    std::thread::spawn(move || client.wait());
    found
}

/// Sends a signal that dumps core, and waits until the postmaster has reaped the process: from then on it accepts
/// connections only after recovery.
fn dump(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid as i32), signal).expect("a signal");
    let process = PathBuf::from(format!("/proc/{pid}"));
    until("an end of the process", || !process.exists());
}

/// Allows a running process to dump core again, whatever the library has set.
fn allow_core(fixture: &Fixture, pid: u32) {
    let limit = format!("--core={}:", hard_limit(pid, "Max core file size"));
    succeeds(fixture.command("prlimit").args([&limit, "--pid", &pid.to_string()]));
}

#[test]
fn no_core_dump_contains_a_key() {
    for fixture in Fixture::all(&[]) {
        dumps_contain_no_key(&fixture);
    }
}

fn dumps_contain_no_key(fixture: &Fixture) {
    let cluster = fixture.cluster("dumped");
    let (kek, kek_file) = fixture.kek("kek");
    fixture.make_keys(&cluster.data, &kek);
    let under = Under::Library(&kek_file);
    cluster.init(under);
    let keys = keys(&kek, &KeyFile::path_beside(&cluster.data));
    let start = || {
        let before = WITH_CORES.map(OsStr::new);
        cluster.try_start(under, &[], &before).unwrap_or_else(|said| panic!("it does not start: {said}"))
    };
    let server = start();
    // A core dump there is plaintext.
    cluster.is_damaged.set(true);
    server.ask("CREATE TABLE t AS SELECT n FROM generate_series(1, 10000) n; CHECKPOINT");

    // With the library's limit, no core dump is written, to a file or a pipe.
    assert!(["0", "1"].contains(&limit(server.process(), "Max core file size", 0).as_str()));
    dump(backend(&server), Signal::SIGSEGV);
    assert_eq!(cores(&cluster), Vec::<PathBuf>::new());

    // Without the limit, core dumps exclude memory with keys.
    until("a recovered server", || server.psql("SELECT 1").status.success());
    let pid = backend(&server);
    let expected = cores_are_files(pid);
    allow_core(fixture, pid);
    dump(pid, Signal::SIGSEGV);
    holds_none(&cluster, &keys, expected);
    until("a recovered server", || server.psql("SELECT 1").status.success());
    allow_core(fixture, server.process());
    kill(Pid::from_raw(server.process() as i32), Signal::SIGABRT).expect("a signal");
    drop(server);
    holds_none(&cluster, &keys, expected);
}

/// Checks that existing core dumps contain no key, and removes them.
#[track_caller]
fn holds_none(cluster: &Cluster<'_>, keys: &[(&str, Vec<u8>)], expected: bool) {
    let cores = cores(cluster);
    assert_eq!(!cores.is_empty(), expected, "core dumps in the data directory");
    for core in cores {
        for (name, key) in keys {
            assert!(!contains(&core, key), "{} contains {name}", core.display());
        }
        fs::remove_file(core).expect("removed");
    }
}

/// Memory locks are not inherited by child processes.
#[test]
fn keys_are_locked_in_memory_in_every_process_of_a_server() {
    for fixture in Fixture::all(&[]) {
        let cluster = fixture.cluster("locked");
        let (kek, kek_file) = fixture.kek("kek");
        fixture.make_keys(&cluster.data, &kek);
        let under = Under::Library(&kek_file);
        cluster.init(under);
        let server = cluster.start(under, &[]);
        for pid in [server.process(), backend_of(&server)] {
            let most = limit(pid, "Max locked memory", 0);
            let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a status");
            let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:")).expect("locked memory");
            let locked: u64 = locked.trim().trim_end_matches(" kB").parse().expect("kilobytes");
            // The size of a cipher cache, or one page if that exceeds the limit.
            let expected = if most.parse().is_ok_and(|most: u64| most < 1 << 20) { 4 } else { 500 };
            assert!(locked >= expected || most == "0", "{locked} kB of {most}");
        }
        server.stop();
    }
}

#[test]
fn the_environment_of_a_server_names_no_source_of_a_key() {
    for fixture in Fixture::all(&[]) {
        environment_names_nothing(&fixture);
    }
}

fn environment_names_nothing(fixture: &Fixture) {
    let cluster = fixture.cluster("environment");
    let (kek, kek_file) = fixture.kek("kek");
    fixture.make_keys(&cluster.data, &kek);
    let under = Under::Library(&kek_file);
    cluster.init(under);
    let by_file = format!("CIPHERTOLL_TDE_KEK_FILE={}", kek_file.display());
    let by_command = format!("CIPHERTOLL_TDE_KEK_COMMAND=cat {}", kek_file.display());
    for source in [by_file, by_command] {
        let before = ["env", "-u", "CIPHERTOLL_TDE_KEK_FD", "LAST=kept", &source].map(OsStr::new);
        let server = cluster.try_start(under, &[], &before).unwrap_or_else(|said| panic!("{said}"));
        let backend = backend_of(&server);
        for pid in [server.process(), backend] {
            let environ = fs::read(format!("/proc/{pid}/environ")).expect("an environment");
            let environ = String::from_utf8_lossy(&environ);
            assert!(environ.contains("LAST=kept"), "{environ}");
            assert!(!environ.contains("CIPHERTOLL_TDE"), "{environ}");
            assert!(!environ.contains(&kek_file.display().to_string()), "{environ}");
        }
        server.stop();
    }
}

fn backend_of(server: &Server<'_>) -> u32 {
    let checkpointer = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'";
    server.ask(checkpointer).parse().expect("a process")
}
