//! A lab whose server the test's own client uses, and an observer that sees it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use ciphertoll_model::Engine;
use ciphertoll_net::blocking::Client;
use ciphertoll_net::tls::{self, PeerName, TrustAnchors};
use ciphertoll_net::{
    Address, ConnectProgress, Connected, ContextSource, Dialer, Readiness, SourceAddresses, Transport,
};
use ciphertoll_wire::session::Login;
use ciphertoll_wire::{Secret, mongodb, mysql, postgres};
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::{ciphertoll, text};

/// A running server, reached over a path.
pub(super) struct Lab {
    child: Child,
    variables: HashMap<String, String>,
    /// A process in the network of the clients.
    inside: String,
    engine: Engine,
    /// Without a port if clients use a socket.
    pub(super) address: SocketAddr,
    /// The sidecar's, for clients.
    socket: Option<PathBuf>,
}

/// A process that observes the server of a lab.
pub(super) struct Observer {
    pub(super) child: Child,
    _directory: tempfile::TempDir,
    document: PathBuf,
}

impl Lab {
    pub(super) fn start(engine: Engine, server: &str, path: &str, more: &[&str]) -> Self {
        Self::start_by(ciphertoll(&[]), engine, server, path, more)
    }

    /// Starts the lab in a separate network namespace.
    pub(super) fn start_alone(engine: Engine, server: &str, path: &str) -> Self {
        let mut command = Command::new("unshare");
        let script = "ip link set lo up; exec \"$0\" \"$@\"";
        command.args(["--net", "sh", "-ec", script, env!("CARGO_BIN_EXE_ciphertoll")]);
        Self::start_by(command, engine, server, path, &[])
    }

    /// Starts the server by the program of this command. The lab ends with its standard input.
    fn start_by(mut command: Command, engine: Engine, server: &str, path: &str, more: &[&str]) -> Self {
        let script = "env -0 > $0/variables; echo $$; cat > /dev/null";
        let directory = tempfile::tempdir().expect("a directory");
        command.args(["lab", "--server", server, "--path", path, "-q"]);
        command.args(more).args(["--", "sh", "-c", script, text(directory.path())]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("the program starts");
        let inside = first_line(child.stdout.take().expect("it has an output"));
        assert!(!inside.is_empty(), "no lab of {server} over {path}");
        let variables = fs::read_to_string(directory.path().join("variables")).expect("the variables");
        let variables: HashMap<_, _> = variables
            .split_terminator('\0')
            .filter_map(|variable| variable.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let url = &variables["CIPHERTOLL_URL"];
        let socket = socket_of(url);
        let address = match split(url).1 {
            "" => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            address => address.parse().unwrap_or_else(|_| panic!("{address} is an address")),
        };
        Self { child, variables, inside, engine, address, socket }
    }

    /// The same lab, with the address of the server behind its sidecar: the server knows it.
    pub(super) fn behind_the_sidecar(mut self) -> Self {
        let question = match self.engine {
            Engine::Postgres => "SHOW port",
            _ => "SELECT @@port",
        };
        let mut client = Client::dial(&self.dialer(Start::Plain, self.password(), None)).expect("a login");
        let rows = client.query(question).expect("an answer");
        client.close().expect("a goodbye");
        let port = rows[0][0].as_deref().map(String::from_utf8_lossy);
        let port = port.and_then(|port| port.parse().ok()).expect("a port");
        self.address.set_port(port);
        self
    }

    /// Ends the sidecar's connection to the server, so that its next one is new.
    pub(super) fn end_server_connection(&self) {
        let mut client = Client::dial(&self.dialer(Start::Plain, self.password(), None)).expect("a login");
        let _ = client.query(match self.engine {
            Engine::Postgres => "SELECT pg_terminate_backend(pg_backend_pid())",
            _ => "KILL CONNECTION_ID()",
        });
    }

    /// Begins to observe the server, in the network of the clients.
    pub(super) fn observe(&self) -> Observer {
        self.observe_with(&[])
    }

    pub(super) fn observe_with(&self, more: &[&str]) -> Observer {
        Observer::start(&self.inside, &format!("{}={}", self.address.port(), self.protocol()), more)
    }

    pub(super) fn protocol(&self) -> &'static str {
        match self.engine {
            Engine::Postgres => "postgres",
            Engine::MariaDb | Engine::MySql => "mysql",
            Engine::MongoDb | Engine::FerretDb => "mongodb",
        }
    }

    pub(super) fn variable(&self, name: &str) -> &str {
        self.variables.get(name).unwrap_or_else(|| panic!("{name} is missing"))
    }

    pub(super) fn password(&self) -> &str {
        self.variable("CIPHERTOLL_PASSWORD")
    }

    /// The path's TLS settings of a client, which trusts the lab's authority.
    pub(super) fn settings(&self, parameters: tls::TlsParameters) -> tls::Settings {
        let anchors = TrustAnchors::File(self.variable("CIPHERTOLL_CA").into());
        tls::Settings::new(parameters, anchors, PeerName::Ip(self.address.ip()))
    }

    pub(super) fn dialer(&self, start: Start, password: &str, settings: Option<&tls::Settings>) -> Dialer {
        let context = |settings: &tls::Settings| tls::Context::build(settings).expect("a TLS context");
        Dialer {
            address: self.socket.clone().map_or(Address::Tcp(self.address), Address::Unix),
            login: self.login(start, password),
            tls: settings.map(context).map(ContextSource::Shared),
            transport: Transport::BLOCKING,
        }
    }

    /// The user and the database of clients.
    pub(super) fn account(&self) -> (String, String) {
        let url = &self.variables["CIPHERTOLL_URL"];
        let (user, _) = split(url);
        let database = url.split('/').nth(3).and_then(|rest| rest.split('?').next()).unwrap_or_default();
        (user.to_owned(), database.to_owned())
    }

    fn login(&self, start: Start, password: &str) -> Login {
        let (user, database) = self.account();
        let password = Secret::new(password.as_bytes().to_vec());
        match self.engine {
            Engine::Postgres => Login::Postgres(Arc::new(postgres::PostgresLogin {
                startup: Vec::new(),
                user,
                password,
                database: Some(database),
                encryption: match start {
                    Start::Plain => postgres::PostgresTlsMode::Plain,
                    Start::Tls => postgres::PostgresTlsMode::Tls,
                    Start::DirectTls => postgres::PostgresTlsMode::DirectTls,
                },
                channel_binding: postgres::ChannelBinding::Disabled,
            })),
            Engine::MariaDb | Engine::MySql => Login::MySql(Arc::new(mysql::MySqlLogin {
                database: Some(database),
                encryption: match start {
                    Start::Plain => mysql::MySqlTlsMode::Plain,
                    Start::Tls | Start::DirectTls => mysql::MySqlTlsMode::Tls,
                },
                ..mysql::MySqlLogin::new(user, password)
            })),
            Engine::MongoDb | Engine::FerretDb => Login::MongoDb(Arc::new(mongodb::MongoDbLogin {
                database,
                tls: match start {
                    Start::Plain => mongodb::MongoDbTlsMode::Plain,
                    Start::Tls | Start::DirectTls => mongodb::MongoDbTlsMode::Tls,
                },
                ..mongodb::MongoDbLogin::new(&user, password)
            })),
        }
    }

    /// Runs this in the network of the clients.
    pub(super) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let network = File::open(format!("/proc/{}/ns/net", self.inside)).expect("the lab runs");
        std::thread::scope(|scope| {
            let joined = scope.spawn(|| {
                setns(network, CloneFlags::CLONE_NEWNET).expect("root may enter it");
                work()
            });
            joined.join().expect("no panic")
        })
    }
}

/// How TLS begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    Plain,
    Tls,
    DirectTls,
}

/// A connect from the socket to the end of the login.
pub(super) fn connect(dialer: &Dialer) -> Result<Connected, ciphertoll_net::Error> {
    connect_from(dialer, None)
}

/// The same from another address.
pub(super) fn connect_from(
    dialer: &Dialer,
    sources: Option<&mut SourceAddresses>,
) -> Result<Connected, ciphertoll_net::Error> {
    let mut connecting = dialer.dial(sources)?;
    loop {
        match connecting.advance(Readiness::Readable)? {
            ConnectProgress::Pending(pending) => connecting = pending,
            ConnectProgress::Done(connected) => return Ok(connected),
        }
    }
}

impl Observer {
    /// Begins to observe a port, in the network of the process `inside`.
    pub(super) fn start(inside: &str, port: &str, more: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let document = directory.path().join("seen.json");
        let mut command = Command::new("nsenter");
        command.args(["--target", inside, "--net", env!("CARGO_BIN_EXE_ciphertoll"), "observe"]);
        command.args(["--for", "10m", "--format", "json", "--port", port]).args(more);
        let file = File::create(&document).expect("a file");
        command.current_dir(&directory);
        let mut child = command.stdout(file).stderr(Stdio::piped()).spawn().expect("nsenter starts");
        let begun = first_line(child.stderr.take().expect("it has an output"));
        assert!(begun.contains("observing"), "{begun}");
        Self { child, _directory: directory, document }
    }

    /// Ends it: what it has seen.
    pub(super) fn end(mut self) -> Value {
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGINT).expect("it runs");
        assert!(self.child.wait().expect("its end").success());
        serde_json::from_str(&fs::read_to_string(&self.document).expect("a document")).expect("JSON")
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // A lab that has failed was reported.
        let _ = self.child.wait();
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        // It has ended, unless the test failed.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// The user, and host and port, of a URL.
fn split(url: &str) -> (&str, &str) {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or_default();
    authority.split_once('@').unwrap_or(("", authority))
}

/// The socket of a URL that names one: a file, or a directory with PostgreSQL's file for a port.
fn socket_of(url: &str) -> Option<PathBuf> {
    let (_, parameters) = url.split_once('?')?;
    let parameter = |name: &str| {
        parameters.split('&').find_map(|parameter| parameter.strip_prefix(name)?.strip_prefix('='))
    };
    let directory = || Some(format!("{}/.s.PGSQL.{}", parameter("host")?, parameter("port")?));
    parameter("socket").map(str::to_owned).or_else(directory).map(PathBuf::from)
}

fn first_line(from: impl std::io::Read) -> String {
    let mut line = String::new();
    BufReader::new(from).read_line(&mut line).expect("text");
    line.trim_end().to_owned()
}
