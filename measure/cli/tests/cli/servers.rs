//! `servers`: what is listed can be asked for, and a fetch that cannot be says why and leaves nothing.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ciphertoll_model::ServerLevel;
use ciphertoll_testing::not_for_all;
use nix::unistd::{Uid, User, chown};
use serde_json::Value;

use crate::support::{answer, is_root, items, one_document, real_server, text};

/// Set where tests may fetch from registries: they are slow, and not ours to load.
const MAY_FETCH: &str = "CIPHERTOLL_TEST_FETCH";

/// The address of Debian's archive.
const MIRROR: &str = "CIPHERTOLL_DEBIAN_MIRROR";

#[test]
fn every_server_that_is_listed_can_be_asked_for() {
    if !real_server() {
        return;
    }
    let place = tempfile::tempdir().expect("a temporary directory");
    let json = answer(&["servers", "--json"], place.path());
    assert_eq!((json.code, json.stderr.as_str()), (Some(0), ""));
    let document = one_document(&json.stdout);
    let table = answer(&["servers"], place.path());
    assert_eq!((table.code, table.stderr.as_str()), (Some(0), ""));
    let servers = items(&document, "servers");
    assert!(!servers.is_empty(), "{document}");
    for server in servers {
        let told = |key: &str| server[key].as_str().unwrap_or_default();
        let level: ServerLevel = told("level").parse().expect("a level");
        let build = ciphertoll_lab::find(&level).expect("the server that was listed");
        assert_eq!((build.version.as_str(), build.engine.label()), (told("version"), told("engine")));
        assert_eq!(text(&build.base_directory), told("directory"));
        let row = table.stdout.lines().find(|line| line.contains(&format!("--server {level} ")));
        let directory = format!(" {}", told("directory"));
        assert!(row.is_some_and(|row| row.ends_with(&directory)), "{level}: {table:?}");
    }
    for fetchable in items(&document, "fetchable") {
        let command = fetchable["command"].as_str().expect("a command");
        assert_eq!(table.stdout.contains(command), fetchable["here"] == false, "{table:?}");
    }
}

/// A cache of one's own, which only a user other than root can have, and the program where that user can
/// start it.
struct Stranger {
    place: tempfile::TempDir,
}

impl Stranger {
    fn new() -> Self {
        let place = tempfile::tempdir_in("/var/tmp").expect("a temporary directory");
        // Written by another process: a file that this process has open for writing cannot be executed.
        let copied = Command::new("cp")
            .args([env!("CARGO_BIN_EXE_ciphertoll"), text(&place.path().join("ciphertoll"))])
            .status()
            .expect("cp starts");
        assert!(copied.success(), "the program is copied");
        let stranger = Self { place };
        for directory in [stranger.path(), stranger.cache()] {
            fs::create_dir(&directory).expect("a directory");
            if let Some(user) = nobody() {
                chown(&directory, Some(user.uid), Some(user.gid)).expect("nobody owns it");
            }
        }
        if let Some(user) = nobody() {
            chown(stranger.place.path(), Some(user.uid), Some(user.gid)).expect("nobody owns it");
        }
        stranger
    }

    /// The only directory of programs.
    fn path(&self) -> PathBuf {
        self.place.path().join("path")
    }

    fn cache(&self) -> PathBuf {
        self.place.path().join("cache")
    }

    /// The one line that a fetch ends with, which must fail.
    #[track_caller]
    fn fails(&self) -> String {
        self.fails_to_fetch("postgres-18", text(&self.path()), None)
    }

    /// The same for any build, with a search path and the address of a package archive.
    #[track_caller]
    fn fails_to_fetch(&self, name: &str, path: &str, mirror: Option<&str>) -> String {
        let mut command = Command::new(self.place.path().join("ciphertoll"));
        command.args(["servers", "fetch", name]).current_dir(self.place.path());
        command.env("PATH", path).env("XDG_CACHE_HOME", self.cache());
        command.env_remove(MIRROR).envs(mirror.map(|address| (MIRROR, address)));
        if let Some(user) = nobody() {
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        let output = command.output().expect("the program starts");
        assert_eq!(output.status.code(), Some(9), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
        let stderr = String::from_utf8(output.stderr).expect("UTF-8 on stderr");
        stderr.lines().last().expect("a line").to_owned()
    }
}

/// Whom to be in root's place.
fn nobody() -> Option<User> {
    is_root().then(|| User::from_name("nobody").ok().flatten().expect("there is nobody"))
}

#[test]
fn a_client_that_is_missing_is_named_with_its_package() {
    let stranger = Stranger::new();
    let line = stranger.fails();
    assert!(line.contains("requires mvn") && line.contains("package maven"), "{line}");
}

#[test]
fn a_client_that_fails_is_told_with_its_log_and_leaves_no_server() {
    let stranger = Stranger::new();
    symlink("/bin/false", stranger.path().join("mvn")).expect("a client that fails");
    let line = stranger.fails();
    assert!(line.contains("mvn failed (exit status: 1)"), "{line}");
    let cache = stranger.cache().join("ciphertoll");
    assert!(line.contains(text(&cache.join("downloads/postgres-18.log"))), "{line}");
    assert_eq!(fs::read_dir(cache.join("servers")).expect("servers").count(), 0);
    assert_eq!(owner(&cache.join("servers")), nobody().map_or(Uid::effective(), |user| user.uid));
}

#[test]
fn a_package_archive_without_a_valid_signature_is_refused() {
    /// Of the system's programs, where `apt-get` and its verifier are.
    const SYSTEM: &str = "/usr/bin:/bin";
    if !Path::new("/usr/bin/apt-get").is_file() {
        not_for_all("there is no apt-get");
        return;
    }
    let stranger = Stranger::new();
    let mirror = stranger.place.path().join("mirror");
    let release = mirror.join("dists/trixie");
    fs::create_dir_all(&release).expect("a directory");
    let address = format!("file:{}", text(&mirror));
    let forged =
        "Origin: Debian\nCodename: trixie\nSuite: stable\nComponents: main\nArchitectures: amd64 arm64\n";
    for (file, contents) in [(None, ""), (Some("Release"), forged), (Some("InRelease"), forged)] {
        if let Some(file) = file {
            fs::write(release.join(file), contents).expect("a file");
        }
        let line = stranger.fails_to_fetch("mariadb-11.8", SYSTEM, Some(&address));
        assert!(
            line.starts_with("ciphertoll: cannot fetch mariadb-11.8: apt-get failed"),
            "{file:?}: {line}"
        );
        let cache = stranger.cache().join("ciphertoll");
        assert_eq!(fs::read_dir(cache.join("servers")).expect("servers").count(), 0, "{file:?}");
    }
    let line = stranger.fails_to_fetch("mariadb-11.8", SYSTEM, Some("not an address"));
    assert!(line.contains("is not an address of a package archive (CIPHERTOLL_DEBIAN_MIRROR)"), "{line}");
    let line = stranger.fails_to_fetch("mariadb-11.8", text(&stranger.path()), None);
    assert!(line.contains("requires apt-get") && line.contains("package apt"), "{line}");
}

fn owner(path: &Path) -> Uid {
    use std::os::unix::fs::MetadataExt;
    Uid::from_raw(fs::metadata(path).expect("metadata").uid())
}

#[test]
fn what_was_fetched_is_listed() {
    if std::env::var_os(MAY_FETCH).is_none() {
        not_for_all(&format!("it fetches from a registry; {MAY_FETCH}=1 lets it"));
        return;
    }
    let place = tempfile::tempdir().expect("a temporary directory");
    let fetched = answer(&["servers", "fetch", "postgres-18"], place.path());
    assert_eq!(fetched.code, Some(0), "{fetched:?}");
    assert!(fetched.stdout.starts_with("postgres-18 is installed: PostgreSQL 18."), "{fetched:?}");
    let document = one_document(&answer(&["servers", "--json"], place.path()).stdout);
    let is_it = |server: &Value| server["engine"] == "postgres" && server["fetched"] == true;
    assert!(items(&document, "servers").iter().any(is_it), "{document}");
    assert_eq!(document["fetchable"][0]["here"], true);
}
