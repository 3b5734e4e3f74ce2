//! The server, proxies in front of it, and clients of both.

use std::fs::{self, Permissions, set_permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_lab::{Build, Lab, Server, ServerStart, Tables, DataTemplate, find};
use ciphertoll_model::{Auth, Endpoint, Engine, Scale, ServerKey, ServerLevel, Strength};
use ciphertoll_net::Address;
use ciphertoll_net::blocking::Client;
use ciphertoll_skip::missing;
use ciphertoll_wire::session::Login;
use ciphertoll_wire::{Secret, postgres};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::say;

/// Far longer than anything here takes.
pub(crate) const LONG: Duration = Duration::from_secs(20);
pub(crate) const PORT: u16 = 6432;

pub(crate) struct Site {
    // Dropped in this order: the server's files lie in the scratch directory, that in the place.
    pub(crate) server: Option<Server>,
    lab: Lab,
    build: Build,
    template: DataTemplate,
    place: TempDir,
    proxies: u32,
    /// How the proxies pool.
    pub(crate) mode: Mode,
    /// How many threads of each serve.
    pub(crate) threads: usize,
}

/// How many threads of a proxy serve, where a case does not say so itself.
const THREADS: &str = "CIPHERTOLL_TEST_THREADS";

/// As many as the environment says, or one.
pub(crate) fn usual_threads() -> usize {
    std::env::var(THREADS).map_or(1, |threads| threads.parse().expect(THREADS))
}

/// How long clients have their connections.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Session,
    Transaction,
}

impl Mode {
    pub(crate) fn remark(self) -> &'static str {
        match self {
            Self::Session => "",
            Self::Transaction => ", parted after transactions",
        }
    }

    /// What a proxy is told of it; sessions are what it does untold.
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Session => &[],
            Self::Transaction => &["--mode", "transaction"],
        }
    }
}

/// A proxy of one case; ended with it.
pub(crate) struct Proxy {
    child: Child,
    pub(crate) directory: PathBuf,
    pub(crate) port: u16,
    /// In a lock, so that clients on threads can share the proxy.
    lines: Mutex<Receiver<String>>,
    pub(crate) log: Vec<String>,
    pub(crate) user: String,
    pub(crate) database: String,
    mode: Mode,
}

impl Site {
    /// `None`, with a line that says so, where there is no PostgreSQL or no client of its.
    pub(crate) fn open() -> Option<Self> {
        let build = find(&ServerLevel::of(Engine::Postgres));
        let build = build.inspect_err(missing).ok()?;
        for tool in ["psql", "pgbench"] {
            if Command::new(tool).arg("--version").stdout(Stdio::null()).status().is_err() {
                missing(&format!("{tool} is not here"));
                return None;
            }
        }
        let place = tempfile::Builder::new().prefix("toll").tempdir_in("/var/tmp").expect("a directory");
        set_permissions(place.path(), Permissions::from_mode(0o711)).expect("ours to change");
        let cache = format!("{}/ciphertoll-cache-{}", env!("CARGO_TARGET_TMPDIR"), nix::unistd::geteuid());
        let lab = Lab::open_in(helper(), &place.path().join("scratch"), cache.into()).expect("a lab");
        let scale: Scale = "1500".parse().expect("a scale");
        let tables = Tables { sysbench: Some(scale), ..Tables::default() };
        let template = lab.template(&build, &tables, &mut |_| {}, &|| false).expect("a template");
        let (mode, threads) = (Mode::Session, usual_threads());
        let mut site = Self { server: None, lab, build, template, place, proxies: 0, mode, threads };
        site.start_server();
        Some(site)
    }

    fn start_server(&mut self) {
        let start = ServerStart {
            build: &self.build,
            template: &self.template,
            name: "x1",
            key: ServerKey::P256,
            log: self.place.path().join("server.log"),
            preferred_port: None,
            processors: None,
            strength: Strength::Default,
        };
        self.server = Some(self.lab.start(&start).expect("the server starts"));
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.as_ref().expect("the server is there")
    }

    pub(crate) fn server_port(&self) -> u16 {
        match self.server().tcp_endpoint() {
            Endpoint::Tcp(address) => address.port(),
            _ => panic!("a private server has an address"),
        }
    }

    /// The lab's own role, which may do anything and is let in without a password by the unix socket.
    pub(crate) fn control(&self) -> Client {
        let Endpoint::Unix(path) = self.server().unix_endpoint() else { panic!("a server has a socket") };
        let login = login("ciphertoll", Vec::new(), self.server().database());
        Client::connect(&Address::Unix(path), login, None).expect("the control role is let in")
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
        let (directory, listen) = self.new_place();
        self.proxy_at(&listen, url, directory, PORT, arguments)
    }

    /// A directory for a proxy, and where it can listen there.
    pub(crate) fn new_place(&mut self) -> (PathBuf, String) {
        self.proxies += 1;
        let directory = self.place.path().join(format!("p{}", self.proxies));
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

    /// The program, which knows the password.
    pub(crate) fn program(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ciphertoll-proxy"));
        command.env("PGPASSWORD", String::from_utf8(self.password()).expect("passwords here are text"));
        command
    }

    /// A proxy that was told where to listen, and does when this returns.
    pub(crate) fn proxy_by(&self, command: &mut Command, directory: PathBuf, port: u16) -> Proxy {
        command.args(["--threads", &self.threads.to_string()]).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the proxy starts");
        let stderr = BufReader::new(child.stderr.take().expect("it was asked for"));
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let user = self.server().account(Auth::default_of(Engine::Postgres)).user;
        let database = self.server().database().to_owned();
        let (lines, mode) = (Mutex::new(lines), self.mode);
        let mut proxy = Proxy { child, directory, port, lines, log: Vec::new(), user, database, mode };
        let line = proxy.await_line("event=listening");
        if let Some((_, address)) = line.split_once("at=tcp:127.0.0.1:") {
            let digits: String = address.chars().take_while(char::is_ascii_digit).collect();
            proxy.port = digits.parse().expect("a port");
        }
        proxy
    }
}

impl Proxy {
    /// The next line of the log that has this in it.
    pub(crate) fn await_line(&mut self, wanted: &str) -> String {
        let until = Instant::now() + LONG;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.get_mut().expect("no panic").recv_timeout(left) else {
                panic!("no line with {wanted:?} came: {:#?}", self.log)
            };
            self.log.push(line.clone());
            if line.contains(wanted) {
                return line;
            }
        }
    }

    /// Puts what has been said so far into the log.
    pub(crate) fn read_on(&mut self) {
        self.log.extend(self.lines.get_mut().expect("no panic").try_iter());
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.join(format!(".s.PGSQL.{}", self.port))
    }

    /// Our own client, by the unix socket.
    pub(crate) fn client(&self) -> Client {
        self.try_client().expect("the proxy lets us in")
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

    /// A connection whose bytes the case makes itself, logged in.
    pub(crate) fn raw(&self, settings: &[(&str, &str)]) -> Raw {
        let mut raw = self.raw_silent();
        let mut parameters = vec![("user", self.user.as_str())];
        if !settings.iter().any(|(name, _)| *name == "database") {
            parameters.push(("database", &self.database));
        }
        parameters.extend(settings);
        let mut bytes = Vec::new();
        postgres::startup::encode_startup(&mut bytes, &parameters).expect("a start-up");
        raw.send(&bytes);
        raw
    }

    pub(crate) fn raw_silent(&self) -> Raw {
        Raw::connect(&self.socket())
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

    /// What psql prints for these statements, each in a query of its own.
    pub(crate) fn sql(&self, statements: &[&str]) -> String {
        let arguments: Vec<&str> = statements.iter().flat_map(|sql| ["-c", *sql]).collect();
        let Output { status, stdout, stderr } = self.psql(&arguments).output().expect("psql runs");
        let stderr = String::from_utf8_lossy(&stderr);
        assert!(status.success(), "{statements:?}: {stderr}");
        String::from_utf8(stdout).expect("text").trim_end().to_owned()
    }

    /// Where it is and what is wanted there, for tools on libpq; the database's name comes last.
    pub(crate) fn place(&self) -> [String; 7] {
        let directory = self.directory.display().to_string();
        let [host, port, user] = ["-h", "-p", "-U"].map(ToOwned::to_owned);
        [host, directory, port, self.port.to_string(), user, self.user.clone(), self.database.clone()]
    }

    pub(crate) fn is_of_sessions(&self) -> bool {
        self.mode == Mode::Session
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).expect("the proxy is there");
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let until = Instant::now() + LONG;
        loop {
            if let Some(status) = self.child.try_wait().expect("it is ours") {
                return status;
            }
            assert!(Instant::now() < until, "the proxy does not end");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let rest: Vec<String> =
            self.lines.get_mut().map(|lines| lines.try_iter().collect()).unwrap_or_default();
        self.log.extend(rest);
        if thread::panicking() {
            say(&format!("the proxy's log: {:#?}", self.log));
        }
    }
}

/// A connection whose bytes the case makes itself.
pub(crate) struct Raw {
    pub(crate) stream: UnixStream,
    pub(crate) process_id: u32,
    pub(crate) key: Vec<u8>,
}

impl Raw {
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

    /// Everything up to the end.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // What was sent and not read may break the connection, too.
        let _ = self.stream.read_to_end(&mut bytes).inspect_err(|error| {
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        });
        bytes
    }

    /// Everything up to the next `ReadyForQuery`, or to the end.
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

    /// The SQL state of the first error of an answer.
    pub(crate) fn error_state(messages: &[(u8, Vec<u8>)]) -> Option<String> {
        let (_, payload) = messages.iter().find(|(kind, _)| *kind == b'E')?;
        let fields = payload.split(|&byte| byte == 0);
        fields
            .filter_map(|field| field.strip_prefix(b"C"))
            .map(|state| String::from_utf8_lossy(state).into_owned())
            .next()
    }
}

/// A client of the proxy that listens at this socket.
pub(crate) fn client_at(socket: &Path, user: &str, database: &str) -> Result<Client, ciphertoll_net::Error> {
    Client::connect(&Address::Unix(socket.to_owned()), login(user, Vec::new(), database), None)
}

fn login(user: &str, password: Vec<u8>, database: &str) -> Login {
    Login::Postgres(Arc::new(postgres::Login {
        user: user.to_owned(),
        password: Secret::new(password),
        database: Some(database.to_owned()),
        encryption: postgres::Encryption::Plain,
        channel_binding: postgres::ChannelBinding::Disabled,
    }))
}

/// The helper that Cargo builds beside the tests.
pub(crate) fn helper() -> PathBuf {
    let test = std::env::current_exe().expect("our own path");
    let profile = test.parent().and_then(Path::parent).expect("tests lie two below the profile");
    let helper = profile.join("examples/proxy_exec_helper");
    assert!(helper.is_file(), "{} is missing: cargo build -p ciphertoll-proxy --examples", helper.display());
    helper
}
