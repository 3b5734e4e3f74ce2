//! The password file of PostgreSQL clients (libpq, "The Password File"). Passwords and names are bytes: the file has no
//! encoding.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const COMMENT: u8 = b'#';
const SEPARATOR: u8 = b':';
const ESCAPE: u8 = b'\\';
/// The name of a server on a socket in the default directory.
const LOCALHOST: &[u8] = b"localhost";
/// Default directories of sockets: libpq's own, and that of Debian's packages.
const DEFAULT_DIRECTORIES: [&[u8]; 2] = [b"/tmp", b"/var/run/postgresql"];

/// The connection for which a password is looked up.
#[derive(Clone, Copy, Debug)]
pub struct PasswordQuery<'a> {
    pub server: PasswordServer<'a>,
    pub database: &'a str,
    pub user: &'a str,
}

#[derive(Clone, Copy, Debug)]
pub enum PasswordServer<'a> {
    Host {
        /// As given by the user.
        name: &'a str,
        port: u16,
    },
    /// The socket's file: a directory, `/.s.PGSQL.`, and the port.
    Socket(&'a Path),
}

/// The password of the first line `host:port:database:user:password` that matches; empty if that line has none.
pub fn find_password(file: &[u8], query: &PasswordQuery<'_>) -> Option<Vec<u8>> {
    let port_number;
    let (hosts, port): ([&[u8]; 2], &[u8]) = match query.server {
        PasswordServer::Host { name, port } => {
            port_number = port.to_string();
            ([name.as_bytes(); 2], port_number.as_bytes())
        }
        PasswordServer::Socket(file) => {
            let directory = file.parent().map_or(&b""[..], |directory| directory.as_os_str().as_bytes());
            let is_default = DEFAULT_DIRECTORIES.contains(&directory);
            let port = file.extension().map_or(&b""[..], OsStrExt::as_bytes);
            ([directory, if is_default { LOCALHOST } else { directory }], port)
        }
    };
    file.split(|byte| *byte == b'\n').filter(|line| line.first() != Some(&COMMENT)).find_map(|line| {
        let line = without_line_end(line);
        let rest = hosts.iter().find_map(|host| after_field(line, host))?;
        let rest = after_field(after_field(rest, port)?, query.database.as_bytes())?;
        after_field(rest, query.user.as_bytes()).map(password)
    })
}

fn without_line_end(mut line: &[u8]) -> &[u8] {
    while let Some(shorter) = line.strip_suffix(b"\r") {
        line = shorter;
    }
    line
}

/// What follows the first field, if that is `value` or `*`.
fn after_field<'a>(line: &'a [u8], value: &[u8]) -> Option<&'a [u8]> {
    // An escaped star is a name.
    if let Some(rest) = line.strip_prefix(b"*:") {
        return Some(rest);
    }
    let (mut rest, mut value) = (line, value);
    loop {
        match (rest, value) {
            ([SEPARATOR, rest @ ..], []) => return Some(rest),
            ([ESCAPE, byte, tail @ ..], [expected, others @ ..]) if byte == expected => {
                (rest, value) = (tail, others);
            }
            ([byte, tail @ ..], [expected, others @ ..]) if *byte != ESCAPE && byte == expected => {
                (rest, value) = (tail, others);
            }
            _ => return None,
        }
    }
}

/// The last field. It ends at a separator.
fn password(field: &[u8]) -> Vec<u8> {
    let mut password = Vec::new();
    let mut bytes = field.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            SEPARATOR => break,
            // At the end, a backslash is a backslash.
            ESCAPE => password.push(bytes.next().unwrap_or(ESCAPE)),
            byte => password.push(byte),
        }
    }
    password
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: PasswordServer<'_> = PasswordServer::Host { name: "db.example", port: 5432 };

    fn of(server: PasswordServer<'_>, file: &[u8]) -> Option<Vec<u8>> {
        find_password(file, &PasswordQuery { server, database: "shop", user: "app" })
    }

    fn socket(path: &str) -> PasswordServer<'_> {
        PasswordServer::Socket(Path::new(path))
    }

    /// What psql of PostgreSQL 15 sends.
    #[test]
    fn the_first_matching_line_has_the_password() {
        for (file, password) in [
            (
                &b"# a comment\nother:5432:shop:app:no\ndb.example:*:shop:app:x\n*:*:*:*:all\n"[..],
                Some(&b"x"[..]),
            ),
            (b"other:5432:shop:app:no\n*:*:*:*:all", Some(b"all")),
            (b"db.example:5432:shop:app:pa\\:ss\\\\word:more\n", Some(b"pa:ss\\word")),
            (b"db.example:5432:sh\\op:app:x\\", Some(b"x\\")),
            (b"db.example:5432:shop:app:x  \r\r\n", Some(b"x  ")),
            (b"db.example:5432:shop:app:\n*:*:*:*:all\n", Some(b"")),
            (b"db.example:5432:shop:app\n*:*:*:*:all\n", Some(b"all")),
            // Only a star alone matches anything.
            (b"\\*:*:*:*:x\n**:*:*:*:y\n*.example:*:*:*:z\n", None),
            (b" # no comment\n db.example:*:*:*:x\n", None),
            (b"db.example:5432:shop:app", None),
            (b"", None),
        ] {
            assert_eq!(of(HOST, file).as_deref(), password, "{}", file.escape_ascii());
        }
    }

    #[test]
    fn bytes_need_no_encoding() {
        assert_eq!(of(HOST, b"caf\xe9:1:a:b:c\n*:*:*:*:x\n").as_deref(), Some(&b"x"[..]));
        assert_eq!(of(HOST, b"*:*:*:*:\xff\xe9\n").as_deref(), Some(&b"\xff\xe9"[..]));
        // libpq takes a byte order mark for the beginning of the first name.
        assert_eq!(of(HOST, b"\xef\xbb\xbfdb.example:*:*:*:x\n"), None);
    }

    #[test]
    fn a_socket_is_named_by_its_directory_and_port() {
        let file = b"localhost:*:*:*:local\n/run/pg:5433:*:*:other\n/run/pg:5432:*:*:x\n";
        assert_eq!(of(socket("/run/pg/.s.PGSQL.5432"), file).as_deref(), Some(&b"x"[..]));
        assert_eq!(of(socket("/run/else/.s.PGSQL.5432"), file), None);
        for directory in ["/tmp", "/var/run/postgresql"] {
            let path = format!("{directory}/.s.PGSQL.5432");
            assert_eq!(of(socket(&path), file).as_deref(), Some(&b"local"[..]), "{directory}");
        }
    }
}
