//! Copies of a cluster: base backups, a standby that streams and is promoted, and point-in-time recovery from an archive;
//! all during a rotation of the key-encryption key under load.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ciphertoll_tde::{Kek, KeyFile, Replace};
use ciphertoll_testing::not_for_all;

use crate::files::{contents, holding};
use crate::fixture::{Cluster, Fixture, Server, Under, succeeds};
use crate::{MARKER, end, is_segment, until};

/// Settings for immediate archiving and streaming, and for keeping the WAL that a standby needs.
const SETTINGS: [&str; 3] = ["wal_keep_size=4GB", "archive_timeout=0", "checkpoint_timeout=1h"];

/// Checksums over tables, which must be equal in a copy.
const SUMS: &str = "SELECT (SELECT count(*) || ' ' || sum(hashtext(a::text)) FROM pgbench_accounts a),
    (SELECT count(*) || ' ' || sum(hashtext(h::text)) FROM pgbench_history h),
    (SELECT count(*) || ' ' || sum(hashtext(s::text)) FROM secrets s),
    (SELECT count(*) || ' ' || sum(hashtext(e::text)) FROM elsewhere e)";

#[test]
fn backups_standbys_and_recovery_are_ciphertext_and_whole() {
    for fixture in Fixture::all(&["pg_basebackup", "psql", "pgbench"]) {
        copies(&fixture);
    }
}

/// A primary with a tablespace and an archive.
struct Primary<'a> {
    cluster: &'a Cluster<'a>,
    space: PathBuf,
    archive: PathBuf,
}

fn copies(fixture: &Fixture) {
    let cluster = fixture.cluster("primary");
    let (kek, kek_file) = fixture.kek("kek");
    fixture.make_keys(&cluster.data, &kek);
    cluster.init(Under::Library(&kek_file));
    let primary = Primary {
        cluster: &cluster,
        space: fixture.directory("space"),
        archive: fixture.directory("archive"),
    };
    let archiving = format!("archive_command=cp %p {}/%f", primary.archive.display());
    let settings: Vec<&str> = SETTINGS.into_iter().chain([archiving.as_str()]).collect();
    let server = cluster.start(Under::Library(&kek_file), &settings);
    primary.fill(&server);

    let mut load = cluster.program("pgbench", Under::Nothing);
    load.args(["-c", "4", "-T", "120"]).stdout(Stdio::null()).stderr(Stdio::null());
    let load = load.spawn().expect("pgbench runs");
    until("a load", || server.ask("SELECT count(*) >= 100 FROM pgbench_history") == "t");
    let (new, new_file) = fixture.kek("new-kek");
    rotate(&cluster, &kek, &new);
    let under = Under::Library(&new_file);
    let standby = primary.backup(&server, "standby", under, &["-R"]);
    let restored = primary.backup(&server, "restored", under, &[]);
    let rekeyed = primary.rekeyed(&server, &new);
    primary.plain_ones_are_plain(&server);
    primary.makes_parents(&server, under);
    primary.refusals(&new_file);
    end(load);
    // A backend may continue after its client has exited.
    until("an end of the load", || {
        server.ask("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgbench'") == "0"
    });

    follows(&server, &standby, under);
    primary.recovers(&server, &restored, under);
    server.stop();
    // The first key-encryption key is invalid now; the data is unchanged.
    assert!(cluster.refuses(Under::Library(&kek_file)).contains("wrong key-encryption key"), "the old key");
    let server = cluster.start(under, &[]);
    let alone = rekeyed.start(under, &[]);
    assert!(alone.ask("SELECT count(*) FROM elsewhere") == "1000", "a backup with other data keys");
    let map = |cluster: &Cluster<'_>| fs::read(cluster.data.join("global/pg_filenode.map")).expect("a map");
    assert!(map(&rekeyed) != map(&cluster), "it has the same keys");
    drop(alone);
    assert_eq!(server.ask("SELECT count(*) FROM elsewhere"), "1000");
    server.stop();
}

/// Rotates the key-encryption key.
fn rotate(cluster: &Cluster<'_>, old: &Kek, new: &Kek) {
    let path = KeyFile::path_beside(&cluster.data);
    let keys = KeyFile::load(&path).expect("a key file");
    keys.rotated(old, new).expect("rotated").store(&path, Replace::Atomically).expect("stored");
}

impl<'a> Primary<'a> {
    fn fill(&self, server: &Server<'_>) {
        succeeds(self.cluster.program("pgbench", Under::Nothing).args(["-i", "-q", "-s", "2"]));
        for line in [
            format!("CREATE TABLESPACE space LOCATION '{}'", self.space.display()),
            format!(
                "CREATE TABLE elsewhere TABLESPACE space AS SELECT '{MARKER} ' || n AS text FROM generate_series(1, 1000) n"
            ),
            format!(
                "CREATE TABLE secrets AS SELECT '{MARKER} ' || n AS text FROM generate_series(1, 5000) n"
            ),
            format!("CREATE INDEX \"{MARKER}\" ON secrets (text)"),
        ] {
            server.ask(&line);
        }
    }

    /// The tablespace directory of a copy, which has the OID as its name.
    fn mapping(&self, server: &Server<'_>, name: &str) -> (PathBuf, String) {
        let number = server.ask("SELECT oid FROM pg_tablespace WHERE spcname = 'space'");
        let place = self.cluster.fixture.directory(&format!("{name}.spaces"));
        let mapped = format!("--tablespace-mapping={}={}/{number}", self.space.display(), place.display());
        (place, mapped)
    }

    fn command(&self, target: &Cluster<'_>, under: Under<'_>, mapped: &str) -> Command {
        let mut command = self.cluster.program("pg_basebackup", Under::Nothing);
        target.set(&mut command, under);
        command.args(["-Fp", "-Xstream", "-cfast", "--no-sync", mapped, "-D"]).arg(&target.data);
        command
    }

    /// A base backup with the same data-encryption keys, which contains no plaintext.
    fn backup(&self, server: &Server<'_>, name: &str, under: Under<'_>, arguments: &[&str]) -> Cluster<'a> {
        let target = self.cluster.fixture.cluster(name);
        let keys = (KeyFile::path_beside(&self.cluster.data), KeyFile::path_beside(&target.data));
        succeeds(Command::new("cp").arg("-a").arg(keys.0).arg(keys.1));
        let (space, mapped) = self.mapping(server, name);
        succeeds(self.command(&target, under, &mapped).args(arguments));
        for directory in [&target.data, &space] {
            assert!(!contents(directory).is_empty(), "nothing in {}", directory.display());
            assert_eq!(holding(directory, MARKER), Vec::<PathBuf>::new());
        }
        // The same WAL in another directory.
        let wal = self.cluster.fixture.directory(&format!("{name}.wal"));
        succeeds(Command::new("cp").arg("-a").arg(target.data.join("pg_wal/.")).arg(&wal));
        let verified = |under, wal: Option<&Path>| {
            let mut verify = target.program("pg_verifybackup", Under::Nothing);
            target.set(&mut verify, under);
            // A program of another version could not read the WAL.
            if !target.fixture.version.has("pg_waldump") {
                verify.arg("--no-parse-wal");
            } else if let Some(wal) = wal {
                verify.arg("--wal-directory").arg(wal);
            }
            verify.arg(&target.data).output().expect("it runs")
        };
        // Since version 17 it reads pg_control, and only that of its own version.
        if target.fixture.version.major >= 17 && !target.fixture.version.has("pg_verifybackup") {
            not_for_all(&format!("{} came without pg_verifybackup", target.fixture.version.name));
            return target;
        }
        for wal in [None, Some(wal.as_path())] {
            let output = verified(under, wal);
            assert!(output.status.success(), "the backup's manifest, WAL in {wal:?}: {output:?}");
        }
        assert!(!verified(Under::Nothing, None).status.success(), "the manifest of ciphertext");
        target
    }

    /// A base backup with new data-encryption keys, which the old keys cannot read.
    fn rekeyed(&self, server: &Server<'_>, kek: &Kek) -> Cluster<'a> {
        let target = self.cluster.fixture.cluster("rekeyed");
        self.cluster.fixture.make_keys(&target.data, kek);
        let (space, mapped) = self.mapping(server, "rekeyed");
        let kek_file = self.cluster.data.with_file_name("new-kek");
        succeeds(&mut self.command(&target, Under::Library(&kek_file), &mapped));
        for directory in [&target.data, &space] {
            assert_eq!(holding(directory, MARKER), Vec::<PathBuf>::new());
        }
        target
    }

    /// Without the library the marker is found, which proves the check.
    fn plain_ones_are_plain(&self, server: &Server<'_>) {
        let target = self.cluster.fixture.cluster("readable");
        let (space, mapped) = self.mapping(server, "readable");
        succeeds(&mut self.command(&target, Under::Nothing, &mapped));
        for directory in [&target.data, &space] {
            assert!(!holding(directory, MARKER).is_empty(), "nothing found in {}", directory.display());
        }
        self.plain_wal_is_read_as_it_is(&target.data.join("pg_wal"));
    }

    /// Unencrypted segments, as `pg_receivewal` writes them.
    fn plain_wal_is_read_as_it_is(&self, wal: &Path) {
        if !self.cluster.fixture.version.has("pg_waldump") {
            return;
        }
        let segment = contents(wal).into_keys().find(|path| is_segment(path)).expect("a segment");
        let kek_file = self.cluster.data.with_file_name("new-kek");
        let mut dump = self.cluster.program("pg_waldump", Under::Library(&kek_file));
        succeeds(dump.arg("-n1").arg("--path").arg(wal).arg(segment.file_name().expect("a name")));
    }

    /// Missing parent directories of the target are created, as without the library.
    fn makes_parents(&self, server: &Server<'_>, under: Under<'_>) {
        let data = self.cluster.fixture.directory("parents").join("a/b/data");
        let mut command = self.cluster.program("pg_basebackup", under);
        command.env("CIPHERTOLL_TDE_DATA", &data);
        command.env("CIPHERTOLL_TDE_KEYS", KeyFile::path_beside(&self.cluster.data));
        let (_, mapped) = self.mapping(server, "parents");
        command.args(["-Fp", "-Xstream", "-cfast", "--no-sync", &mapped, "-D"]).arg(&data);
        succeeds(&mut command);
        assert_eq!(holding(&data, MARKER), Vec::<PathBuf>::new());
    }

    /// Backups that would be plaintext are refused.
    fn refusals(&self, kek_file: &Path) {
        let fixture = self.cluster.fixture;
        let target = fixture.cluster("refused");
        let other = fixture.directory("refused-other");
        let keys = (KeyFile::path_beside(&self.cluster.data), KeyFile::path_beside(&target.data));
        succeeds(Command::new("cp").arg("-a").arg(keys.0).arg(keys.1));
        let mapped = format!("--tablespace-mapping={}={}", self.space.display(), other.display());
        let here = target.data.to_string_lossy().into_owned();
        let there = other.to_string_lossy().into_owned();
        let refused: [(&str, &[&str], &str); 5] = [
            ("pg_basebackup", &["-cfast", "-Ft", "-D", &here], "use plain format"),
            ("pg_basebackup", &["-Fp", "-D", &there], "must be written to"),
            ("pg_basebackup", &["-Ft", "-Xnone", "-D", "-"], "must be written to"),
            ("pg_basebackup", &["-cfast", "-Fp", &mapped, "-D", &here], "the tablespace's OID as its name"),
            ("pg_receivewal", &["-D", &here], "does not support encrypted clusters"),
        ];
        for (name, arguments, why) in refused {
            let mut command = self.cluster.program(name, Under::Nothing);
            target.set(&mut command, Under::Library(kek_file));
            let output = command.args(arguments).output().expect("it runs");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && said.contains(why), "{name} {arguments:?}: {said}");
            assert!(!String::from_utf8_lossy(&output.stdout).contains(MARKER), "{name} {arguments:?}");
            for directory in [&target.data, &other] {
                assert_eq!(holding(directory, MARKER), Vec::<PathBuf>::new(), "{name} {arguments:?}");
                for entry in fs::read_dir(directory).expect("a directory").flatten() {
                    succeeds(Command::new("rm").arg("-rf").arg(entry.path()));
                }
            }
        }
    }

    /// Point-in-time recovery from the archive.
    fn recovers(&self, server: &Server<'_>, restored: &Cluster<'_>, under: Under<'_>) {
        server.ask("CREATE TABLE steps (text text)");
        server.ask(&format!("INSERT INTO steps VALUES ('{MARKER} before')"));
        let sums = server.ask(SUMS);
        server.ask("SELECT pg_create_restore_point('the-point')");
        server.ask(&format!("INSERT INTO steps VALUES ('{MARKER} after'); DELETE FROM secrets"));
        let last = server.ask("SELECT pg_walfile_name(pg_switch_wal())");
        until("the last segment in the archive", || server.has_archived(&last));
        assert_eq!(holding(&self.archive, MARKER), Vec::<PathBuf>::new());

        let signal = restored.data.join("recovery.signal");
        fs::write(&signal, "").expect("written");
        self.cluster.fixture.give(&signal);
        let restoring = format!("restore_command=cp {}/%f %p", self.archive.display());
        let server = restored
            .start(under, &[&restoring, "recovery_target_name=the-point", "recovery_target_action=promote"]);
        until("the end of recovery", || server.ask("SELECT pg_is_in_recovery()") == "f");
        assert_eq!(server.ask("SELECT text FROM steps"), format!("{MARKER} before"));
        assert_eq!(server.ask(SUMS), sums);
        server.stop();
        assert_eq!(holding(&restored.data, MARKER), Vec::<PathBuf>::new());
    }
}

/// A standby receives new WAL, and works after its promotion.
fn follows(primary: &Server<'_>, standby: &Cluster<'_>, under: Under<'_>) {
    // An old server does not accept the connection options that a newer `pg_basebackup -R` writes.
    let connection = format!("primary_conninfo={}", primary.connection());
    let settings: Vec<&str> = SETTINGS.into_iter().chain([connection.as_str()]).collect();
    let server = standby.start(under, &settings);
    assert_eq!(server.ask("SELECT pg_is_in_recovery()"), "t");
    primary.ask(&format!(
        "INSERT INTO secrets SELECT '{MARKER} streamed ' || n FROM generate_series(1, 1000) n"
    ));
    let position = primary.ask("SELECT pg_current_wal_insert_lsn()");
    until("a standby that has all", || {
        server.ask(&format!("SELECT pg_last_wal_replay_lsn() >= '{position}'")) == "t"
    });
    assert_eq!(server.ask("SELECT count(*) FROM pg_stat_wal_receiver WHERE status = 'streaming'"), "1");
    assert_eq!(server.ask(SUMS), primary.ask(SUMS));
    assert_eq!(server.ask("SELECT pg_promote()"), "t");
    server.ask(&format!("INSERT INTO secrets VALUES ('{MARKER} of its own')"));
    let mut amcheck = standby.program("pg_amcheck", Under::Nothing);
    succeeds(amcheck.args(["--all", "--install-missing", "--heapallindexed"]));
    server.stop();
    assert_eq!(holding(&standby.data, MARKER), Vec::<PathBuf>::new());
}
