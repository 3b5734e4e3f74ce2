//! Programs that must be refused before they write anything.

use std::fs;
use std::path::Path;
use std::process::Command;

use ciphertoll_tde::{Kek, KeyFile, Replace};

use crate::files::{contents, holding, state};
use crate::fixture::{Cluster, Server, Under, succeeds};
use crate::{MARKER, until};

/// Fails unless the server exits with a message that contains `why`, without changing a file.
#[track_caller]
fn refuses(cluster: &Cluster<'_>, under: Under<'_>, why: &str) {
    let before = state(&cluster.data);
    let said = cluster.refuses(under);
    assert!(said.contains(why), "does not say {why:?}: {said}");
    let after = state(&cluster.data);
    let changed: Vec<_> = after.iter().filter(|(path, bytes)| before.get(*path) != Some(bytes)).collect();
    assert!(
        changed.is_empty() && before.len() == after.len(),
        "{:?} changed: {said}",
        changed.first().map(|file| file.0)
    );
}

/// A cleanly stopped encrypted cluster.
pub(crate) fn of_encrypted(cluster: &Cluster<'_>, kek: &Kek, kek_file: &Path) {
    let fixture = cluster.fixture;
    refuses(cluster, Under::Nothing, "is not a valid data directory");

    let (_, other) = fixture.kek("other-kek");
    refuses(cluster, Under::Library(&other), "wrong key-encryption key");
    refuses(cluster, Under::Library(Path::new("/dev/null")), "64 hexadecimal digits");

    let path = KeyFile::path_beside(&cluster.data);
    let kept = fs::read(&path).expect("a key file");
    let under = Under::Library(kek_file);
    for (bytes, why) in
        [(&kept[..159], "damaged"), (&[&kept[..50], &[kept[50] ^ 1], &kept[51..]].concat(), "damaged")]
    {
        fs::write(&path, bytes).expect("damaged");
        refuses(cluster, under, why);
    }
    fs::remove_file(&path).expect("removed");
    refuses(cluster, under, "not found: the cluster is not encrypted");
    fixture.make_keys(&cluster.data, kek);
    refuses(cluster, under, "the keys do not match the cluster");
    fs::write(&path, &kept).expect("restored");

    strays(cluster, under);
    plaintext_settings(cluster, under);
    plaintext_on_the_way(cluster, under);

    for unfit in ["pg_rewind", "pg_upgrade"] {
        let output = cluster.program(unfit, under).arg("--help").output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("does not support encrypted clusters"), "{said}");
    }

    // Rotation to another key-encryption key and back changes only the key file.
    let before = state(&cluster.data);
    let (new, new_file) = fixture.kek("new-kek");
    let keys = KeyFile::load(&path).expect("a key file");
    keys.rotated(kek, &new).expect("rotated").store(&path, Replace::Atomically).expect("stored");
    refuses(cluster, under, "wrong key-encryption key");
    assert!(before == state(&cluster.data), "rotation changed the cluster");
    let server = cluster.start(Under::Library(&new_file), &[]);
    assert_eq!(server.ask("SELECT count(*) > 20000 FROM secrets"), "t");
    server.stop();
    fs::write(&path, &kept).expect("restored");
}

/// A server with the keys of one cluster in the directory of another.
fn strays(cluster: &Cluster<'_>, under: Under<'_>) {
    let sealed = cluster.data.with_extension("other");
    succeeds(Command::new("cp").arg("-a").arg(&cluster.data).arg(&sealed));
    let plain = cluster.fixture.cluster("elsewhere");
    plain.init(Under::Nothing);
    for (other, why) in
        [(&sealed, "is not a valid data directory"), (&plain.data, "data directory is not the one")]
    {
        let before = state(other);
        let output = cluster.program("postgres", under).arg("-D").arg(other).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{said}");
        assert!(before == state(other), "a server wrote to a cluster with other keys");
    }
}

/// Settings at startup that would write plaintext.
fn plaintext_settings(cluster: &Cluster<'_>, under: Under<'_>) {
    let before = contents(&cluster.data);
    let mut refused = vec![("dynamic_shared_memory_type=mmap", "plaintext rows to pg_dynshmem")];
    if cluster.fixture.version.major >= 15 {
        refused.push(("archive_library=basic_archive", "archive plaintext"));
    }
    for (setting, why) in refused {
        let said = cluster.try_start(under, &[setting], &[]).err().expect("it must not start");
        let refusals: Vec<_> = said.lines().filter(|line| line.contains("ciphertoll-tde: refused")).collect();
        assert!(refusals.len() == 1 && refusals[0].contains(why), "{said}");
        assert!(before == contents(&cluster.data), "{setting}: something was written");
    }
}

/// The same while a server runs.
fn plaintext_on_the_way(cluster: &Cluster<'_>, under: Under<'_>) {
    let outside = cluster.fixture.directory("outside");
    let directory = format!("basic_archive.archive_directory={}", outside.display());
    let server = cluster.start(under, &[&directory]);
    let rows = "CREATE TABLE shown AS SELECT 'MARKER ' || n FROM generate_series(1, 1000) n";
    server.ask(&rows.replace("MARKER", MARKER));
    if cluster.fixture.version.major >= 15 && server.psql("LOAD 'basic_archive'").status.success() {
        for setting in ["archive_library = 'basic_archive'", "archive_command = ''"] {
            server.ask(&format!("ALTER SYSTEM SET {setting}"));
        }
        server.ask("SELECT pg_reload_conf()");
        server.ask("SELECT pg_switch_wal()");
        until("a refusal of the archive module", || {
            cluster.said().contains("archive_library would archive plaintext")
        });
        for setting in ["archive_library", "archive_command"] {
            server.ask(&format!("ALTER SYSTEM RESET {setting}"));
        }
        server.ask("SELECT pg_reload_conf()");
        assert_eq!(server.ask("SELECT 1"), "1", "the server goes on");
    }
    if cluster.fixture.version.major >= 15 {
        backups_to_others(&server, cluster, &outside);
    }
    assert_eq!(holding(&outside, MARKER), Vec::<std::path::PathBuf>::new());
    let found = contents(&outside).into_values().filter(|bytes| !bytes.is_empty()).count();
    assert_eq!(found, 0, "something was written outside");
    server.stop();
}

/// What `pg_basebackup --target=…` sends. The program refuses servers newer than itself, psql does not.
fn backups_to_others(server: &Server<'_>, cluster: &Cluster<'_>, outside: &Path) {
    let mut targets = vec![format!("TARGET 'server', TARGET_DETAIL '{}/target'", outside.display())];
    let shell = format!("basebackup_to_shell.command = 'cat >>{}/%f'", outside.display());
    if server.psql("LOAD 'basebackup_to_shell'").status.success() {
        server.ask("ALTER SYSTEM SET session_preload_libraries = 'basebackup_to_shell'");
        server.ask("SELECT pg_reload_conf()");
        until("a setting", || server.ask("SHOW session_preload_libraries") == "basebackup_to_shell");
        server.ask(&format!("ALTER SYSTEM SET {shell}"));
        server.ask("SELECT pg_reload_conf()");
        targets.push("TARGET 'shell'".to_owned());
    }
    for target in targets {
        let output = server.replicate(&format!("BASE_BACKUP ({target}, WAL false, CHECKPOINT 'fast')"));
        assert!(!output.status.success(), "{target}: {output:?}");
        let why = "a base backup to a target other than the client would not be encrypted";
        assert!(cluster.said().contains(why), "{target}: {output:?}\n{}", cluster.said());
    }
    server.ask("ALTER SYSTEM RESET ALL");
    assert_eq!(server.ask("SELECT 1"), "1", "the server goes on");
    assert_eq!(holding(outside, MARKER), Vec::<std::path::PathBuf>::new());
    // The label of a backup contains no row.
    for path in contents(outside).into_keys() {
        fs::remove_file(path).expect("removed");
    }
}

/// An unencrypted cluster that crashed.
pub(crate) fn of_plain(cluster: &Cluster<'_>) {
    let (kek, kek_file) = cluster.fixture.kek("kek");
    let under = Under::Library(&kek_file);
    refuses(cluster, under, "not found: the cluster is not encrypted");
    cluster.fixture.make_keys(&cluster.data, &kek);
    refuses(cluster, under, "is not encrypted");
}
