//! `ciphertoll tde`: the keys of an encrypted cluster from their making to their rotation, on a real PostgreSQL.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use ciphertoll_model::Engine;
use ciphertoll_tde::{CipherKind, KekSource, KeyFile, PRELOAD_LIBRARY, Replace};
use ciphertoll_testing::not_for_all;
use nix::unistd::User;

use crate::support::{is_root, real_server_of, text};

/// What a session of one's own is asked, and what it says.
pub(crate) const QUESTION: &str = "select 6 * 7 as answer";

/// A directory of a user other than root, as PostgreSQL requires, with the program and its library.
pub(crate) struct Workspace {
    directory: tempfile::TempDir,
    user: Option<User>,
    path: String,
}

impl Workspace {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir_in("/var/tmp").expect("a temporary directory");
        let user = is_root().then(|| User::from_name("nobody").ok().flatten().expect("there is nobody"));
        let server = ciphertoll_lab::find(&"postgres".parse().expect("a level")).expect("a PostgreSQL");
        let programs = server.server_program.parent().expect("a directory").to_owned();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("others may pass");
        // Written by another process: a file that this process has open for writing cannot be executed.
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
    pub(crate) fn tde(&self, arguments: &str, stdin: &str) -> Output {
        let mut command = self.command(&self.directory.path().join("ciphertoll"));
        command.arg("tde").args(arguments.split_whitespace());
        Self::asks(command, stdin)
    }

    pub(crate) fn asks(mut command: Command, stdin: &str) -> Output {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        // A refused program does not read its stdin.
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
    pub(crate) fn refused(&self, arguments: &str) -> String {
        let output = self.tde(arguments, "");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(matches!(output.status.code(), Some(2 | 9)) && said.lines().count() == 1, "{output:?}");
        assert!(said.starts_with("ciphertoll: ") && output.stdout.is_empty(), "{output:?}");
        said
    }
}

/// Nothing links it, so that cargo builds it for no test.
/// Next to the program, where it is searched.
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
    let workspace = Workspace::new();
    workspace.done("keygen kek", "");
    workspace.done("keygen kek-2", "");
    assert!(workspace.refused("keygen kek").contains("kek"), "a key that is there stays");
    workspace.done("init -D data --key-file kek", "");
    assert!(workspace.done("status -D data", "").contains("no cluster yet"));

    workspace.done("exec -D data --key-file kek -- initdb -D data --data-checksums", "");
    assert!(workspace.done("status -D data", "").contains("an encrypted cluster, sealed"));
    workspace.refused("init -D data --key-file kek");
    let session = |kek: &str| format!("exec -D data --key-file {kek} -- postgres --single -D data template1");
    assert!(workspace.done(&session("kek"), QUESTION).contains("answer = \"42\""));

    workspace.refused(&session("kek-2"));
    let rotated =
        workspace.shell("../ciphertoll tde rotate -D data --key-file kek --new-key-command 'cat kek-2'");
    assert!(rotated.status.success(), "{rotated:?}");
    assert!(workspace.done("status -D data", "").contains("rotation 1"));
    workspace.refused(&session("kek"));
    assert!(workspace.done(&session("kek-2"), QUESTION).contains("answer = \"42\""));

    // A pipe that is open already is a file as well: here another program's output.
    let piped = "cat kek-2 | ../ciphertoll tde exec -D data --key-file /dev/fd/0 -- pg_checksums -D data";
    let output = workspace.shell(piped);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("Bad checksums:  0"), "{output:?}");

    let secret = fs::read_to_string(workspace.work().join("kek-2")).expect("the key");
    let keys = fs::read(workspace.work().join("data.tde")).expect("the key file");
    let bare = secret.trim().as_bytes();
    assert!(!keys.windows(bare.len()).any(|window| window == bare), "no key is in its key file");
}

/// A key file must be private before its mode is set, and a process with a key in memory must not be dumpable.
#[test]
fn a_key_is_private_from_the_first_moment() {
    if !real_server_of(Engine::Postgres) {
        return;
    }
    let workspace = Workspace::new();
    let traced = workspace.shell("umask 0; strace -f -e trace=openat -o calls ../ciphertoll tde keygen kek");
    assert!(traced.status.success(), "{traced:?}");
    let calls = fs::read_to_string(workspace.work().join("calls")).expect("a trace");
    // strace cannot read the path: the memory of a process that is not dumpable is root's.
    let created = calls.lines().find(|call| call.contains("O_EXCL")).expect("a call that creates the file");
    assert!(created.contains(", 0600)"), "{created}");

    // The command that prints the key is a child of the program: a process that is not dumpable belongs to root in /proc.
    let asks =
        "../ciphertoll tde init -D data --key-command 'stat -c %u /proc/$PPID/environ >owner; cat kek'";
    let asked = workspace.shell(asks);
    assert!(asked.status.success(), "{asked:?}");
    assert_eq!(fs::read_to_string(workspace.work().join("owner")).expect("a user"), "0\n");
}

/// Only the lab makes such a file, and only to measure by.
#[test]
fn a_key_file_without_a_cipher_is_refused() {
    if !real_server_of(Engine::Postgres) {
        return;
    }
    let workspace = Workspace::new();
    workspace.done("keygen kek", "");
    let kek = KekSource::File(workspace.work().join("kek")).read().expect("a key");
    let keys = workspace.work().join("data.tde");
    let stored = KeyFile::create(CipherKind::Null, &kek).and_then(|file| file.store(&keys, Replace::Never));
    stored.expect("stored");
    if let Some(user) = &workspace.user {
        chown(&keys, Some(user.uid.as_raw()), Some(user.gid.as_raw())).expect("given away");
    }
    assert!(workspace.refused("exec -D data --key-file kek -- true").contains("does not encrypt"));
    assert!(workspace.done("status -D data", "").contains("null (not encrypted)"));
}

impl Workspace {
    /// Keys for a cluster that does not exist yet.
    fn with_keys() -> Self {
        let workspace = Self::new();
        workspace.done("keygen kek", "");
        workspace.done("init -D data --key-file kek", "");
        workspace
    }

    fn is_absent_or_empty(&self, directory: &str) -> bool {
        fs::read_dir(self.work().join(directory)).map_or(true, |mut entries| entries.next().is_none())
    }

    /// A program of PostgreSQL's under another name, or a script.
    fn program(&self, name: &str, make: impl FnOnce(&Path)) -> String {
        let path = self.work().join(name);
        make(&path);
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("a mode");
        if let Some(user) = &self.user {
            chown(&path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).expect("given away");
        }
        text(&path).to_owned()
    }

    fn postgres(&self, name: &str) -> PathBuf {
        PathBuf::from(self.path.split(':').next().expect("a directory")).join(name)
    }

    /// Exit code and standard error of a command that must fail.
    #[track_caller]
    fn fails(&self, arguments: &str) -> (i32, String) {
        let output = self.tde(arguments, "");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let code = output.status.code().expect("it ends by itself");
        assert_ne!(code, 0, "{arguments}: {output:?}");
        (code, said)
    }
}

#[test]
fn exec_answers_as_the_program_did() {
    let workspace = Workspace::with_keys();
    let exit = workspace.program("exit-7", |path| fs::write(path, "#!/bin/sh\nexit 7\n").expect("written"));
    assert_eq!(workspace.fails(&format!("exec -D data --key-file kek -- {exit}")).0, 7);
    let killed =
        workspace.program("killed", |path| fs::write(path, "#!/bin/sh\nkill -9 $$\n").expect("written"));
    assert_eq!(workspace.fails(&format!("exec -D data --key-file kek -- {killed}")).0, 128 + 9);
    workspace.refused("exec -D data --key-file kek -- no-such-program");
}

/// SIGTERM to `tde exec` reaches the program, whose answer is passed on.
#[test]
fn exec_forwards_signals() {
    let workspace = Workspace::with_keys();
    let script = "#!/bin/sh\ntrap 'exit 5' TERM\necho ready\nwhile :; do read line; done\n";
    let program = workspace.program("waits", |path| fs::write(path, script).expect("written"));
    let mut command = workspace.command(&workspace.directory.path().join("ciphertoll"));
    command.args(["tde", "exec", "-D", "data", "--key-file", "kek", "--", &program]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut stdout = std::io::BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    std::io::BufRead::read_line(&mut stdout, &mut line).expect("a line");
    assert_eq!(line, "ready\n");
    let process = nix::unistd::Pid::from_raw(child.id().cast_signed());
    nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGTERM).expect("a signal");
    assert_eq!(child.wait().expect("a status").code(), Some(5));
}

#[test]
fn a_program_that_the_library_cannot_be_loaded_into_is_found_out_and_its_cluster_removed() {
    if !real_server_of(Engine::Postgres) {
        return;
    }
    let workspace = Workspace::with_keys();
    let initdb = text(&workspace.postgres("initdb")).to_owned();

    // Set-uid programs lose the library: refused before they start.
    let su = workspace.refused("exec -D data --key-file kek -- su -c true");
    assert!(su.contains("set-uid"), "{su}");

    // The environment is dropped on the way, as `sudo` and `su -` do.
    let script = format!("#!/bin/sh\nexec env -i {initdb} -D data --no-sync\n");
    let dropping = workspace.program("dropping", |path| fs::write(path, script).expect("written"));
    let (_, said) = workspace.fails(&format!("exec -D data --key-file kek -- {dropping}"));
    assert!(said.contains("is not encrypted") && said.contains("were removed"), "{said}");
    assert!(workspace.is_absent_or_empty("data"), "a plaintext cluster stays");

    // No program can load a library that is none.
    let none = workspace.program("none.so", |path| fs::write(path, "none").expect("written"));
    let (_, said) = workspace
        .fails(&format!("exec -D data --key-file kek --library {none} -- {initdb} -D data --no-sync"));
    assert!(said.contains("without the library"), "{said}");
    assert!(workspace.is_absent_or_empty("data"), "a plaintext cluster stays");

    // The first program could, and the one that it starts could not.
    let script = format!("#!/bin/sh\nLD_PRELOAD= exec {initdb} -D data --no-sync\n");
    let second = workspace.program("second", |path| fs::write(path, script).expect("written"));
    let (_, said) = workspace.fails(&format!("exec -D data --key-file kek -- {second}"));
    assert!(said.contains("were removed"), "{said}");
    assert!(workspace.is_absent_or_empty("data"), "a plaintext cluster stays");

    // What was there before is never removed.
    fs::create_dir_all(workspace.work().join("data/mine")).expect("a directory");
    let (_, said) = workspace.fails(&format!("exec -D data --key-file kek -- {dropping}"));
    assert!(!said.contains("were removed"), "{said}");
    assert!(workspace.work().join("data/mine").exists());
}

/// Root starts PostgreSQL's programs like this. The loader drops the library if the new user cannot read it.
#[test]
fn root_starts_programs_as_another_user_who_has_to_be_able_to_read_the_library() {
    if !real_server_of(Engine::Postgres) {
        return;
    }
    let workspace = Workspace::with_keys();
    let Some(user) = &workspace.user else {
        return not_for_all("only root can start programs as another user");
    };
    let initdb = text(&workspace.postgres("initdb")).to_owned();
    let hidden = workspace.directory.path().join("hidden");
    fs::create_dir(&hidden).expect("a directory");
    fs::set_permissions(&hidden, Permissions::from_mode(0o700)).expect("a mode");
    let hidden = hidden.join(PRELOAD_LIBRARY);
    fs::copy(workspace.library(), &hidden).expect("copied");
    let as_root = |library: &Path, changing: &str| {
        let mut command = Command::new(workspace.directory.path().join("ciphertoll"));
        command
            .current_dir(workspace.work())
            .env_clear()
            .env("PATH", format!("{}:/usr/sbin:/sbin", workspace.path));
        command.args(["tde", "exec", "-D", "data", "--key-file", "kek", "--library"]).arg(library).arg("--");
        command.args(changing.split(' ')).args([&initdb, "-D", "data", "--no-sync"]);
        command.output().expect("it starts")
    };
    let set_user = format!("setpriv --reuid={} --regid={} --clear-groups", user.uid, user.gid);
    for changing in [format!("runuser -u {} --", user.name), set_user] {
        let output = as_root(&hidden, &changing);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(9), "{output:?}");
        assert!(said.contains("is not encrypted") && said.contains("were removed"), "{said}");
        assert!(workspace.is_absent_or_empty("data"), "a plaintext cluster stays");
        let output = as_root(&workspace.library(), &changing);
        assert!(output.status.success(), "{output:?}");
        assert!(workspace.done("status -D data", "").contains("an encrypted cluster, sealed"));
        fs::remove_dir_all(workspace.work().join("data")).expect("removed");
    }
}

/// The refusal of a server is shown although its log goes to a file.
#[test]
fn a_setting_that_moves_plaintext_is_refused_in_the_log_and_on_the_terminal() {
    if !real_server_of(Engine::Postgres) {
        return;
    }
    let workspace = Workspace::with_keys();
    workspace.done("exec -D data --key-file kek -- initdb -D data --no-sync", "");
    let settings = workspace.work().join("data/postgresql.auto.conf");
    fs::write(settings, "dynamic_shared_memory_type = mmap\nlisten_addresses = ''\n").expect("written");
    let (code, said) = workspace.fails("exec -D data --key-file kek -- pg_ctl -D data -l log -s start");
    let why = "refused: dynamic_shared_memory_type=mmap";
    assert_eq!((code, said.lines().filter(|line| line.contains(why)).count()), (1, 1), "{said}");
    let log = fs::read_to_string(workspace.work().join("log")).expect("a log");
    assert_eq!(log.lines().filter(|line| line.contains(why)).count(), 1, "{log}");
}

/// A server under another name is a server all the same.
#[test]
fn a_renamed_server_has_the_keys() {
    if !real_server_of(Engine::Postgres) {
        return;
    }
    let workspace = Workspace::with_keys();
    workspace.done("exec -D data --key-file kek -- initdb -D data --no-sync", "");
    let copied = |path: &Path| {
        let status = Command::new("cp").arg(workspace.postgres("postgres")).arg(path).status();
        assert!(status.expect("cp starts").success());
    };
    let renamed = workspace.program("database-server", copied);
    let session = format!("exec -D data --key-file kek -- {renamed} --single -D data template1");
    assert!(workspace.done(&session, QUESTION).contains("answer = \"42\""));
}

#[test]
fn a_cluster_of_another_version_is_refused_and_not_changed() {
    if !real_server_of(Engine::Postgres) {
        return;
    }
    let workspace = Workspace::with_keys();
    workspace.done("exec -D data --key-file kek -- initdb -D data --no-sync", "");
    let (data, keys) = (workspace.work().join("data"), workspace.work().join("data.tde"));
    let control = data.join("global/pg_control");
    // The version of a key file, its cipher (AES-128-XTS), and the version of a seal.
    for (path, at, byte) in [(&keys, 8, 2), (&keys, 8, 4), (&keys, 10, 2), (&control, 15, b'2')] {
        let kept = fs::read(path).expect("a file");
        let mut other = kept.clone();
        other[at] = byte;
        fs::write(path, &other).expect("written");
        for command in [
            "exec -D data --key-file kek -- postgres --single -D data template1",
            "exec -D data --key-file kek -- true",
            "convert --decrypt -D data --to plain --key-file kek",
        ] {
            let said = workspace.refused(command);
            assert!(said.contains("ciphertoll tde convert --decrypt"), "{command}: {said}");
        }
        let verified = workspace.tde("verify -D data --key-file kek", "");
        assert!(!verified.status.success(), "{verified:?}");
        assert!(fs::read(path).expect("a file") == other && !workspace.work().join("plain").exists());
        fs::write(path, &kept).expect("restored");
    }
    // An upgrade by an earlier version was interrupted.
    let drafts = data.join("ciphertoll-tde-upgrade");
    fs::create_dir(&drafts).expect("a directory");
    let session = "exec -D data --key-file kek -- postgres --single -D data template1";
    assert!(workspace.refused(session).contains("ciphertoll-tde-upgrade is of another version"));
    fs::remove_dir(&drafts).expect("removed");
    assert!(workspace.done(session, QUESTION).contains("answer = \"42\""));

    fs::write(data.join("PG_VERSION"), "15\n").expect("written");
    assert!(workspace.done("status -D data", "").contains("not sealed"));
    assert!(workspace.refused(session).contains("replaced"));
}
