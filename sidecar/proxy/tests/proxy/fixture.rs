//! A server, proxies in front of it, and their clients.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use ciphertoll_lab::{Build, DataTemplate, Lab, Server, Tables, find};
use ciphertoll_model::{Auth, Endpoint, Engine, Scale, ServerLevel};
use ciphertoll_net::Address;
use ciphertoll_net::blocking::Client;
use ciphertoll_testing::missing;
use ciphertoll_wire::session::Login;
use ciphertoll_wire::{Secret, postgres};
use tempfile::TempDir;

use crate::process::{LONG, Process, port_in};
use crate::server::{open_lab, start_of};
use crate::topics::StartsProxies;

/// The port in the name of a proxy's socket.
pub(crate) const PORT: u16 = 6432;

pub(crate) struct Fixture {
    // Dropped in this order: the server's files are in the scratch directory, which is in `directory`.
    pub(crate) server: Option<Server>,
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

/// The pooling mode.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Session,
    Transaction,
}

impl Mode {
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Session => "",
            Self::Transaction => ", in transaction mode",
        }
    }

    /// Session mode is the default.
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Session => &[],
            Self::Transaction => &["--mode", "transaction"],
        }
    }
}

/// A proxy for one case; it is killed when dropped.
pub(crate) struct Proxy {
    pub(crate) process: Process,
    pub(crate) directory: PathBuf,
    pub(crate) port: u16,
    pub(crate) user: String,
    pub(crate) database: String,
    mode: Mode,
}

impl Fixture {
    /// `None`, with a message, if PostgreSQL or its clients are not installed.
    pub(crate) fn open() -> Option<Self> {
        let build = find(&ServerLevel::of(Engine::Postgres));
        let build = build.inspect_err(missing).ok()?;
        for tool in ["psql", "pgbench"] {
            if Command::new(tool).arg("--version").stdout(Stdio::null()).status().is_err() {
                missing(&format!("{tool} is not here"));
                return None;
            }
        }
        let scale: Scale = "1500".parse().expect("a scale");
        let (directory, lab, template) =
            open_lab(&build, &Tables { sysbench: Some(scale), ..Tables::default() });
        let (mode, threads) = (Mode::Session, 1);
        let mut fixture = Self { server: None, lab, build, template, directory, proxies: 0, mode, threads };
        fixture.start_server();
        Some(fixture)
    }

    pub(crate) fn start_server(&mut self) {
        let start = start_of(&self.build, &self.template, &self.directory);
        self.server = Some(self.lab.start(&start).expect("the server starts"));
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.as_ref().expect("the server is there")
    }

    pub(crate) fn build(&self) -> &Build {
        &self.build
    }

    pub(crate) fn server_port(&self) -> u16 {
        match self.server().tcp_endpoint() {
            Endpoint::Tcp(address) => address.port(),
            _ => panic!("a private server has an address"),
        }
    }

    /// The lab's own role, which may do anything and needs no password on the unix socket.
    pub(crate) fn control(&self) -> Client {
        self.control_of(self.server().database())
    }

    /// The same, in another database.
    pub(crate) fn control_of(&self, database: &str) -> Client {
        let Endpoint::Unix(path) = self.server().unix_endpoint() else { panic!("a server has a socket") };
        let login = login("ciphertoll", Vec::new(), database);
        Client::connect(&Address::Unix(path), login, None).expect("the control role may log in")
    }

    pub(crate) fn password(&self) -> Vec<u8> {
        let account = self.server().account(Auth::default_of(Engine::Postgres));
        fs::read(account.password_file).expect("the password is ours to read")
    }

    pub(crate) fn url(&self, options: &str) -> String {
        let server = self.server();
        let user = server.account(Auth::default_of(Engine::Postgres)).user;
        let (name, port, database) = (server.server_name(), self.server_port(), server.database());
        let ca = server.ca_file();
        format!("postgres://{user}@{name}:{port}/{database}?sslrootcert={}{options}", ca.display())
    }

    /// A proxy on a unix socket, which listens when this returns.
    pub(crate) fn proxy(&mut self, arguments: &[&str]) -> Proxy {
        let url = self.url("");
        self.proxy_to(&url, arguments)
    }

    pub(crate) fn proxy_to(&mut self, url: &str, arguments: &[&str]) -> Proxy {
        let (directory, listen) = self.new_directory();
        self.proxy_at(&listen, url, directory, PORT, arguments)
    }

    /// A directory for a proxy, and its listen address there.
    pub(crate) fn new_directory(&mut self) -> (PathBuf, String) {
        self.proxies += 1;
        let directory = self.directory.path().join(format!("p{}", self.proxies));
        let listen = format!("unix:{}", directory.join(format!(".s.PGSQL.{PORT}")).display());
        (directory, listen)
    }

    pub(crate) fn proxy_at(
        &self,
        listen: &str,
        url: &str,
        directory: PathBuf,
        port: u16,
        arguments: &[&str],
    ) -> Proxy {
        let mut command = self.program();
        command
            .args(["--listen", listen, "--server", url, "--log", "debug"])
            .args(self.mode.arguments())
            .args(arguments);
        self.proxy_by(&mut command, directory, port)
    }

    pub(crate) fn mode_arguments(&self) -> &'static [&'static str] {
        self.mode.arguments()
    }

    /// The program, with the password in its environment.
    pub(crate) fn program(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ciphertoll-proxy"));
        command.env("PGPASSWORD", String::from_utf8(self.password()).expect("passwords here are text"));
        command
    }

    /// Starts a proxy; it listens when this returns.
    pub(crate) fn proxy_by(&self, command: &mut Command, directory: PathBuf, port: u16) -> Proxy {
        command.args(["--threads", &self.threads.to_string()]);
        let mut process = Process::start(command);
        let line = process.await_line("event=listening");
        let port = port_in(&line).unwrap_or(port);
        let user = self.server().account(Auth::default_of(Engine::Postgres)).user;
        let database = self.server().database().to_owned();
        Proxy { process, directory, port, user, database, mode: self.mode }
    }
}

impl StartsProxies for Fixture {
    fn set_mode(&mut self, mode: Mode, threads: usize) {
        (self.mode, self.threads) = (mode, threads);
    }
}

impl Proxy {
    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.join(format!(".s.PGSQL.{}", self.port))
    }

    /// A client on the unix socket.
    pub(crate) fn client(&self) -> Client {
        self.try_client().expect("the login succeeds")
    }

    pub(crate) fn try_client(&self) -> Result<Client, ciphertoll_net::Error> {
        self.try_client_as(&self.user)
    }

    pub(crate) fn try_client_as(&self, user: &str) -> Result<Client, ciphertoll_net::Error> {
        Client::connect(&Address::Unix(self.socket()), login(user, Vec::new(), &self.database), None)
    }

    pub(crate) fn tcp_client(&self, password: Vec<u8>) -> Result<Client, ciphertoll_net::Error> {
        let address = Address::Tcp(([127, 0, 0, 1], self.port).into());
        Client::connect(&address, login(&self.user, password, &self.database), None)
    }

    /// A client connection at the level of messages, which has sent its startup message.
    pub(crate) fn raw(&self, settings: &[(&str, &str)]) -> RawClient {
        let mut raw = self.raw_silent();
        let mut parameters = vec![("user", self.user.as_str()), ("database", self.database.as_str())];
        parameters.retain(|(name, _)| !settings.iter().any(|(set, _)| set == name));
        parameters.extend(settings);
        let mut bytes = Vec::new();
        postgres::startup::encode_startup(&mut bytes, &parameters).expect("a start-up");
        raw.send(&bytes);
        raw
    }

    pub(crate) fn raw_silent(&self) -> RawClient {
        RawClient::connect(&self.socket())
    }

    pub(crate) fn psql(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("psql");
        command
            .args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1"])
            .args(["-h", &self.directory.display().to_string(), "-p", &self.port.to_string()])
            .args(["-U", &self.user, "-d", &self.database])
            .args(arguments)
            .env_remove("PGPASSWORD")
            .stdin(Stdio::null());
        command
    }

    /// psql's output for these statements, each as a separate query.
    pub(crate) fn sql(&self, statements: &[&str]) -> String {
        let arguments: Vec<&str> = statements.iter().flat_map(|sql| ["-c", *sql]).collect();
        let Output { status, stdout, stderr } = self.psql(&arguments).output().expect("psql runs");
        let stderr = String::from_utf8_lossy(&stderr);
        assert!(status.success(), "{statements:?}: {stderr}");
        String::from_utf8(stdout).expect("text").trim_end().to_owned()
    }

    /// Connection arguments for tools on libpq; the database comes last.
    pub(crate) fn libpq_arguments(&self) -> [String; 7] {
        let directory = self.directory.display().to_string();
        let [host, port, user] = ["-h", "-p", "-U"].map(ToOwned::to_owned);
        [host, directory, port, self.port.to_string(), user, self.user.clone(), self.database.clone()]
    }

    pub(crate) fn is_session_mode(&self) -> bool {
        self.mode == Mode::Session
    }
}

/// A client connection at the level of messages.
pub(crate) struct RawClient {
    pub(crate) stream: UnixStream,
    pub(crate) process_id: u32,
    pub(crate) key: Vec<u8>,
}

impl RawClient {
    pub(crate) fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).expect("the proxy listens");
        stream.set_read_timeout(Some(LONG)).expect("a limit");
        Self { stream, process_id: 0, key: Vec::new() }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the proxy takes bytes");
    }

    pub(crate) fn query(&mut self, sql: &str) {
        let mut bytes = Vec::new();
        postgres::command::encode_query(&mut bytes, sql).expect("a query");
        self.send(&bytes);
    }

    pub(crate) fn message(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut header = [0; 5];
        self.stream.read_exact(&mut header)?;
        let [kind, a, b, c, d] = header;
        let mut payload = vec![0; u32::from_be_bytes([a, b, c, d]) as usize - 4];
        self.stream.read_exact(&mut payload)?;
        if kind == b'K' {
            self.process_id = u32::from_be_bytes([payload[0], payload[1], payload[2], payload[3]]);
            self.key = payload[4..].to_vec();
        }
        Ok((kind, payload))
    }

    /// Everything up to the end of the stream.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // Unread bytes may make the kernel reset the connection.
        let _ = self.stream.read_to_end(&mut bytes).inspect_err(|error| {
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        });
        bytes
    }

    /// Everything up to the next `ReadyForQuery`, or to the end of the stream.
    pub(crate) fn answer(&mut self) -> Vec<(u8, Vec<u8>)> {
        let mut messages = Vec::new();
        while let Ok(message) = self.message() {
            let ends = message.0 == b'Z';
            messages.push(message);
            if ends {
                break;
            }
        }
        messages
    }

    /// The SQL state of the first error of a response.
    pub(crate) fn error_state(messages: &[(u8, Vec<u8>)]) -> Option<String> {
        let (_, payload) = messages.iter().find(|(kind, _)| *kind == b'E')?;
        let fields = payload.split(|&byte| byte == 0);
        fields
            .filter_map(|field| field.strip_prefix(b"C"))
            .map(|state| String::from_utf8_lossy(state).into_owned())
            .next()
    }
}

/// A client of the proxy on this socket.
pub(crate) fn client_at(socket: &Path, user: &str, database: &str) -> Result<Client, ciphertoll_net::Error> {
    Client::connect(&Address::Unix(socket.to_owned()), login(user, Vec::new(), database), None)
}

fn login(user: &str, password: Vec<u8>, database: &str) -> Login {
    Login::Postgres(Arc::new(postgres::PostgresLogin {
        startup: Vec::new(),
        user: user.to_owned(),
        password: Secret::new(password),
        database: Some(database.to_owned()),
        encryption: postgres::PostgresTlsMode::Plain,
        channel_binding: postgres::ChannelBinding::Disabled,
    }))
}
