//! Two servers of MySQL or MariaDB with the same accounts, whose role a test may change.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use ciphertoll_model::Engine;
use ciphertoll_net::Address;
use ciphertoll_net::blocking::Client;
use ciphertoll_wire::session::Login;
use ciphertoll_wire::{Secret, mysql};
use nix::unistd::geteuid;
use tempfile::TempDir;

use super::fixture::{Fixture, one, plugin_of};
use crate::cluster::free_port;
use crate::operations::await_that;

/// A server; killed when dropped.
pub(crate) struct Member {
    child: Child,
    pub(crate) port: u16,
    address: String,
    pub(crate) control: Client,
}

pub(crate) struct Pair {
    // Dropped in this order.
    pub(crate) members: [Member; 2],
    _directory: TempDir,
}

impl Pair {
    /// Two servers with an empty table `numbered`.
    pub(crate) fn start(fixture: &Fixture) -> Self {
        Self::start_at(fixture, ["127.0.0.1", "127.0.0.1"].map(str::to_owned))
    }

    /// The same at these addresses of this machine.
    pub(crate) fn start_at(fixture: &Fixture, addresses: [String; 2]) -> Self {
        let directory = tempfile::Builder::new().prefix("toll").tempdir_in("/var/tmp").expect("a directory");
        let [one, two] = addresses;
        let members = [("one", one), ("two", two)]
            .map(|(name, address)| Member::start(fixture, &directory.path().join(name), address, &[]));
        Self { members, _directory: directory }
    }

    pub(crate) fn url(&self, fixture: &Fixture, target: &str) -> String {
        url_of(fixture, &self.members, target)
    }
}

/// A URL with the hosts of all members.
pub(crate) fn url_of(fixture: &Fixture, members: &[Member], target: &str) -> String {
    let host = |member: &Member| format!("{}:{}", member.address, member.port);
    let hosts: Vec<String> = members.iter().map(host).collect();
    let (user, hosts, database) = (fixture.user(), hosts.join(","), fixture.server().database());
    format!("mysql://{user}@{hosts}/{database}?ssl-mode=DISABLED&target-session-attrs={target}")
}

impl Member {
    /// A new server whose data is in `directory`, with these additional options.
    pub(crate) fn start(fixture: &Fixture, directory: &Path, address: String, options: &[String]) -> Self {
        install(fixture, directory);
        let port = free_port();
        let socket = directory.with_extension("sock");
        let mut command = Command::new(&fixture.build().server_program);
        command
            .arg("--no-defaults")
            .args(as_root())
            .arg(format!("--datadir={}", directory.display()))
            .arg(format!("--tmpdir={}", directory.display()))
            .arg(format!("--socket={}", socket.display()))
            .arg(format!("--pid-file={}", directory.with_extension("pid").display()))
            .arg(format!("--log-error={}", directory.with_extension("log").display()))
            .args(["--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=16M"])
            .args([format!("--bind-address={address}"), format!("--port={port}")])
            .args(options);
        if fixture.engine() == Engine::MySql {
            command.arg("--mysqlx=OFF");
        }
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("the server starts");
        let engine = fixture.engine();
        await_that("the server listens", || control(engine, &socket).is_some());
        let control = control(engine, &socket).expect("it listens");
        let mut member = Self { child, port, address, control };
        let (user, database) = (fixture.user(), fixture.server().database());
        let password = String::from_utf8(fixture.password()).expect("passwords here are text");
        for sql in [
            format!("CREATE DATABASE {database}"),
            format!("CREATE USER '{user}'@'%' IDENTIFIED BY '{password}'"),
            format!("GRANT ALL ON {database}.* TO '{user}'@'%'"),
            format!("USE {database}"),
            "CREATE TABLE numbered (writer int, number int)".to_owned(),
        ] {
            member.execute(&sql);
        }
        member
    }

    pub(crate) fn execute(&mut self, sql: &str) {
        self.control.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    pub(crate) fn set_read_only(&mut self, value: u8) {
        self.execute(&format!("SET GLOBAL read_only = {value}"));
    }

    pub(crate) fn rows(&mut self) -> String {
        one(&mut self.control, "SELECT COUNT(*) FROM numbered")
    }
}

impl Member {
    /// Kills it with SIGKILL.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.kill();
    }
}

fn as_root() -> Option<&'static str> {
    geteuid().is_root().then_some("--user=root")
}

/// Creates the data of a server whose administrator needs no password.
fn install(fixture: &Fixture, directory: &Path) {
    let build = fixture.build();
    fs::create_dir(directory).expect("ours to create");
    let mut command = Command::new(&build.install_program);
    // Two of them at the same time would use the same names of temporary tables.
    command.env("TMPDIR", directory);
    command.arg("--no-defaults").args(as_root()).arg(format!("--datadir={}", directory.display()));
    match build.engine {
        Engine::MySql => command.arg("--initialize-insecure"),
        _ => command.args(["--auth-root-authentication-method=normal", "--skip-test-db"]),
    };
    let output = command.output().expect("it is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn control(engine: Engine, socket: &Path) -> Option<Client> {
    let login = mysql::MySqlLogin {
        transport: mysql::Transport::UnixSocket,
        plugin: plugin_of(engine),
        ..mysql::MySqlLogin::new("root", Secret::new(Vec::new()))
    };
    Client::connect(&Address::Unix(socket.to_owned()), Login::MySql(Arc::new(login)), None).ok()
}
