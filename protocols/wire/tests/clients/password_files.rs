//! Password files, compared with the password that `psql` sends.

use std::fs::{self, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use ciphertoll_wire::postgres::password_file::{PasswordQuery, PasswordServer, find_password};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;

const DATABASE: &str = "shop";
const USER: &str = "app";

/// Asks a client for its password in plaintext. Empty if the client has none.
fn password_of(mut client: impl Read + Write) -> Vec<u8> {
    let mut message = |with_type: usize| {
        let mut head = vec![0; with_type + 4];
        client.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes(head[with_type..].try_into().unwrap());
        let mut body = vec![0; length as usize - 4];
        client.read_exact(&mut body).ok()?;
        Some((client.write_all(b"R\0\0\0\x08\0\0\0\x03"), body))
    };
    // The startup message, then the password, which ends with a NUL.
    message(0).unwrap().0.unwrap();
    message(1).map_or_else(Vec::new, |(_, body)| body[..body.len() - 1].to_vec())
}

/// The password that `psql` sends to `host`. `None` if it is not installed.
fn sent_by_psql(
    directory: &Path,
    file: &[u8],
    host: &str,
    port: u16,
    accept: impl FnOnce() -> Vec<u8> + Send,
) -> Option<Vec<u8>> {
    let path = directory.join("pgpass");
    fs::write(&path, file).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let mut psql = Command::new("psql");
    psql.args([
        "-X",
        "-w",
        "-c",
        "SELECT 1",
        "-h",
        host,
        "-p",
        &port.to_string(),
        "-U",
        USER,
        "-d",
        DATABASE,
    ]);
    psql.env("PGPASSFILE", &path).env("PGSSLMODE", "disable").env("PGGSSENCMODE", "disable");
    psql.env_remove("PGPASSWORD").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = match psql.spawn() {
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        child => child.unwrap(),
    };
    let password = thread::scope(|scope| scope.spawn(accept).join().unwrap());
    child.wait().unwrap();
    Some(password)
}

fn found_by_us(file: &[u8], server: PasswordServer<'_>) -> Vec<u8> {
    let found = find_password(file, &PasswordQuery { server, database: DATABASE, user: USER });
    found.unwrap_or_default()
}

/// Lines of pieces that mean something to libpq. `DIRECTORY` and `PORT` are those of the server.
fn file() -> impl Strategy<Value = String> {
    let host =
        select(vec!["127.0.0.1", "*", "localhost", "DIRECTORY", "12\\7.0.0.1", "\\*", "**", "#", " *", ""]);
    let port = select(vec!["PORT", "*", "1", "\\PORT"]);
    let database = select(vec!["shop", "*", "sh\\op", "sho", "shop ", "\u{e9}"]);
    let user = select(vec!["app", "*", "app\\", "ap\\p"]);
    let password =
        prop::collection::vec(select(vec!["x", "y", ":", "\\", "\\:", " ", "*", "\u{e9}", "\r"]), 0..6);
    let line = (host, port, database, user, password).prop_map(|(host, port, database, user, password)| {
        format!("{host}:{port}:{database}:{user}:{}", password.concat())
    });
    let line = prop_oneof![6 => line, 1 => select(vec!["", "# c", "*:*:*:*"]).prop_map(str::to_owned)];
    let end = select(vec!["\n", "\r\n", "\n\n"]);
    let lines = prop::collection::vec((line, end).prop_map(|(line, end)| line + end), 1..6);
    (lines, any::<bool>()).prop_map(|(lines, has_end)| {
        let file = lines.concat();
        if has_end { file } else { file.trim_end_matches('\n').to_owned() }
    })
}

#[test]
fn password_files_are_read_as_by_libpq() {
    let directory = tempfile::tempdir().unwrap();
    let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = tcp.local_addr().unwrap().port();
    let socket = directory.path().join(format!(".s.PGSQL.{port}"));
    let unix = UnixListener::bind(&socket).unwrap();
    let own = directory.path().to_str().unwrap();
    let mut runner =
        TestRunner::new(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) });
    let result = runner.run(&file(), |file| {
        let file = file.replace("PORT", &port.to_string()).replace("DIRECTORY", own);
        // Not UTF-8: Latin-1.
        let file: Vec<u8> = file.chars().map(|character| u8::try_from(character).unwrap()).collect();
        let by_tcp = || password_of(tcp.accept().unwrap().0);
        let Some(expected) = sent_by_psql(directory.path(), &file, "127.0.0.1", port, by_tcp) else {
            ciphertoll_testing::missing("no program psql found");
            return Ok(());
        };
        let found = found_by_us(&file, PasswordServer::Host { name: "127.0.0.1", port });
        prop_assert_eq!(&found, &expected, "by TCP: {}", file.escape_ascii());
        let by_unix = || password_of(unix.accept().unwrap().0);
        let expected = sent_by_psql(directory.path(), &file, own, port, by_unix).unwrap();
        let found = found_by_us(&file, PasswordServer::Socket(&socket));
        prop_assert_eq!(&found, &expected, "by a socket: {}", file.escape_ascii());
        Ok(())
    });
    result.unwrap();
}
