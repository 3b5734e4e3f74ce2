//! `ciphertoll tde`: the keys of an encrypted cluster from their making to their rotation, on a real PostgreSQL.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use ciphertoll_model::Engine;
use ciphertoll_tde::{KekSource, KeyFile, PRELOAD_LIBRARY, Replace, Strength};
use nix::unistd::User;

use crate::support::{is_root, real_server_of, text};

/// What a session of one's own is asked, and what it says.
pub(crate) const QUESTION: &str = "select 6 * 7 as answer";

/// Somebody who is not root, as PostgreSQL wants it, with the program and its library in one directory.
pub(crate) struct Place {
    directory: tempfile::TempDir,
    user: Option<User>,
    path: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir_in("/var/tmp").expect("a temporary directory");
        let user = is_root().then(|| User::from_name("nobody").ok().flatten().expect("there is nobody"));
        let server = ciphertoll_lab::find(&"postgres".parse().expect("a level")).expect("a PostgreSQL");
        let programs = server.server_program.parent().expect("a directory").to_owned();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("others may pass");
        // By another process: a file that one of ours has open for writing cannot be started.
        let built = [PathBuf::from(env!("CARGO_BIN_EXE_ciphertoll")), built_library()];
        let copied = Command::new("cp").args(built).arg(directory.path()).status();
        assert!(copied.expect("cp starts").success(), "program and library are copied");
        let work = directory.path().join("work");
        fs::create_dir(&work).expect("a directory");
        if let Some(user) = &user {
            chown(&work, Some(user.uid.as_raw()), Some(user.gid.as_raw())).expect("given away");
        }
        Self { path: format!("{}:/usr/bin:/bin", text(&programs)), directory, user }
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.directory.path().join("work")
    }

    pub(crate) fn library(&self) -> PathBuf {
        self.directory.path().join(PRELOAD_LIBRARY)
    }

    /// `ciphertoll tde …`, its arguments one word each, those behind `--` with them.
    fn tde(&self, arguments: &str, stdin: &str) -> Output {
        let mut command = self.command(&self.directory.path().join("ciphertoll"));
        command.arg("tde").args(arguments.split_whitespace());
        Self::asks(command, stdin)
    }

    /// What a program says that reads this.
    pub(crate) fn asks(mut command: Command, stdin: &str) -> Output {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        // Whoever was refused reads nothing.
        let _ = child.stdin.take().expect("stdin is piped").write_all(stdin.as_bytes());
        child.wait_with_output().expect("it ends")
    }

    /// A program that the servers' user runs.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.work()).env_clear().env("PATH", &self.path).env("LC_ALL", "C.UTF-8");
        if let Some(user) = &self.user {
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        command
    }

    /// A command line of the shell.
    pub(crate) fn shell(&self, line: &str) -> Output {
        self.command(Path::new("/bin/sh")).args(["-c", line]).output().expect("a shell")
    }

    #[track_caller]
    pub(crate) fn done(&self, arguments: &str, stdin: &str) -> String {
        let output = self.tde(arguments, stdin);
        assert_eq!(output.status.code(), Some(0), "{arguments}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// What is said of it, in one line.
    #[track_caller]
    fn refused(&self, arguments: &str) -> String {
        let output = self.tde(arguments, "");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(matches!(output.status.code(), Some(2 | 9)) && said.lines().count() == 1, "{output:?}");
        assert!(said.starts_with("ciphertoll: ") && output.stdout.is_empty(), "{output:?}");
        said
    }
}

/// Nothing links it, so that cargo builds it for no test.
/// Beside the program, where it is looked for.
pub(crate) fn built_library() -> PathBuf {
    let profile = Path::new(env!("CARGO_BIN_EXE_ciphertoll")).parent().expect("a profile's directory");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--locked", "--package", "ciphertoll-tde-preload", "--target-dir"]);
    cargo.arg(profile.parent().expect("a target directory"));
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    assert!(cargo.status().expect("cargo starts").success(), "the library is built");
    profile.join(PRELOAD_LIBRARY)
}

#[test]
fn keys_are_made_used_and_rotated() {
    if !real_server_of(Engine::Postgres) {
        return;
    }
    let place = Place::new();
    place.done("keygen kek", "");
    place.done("keygen kek-2", "");
    assert!(place.refused("keygen kek").contains("kek"), "a key that is there stays");
    place.done("init -D data --key-file kek", "");
    assert!(place.done("status -D data", "").contains("no cluster yet"));

    place.done("exec -D data --key-file kek -- initdb -D data --data-checksums", "");
    assert!(place.done("status -D data", "").contains("an encrypted cluster"));
    place.refused("init -D data --key-file kek");
    let session = |kek: &str| format!("exec -D data --key-file {kek} -- postgres --single -D data template1");
    assert!(place.done(&session("kek"), QUESTION).contains("answer = \"42\""));

    place.refused(&session("kek-2"));
    let rotated =
        place.shell("../ciphertoll tde rotate -D data --key-file kek --new-key-command 'cat kek-2'");
    assert!(rotated.status.success(), "{rotated:?}");
    assert!(place.done("status -D data", "").contains("rotation 1"));
    place.refused(&session("kek"));
    assert!(place.done(&session("kek-2"), QUESTION).contains("answer = \"42\""));

    // A pipe that is open already is a file as well: here another program's output.
    let piped = "cat kek-2 | ../ciphertoll tde exec -D data --key-file /dev/fd/0 -- pg_checksums -D data";
    let output = place.shell(piped);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("Bad checksums:  0"), "{output:?}");

    let secret = fs::read_to_string(place.work().join("kek-2")).expect("the key");
    let keys = fs::read(place.work().join("data.tde")).expect("the key file");
    let bare = secret.trim().as_bytes();
    assert!(!keys.windows(bare.len()).any(|window| window == bare), "no key is in its key file");
}

/// A key file must be private before its mode is set, and a process with a key in memory must not be dumpable.
#[test]
fn a_key_is_private_from_the_first_moment() {
    if !real_server_of(Engine::Postgres) {
        return;
    }
    let place = Place::new();
    let traced = place.shell("umask 0; strace -f -e trace=openat -o calls ../ciphertoll tde keygen kek");
    assert!(traced.status.success(), "{traced:?}");
    let calls = fs::read_to_string(place.work().join("calls")).expect("a trace");
    // strace cannot read the path: the memory of a process that is not dumpable is root's.
    let created = calls.lines().find(|call| call.contains("O_EXCL")).expect("a call that creates the file");
    assert!(created.contains(", 0600)"), "{created}");

    // The command that prints the key is a child of the program: a process that is not dumpable belongs to root in /proc.
    let asks =
        "../ciphertoll tde init -D data --key-command 'stat -c %u /proc/$PPID/environ >owner; cat kek'";
    let asked = place.shell(asks);
    assert!(asked.status.success(), "{asked:?}");
    assert_eq!(fs::read_to_string(place.work().join("owner")).expect("a user"), "0\n");
}

/// Only the lab makes such a file, and only to measure by.
#[test]
fn a_key_file_without_a_cipher_is_refused() {
    if !real_server_of(Engine::Postgres) {
        return;
    }
    let place = Place::new();
    place.done("keygen kek", "");
    let kek = KekSource::File(place.work().join("kek")).read().expect("a key");
    let keys = place.work().join("data.tde");
    let stored = KeyFile::create(Strength::Null, &kek).and_then(|file| file.store(&keys, Replace::Never));
    stored.expect("stored");
    if let Some(user) = &place.user {
        chown(&keys, Some(user.uid.as_raw()), Some(user.gid.as_raw())).expect("given away");
    }
    assert!(place.refused("exec -D data --key-file kek -- true").contains("nothing would be encrypted"));
    assert!(place.done("status -D data", "").contains("null (not encrypted)"));
}
