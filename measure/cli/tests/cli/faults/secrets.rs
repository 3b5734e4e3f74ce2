//! The password and the keys are where they must be and nowhere else.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ciphertoll_record::ProcessIdentity;

use crate::support::{Session, assert_gone, is, real_server};

/// TLS and plain, so that every key and every way to log in is used.
const ASKED: [&str; 12] = [
    "--path",
    "plain,tls1.3-p256+mtls,tls1.2-rsa2048+resume",
    "--workload",
    "connect,point-select",
    "--clients",
    "2",
    "--blocks",
    "1",
    "--trial-time",
    "100ms",
    "--seed",
    "7",
];
const LARGEST_KEY_FILE_BYTES: u64 = 64 << 10;
/// Shorter pieces of a key would be found by chance.
const SHORTEST_SECRET: usize = 16;

/// What must not be seen, by where it was found.
type Secrets = BTreeMap<PathBuf, Vec<Vec<u8>>>;

#[test]
fn no_secret_is_in_any_artefact_argument_or_environment() {
    if !real_server() {
        return;
    }
    let place = tempfile::tempdir().expect("a temporary directory");
    let mut session = Session::start(place.path(), &ASKED);
    session.wait_for("every key and every account", |event| is(event, "block_started"));
    let secrets = secrets_below(session.scratch());
    let mut seen = seen_of(&[ProcessIdentity::of(session.pid()).expect("the program runs")]);
    while !is(
        &session.wait_for("the end", |event| is(event, "trial_started") || is(event, "looked")),
        "looked",
    ) {
        session.load();
        seen.extend(seen_of(&session.identities()));
    }
    let (processes, scratch) = (session.identities(), session.scratch().to_owned());
    let finished = session.finish();
    assert_eq!(finished.code, Some(0), "{:?}", finished.told());
    assert_gone(&processes, &scratch);

    assert!(secrets.len() >= 4, "a password and three keys: {:?}", secrets.keys());
    let programs: BTreeSet<&PathBuf> = seen.keys().collect();
    assert!(
        programs.len() >= 6,
        "command lines and environments of all three kinds of process: {programs:?}"
    );
    seen.insert("stdout".into(), finished.stdout.clone().into_bytes());
    seen.insert("stderr".into(), finished.stderr.join("\n").into_bytes());
    let files = files_below(place.path());
    assert!(files.len() > 10, "the record has its files: {files:?}");
    for file in files {
        seen.insert(file.clone(), fs::read(file).expect("read an artefact"));
    }
    for (whose, pieces) in &secrets {
        for (place, bytes) in &seen {
            let found = pieces.iter().any(|piece| contains(bytes, piece));
            assert!(!found, "{} is in {}", whose.display(), place.display());
        }
    }
    for (place, bytes) in &seen {
        assert!(!contains(bytes, b"PRIVATE KEY"), "{} has a key", place.display());
    }
}

/// The password, as text and as the bytes that it spells, and the body of each key.
fn secrets_below(scratch: &Path) -> Secrets {
    let mut secrets = Secrets::new();
    for file in files_below(scratch) {
        // The server's own data is large, has none of them, and would take longer to search than the run lasts.
        if fs::metadata(&file).is_ok_and(|metadata| metadata.len() > LARGEST_KEY_FILE_BYTES) {
            continue;
        }
        // The server's temporary files come and go.
        let Ok(contents) = fs::read(&file) else { continue };
        let pieces = match file.file_name().and_then(|name| name.to_str()) {
            Some("password") => vec![bytes_spelt(&contents), contents],
            _ if contains(&contents, b"PRIVATE KEY") => key_pieces(&contents),
            _ => continue,
        };
        assert!(
            !pieces.is_empty() && pieces.iter().all(|piece| piece.len() >= SHORTEST_SECRET),
            "{}",
            file.display()
        );
        let mode = fs::metadata(&file).expect("a file").permissions().mode();
        assert_eq!(mode & 0o077, 0, "{} can be read by others", file.display());
        secrets.insert(file, pieces);
    }
    secrets
}

/// The lines of a PEM file between its marks.
fn key_pieces(pem: &[u8]) -> Vec<Vec<u8>> {
    let lines = pem.split(|byte| *byte == b'\n').filter(|line| line.len() >= SHORTEST_SECRET);
    let body: Vec<Vec<u8>> = lines.filter(|line| !line.starts_with(b"-----")).map(<[u8]>::to_vec).collect();
    // The first line of a key is the same for all keys of its kind.
    body.into_iter().skip(1).collect()
}

/// The bytes of a hexadecimal text.
fn bytes_spelt(hex: &[u8]) -> Vec<u8> {
    let text = std::str::from_utf8(hex).expect("a password in hexadecimal");
    let pairs = (0..text.len()).step_by(2).map(|at| &text[at..at + 2]);
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("a hexadecimal digit")).collect()
}

/// What everybody, or the owner, can see of the processes that still run.
fn seen_of(processes: &[ProcessIdentity]) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut seen = BTreeMap::new();
    for process in processes.iter().filter(|process| process.is_alive()) {
        for name in ["cmdline", "environ"] {
            let path = PathBuf::from(format!("/proc/{}/{name}", process.pid));
            seen.extend(fs::read(&path).ok().map(|bytes| (path, bytes)));
        }
    }
    seen
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files.extend(files_below(&entry.path())),
            Ok(kind) if kind.is_file() => files.push(entry.path()),
            _ => {}
        }
    }
    files
}

fn contains(bytes: &[u8], piece: &[u8]) -> bool {
    memchr::memmem::find(bytes, piece).is_some()
}
