//! Users that the settings do not name: the server is asked whether their passwords are right.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;
use std::thread;

use ciphertoll_model::Engine;
use ciphertoll_net::Address;
use ciphertoll_net::blocking::Client;
use ciphertoll_wire::Secret;
use ciphertoll_wire::mysql::{self, Plugin};
use ciphertoll_wire::session::Login;
use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::Case;
use super::failover::standing;
use super::fixture::{Fixture, Proxy, code, one, try_one};
use super::pair::Pair;
use crate::client_tls::TestCertificates;
use crate::drivers::{PYTHON, imports};
use crate::operations::{admin_address, await_that, samples, settings};

pub(crate) const CASES: [Case; 5] = [
    ("users whom the settings do not name log in with the password that the server has", found),
    ("passwords are passed through over TLS, and never asked for in plaintext", by_tls),
    ("a password that was changed on the server is noticed", changed),
    ("the host that has the role checks passwords, and users wait while there is none", moved),
    ("users whom the settings do not name are refused again when the settings say so", reloaded),
];

const ON: &str = "pass-through-auth = true\n";
const USER: &str = "passed_through";
const PASSWORD: &str = "correct horse";
const DENIED: Option<u16> = Some(1045);

/// A user of the server's usual plugin, and settings that let it in.
fn prepared(fixture: &Fixture, more: &str) -> (TempDir, String) {
    let mut control = fixture.control();
    for sql in [
        format!("DROP USER IF EXISTS '{USER}'@'%'"),
        format!("CREATE USER '{USER}'@'%' IDENTIFIED BY '{PASSWORD}'"),
        format!("GRANT ALL ON {}.* TO '{USER}'@'%'", fixture.server().database()),
    ] {
        control.execute(&sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    settings(&format!("{ON}{more}"))
}

fn log_in(proxy: &Proxy, user: &str, password: &str) -> Result<Client, ciphertoll_net::Error> {
    log_in_at(proxy.socket.clone(), proxy, user, password)
}

fn log_in_at(
    socket: PathBuf,
    proxy: &Proxy,
    user: &str,
    password: &str,
) -> Result<Client, ciphertoll_net::Error> {
    let login = mysql::MySqlLogin {
        database: Some(proxy.database.clone()),
        transport: mysql::Transport::UnixSocket,
        ..mysql::MySqlLogin::new(user, Secret::new(password.as_bytes().to_vec()))
    };
    Client::connect(&Address::Unix(socket), Login::MySql(Arc::new(login)), None)
}

fn who(client: &mut Client) -> String {
    one(client, "SELECT SUBSTRING_INDEX(USER(), '@', 1)")
}

fn denial(proxy: &Proxy, user: &str, password: &str) -> Option<u16> {
    log_in(proxy, user, password).err().as_ref().and_then(code)
}

/// What a program in Python prints for the user of its session; `None` without its driver.
fn python(driver: &str, connects: &str, arguments: &[&str], passwords: [&str; 2]) -> Option<Output> {
    if !imports(driver) {
        ciphertoll_testing::missing(&format!("Python's module {driver} is not here"));
        return None;
    }
    let program = format!(
        "import os, sys, {driver}\n\
         {connects}\n\
         cursor = client.cursor()\n\
         cursor.execute('SELECT SUBSTRING_INDEX(USER(), \"@\", 1)')\n\
         print(cursor.fetchone()[0])\n"
    );
    let mut command = Command::new(PYTHON);
    command.args(["-c", &program]).args(arguments).env("FIRST", passwords[0]).env("SECOND", passwords[1]);
    Some(command.output().expect("Python runs"))
}

fn pymysql(proxy: &Proxy, password: &str) -> Option<Output> {
    let connects =
        "client = pymysql.connect(unix_socket=sys.argv[1], user=sys.argv[2], password=os.environ['FIRST'])";
    python("pymysql", connects, &[&proxy.socket.display().to_string(), USER], [password, ""])
}

/// A client of the proxy's user that changes to the other one.
fn change_user(proxy: &Proxy, own: &str, password: &str) -> Option<Output> {
    let connects = "client = MySQLdb.connect(unix_socket=sys.argv[1], user=sys.argv[2], passwd=os.environ['FIRST'])\n\
                    client.change_user(sys.argv[3], os.environ['SECOND'], sys.argv[4])";
    let socket = proxy.socket.display().to_string();
    python("MySQLdb", connects, &[&socket, &proxy.user, USER, &proxy.database], [own, password])
}

fn found(fixture: &mut Fixture) {
    let (_directory, file) = prepared(fixture, "unix-auth = \"password\"\n");
    let mut proxy = fixture.proxy(&["--config", &file, "--admin", "tcp:127.0.0.1:0", "--pool-size", "4"]);
    for _ in 0..3 {
        assert_eq!(who(&mut log_in(&proxy, USER, PASSWORD).expect("it is right")), USER);
    }
    for password in ["wrong", ""] {
        assert_eq!(denial(&proxy, USER, password), DENIED, "{password}");
    }
    let mut cli = proxy.cli(&["--user", USER, "--execute", "SELECT SUBSTRING_INDEX(USER(), '@', 1)"]);
    if let Some(output) = cli.as_mut().map(|cli| cli.env("MYSQL_PWD", PASSWORD).output()) {
        let output = output.expect("it runs");
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{USER}\n"), "{output:?}");
    }
    if let Some(output) = pymysql(&proxy, PASSWORD) {
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{USER}\n"), "{output:?}");
    }
    if let Some(output) = pymysql(&proxy, "wrong") {
        assert!(String::from_utf8_lossy(&output.stderr).contains("1045"), "{output:?}");
    }
    assert_eq!(denial(&proxy, "nobody_at_all", PASSWORD), DENIED);
    // The users of the settings log in as before.
    let own = fixture.password();
    let text = String::from_utf8(own.clone()).expect("text");
    if let Some(output) = change_user(&proxy, &text, PASSWORD) {
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{USER}\n"), "{output:?}");
    }
    if let Some(output) = change_user(&proxy, &text, "wrong") {
        assert!(String::from_utf8_lossy(&output.stderr).contains("1045"), "{output:?}");
    }
    assert_eq!(who(&mut proxy.client_as(&proxy.user, &own).expect("it is right")), proxy.user);
    assert_eq!(proxy.client_as(&proxy.user, b"wrong").err().as_ref().and_then(code), DENIED);
    let all = samples(admin_address(&proxy.process.log));
    let count = |outcome: &str| all[&format!("auth_queries_total{{outcome=\"{outcome}\"}}")];
    // Later logins rely on what it has said.
    assert!(count("found") >= 1.0 && count("found") <= 3.0 && count("unknown") >= 2.0, "{all:?}");
    proxy.process.read_on();
    for secret in [PASSWORD, "wrong"] {
        assert!(!proxy.process.log.iter().any(|line| line.contains(secret)), "{:?}", proxy.process.log);
    }
}

fn by_tls(fixture: &mut Fixture) {
    let (_directory, file) = prepared(fixture, "");
    let certificates = TestCertificates::new();
    let own = certificates.arguments();
    let tls = [&own.each_ref().map(String::as_str)[..], &["--config", &file]].concat();
    let start = |arguments: &[&str]| {
        let (url, password) = (fixture.url(), fixture.password());
        fixture.proxy_at("tcp:127.0.0.1:0", &url, password, PathBuf::new(), arguments)
    };
    let proxy = start(&tls);
    let ca = certificates.path("ca.pem");
    for plugin in Plugin::ALL {
        let log_in = |password: &[u8]| proxy.tls_client(USER, password, Some(plugin), &ca, None);
        assert_eq!(who(&mut log_in(PASSWORD.as_bytes()).expect("it is right")), USER);
        for wrong in [&b"wrong"[..], b""] {
            assert_eq!(log_in(wrong).err().as_ref().and_then(code), DENIED, "{plugin:?}");
        }
    }
    // Without TLS, the password is not asked for.
    let plain = start(&["--config", &file]);
    let error = plain.tcp_client(USER, PASSWORD.as_bytes().to_vec()).err().expect("it is not sent");
    assert!(error.to_string().contains("requires secure connection"), "{error}");
    // With certificates, a user needs both.
    let ca_text = ca.display().to_string();
    let proxy = start(&[&tls[..], &["--tls-client-ca", &ca_text]].concat());
    let error = proxy.tls_client(USER, PASSWORD.as_bytes(), None, &ca, None).err();
    assert!(error.is_some(), "it has no certificate");
}

fn changed(fixture: &mut Fixture) {
    let (_directory, file) = prepared(fixture, "");
    let proxy = fixture.proxy(&["--config", &file]);
    let number = "SELECT CONNECTION_ID()";
    let mut before = log_in(&proxy, USER, PASSWORD).expect("it is right");
    let old = one(&mut before, number);
    let mut control = fixture.control();
    control.execute(&format!("ALTER USER '{USER}'@'%' IDENTIFIED BY 'battery staple'")).expect("changed");
    let mut after = log_in(&proxy, USER, "battery staple").expect("the server is asked");
    assert_eq!(who(&mut after), USER);
    assert_eq!(denial(&proxy, USER, PASSWORD), DENIED);
    assert_eq!(who(&mut log_in(&proxy, USER, "battery staple").expect("it is right")), USER);
    // Connections are opened with the new one.
    let (_, socket) = fixture.control_login();
    let mut direct = log_in_at(socket, &proxy, USER, "battery staple").expect("it is right");
    direct.execute(&format!("KILL {old}")).expect("it is its own");
    drop((before, after));
    await_that("a new connection is opened", || {
        log_in(&proxy, USER, "battery staple")
            .is_ok_and(|mut client| try_one(&mut client, number).is_ok_and(|number| number != old))
    });
}

fn moved(fixture: &mut Fixture) {
    let mut pair = Pair::start(fixture);
    for member in &mut pair.members {
        for user in ["moving", "late"] {
            member.execute(&format!("CREATE USER {user}@'%' IDENTIFIED BY '{PASSWORD}'"));
        }
    }
    pair.members[1].set_read_only(1);
    let (_directory, file) = settings(ON);
    let (url, password) = (pair.url(fixture, "read-write"), fixture.password());
    let proxy = fixture.proxy_to(
        &url,
        password,
        &["--config", &file, "--health-time", "1s", "--admin", "tcp:127.0.0.1:0"],
    );
    let port = |user: &str, password: &str| {
        let login = mysql::MySqlLogin {
            transport: mysql::Transport::UnixSocket,
            ..mysql::MySqlLogin::new(user, Secret::new(password.as_bytes().to_vec()))
        };
        let login = Login::MySql(Arc::new(login));
        let mut client = Client::connect(&Address::Unix(proxy.socket.clone()), login, None)?;
        try_one(&mut client, "SELECT @@port")
    };
    let [old, new] = &mut pair.members;
    let [old_port, new_port] = [&old, &new].map(|member| member.port.to_string());
    assert_eq!(port("moving", PASSWORD).expect("it is right"), old_port);
    // Where an account needs a plugin that the proxy does not have, no host is tried again.
    if fixture.engine() == Engine::MySql {
        old.execute("CREATE USER unusual@'%' IDENTIFIED WITH sha256_password BY 'any'");
        assert_eq!(port("unusual", "any").err().as_ref().and_then(code), DENIED);
    }
    old.set_read_only(1);
    // A server that was left has passwords that are not valid any more.
    old.execute("ALTER USER late@'%' IDENTIFIED BY 'battery staple'");
    await_that("no server has the role", || standing(&proxy, 0) == "unfit");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| port("late", PASSWORD));
        let refused = scope.spawn(|| port("late", "battery staple"));
        new.set_read_only(0);
        assert_eq!(waiting.join().expect("no panic").expect("it is right"), new_port);
        let error = refused.join().expect("no panic").expect_err("it is wrong there");
        assert_eq!(code(&error), DENIED);
    });
    old.set_read_only(0);
    assert_eq!(port("moving", PASSWORD).expect("it is right"), new_port);
    assert_eq!(port("late", "battery staple").err().as_ref().and_then(code), DENIED);
}

fn reloaded(fixture: &mut Fixture) {
    let (directory, file) = prepared(fixture, "");
    let mut proxy = fixture.proxy(&["--config", &file]);
    let reload = |proxy: &mut Proxy, text: &str| {
        std::fs::write(directory.path().join("proxy.toml"), text).expect("ours to write");
        let before = proxy.process.count("event=reloaded");
        proxy.process.signal(Signal::SIGHUP);
        await_that("it is reloaded", || proxy.process.count("event=reloaded") > before);
    };
    let mut client = log_in(&proxy, USER, PASSWORD).expect("it is right");
    assert_eq!(who(&mut client), USER);
    // A client that is connected stays, also between two transactions.
    reload(&mut proxy, ON);
    assert_eq!(who(&mut client), USER);
    reload(&mut proxy, "");
    assert!(log_in(&proxy, USER, PASSWORD).is_err());
    reload(&mut proxy, ON);
    let _ = try_one(&mut client, "SELECT 1");
    assert_eq!(denial(&proxy, USER, "wrong"), DENIED);
    assert_eq!(who(&mut log_in(&proxy, USER, PASSWORD).expect("it is right")), USER);
}
