//! Runs the installed PostgreSQL servers with and without the library.

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use ciphertoll_tde::verify::{VerifyOptions, VerifyProgress, verify};
use ciphertoll_tde::{CipherKind, EncryptionEngine, Kek, KekSource, KeyFile, Replace};
use ciphertoll_testing::{missing, not_for_all};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User, geteuid};

use crate::versions::{self, Version};

const LIBRARY: &str = "libciphertoll_tde_preload.so";
/// Timeout of servers on a busy machine.
const TIME_LIMIT: Duration = Duration::from_mins(2);

/// A directory for clusters, and the user of their servers.
pub(crate) struct Fixture {
    pub(crate) version: Version,
    library: PathBuf,
    user: Option<User>,
    place: tempfile::TempDir,
}

/// Whether the library is loaded, and the file with the key-encryption key.
#[derive(Clone, Copy)]
pub(crate) enum Under<'a> {
    Library(&'a Path),
    /// The library remembers no descriptor: everything must work all the same.
    Forgetting(&'a Path),
    Nothing,
}

/// A data directory and its directory of sockets.
pub(crate) struct Cluster<'a> {
    pub(crate) fixture: &'a Fixture,
    pub(crate) data: PathBuf,
    pub(crate) sockets: PathBuf,
    pub(crate) log: PathBuf,
    /// A test damages its files: they are not verified.
    pub(crate) is_damaged: Cell<bool>,
}

/// A server that is killed when it is dropped.
pub(crate) struct Server<'a> {
    cluster: &'a Cluster<'a>,
    postmaster: Child,
    is_encrypted: bool,
}

impl Fixture {
    /// One for each PostgreSQL to test. Reports skipped tests if there is none, or if a version lacks a program.
    #[expect(clippy::print_stderr, reason = "what runs says on which version")]
    pub(crate) fn all(needed: &[&str]) -> Vec<Self> {
        let versions = versions::tested();
        if versions.is_empty() {
            missing(
                "no PostgreSQL found; install one (Debian and Ubuntu: postgresql), or name programs' directories: \
                 CIPHERTOLL_TDE_POSTGRES_BIN=DIR:DIR",
            );
        }
        let mut fixtures = Vec::new();
        for version in versions {
            let lacks = |program: &str| {
                !version.has(program)
                    && versions::newest_with(program).is_none_or(|other| other.major < version.major)
            };
            if let Some(program) = needed.iter().find(|program| lacks(program)) {
                not_for_all(&format!("{} came without {program}, and no newer one is here", version.name));
            } else {
                eprintln!("on {} in {}", version.name, version.bin.display());
                fixtures.push(Self::new(version));
            }
        }
        fixtures
    }

    fn new(version: Version) -> Self {
        let user =
            geteuid().is_root().then(|| User::from_name("nobody").ok().flatten().expect("a user nobody"));
        let place = tempfile::tempdir().expect("a directory");
        let built = built_library();
        // In CI the library must have been built.
        let library = place.path().join(LIBRARY);
        fs::copy(&built, &library).unwrap_or_else(|error| panic!("{}: {error}", built.display()));
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).expect("a mode");
        Self { version, library, user, place }
    }

    /// Prints a result for this version.
    #[expect(clippy::print_stderr, reason = "results of the test")]
    pub(crate) fn tell(&self, what: &str, seen: &impl std::fmt::Debug) {
        eprintln!("{}: {what}: {seen:?}", self.version.name);
    }

    /// A new directory that the servers' user owns.
    pub(crate) fn directory(&self, name: &str) -> PathBuf {
        let path = self.place.path().join(name);
        fs::create_dir(&path).expect("a directory");
        self.give(&path);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("a mode");
        path
    }

    pub(crate) fn give(&self, path: &Path) {
        if let Some(user) = &self.user {
            chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw()))
                .expect("given to the servers' user");
        }
    }

    /// A new key-encryption key, in a file that the servers can read.
    pub(crate) fn kek(&self, name: &str) -> (Kek, PathBuf) {
        let kek = Kek::generate().expect("a key");
        let path = self.place.path().join(name);
        fs::write(&path, kek.text().as_bytes()).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a mode");
        self.give(&path);
        (kek, path)
    }

    /// New keys for a cluster.
    pub(crate) fn make_keys(&self, data: &Path, kek: &Kek) {
        let path = KeyFile::path_beside(data);
        let file = KeyFile::create(CipherKind::Aes256, kek).expect("a key file");
        file.store(&path, Replace::Never).expect("stored");
        self.give(&path);
    }

    /// The paths of a new cluster.
    pub(crate) fn cluster(&self, name: &str) -> Cluster<'_> {
        let data = self.directory(name);
        let sockets = self.directory(&format!("{name}.s"));
        Cluster {
            fixture: self,
            data,
            sockets,
            log: self.place.path().join(format!("{name}.log")),
            is_damaged: Cell::new(false),
        }
    }

    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        if let Some(user) = &self.user {
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        command
            .current_dir(self.place.path())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("LC_ALL", "C.UTF-8");
        command.stdin(Stdio::null());
        command
    }
}

impl<'a> Cluster<'a> {
    /// The command of a PostgreSQL program.
    pub(crate) fn program(&self, name: &str, under: Under<'_>) -> Command {
        let own = self.fixture.version.bin.join(name);
        let others = || versions::newest_with(name).map_or_else(|| name.into(), |other| other.bin.join(name));
        let program = if own.exists() { own } else { others() };
        let mut command = self.fixture.command(program);
        command.env("PGHOST", &self.sockets).env("PGUSER", "proof").env("PGDATABASE", "postgres");
        // With a timeout.
        command.env("PGOPTIONS", "-c statement_timeout=600s");
        self.set(&mut command, under);
        command
    }

    pub(crate) fn set(&self, command: &mut Command, under: Under<'_>) {
        if let Under::Forgetting(_) = under {
            command.env("CIPHERTOLL_TDE_FORGET", "1");
        }
        if let Under::Library(kek) | Under::Forgetting(kek) = under {
            command.env("LD_PRELOAD", &self.fixture.library);
            command.env("CIPHERTOLL_TDE_DATA", &self.data).env("CIPHERTOLL_TDE_KEK_FILE", kek);
        }
    }

    pub(crate) fn init(&self, under: Under<'_>) {
        let mut initdb = self.program("initdb", under);
        initdb
            .args(["--username=proof", "--auth=trust", "--data-checksums", "--no-sync", "-D"])
            .arg(&self.data);
        succeeds(&mut initdb);
    }

    /// The server's command. It receives the key-encryption key through an open file.
    fn postgres(&self, under: Under<'_>, before: &[&OsStr]) -> Command {
        let mut command = self.fixture.command("/bin/sh");
        let script = match under {
            Under::Library(_) | Under::Forgetting(_) => {
                "exec 9<\"$CIPHERTOLL_TDE_KEK_FILE\" && unset CIPHERTOLL_TDE_KEK_FILE && CIPHERTOLL_TDE_KEK_FD=9 && \
                 export CIPHERTOLL_TDE_KEK_FD && exec \"$@\""
            }
            Under::Nothing => "exec \"$@\"",
        };
        command
            .args(["-c", script, "sh"])
            .args(before)
            .arg(self.fixture.version.bin.join("postgres"))
            .arg("-D")
            .arg(&self.data);
        command.args(["-c", "listen_addresses="]);
        for setting in
            ["max_prepared_transactions=4", "wal_level=logical", "archive_mode=on", "work_mem=64kB"]
        {
            command.args(["-c", setting]);
        }
        command.arg("-k").arg(&self.sockets);
        self.set(&mut command, under);
        command
    }

    /// Starts a server and waits until it accepts connections.
    pub(crate) fn start(&'a self, under: Under<'_>, settings: &[&str]) -> Server<'a> {
        self.try_start(under, settings, &[]).unwrap_or_else(|said| panic!("it does not start: {said}"))
    }

    /// The same through another program that executes the server. Returns the server's output if it exits. After a crash,
    /// the processes of the previous server may take a moment to exit.
    pub(crate) fn try_start(
        &'a self,
        under: Under<'_>,
        settings: &[&str],
        before: &[&OsStr],
    ) -> Result<Server<'a>, String> {
        let deadline = Instant::now() + TIME_LIMIT;
        loop {
            let log = fs::File::create(&self.log).expect("a log");
            let mut command = self.postgres(under, before);
            for setting in settings {
                command.args(["-c", setting]);
            }
            let postmaster = command.stderr(log).stdout(Stdio::null()).spawn().expect("a server");
            let is_encrypted = !matches!(under, Under::Nothing);
            let mut server = Server { cluster: self, postmaster, is_encrypted };
            loop {
                if server.psql("SELECT 1").status.success() {
                    return Ok(server);
                }
                assert!(Instant::now() < deadline, "it does not start: {}", self.said());
                if server.postmaster.try_wait().expect("a status").is_some() {
                    if self.said().contains("still in use") {
                        break;
                    }
                    return Err(self.said());
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }

    /// The log of its last server.
    pub(crate) fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Starts a server, which must exit by itself. Returns its output.
    pub(crate) fn refuses(&self, under: Under<'_>) -> String {
        let output = self.postgres(under, &[]).output().expect("it runs");
        assert!(!output.status.success(), "it started");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

impl Server<'_> {
    pub(crate) fn psql(&self, sql: &str) -> Output {
        self.client(sql).output().expect("psql runs")
    }

    fn client(&self, sql: &str) -> Command {
        let mut psql = self.cluster.program("psql", Under::Nothing);
        psql.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-c", sql]);
        psql
    }

    /// Sends a command of the replication protocol.
    pub(crate) fn replicate(&self, command: &str) -> Output {
        self.client(command).args(["-d", "dbname=postgres replication=database"]).output().expect("psql runs")
    }

    /// The result of a statement, which must succeed.
    pub(crate) fn ask(&self, sql: &str) -> String {
        succeeds(&mut self.client(sql))
    }

    /// The results of statements of one session, each a transaction of its own.
    pub(crate) fn session(&self, statements: &[String]) -> String {
        let mut psql = self.cluster.program("psql", Under::Nothing);
        psql.args(["-XAtq", "-v", "ON_ERROR_STOP=1"]);
        for statement in statements {
            psql.args(["-c", statement]);
        }
        succeeds(&mut psql)
    }

    /// Whether its archive has a complete WAL segment.
    pub(crate) fn has_archived(&self, segment: &str) -> bool {
        let last = "SELECT last_archived_wal COLLATE \"C\" >= ";
        self.ask(&format!("{last} '{segment}' FROM pg_stat_archiver")) == "t"
    }

    /// The connection string for a standby.
    pub(crate) fn connection(&self) -> String {
        format!("host={} user=proof", self.cluster.sockets.display())
    }

    pub(crate) fn version(&self) -> &Version {
        &self.cluster.fixture.version
    }

    /// The process ID of the postmaster.
    pub(crate) fn process(&self) -> u32 {
        self.postmaster.id()
    }

    /// Starts a client in the background.
    pub(crate) fn spawn(&self, sql: &str) -> Child {
        self.client(sql).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("psql runs")
    }

    /// Sends SIGKILL to the postmaster.
    pub(crate) fn crash(mut self) {
        self.postmaster.kill().expect("killed");
        self.postmaster.wait().expect("a status");
    }

    /// A clean shutdown.
    pub(crate) fn stop(mut self) {
        kill(Pid::from_raw(self.postmaster.id() as i32), Signal::SIGINT).expect("a signal");
        let status = self.postmaster.wait().expect("a status");
        assert!(status.success(), "{status}: {}", self.cluster.said());
    }
}

impl Drop for Server<'_> {
    /// An immediate shutdown, because a killed postmaster leaves its shared memory. If it was killed before, its children
    /// exit by themselves. Some write before they exit, such as the statistics collector of PostgreSQL 14: waits for all.
    fn drop(&mut self) {
        let deadline = Instant::now() + TIME_LIMIT;
        if self.postmaster.try_wait().is_ok_and(|status| status.is_none()) {
            // Not reaped yet, so that its process ID cannot be reused.
            let _ = kill(Pid::from_raw(self.postmaster.id() as i32), Signal::SIGQUIT);
        }
        while self.postmaster.try_wait().is_ok_and(|status| status.is_none()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        drop(self.postmaster.kill());
        drop(self.postmaster.wait());
        while anybody_in(&self.cluster.data) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        if self.is_encrypted && !std::thread::panicking() && !self.cluster.is_damaged.get() {
            is_encrypted(&self.cluster.data, self.cluster.fixture.place.path());
        }
    }
}

/// Verifies all files of a cluster. Its key-encryption key, which may have been rotated, is one of those in `place`.
#[track_caller]
fn is_encrypted(data: &Path, place: &Path) {
    let keys = KeyFile::load(&KeyFile::path_beside(data)).expect("a key file");
    let files = fs::read_dir(place).expect("a directory").flatten().map(|entry| entry.path());
    let candidates = files.filter(|path| path.is_file() && path.to_string_lossy().contains("kek"));
    let mut unwrapped = candidates.filter_map(|path| keys.unwrap(&KekSource::File(path).read().ok()?).ok());
    let mut engine = EncryptionEngine::new(unwrapped.next().expect("a key")).expect("an engine");
    let mut watch = |_: &VerifyProgress<'_>| ControlFlow::Continue(());
    let verified = verify(data, &mut engine, &VerifyOptions::default(), &mut watch);
    let (_, result) = verified.expect("verified");
    assert!(result.findings.is_empty(), "{}: {:?}", data.display(), result.findings);
    assert!(result.counts.units > 100, "{:?}", result.counts);
}

/// Whether the working directory of a process is a data directory, as of all processes of a server.
fn anybody_in(data: &Path) -> bool {
    let works_there =
        |process: fs::DirEntry| fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd == data);
    fs::read_dir("/proc").expect("processes").filter_map(Result::ok).any(works_there)
}

/// Runs a command, which must succeed. Returns its output.
#[track_caller]
pub(crate) fn succeeds(command: &mut Command) -> String {
    let output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {said}", output.status);
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

/// Builds the library: cargo does not, because the tests do not link it.
pub(crate) fn built_library() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        // TARGET/PROFILE/deps/proof-…
        let test = std::env::current_exe().expect("a program");
        let profile = test.ancestors().nth(2).expect("a profile's directory");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
        cargo.args(["build", "--quiet", "--locked", "--lib", "--target-dir"]);
        cargo.arg(profile.parent().expect("a target directory"));
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        succeeds(&mut cargo);
        profile.join(LIBRARY)
    };
    BUILT.get_or_init(build).clone()
}
