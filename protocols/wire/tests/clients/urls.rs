//! URLs of PostgreSQL servers, keywords and services, compared with where `psql` connects to, and as what.

use std::fs;
use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ciphertoll_vocabulary::{Conninfo, SqlFamily, SqlPlace, SqlUrl};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;

/// User and database of a client's startup message. `None` if the client sends nothing.
fn names(mut client: impl Read) -> Option<[Option<String>; 2]> {
    let mut length = [0; 4];
    client.read_exact(&mut length).ok()?;
    let mut message = vec![0; u32::from_be_bytes(length) as usize - 4];
    client.read_exact(&mut message).ok()?;
    // The version comes first; then names and values, each ended by a NUL.
    let words: Vec<&[u8]> = message[4..].split(|byte| *byte == 0).collect();
    Some(["user", "database"].map(|name| {
        let at = words.iter().step_by(2).position(|word| *word == name.as_bytes())?;
        Some(String::from_utf8(words[2 * at + 1].to_vec()).unwrap())
    }))
}

/// `PORT` is that of the server, `DIRECTORY` that of its socket, with `%2F` for `/`.
fn url() -> impl Strategy<Value = String> {
    let user = select(vec!["app", "a%40b", "a+b", "a%25", "app:"]);
    let host = select(vec![
        "127.0.0.1:PORT",
        "DIRECTORY:PORT",
        "127.0.0.1",
        "DIRECTORY",
        "localhost:PORT",
        ":PORT",
        "",
        "[::1]:PORT",
        "127.0.0.1:PORT,localhost:PORT",
    ]);
    let database =
        select(vec!["", "/", "/shop", "/a+b", "/a%2Fb", "/a/b", "//a", "/..", "/a%23", "/a:b@c", "/a%"]);
    let options = select(vec![
        "",
        "?",
        "?host=127.0.0.1",
        "?host=DIRECTORY",
        "?port=PORT",
        "?host=DIRECTORY&port=PORT",
        "?port=PORT&host=127.0.0.1",
        "?host=127.0.0.1,localhost&port=PORT",
    ]);
    (user, host, database, options)
        .prop_map(|(user, host, database, options)| format!("postgres://{user}@{host}{database}{options}"))
}

/// Keywords and values; `DIRECTORY` is that of the socket, as it is.
fn keywords() -> impl Strategy<Value = String> {
    let host = select(vec![
        "host=127.0.0.1",
        "host = 'DIRECTORY'",
        "hostaddr=127.0.0.1",
        "host='' hostaddr=127.0.0.1",
        "host=DIRECTORY",
        "service=tcp",
        "service=socket",
        "service=none",
    ]);
    let port = select(vec!["port=PORT", "port = \tPORT", "port='PORT'", ""]);
    let user = select(vec![
        "user=app",
        "user='a b'",
        "user=a\\ b",
        "user='a\\'b\\\\'",
        "user=a'b",
        "user='a",
        "user",
    ]);
    let database = select(vec!["", "dbname=shop", "dbname='my shop'", "dbname=a%41/b", "dbname=''"]);
    let order = Just(vec![0, 1, 2, 3]).prop_shuffle();
    (host, port, user, database, order).prop_map(|(host, port, user, database, order)| {
        order.into_iter().map(|at: usize| [host, port, user, database][at]).collect::<Vec<_>>().join(" ")
    })
}

/// Service files, with comments, blanks, sections of the same name and similar ones.
const SERVICES: &str = "# a comment\n[other]\nhost=192.0.2.1\n[tcpx]\nport=1\n  [tcp]  \n\nhost=127.0.0.1\n port=PORT \n\
                        dbname=of service\ndbname=later\n[tcp]\nuser=nobody\n[socket]\nhost=DIRECTORY\nport=PORT\n";

/// What our listeners are, and where `psql` finds services.
struct Listeners {
    tcp: TcpListener,
    port: u16,
    unix: UnixListener,
    socket: PathBuf,
    services: PathBuf,
}

impl Listeners {
    fn in_directory(directory: &Path) -> Self {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = tcp.local_addr().unwrap().port();
        let socket = directory.join(format!(".s.PGSQL.{port}"));
        let unix = UnixListener::bind(&socket).unwrap();
        let services = directory.join("services");
        let text = SERVICES.replace("PORT", &port.to_string());
        fs::write(&services, text.replace("DIRECTORY", directory.to_str().unwrap())).unwrap();
        Self { tcp, port, unix, socket, services }
    }

    /// Compares `url`, which is ours for `text`, with what `psql` sends for `text`.
    fn check(&self, text: &str, url: &SqlUrl) -> Result<(), TestCaseError> {
        let sent = match &url.place {
            SqlPlace::Host { host, port } if host == "127.0.0.1" && *port == self.port => {
                let connect = || drop(TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)));
                sent_by_psql(text, &self.services, || self.tcp.accept().unwrap().0, connect)
            }
            SqlPlace::Socket(path) if *path == self.socket => {
                let connect = || drop(UnixStream::connect(&self.socket));
                sent_by_psql(text, &self.services, || self.unix.accept().unwrap().0, connect)
            }
            // We do not listen there.
            SqlPlace::Host { .. } | SqlPlace::Socket(_) => return Ok(()),
        };
        let Ok(sent) = sent else {
            ciphertoll_testing::missing("no program psql found");
            return Ok(());
        };
        let database = url.database.clone().or_else(|| Some(url.user.clone()));
        prop_assert_eq!(sent, Some([Some(url.user.clone()), database]), "{}", text);
        Ok(())
    }

    /// The URL for keywords and values, with what their service says.
    fn url_of(&self, text: &str) -> Option<SqlUrl> {
        let mut pairs = Conninfo::parse(text).ok()?;
        if let Some(service) = pairs.take_service() {
            let file = fs::read_to_string(&self.services).unwrap();
            pairs.fill_in(&file, &service).ok().filter(|is_found| *is_found)?;
        }
        SqlUrl::parse(&pairs.to_url(), SqlFamily::Postgres).ok()
    }
}

/// User and database that `psql` sends to our listeners for a URL. `Err` if it is not installed, `Ok(None)` if it connects
/// to no listener.
fn sent_by_psql<S: Read + Send>(
    text: &str,
    services: &Path,
    accept: impl FnOnce() -> S + Send,
    connect: impl FnOnce(),
) -> Result<Option<[Option<String>; 2]>, NotInstalled> {
    let mut psql = Command::new("psql");
    psql.args(["-X", "-w", "-c", "SELECT 1", text]).stdin(Stdio::null());
    psql.env("PGSSLMODE", "disable").env("PGGSSENCMODE", "disable").env("PGSERVICEFILE", services);
    for variable in ["PGHOST", "PGPORT", "PGUSER", "PGDATABASE", "PGPASSWORD", "PGSERVICE"] {
        psql.env_remove(variable);
    }
    let mut child = match psql.stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(NotInstalled),
        child => child.unwrap(),
    };
    let has_come = AtomicBool::new(false);
    Ok(thread::scope(|scope| {
        let server = scope.spawn(|| {
            let client = accept();
            has_come.store(true, Ordering::SeqCst);
            names(client)
        });
        // It ends when the server closes the connection, or without one.
        child.wait().unwrap();
        if !has_come.load(Ordering::SeqCst) {
            connect();
        }
        server.join().unwrap()
    }))
}

struct NotInstalled;

fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) }
}

#[test]
fn urls_mean_what_they_mean_to_libpq() {
    let directory = tempfile::tempdir().unwrap();
    let listeners = Listeners::in_directory(directory.path());
    let own = directory.path().to_str().unwrap().replace('/', "%2F");
    let result = TestRunner::new(config()).run(&url(), |url| {
        let text = url.replace("PORT", &listeners.port.to_string()).replace("DIRECTORY", &own);
        // We may refuse more than libpq does.
        SqlUrl::parse(&text, SqlFamily::Postgres).map_or(Ok(()), |url| listeners.check(&text, &url))
    });
    result.unwrap();
}

#[test]
fn keywords_and_services_mean_what_they_mean_to_libpq() {
    let directory = tempfile::tempdir().unwrap();
    let listeners = Listeners::in_directory(directory.path());
    let own = directory.path().to_str().unwrap();
    let result = TestRunner::new(config()).run(&keywords(), |text| {
        let text = text.replace("PORT", &listeners.port.to_string()).replace("DIRECTORY", own);
        listeners.url_of(&text).map_or(Ok(()), |url| listeners.check(&text, &url))
    });
    result.unwrap();
}
