//! URLs of PostgreSQL servers, compared with where `psql` connects to, and as what.

use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ciphertoll_vocabulary::{SqlFamily, SqlPlace, SqlUrl};
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

/// User and database that `psql` sends to our listeners for a URL. `Err` if it is not installed, `Ok(None)` if it connects
/// to no listener.
fn sent_by_psql<S: Read + Send>(
    text: &str,
    accept: impl FnOnce() -> S + Send,
    connect: impl FnOnce(),
) -> Result<Option<[Option<String>; 2]>, NotInstalled> {
    let mut psql = Command::new("psql");
    psql.args(["-X", "-w", "-c", "SELECT 1", text]).stdin(Stdio::null());
    psql.env("PGSSLMODE", "disable").env("PGGSSENCMODE", "disable");
    for variable in ["PGHOST", "PGPORT", "PGUSER", "PGDATABASE", "PGPASSWORD"] {
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

#[test]
fn urls_mean_what_they_mean_to_libpq() {
    let directory = tempfile::tempdir().unwrap();
    let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = tcp.local_addr().unwrap();
    let socket = directory.path().join(format!(".s.PGSQL.{}", address.port()));
    let unix = UnixListener::bind(&socket).unwrap();
    let own = directory.path().to_str().unwrap().replace('/', "%2F");
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) };
    let result = TestRunner::new(config).run(&url(), |url| {
        let text = url.replace("PORT", &address.port().to_string()).replace("DIRECTORY", &own);
        // We may refuse more than libpq does.
        let Ok(url) = SqlUrl::parse(&text, SqlFamily::Postgres) else { return Ok(()) };
        let sent = match &url.place {
            SqlPlace::Host { host, port } if host == "127.0.0.1" && *port == address.port() => {
                sent_by_psql(&text, || tcp.accept().unwrap().0, || drop(TcpStream::connect(address)))
            }
            SqlPlace::Socket(path) if *path == socket => {
                sent_by_psql(&text, || unix.accept().unwrap().0, || drop(UnixStream::connect(&socket)))
            }
            // We do not listen there.
            SqlPlace::Host { .. } | SqlPlace::Socket(_) => return Ok(()),
        };
        let Ok(sent) = sent else {
            ciphertoll_testing::missing("no program psql found");
            return Ok(());
        };
        let database = url.database.clone().or_else(|| Some(url.user.clone()));
        prop_assert_eq!(sent, Some([Some(url.user), database]), "{}", text);
        Ok(())
    });
    result.unwrap();
}
