//! Tests of the library on real PostgreSQL servers: they work as without it, and their files contain no plaintext.

mod backup;
mod children;
mod conformance;
mod damage;
mod files;
mod fixture;
mod pgbackrest;
mod refusals;
mod secrets;
mod stock;
mod versions;
mod ways;

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use files::{contents, holding};
use fixture::{Cluster, Fixture, Server, Under, succeeds};

/// A marker in rows, names and messages, which is searched in all files.
const MARKER: &str = "marker-of-the-proof-7b1f";
/// Duration of a load that a crash ends; longer than the time until then.
const LOAD_S: &str = "600";
const TIME_LIMIT: Duration = Duration::from_mins(2);

/// Rows, an index, TOAST, names in a catalog, a prepared transaction, a sequence, an unlogged table. Creating a slot waits
/// for all transactions, so it precedes the prepared one.
const TABLES: &str = "
    CREATE TABLE secrets (id bigserial PRIMARY KEY, text text);
    INSERT INTO secrets (text) SELECT 'MARKER ' || n FROM generate_series(1, 20000) n;
    CREATE INDEX \"MARKER-index\" ON secrets (text);
    CREATE TABLE long (text text); ALTER TABLE long ALTER text SET STORAGE EXTERNAL;
    INSERT INTO long VALUES (repeat('MARKER ', 10000));
    CREATE UNLOGGED TABLE loose AS SELECT 'MARKER' || n AS text FROM generate_series(1, 1000) n;
    CREATE DATABASE copied STRATEGY file_copy;
    CHECKPOINT;
    SELECT pg_create_logical_replication_slot('slot', 'test_decoding');
    BEGIN; INSERT INTO secrets (text) VALUES ('MARKER prepared'); PREPARE TRANSACTION 'MARKER-two';
    CHECKPOINT;";

/// Writes the marker everywhere, then kills the server under load during a sort on disk. Returns the files that contained
/// the marker just before: backends remove sort files when their postmaster is gone.
fn fill_and_crash(cluster: &Cluster<'_>, under: Under<'_>, archive: &str) -> Vec<PathBuf> {
    let server = cluster.start(under, &[archive]);
    succeeds(cluster.program("pgbench", Under::Nothing).args(["-i", "-q", "-s", "5"]));
    for line in TABLES.lines() {
        let line = server.version().statement(line.trim()).replace("MARKER", MARKER);
        if !line.is_empty() {
            server.ask(&line);
        }
    }
    let segment = server.ask("SELECT pg_walfile_name(pg_switch_wal())");
    let mut load = cluster.program("pgbench", Under::Nothing);
    load.args(["-c", "8", "-j", "2", "-T", LOAD_S]).stdout(Stdio::null()).stderr(Stdio::null());
    let load = load.spawn().expect("pgbench runs");
    let sort = server.spawn(&format!(
        "BEGIN; DECLARE c CURSOR FOR SELECT a.text || '{MARKER}' FROM secrets a, generate_series(1, 5) ORDER BY md5(a.text); \
         FETCH 1 FROM c; SELECT pg_sleep({LOAD_S})"
    ));
    until("a load and a sort on disk", || {
        let sorted = fs::read_dir(cluster.data.join("base/pgsql_tmp")).is_ok_and(|files| {
            files.filter_map(Result::ok).any(|file| file.metadata().is_ok_and(|file| file.len() > 100_000))
        });
        sorted && server.ask("SELECT count(*) >= 1000 FROM pgbench_history") == "t"
    });
    until("a segment in the archive", || server.has_archived(&segment));
    let found = holding(&cluster.data, MARKER);
    server.crash();
    for client in [load, sort] {
        end(client);
    }
    found
}

fn end(mut client: Child) {
    drop(client.kill());
    client.wait().expect("a status");
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIME_LIMIT;
    while !done() {
        assert!(Instant::now() < deadline, "{what} took too long");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Checks that exactly the committed transactions are there after the crash.
fn is_whole(cluster: &Cluster<'_>, server: &Server<'_>) {
    let balances =
        "SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(bbalance) FROM pgbench_branches),
        (SELECT sum(tbalance) FROM pgbench_tellers), (SELECT sum(delta) FROM pgbench_history)";
    let balances = server.ask(balances);
    let sums: Vec<&str> = balances.split('|').collect();
    assert_eq!(sums.len(), 4, "{balances}");
    assert!(sums.iter().all(|sum| *sum == sums[0]), "{balances}");
    assert_eq!(server.ask("SELECT count(*) FROM loose"), "0", "an unlogged table is empty after a crash");
    let rows = "SELECT count(*) FROM secrets WHERE text LIKE 'marker%'";
    assert_eq!(server.ask(rows), "20000");
    server.ask(&format!("COMMIT PREPARED '{MARKER}-two'"));
    assert_eq!(server.ask(rows), "20001");
    assert_eq!(server.ask("SELECT length(text) FROM long"), (10_000 * (MARKER.len() + 1)).to_string());
    // More than 64 kB, so that the transaction is spilled to disk and read again.
    server.ask("INSERT INTO secrets (text) SELECT 'spilled ' || n FROM generate_series(1, 20000) n");
    let decoded =
        "SELECT count(*) FROM pg_logical_slot_peek_changes('slot', NULL, NULL) WHERE data LIKE '%spilled%'";
    let decoded = format!("SET logical_decoding_work_mem = '64kB'; {decoded}");
    assert_eq!(server.ask(&decoded), "20000");
    let mut amcheck = cluster.program("pg_amcheck", Under::Nothing);
    succeeds(amcheck.args(["--all", "--install-missing", "--heapallindexed"]));
}

/// Programs that the server runs for users have no keys and no library, and see ciphertext.
fn children_know_nothing(fixture: &Fixture, server: &Server<'_>) {
    let directory = fixture.directory("children");
    let seen = directory.join("seen");
    server.ask(&format!(
        "COPY (SELECT 1) TO PROGRAM 'env > {0}; cat /proc/self/maps >> {0}; ls -l /proc/self/fd >> {0}; cat global/1262 >> {0}'",
        seen.display()
    ));
    let seen = fs::read(seen).expect("written");
    let seen = String::from_utf8_lossy(&seen);
    assert!(
        seen.contains("/pg_") || seen.contains("PGDATA") || seen.contains("PWD="),
        "it saw its environment"
    );
    for trace in ["CIPHERTOLL", "LD_PRELOAD", "ciphertoll_tde", "/kek"] {
        assert!(!seen.contains(trace), "a child of the server knows of {trace}");
    }
    assert!(!seen.contains("template0"), "a child of the server reads plaintext");
}

#[test]
fn an_encrypted_cluster_survives_a_crash_and_shows_nothing() {
    for fixture in Fixture::all(&[]) {
        survives_and_shows_nothing(&fixture);
    }
}

fn survives_and_shows_nothing(fixture: &Fixture) {
    let cluster = fixture.cluster("sealed");
    let (kek, kek_file) = fixture.kek("kek");
    fixture.make_keys(&cluster.data, &kek);
    let under = Under::Library(&kek_file);
    cluster.init(under);
    let archive = fixture.directory("archive");
    let archiving = format!("archive_command=cp %p {}/%f", archive.display());
    let nowhere = Vec::<PathBuf>::new();
    assert_eq!(fill_and_crash(&cluster, under, &archiving), nowhere);
    assert_eq!(holding(&cluster.data, MARKER), nowhere);
    assert!(!contents(&archive).is_empty(), "nothing was archived");
    assert_eq!(holding(&archive, MARKER), nowhere);

    let server = cluster.start(under, &[&archiving]);
    is_whole(&cluster, &server);
    children_know_nothing(fixture, &server);
    let path = server.ask("SELECT pg_relation_filepath('secrets')");
    server.stop();
    assert_eq!(holding(&cluster.data, MARKER), nowhere);

    tools_read_it(&cluster, under);
    waldump_reads_the_archive(&cluster, under, &archive);

    refusals::of_encrypted(&cluster, &kek, &kek_file);

    let path = cluster.data.join(path);
    let mut bytes = fs::read(&path).expect("a relation");
    bytes[5000] ^= 1;
    cluster.is_damaged.set(true);
    fs::write(&path, bytes).expect("a flipped bit");
    let server = cluster.start(under, &[]);
    let answer = server.psql("SELECT sum(length(text)) FROM secrets");
    let said = String::from_utf8_lossy(&answer.stderr);
    assert!(said.contains("invalid page in block 0"), "a flipped bit: {said}");
}

/// The programs that a version has.
fn tools_read_it(cluster: &Cluster<'_>, under: Under<'_>) {
    let has = |name| cluster.fixture.version.has(name);
    let check = |under| {
        let mut check = cluster.program("pg_checksums", under);
        check.arg("--check").arg("-D").arg(&cluster.data).output().expect("it runs").status.success()
    };
    if has("pg_checksums") {
        assert!(check(under), "checksums");
        assert!(!check(Under::Nothing), "checksums of ciphertext");
    }
    let last =
        contents(&cluster.data.join("pg_wal")).into_keys().find(|path| path.is_file()).expect("a segment");
    let dump = |under| {
        let mut dump = cluster.program("pg_waldump", under);
        dump.arg("-n1").arg(&last).output().expect("it runs")
    };
    if has("pg_waldump") {
        let dumped = dump(under);
        assert!(dumped.status.success(), "{}", String::from_utf8_lossy(&dumped.stderr));
        assert!(!dump(Under::Nothing).status.success(), "a dump of ciphertext");
    }
}

/// Whether a file has the name of a WAL segment.
fn is_segment(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.len() == 24)
}

/// WAL segments in a directory outside the cluster.
fn waldump_reads_the_archive(cluster: &Cluster<'_>, under: Under<'_>, archive: &Path) {
    if !cluster.fixture.version.has("pg_waldump") {
        return;
    }
    let segment = contents(archive).into_keys().find(|path| is_segment(path)).expect("an archived segment");
    let dump = |under| {
        let mut dump = cluster.program("pg_waldump", under);
        let name = segment.file_name().expect("a name");
        dump.arg("-n1").arg("--path").arg(archive).arg(name).output().expect("it runs")
    };
    let dumped = dump(under);
    assert!(dumped.status.success(), "{}", String::from_utf8_lossy(&dumped.stderr));
    assert!(!dump(Under::Nothing).status.success(), "a dump of ciphertext");
}

#[test]
fn without_the_library_the_same_is_readable() {
    for fixture in Fixture::all(&[]) {
        is_readable(&fixture);
    }
}

fn is_readable(fixture: &Fixture) {
    let cluster = fixture.cluster("plain");
    cluster.init(Under::Nothing);
    let archive = fixture.directory("archive");
    let archiving = format!("archive_command=cp %p {}/%f", archive.display());
    let found = fill_and_crash(&cluster, Under::Nothing, &archiving);
    let within = |part: &str| found.iter().any(|path| path.to_string_lossy().contains(part));
    for part in ["/base/", "/pg_wal/", "/pgsql_tmp/", "/pg_twophase/"] {
        assert!(within(part), "the check for the marker would find nothing in {part}");
    }
    assert!(!holding(&archive, MARKER).is_empty(), "nor in the archive");
    refusals::of_plain(&cluster);
    // The next server removes the shared memory of the killed one.
    drop(cluster.start(Under::Nothing, &[]));
}
