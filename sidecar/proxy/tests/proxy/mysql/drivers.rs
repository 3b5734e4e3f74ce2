//! Drivers of applications: each prints the same with and without the proxy.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ciphertoll_testing::missing;

use super::Case;
use super::fake::FakeServer;
use super::fixture::Fixture;
use crate::client_tls::TestCertificates;
use crate::drivers::{PYTHON, compiles_with, example, fetched, imports, output_of, sources};

pub(crate) const CASES: [Case; 7] = [
    ("driver: PyMySQL", |fixture| python(fixture, PYTHONS[0])),
    ("driver: mysqlclient, on libmariadb", |fixture| python(fixture, PYTHONS[1])),
    ("driver: files of the client's", files),
    ("driver: mysql_async", mysql_async),
    ("driver: MariaDB Connector/J", jdbc),
    ("driver: go-sql-driver", go_sql_driver),
    ("driver: mysql2", node),
];

const JDBC: &str = "/usr/share/java/mariadb-java-client.jar";

/// How a driver can connect.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Transports {
    /// Over TCP with the password, and over the unix socket without.
    Both,
    Tcp,
}

/// Modules and their packages.
const PYTHONS: [(&str, &str); 2] = [("pymysql", "python3-pymysql"), ("MySQLdb", "python3-mysqldb")];

fn python_program(module: &str) -> Command {
    let mut command = Command::new(PYTHON);
    command.arg(sources().join("mysql.py")).arg(module);
    command
}

fn python(fixture: &mut Fixture, (module, package): (&str, &str)) {
    if !imports(module) {
        return missing(&format!("{module} is not here (the package {package})"));
    }
    same(fixture, Transports::Both, || python_program(module));
}

fn mysql_async(fixture: &mut Fixture) {
    let Some(program) = example("driver_mysql_async") else { return };
    same(fixture, Transports::Both, || Command::new(&program));
}

fn jdbc(fixture: &mut Fixture) {
    if !compiles_with(JDBC) {
        let what = "Connector/J is not here (the packages default-jdk-headless and libmariadb-java)";
        return missing(what);
    }
    same(fixture, Transports::Tcp, || {
        let mut command = Command::new("java");
        command.args(["-cp", JDBC]).arg(sources().join("MySqlDrivers.java"));
        command
    });
}

fn go_sql_driver(fixture: &mut Fixture) {
    if let Some(program) = go_program() {
        same(fixture, Transports::Both, || Command::new(&program));
    }
}

fn go_program() -> Option<PathBuf> {
    let program = fetched().join("go-mysql");
    if !program.is_file() {
        missing("go-sql-driver is not here (scripts/fetch-drivers, go)");
        return None;
    }
    Some(program)
}

fn node(fixture: &mut Fixture) {
    let modules = fetched().join("node_modules");
    if !modules.join("mysql2").is_dir() {
        return missing("mysql2 is not here (scripts/fetch-drivers, npm)");
    }
    same(fixture, Transports::Both, || {
        let mut command = Command::new("node");
        command.arg(sources().join("mysql.js")).env("NODE_PATH", &modules);
        command
    });
}

/// How a program connects.
struct Target<'a> {
    port: u16,
    encryption: &'a str,
    socket: Option<&'a Path>,
    user: &'a str,
    password: &'a str,
    ca: &'a Path,
}

impl Target<'_> {
    fn by(&self, mut program: Command, fixture: &Fixture) -> Command {
        program
            .env("MYSQL_HOST", "127.0.0.1")
            .env("MYSQL_PORT", self.port.to_string())
            .env("MYSQL_USER", self.user)
            .env("MYSQL_PASSWORD", self.password)
            .env("MYSQL_DATABASE", fixture.server().database())
            .env("MYSQL_CA", self.ca)
            .env("MYSQL_TLS", self.encryption)
            .envs(self.socket.map(|socket| ("MYSQL_SOCKET", socket)))
            .stdin(Stdio::null());
        program
    }
}

/// Runs the program without and with a proxy: both must print the same, and something.
fn same(fixture: &mut Fixture, transports: Transports, program: impl Fn() -> Command) {
    let password = String::from_utf8(fixture.password()).expect("passwords here are text");
    let (user, port) = (fixture.user(), fixture.port());
    let ca = fixture.server().ca_file();
    let server =
        Target { port, encryption: "require", socket: None, user: &user, password: &password, ca: &ca };
    let direct = output_of(&mut server.by(program(), fixture), "itself");
    // Two of them are for the KILL, and for the program's check that the statement runs.
    let mut proxy = fixture.proxy(&["--listen", "tcp:127.0.0.1:0", "--pool-size", "3"]);
    let by_tcp = Target { port: proxy.second_port(), encryption: "disable", ..server };
    for round in ["first", "second"] {
        let proxied = output_of(&mut by_tcp.by(program(), fixture), "the proxy's port");
        assert_eq!(proxied, direct, "for the {round} time");
    }
    let (certificates, url) = (TestCertificates::new(), fixture.url());
    let own = certificates.arguments();
    let arguments = [&own.each_ref().map(String::as_str)[..], &["--pool-size", "3"]].concat();
    let by_tls = fixture.proxy_at("tcp:127.0.0.1:0", &url, fixture.password(), PathBuf::new(), &arguments);
    let ca = certificates.path("ca.pem");
    let proxied =
        output_of(&mut Target { port: by_tls.port, ca: &ca, ..server }.by(program(), fixture), "TLS");
    assert_eq!(proxied, direct, "by TLS");
    if transports == Transports::Both {
        let by_socket = Target { socket: Some(&proxy.socket), password: "", ..by_tcp };
        let proxied = output_of(&mut by_socket.by(program(), fixture), "the proxy's socket");
        assert_eq!(proxied, direct, "by unix socket");
    }
}

/// Real servers in these tests do not allow files.
fn files(fixture: &mut Fixture) {
    for (module, package) in PYTHONS {
        if imports(module) {
            same_files(fixture, || python_program(module));
        } else {
            missing(&format!("{module} is not here (the package {package})"));
        }
    }
    if let Some(program) = go_program() {
        same_files(fixture, || Command::new(&program));
    }
}

fn same_files(fixture: &mut Fixture, program: impl Fn() -> Command) {
    let (fake, scratch) = (FakeServer::start(), tempfile::tempdir().expect("a directory"));
    let program = || {
        let mut command = program();
        command.arg("files").current_dir(scratch.path());
        command
    };
    let server = Target {
        port: fake.port(),
        encryption: "disable",
        socket: None,
        user: "toll",
        password: "",
        ca: Path::new(""),
    };
    let direct = output_of(&mut server.by(program(), fixture), "itself");
    assert!(direct.contains("sent 5000000"), "{direct}");
    let proxy = fixture.proxy_to(&FakeServer::url(fake.port()), Vec::new(), &["--pool-size", "1"]);
    let by_socket = Target { socket: Some(&proxy.socket), ..server };
    let proxied = output_of(&mut by_socket.by(program(), fixture), "the proxy's socket");
    assert_eq!(proxied, direct);
}
