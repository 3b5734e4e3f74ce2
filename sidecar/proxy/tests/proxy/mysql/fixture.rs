//! A server, proxies in front of it, and their clients.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use ciphertoll_lab::{Build, DataTemplate, Lab, Server, Tables, find};
use ciphertoll_model::{Auth, Endpoint, Engine, ServerLevel, Setting, Settings};
use ciphertoll_net::blocking::Client;
use ciphertoll_net::{Address, tls};
use ciphertoll_testing::{missing, no_server};
use ciphertoll_wire::mysql::{self, Capabilities};
use ciphertoll_wire::session::Login;
use ciphertoll_wire::{Secret, mysql::Plugin};
use tempfile::TempDir;

use super::raw::{RawClient, USUAL, UTF8MB4};
use crate::fixture::Mode;
use crate::operations::write_secret;
use crate::process::{Process, port_in};
use crate::server::{open_lab, start_of};
use crate::topics::StartsProxies;

/// Packets of many megabytes, and a limit that only interactive sessions have.
const SETTINGS: [(&str, &str); 2] =
    [("max_allowed_packet", "134217728"), ("interactive_timeout", INTERACTIVE_TIMEOUT)];
pub(crate) const INTERACTIVE_TIMEOUT: &str = "4321";
const CONTROL: &str = "ciphertoll_control";
pub(crate) const SECOND: &str = "second";
pub(crate) const SECONDS_PASSWORD: &str = "first one";

pub(crate) struct Fixture {
    // Dropped in this order: the server's files are in the scratch directory, which is in `directory`.
    server: Option<Server>,
    lab: Lab,
    build: Build,
    template: DataTemplate,
    directory: TempDir,
    proxies: u32,
    /// The pooling mode of the next proxies.
    pub(crate) mode: Mode,
    /// The number of worker threads of the next proxies.
    pub(crate) threads: usize,
}

/// A proxy for one case; it is killed when dropped.
pub(crate) struct Proxy {
    pub(crate) process: Process,
    pub(crate) socket: PathBuf,
    pub(crate) port: u16,
    pub(crate) user: String,
    pub(crate) database: String,
    engine: Engine,
}

impl Fixture {
    /// `None`, with a message, if there is no such server.
    pub(crate) fn open(level: &ServerLevel) -> Option<Self> {
        let build = find(level).inspect_err(|error| no_server(level.engine, error)).ok()?;
        let (directory, lab, template) = open_lab(&build, &Tables::default());
        let (mode, threads) = (Mode::Session, 1);
        let mut fixture = Self { server: None, lab, build, template, directory, proxies: 0, mode, threads };
        fixture.start_server();
        Some(fixture)
    }

    fn start_server(&mut self) {
        let start = start_of(&self.build, &self.template, &self.directory);
        let mut settings = Settings::default();
        for (name, value) in SETTINGS {
            settings.set(Setting::new(self.build.engine, name, value).expect("a setting"));
        }
        self.server = Some(self.lab.start_with(&start, &settings).expect("the server starts"));
    }

    pub(crate) fn build(&self) -> &Build {
        &self.build
    }

    pub(crate) fn engine(&self) -> Engine {
        self.server().engine()
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.as_ref().expect("the server is there")
    }

    pub(crate) fn port(&self) -> u16 {
        match self.server().tcp_endpoint() {
            Endpoint::Tcp(address) => address.port(),
            _ => panic!("a private server has an address"),
        }
    }

    pub(crate) fn password(&self) -> Vec<u8> {
        let account = self.server().account(Auth::default_of(self.engine()));
        fs::read(account.password_file).expect("the password is ours to read")
    }

    /// The lab's own account, which may create others.
    pub(crate) fn control(&self) -> Client {
        let Endpoint::Unix(path) = self.server().unix_endpoint() else { panic!("a server has a socket") };
        let login = mysql::MySqlLogin {
            transport: mysql::Transport::UnixSocket,
            plugin: plugin_of(self.engine()),
            ..mysql::MySqlLogin::new(CONTROL, Secret::new(self.password()))
        };
        Client::connect(&Address::Unix(path), Login::MySql(Arc::new(login)), None)
            .expect("the login succeeds")
    }

    /// The name of that account, and the server's socket.
    pub(crate) fn control_login(&self) -> (&'static str, PathBuf) {
        let Endpoint::Unix(path) = self.server().unix_endpoint() else { panic!("a server has a socket") };
        (CONTROL, path)
    }

    /// Creates a second account, with its password in a file.
    pub(crate) fn second_user(&self, directory: &Path) -> &'static str {
        let mut control = self.control();
        for sql in [
            format!("DROP USER IF EXISTS '{SECOND}'@'%'"),
            format!("CREATE USER '{SECOND}'@'%' IDENTIFIED BY '{SECONDS_PASSWORD}'"),
            format!("GRANT ALL ON {}.* TO '{SECOND}'@'%'", self.server().database()),
        ] {
            control.execute(&sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
        write_secret(&directory.join(SECOND), &format!("{SECONDS_PASSWORD}\n"));
        SECOND
    }

    pub(crate) fn user(&self) -> String {
        self.server().account(Auth::default_of(self.engine())).user
    }

    pub(crate) fn url(&self) -> String {
        let (server, user) = (self.server(), self.user());
        let (name, port, database) = (server.server_name(), self.port(), server.database());
        format!("mysql://{user}@{name}:{port}/{database}?ssl-ca={}", server.ca_file().display())
    }

    /// A proxy on a unix socket, which listens when this returns.
    pub(crate) fn proxy(&mut self, arguments: &[&str]) -> Proxy {
        let (url, password) = (self.url(), self.password());
        self.proxy_to(&url, password, arguments)
    }

    fn new_socket(&mut self) -> PathBuf {
        self.proxies += 1;
        self.directory.path().join(format!("p{}", self.proxies)).join("mysqld.sock")
    }

    pub(crate) fn proxy_to(&mut self, url: &str, password: Vec<u8>, arguments: &[&str]) -> Proxy {
        let socket = self.new_socket();
        self.proxy_at(&format!("unix:{}", socket.display()), url, password, socket, arguments)
    }

    pub(crate) fn proxy_at(
        &self,
        listen: &str,
        url: &str,
        password: Vec<u8>,
        socket: PathBuf,
        arguments: &[&str],
    ) -> Proxy {
        let program = Command::new(env!("CARGO_BIN_EXE_ciphertoll-proxy"));
        self.proxy_by(program, listen, url, password, socket, arguments)
    }

    /// The same for a program that is started in another way.
    pub(crate) fn proxy_in(&mut self, program: Command, url: &str, arguments: &[&str]) -> Proxy {
        let socket = self.new_socket();
        let listen = format!("unix:{}", socket.display());
        self.proxy_by(program, &listen, url, self.password(), socket, arguments)
    }

    fn proxy_by(
        &self,
        mut command: Command,
        listen: &str,
        url: &str,
        password: Vec<u8>,
        socket: PathBuf,
        arguments: &[&str],
    ) -> Proxy {
        command
            .args(["--listen", listen, "--server", url, "--log", "debug"])
            .args(match self.mode {
                Mode::Session => &[][..],
                Mode::Transaction => &["--mode", "transaction"],
            })
            .args(["--threads", &self.threads.to_string()])
            .args(arguments)
            .env("MYSQL_PWD", String::from_utf8(password).expect("passwords here are text"));
        let mut process = Process::start(&mut command);
        let line = process.await_line("event=listening");
        let port = port_in(&line).unwrap_or_default();
        let (user, database) = (self.user(), self.server().database().to_owned());
        Proxy { process, socket, port, user, database, engine: self.engine() }
    }
}

impl StartsProxies for Fixture {
    fn set_mode(&mut self, mode: Mode, threads: usize) {
        (self.mode, self.threads) = (mode, threads);
    }
}

impl Proxy {
    /// The port of its second listen address.
    pub(crate) fn second_port(&mut self) -> u16 {
        port_in(&self.process.await_line("event=listening")).expect("it says where")
    }

    /// A client on the unix socket.
    pub(crate) fn client(&self) -> Client {
        self.try_client().expect("the login succeeds")
    }

    pub(crate) fn try_client(&self) -> Result<Client, ciphertoll_net::Error> {
        self.client_of(&self.socket)
    }

    fn client_of(&self, socket: &Path) -> Result<Client, ciphertoll_net::Error> {
        Client::connect(&Address::Unix(socket.to_owned()), self.login(&self.user, Vec::new()), None)
    }

    pub(crate) fn tcp_client(&self, user: &str, password: Vec<u8>) -> Result<Client, ciphertoll_net::Error> {
        let address = Address::Tcp(([127, 0, 0, 1], self.port).into());
        Client::connect(&address, self.login(user, password), None)
    }

    /// A client of this user on the unix socket.
    pub(crate) fn client_as(&self, user: &str, password: &[u8]) -> Result<Client, ciphertoll_net::Error> {
        Client::connect(&Address::Unix(self.socket.clone()), self.login(user, password.to_vec()), None)
    }

    fn login(&self, user: &str, password: Vec<u8>) -> Login {
        Login::MySql(Arc::new(self.own_login(user, password)))
    }

    fn own_login(&self, user: &str, password: Vec<u8>) -> mysql::MySqlLogin {
        mysql::MySqlLogin {
            database: Some(self.database.clone()),
            plugin: plugin_of(self.engine),
            ..mysql::MySqlLogin::new(user, Secret::new(password))
        }
    }

    /// A client over TCP and TLS, which verifies the proxy by this CA, and may present a certificate.
    pub(crate) fn tls_client(
        &self,
        user: &str,
        password: &[u8],
        plugin: Option<Plugin>,
        ca: &Path,
        identity: Option<tls::Identity>,
    ) -> Result<Client, ciphertoll_net::Error> {
        let parameters = tls::TlsParameters::new(tls::TlsVersion::Tls13);
        let anchors = tls::TrustAnchors::File(ca.to_owned());
        let peer = tls::PeerName::from("127.0.0.1");
        let settings = tls::Settings { identity, ..tls::Settings::new(parameters, anchors, peer) };
        let context = tls::Context::build(&settings).expect("a context");
        let login = self.own_login(user, password.to_vec());
        let plugin = plugin.unwrap_or(login.plugin);
        let login = mysql::MySqlLogin { encryption: mysql::MySqlTlsMode::Tls, plugin, ..login };
        let address = Address::Tcp(([127, 0, 0, 1], self.port).into());
        Client::connect(&address, Login::MySql(Arc::new(login)), Some(&context))
    }

    /// A client connection at the level of packets, logged in.
    pub(crate) fn raw(&self) -> RawClient {
        self.raw_with(USUAL)
    }

    pub(crate) fn raw_with(&self, capabilities: Capabilities) -> RawClient {
        self.try_raw(capabilities, UTF8MB4, Some(&self.database)).expect("the login succeeds")
    }

    pub(crate) fn try_raw(
        &self,
        capabilities: Capabilities,
        character_set: u8,
        database: Option<&str>,
    ) -> Result<RawClient, mysql::Error> {
        RawClient::log_in(&self.socket, &self.user, database, capabilities, character_set)
    }

    pub(crate) fn raw_silent(&self) -> RawClient {
        RawClient::silent(&self.socket)
    }

    /// MariaDB's command-line client, if it is installed.
    pub(crate) fn cli(&self, arguments: &[&str]) -> Option<Command> {
        let found = Command::new("mariadb").arg("--version").stdout(Stdio::null()).status().is_ok();
        if !found {
            missing("mariadb is not here: a half of the case");
            return None;
        }
        let mut command = Command::new("mariadb");
        command
            .args(["--no-defaults", "--batch", "--skip-column-names", "--socket"])
            .arg(&self.socket)
            .args(["--user", &self.user])
            .args(arguments)
            .arg(&self.database)
            .env_remove("MYSQL_PWD")
            .stdin(Stdio::null());
        Some(command)
    }
}

pub(crate) fn plugin_of(engine: Engine) -> Plugin {
    match engine {
        Engine::MySql => Plugin::CachingSha2Password,
        _ => Plugin::NativePassword,
    }
}

/// A client of the proxy on this socket.
pub(crate) fn client_at(socket: &Path, user: &str, database: &str) -> Result<Client, ciphertoll_net::Error> {
    let login = mysql::MySqlLogin {
        database: Some(database.to_owned()),
        ..mysql::MySqlLogin::new(user, Secret::new(Vec::new()))
    };
    Client::connect(&Address::Unix(socket.to_owned()), Login::MySql(Arc::new(login)), None)
}

/// The single value of a result.
pub(crate) fn one(client: &mut Client, sql: &str) -> String {
    try_one(client, sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

pub(crate) fn try_one(client: &mut Client, sql: &str) -> Result<String, ciphertoll_net::Error> {
    let value = client.query(sql)?.into_iter().flatten().next().flatten();
    Ok(String::from_utf8(value.unwrap_or_default()).expect("text"))
}

/// The error number of the server or the proxy.
pub(crate) fn code(error: &ciphertoll_net::Error) -> Option<u16> {
    use ciphertoll_wire::session;
    match error {
        ciphertoll_net::Error::Protocol(session::Error::MySql(mysql::Error::Server { code, .. })) => {
            Some(*code)
        }
        _ => None,
    }
}
