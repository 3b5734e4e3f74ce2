//! pgBackRest archives, backs up and restores ciphertext, with the commands of docs/at-rest/page-encryption.md.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ciphertoll_tde::KeyFile;
use ciphertoll_testing::{missing, not_for_all};

use crate::files::{contents, holding};
use crate::fixture::{Cluster, Fixture, Under, succeeds};
use crate::{MARKER, until};

/// The PostgreSQL version that Debian's pgBackRest supports.
const PACKAGED: &str = "/usr/lib/postgresql";

#[test]
fn pgbackrest_archives_backs_up_and_restores_ciphertext() {
    if Command::new("pgbackrest").arg("version").stdout(Stdio::null()).status().is_err() {
        return missing("no pgBackRest found; install it (Debian and Ubuntu: pgbackrest)");
    }
    for fixture in Fixture::all(&[]) {
        if fixture.version.bin.starts_with(PACKAGED) {
            copies(&fixture);
        } else {
            not_for_all(&format!("pgBackRest may not support {}", fixture.version.name));
        }
    }
}

/// A repository and the configuration file.
struct Repository<'a> {
    fixture: &'a Fixture,
    settings: PathBuf,
    files: PathBuf,
}

impl<'a> Repository<'a> {
    fn new(cluster: &Cluster<'a>) -> Self {
        let fixture = cluster.fixture;
        let [files, locks, spool] = ["repository", "locks", "spool"].map(|name| fixture.directory(name));
        let settings = fixture.directory("settings").join("pgbackrest.conf");
        let text = format!(
            "[global]\nrepo1-path={}\nlock-path={}\nspool-path={}\nlog-level-file=off\nlog-level-console=warn\n\
             repo1-retention-full=2\nstart-fast=y\n\
             archive-header-check=n\nchecksum-page=n\ncompress-type=none\n\
             [proof]\npg1-path={}\npg1-socket-path={}\npg1-user=proof\n",
            files.display(),
            locks.display(),
            spool.display(),
            cluster.data.display(),
            cluster.sockets.display()
        );
        fs::write(&settings, text).expect("written");
        fixture.give(&settings);
        Self { fixture, settings, files }
    }

    /// The shell command for pgBackRest.
    fn command_line(&self) -> String {
        format!("pgbackrest --config={} --stanza=proof", self.settings.display())
    }

    fn run(&self, cluster: &Cluster<'_>, under: Under<'_>, arguments: &[&str]) {
        let mut command = self.fixture.command("/bin/sh");
        command.args(["-c", &format!("exec {} \"$@\"", self.command_line()), "sh"]).args(arguments);
        cluster.set(&mut command, under);
        succeeds(&mut command);
    }
}

fn copies(fixture: &Fixture) {
    let cluster = fixture.cluster("primary");
    let (kek, kek_file) = fixture.kek("kek");
    fixture.make_keys(&cluster.data, &kek);
    let under = Under::Library(&kek_file);
    cluster.init(under);
    let repository = Repository::new(&cluster);
    let archiving =
        format!("archive_command={} --reset-pg1-path archive-push \"$PWD\"/%p", repository.command_line());
    let server = cluster.start(under, &[&archiving]);
    repository.run(&cluster, under, &["stanza-create"]);
    repository.run(&cluster, under, &["check"]);
    server.ask(&format!("CREATE TABLE t AS SELECT '{MARKER} ' || n AS text FROM generate_series(1, 5000) n"));
    repository.run(&cluster, under, &["--type=full", "backup"]);
    server.ask(&format!("CREATE TABLE u AS SELECT '{MARKER} ' || n AS text FROM generate_series(1, 100) n"));
    repository.run(&cluster, under, &["--type=diff", "backup"]);
    server.ask("DELETE FROM t WHERE text LIKE '%9'");
    server.ask("SELECT pg_create_restore_point('the-point')");
    server.ask("DROP TABLE t");
    let segment = server.ask("SELECT pg_walfile_name(pg_switch_wal())");
    until("a segment in the repository", || server.has_archived(&segment));
    assert!(!contents(&repository.files).is_empty(), "nothing in the repository");
    assert_eq!(holding(&repository.files, MARKER), Vec::<PathBuf>::new());
    holds_sealed_control(&repository.files);

    let restored = restore(&repository, &cluster, &kek_file);
    let server = restored.start(under, &[]);
    until("the end of recovery", || server.ask("SELECT pg_is_in_recovery()") == "f");
    assert_eq!(server.ask("SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM u)"), "4500|100");
    server.stop();
    assert_eq!(holding(&restored.data, MARKER), Vec::<PathBuf>::new());
}

/// No backup contains a `pg_control` that stock programs could use.
fn holds_sealed_control(repository: &Path) {
    let controls: Vec<_> =
        contents(repository).into_iter().filter(|(path, _)| path.ends_with("global/pg_control")).collect();
    assert!(!controls.is_empty(), "no pg_control in the repository");
    for (path, bytes) in controls {
        assert!(ciphertoll_tde::looks_sealed(&bytes), "{}", path.display());
    }
}

/// Restores the last backup to the restore point. Only `restore_command` needs the key.
fn restore<'a>(repository: &Repository<'a>, cluster: &Cluster<'_>, kek_file: &Path) -> Cluster<'a> {
    let target = repository.fixture.cluster("restored");
    let keys = [&cluster.data, &target.data].map(|data| KeyFile::path_beside(data));
    succeeds(Command::new("cp").arg("-a").args(keys));
    let there = format!("--pg1-path={}", target.data.display());
    let mut environment = Command::new("env");
    target.set(&mut environment, Under::Library(kek_file));
    let variables: Vec<String> = environment
        .get_envs()
        .filter_map(|(name, value)| Some(format!("{}={}", name.to_str()?, value?.to_str()?)))
        .collect();
    let restoring = format!(
        "--recovery-option=restore_command=env {} {} {there} archive-get %f \"%p\"",
        variables.join(" "),
        repository.command_line()
    );
    let point = ["--type=name", "--target=the-point", "--target-action=promote"];
    let arguments: Vec<&str> =
        [there.as_str(), &restoring].into_iter().chain(point).chain(["restore"]).collect();
    repository.run(&target, Under::Nothing, &arguments);
    target
}
