//! PostgreSQL servers of a cluster: a primary and standbys, as their own programs make them.

use std::fs;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use ciphertoll_lab::Build;
use ciphertoll_net::Address;
use ciphertoll_net::blocking::Client;
use ciphertoll_wire::session::{Login, Row};
use ciphertoll_wire::{Secret, postgres};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User, chown, geteuid};
use tempfile::TempDir;

use crate::fixture::Fixture;
use crate::operations::await_that;

/// Attempts to start a server at a free port, which another program may have taken meanwhile.
const ATTEMPTS: usize = 5;

/// One server, which runs or not; stopped when dropped.
pub(crate) struct Node {
    programs: PathBuf,
    data: PathBuf,
    pub(crate) port: u16,
    /// Another address that it listens at.
    address: Option<String>,
    user: String,
    database: String,
}

/// The servers, in a separate directory.
pub(crate) struct Cluster {
    // Dropped in this order.
    pub(crate) nodes: Vec<Node>,
    _directory: TempDir,
}

impl Cluster {
    /// A primary, and standbys that all have received what it acknowledges.
    pub(crate) fn start(fixture: &Fixture, standbys: usize) -> Self {
        Self::start_at(fixture, &vec![None; standbys + 1])
    }

    /// The same for servers that also listen at other addresses of this machine.
    pub(crate) fn start_at(fixture: &Fixture, addresses: &[Option<String>]) -> Self {
        let standbys = addresses.len() - 1;
        let directory = tempfile::Builder::new().prefix("toll").tempdir_in("/var/tmp").expect("a directory");
        own(directory.path());
        let node = |at: usize| Node {
            programs: programs(fixture.build()),
            data: directory.path().join(format!("data{at}")),
            port: 0,
            address: addresses[at].clone(),
            user: fixture.server().user().to_owned(),
            database: fixture.server().database().to_owned(),
        };
        let mut primary = node(0);
        primary.initialise();
        primary.run();
        primary
            .control("postgres")
            .execute(&format!("CREATE DATABASE {}", primary.database))
            .expect("a database");
        let mut nodes = vec![primary];
        for at in 1..=standbys {
            let mut standby = node(at);
            standby.copy_of(&nodes[0]);
            standby.run();
            nodes.push(standby);
        }
        if standbys > 0 {
            nodes[0].acknowledge_when_received_by(standbys);
        }
        Self { nodes, _directory: directory }
    }

    /// A URL with the hosts of all servers.
    pub(crate) fn url(&self, options: &str) -> String {
        let host = |node: &Node| format!("{}:{}", node.address.as_deref().unwrap_or("127.0.0.1"), node.port);
        let hosts: Vec<String> = self.nodes.iter().map(host).collect();
        let Node { user, database, .. } = &self.nodes[0];
        format!("postgres://{user}@{}/{database}?sslmode=disable{options}", hosts.join(","))
    }
}

impl Node {
    pub(crate) fn user(&self) -> &str {
        &self.user
    }

    pub(crate) fn database(&self) -> &str {
        &self.database
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        // PostgreSQL's programs refuse root.
        if let Some(user) = other_user() {
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn succeed(&self, program: &str, arguments: &[&str]) -> bool {
        self.command(program).args(arguments).status().expect("it is installed").success()
    }

    fn data(&self) -> &str {
        self.data.to_str().expect("text")
    }

    fn initialise(&self) {
        let initialised =
            self.succeed("initdb", &["-D", self.data(), "-U", &self.user, "-A", "trust", "-E", "UTF8", "-N"]);
        assert!(initialised, "initdb fails");
        let settings = "unix_socket_directories = ''\nfsync = off\nshared_buffers = 16MB\nmax_connections = 200\n\
                        wal_keep_size = 64MB\nlog_destination = stderr\n";
        let file = self.data.join("postgresql.conf");
        let before = fs::read_to_string(&file).expect("the settings");
        fs::write(&file, before + settings).expect("ours to write");
        let file = self.data.join("pg_hba.conf");
        let before = fs::read_to_string(&file).expect("the rules");
        fs::write(&file, before + "host all all samenet trust\n").expect("ours to write");
    }

    fn copy_of(&self, primary: &Self) {
        let port = primary.port.to_string();
        let from = ["-h", "127.0.0.1", "-p", &port, "-U", &primary.user];
        let arguments = [&from[..], &["-D", self.data(), "-R", "-X", "stream", "-c", "fast", "-N"]].concat();
        assert!(self.succeed("pg_basebackup", &arguments), "pg_basebackup fails");
    }

    /// Starts it at a free port.
    pub(crate) fn run(&mut self) {
        for _ in 0..ATTEMPTS {
            self.port = free_port();
            if self.start_with("") {
                return;
            }
        }
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        panic!("the server does not start: {log}");
    }

    fn log(&self) -> PathBuf {
        self.data.with_extension("log")
    }

    fn start_with(&self, options: &str) -> bool {
        let other = self.address.as_ref().map_or_else(String::new, |address| format!(",{address}"));
        let options = format!("-h 127.0.0.1{other} -p {}{options}", self.port);
        let log = self.log();
        let log = log.to_str().expect("text");
        self.succeed("pg_ctl", &["-D", self.data(), "-l", log, "-o", &options, "-w", "-t", "60", "start"])
    }

    /// Starts it at its port.
    pub(crate) fn start_again(&self) {
        self.start_again_with("");
    }

    /// The same, and it does not wait for standbys.
    pub(crate) fn start_again_alone(&self) {
        self.start_again_with(" -c synchronous_standby_names=");
    }

    fn start_again_with(&self, options: &str) {
        if !self.start_with(options) {
            let log = fs::read_to_string(self.log()).unwrap_or_default();
            panic!("the server does not start: {log}");
        }
    }

    /// From now on a commit is acknowledged when this number of standbys, which must be all of them, has it.
    pub(crate) fn acknowledge_when_received_by(&self, standbys: usize) {
        self.execute(&format!("ALTER SYSTEM SET synchronous_standby_names = '{standbys} (*)'"));
        self.execute("SELECT pg_reload_conf()");
        let sql = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        await_that("the standbys follow", || self.value(sql) == standbys.to_string());
    }

    /// Comes back at its port as a standby, without the data that only it had.
    pub(crate) fn come_back_behind(&self, primary: &Self) {
        self.stop();
        fs::remove_dir_all(&self.data).expect("ours to remove");
        self.copy_of(primary);
        self.start_again();
    }

    pub(crate) fn promote(&self) {
        assert!(self.succeed("pg_ctl", &["-D", self.data(), "-w", "promote"]), "it is a standby");
    }

    pub(crate) fn stop(&self) {
        assert!(self.succeed("pg_ctl", &["-D", self.data(), "-m", "immediate", "-w", "stop"]), "it runs");
    }

    /// Kills all its processes at once, without a shutdown.
    pub(crate) fn kill(&self) {
        let file = fs::read_to_string(self.data.join("postmaster.pid")).expect("it runs");
        let first: i32 = file.lines().next().and_then(|line| line.parse().ok()).expect("a process");
        let processes = [vec![first], children(first)].concat();
        for process in &processes {
            // It may have ended with the first one.
            let _ = kill(Pid::from_raw(*process), Signal::SIGKILL);
        }
        await_that("its processes have ended", || !processes.iter().any(|process| is_running(*process)));
        // Without it, a process that has ended and was not waited for would seem to run.
        fs::remove_file(self.data.join("postmaster.pid")).expect("it was there");
    }

    /// The role that may do anything.
    pub(crate) fn control(&self, database: &str) -> Client {
        let login = postgres::PostgresLogin {
            startup: Vec::new(),
            user: self.user.clone(),
            password: Secret::new(Vec::new()),
            database: Some(database.to_owned()),
            encryption: postgres::PostgresTlsMode::Plain,
            channel_binding: postgres::ChannelBinding::Disabled,
        };
        let address = Address::Tcp(([127, 0, 0, 1], self.port).into());
        Client::connect(&address, Login::Postgres(Arc::new(login)), None).expect("the login succeeds")
    }

    pub(crate) fn execute(&self, sql: &str) {
        self.control(&self.database).execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    pub(crate) fn rows(&self, sql: &str) -> Result<Vec<Row>, ciphertoll_net::Error> {
        self.control(&self.database).query(sql)
    }

    pub(crate) fn value(&self, sql: &str) -> String {
        crate::cases::one(&mut self.control(&self.database), sql)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may not run.
        let _ = self.succeed("pg_ctl", &["-D", self.data(), "-m", "immediate", "-w", "stop"]);
    }
}

fn programs(build: &Build) -> PathBuf {
    let server = build.server_program.canonicalize().expect("it is installed");
    server.parent().map(Path::to_owned).unwrap_or_default()
}

/// The user that servers run as, if the tests are root's.
fn other_user() -> Option<User> {
    if !geteuid().is_root() {
        return None;
    }
    ["postgres", "nobody"].into_iter().find_map(|name| User::from_name(name).ok().flatten())
}

fn own(directory: &Path) {
    if let Some(user) = other_user() {
        chown(directory, Some(user.uid), Some(user.gid)).expect("root may");
    }
}

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("it is bound").port()
}

fn children(parent: i32) -> Vec<i32> {
    let of = |process: &i32| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        status.lines().any(|line| line == format!("PPid:\t{parent}"))
    };
    let all = fs::read_dir("/proc").expect("processes").flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(of).collect()
}

fn is_running(process: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains('Z') && !line.contains('X'))
}
