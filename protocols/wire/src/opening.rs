//! What a server's first bytes say about its protocol, for a client that expects another.

use crate::printable::printable;

/// `SSLRequest`: a PostgreSQL server answers it with one byte.
pub const POSTGRES_TLS_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 0xd2, 0x16, 0x2f];
/// What is shown of a server's first bytes.
const SHOWN_CHARACTERS: usize = 60;
/// The version of MySQL's greeting since 1998.
const MYSQL_GREETING: u8 = 10;
const MYSQL_ERROR: u8 = 0xff;

/// A protocol whose first bytes are recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpokenProtocol {
    MySql,
    Postgres,
    Tls,
    Http,
    Ssh,
    Mail,
    Redis,
}

impl SpokenProtocol {
    pub fn name(self) -> &'static str {
        match self {
            Self::MySql => "MySQL",
            Self::Postgres => "PostgreSQL",
            Self::Tls => "TLS",
            Self::Http => "HTTP",
            Self::Ssh => "SSH",
            Self::Mail => "a mail server",
            Self::Redis => "Redis",
        }
    }

    /// The protocol of a server that begins with these bytes. `None` if it is another one.
    pub fn of(first: &[u8]) -> Option<Self> {
        const TEXTS: [(&[u8], SpokenProtocol); 7] = [
            (b"HTTP/", SpokenProtocol::Http),
            (b"SSH-", SpokenProtocol::Ssh),
            (b"220 ", SpokenProtocol::Mail),
            (b"220-", SpokenProtocol::Mail),
            (b"* OK", SpokenProtocol::Mail),
            (b"-ERR", SpokenProtocol::Redis),
            (b"-DENIED", SpokenProtocol::Redis),
        ];
        if let Some((_, protocol)) = TEXTS.iter().find(|(text, _)| first.starts_with(text)) {
            return Some(*protocol);
        }
        match *first {
            // A packet's length (little-endian), its number, and its first byte. Numbers of errors begin at 1000, and those of
            // the login are below 1280.
            [_, 0..=3, 0, 0, MYSQL_GREETING, b'0'..=b'9', ..]
            | [_, 0..=3, 0, 0, MYSQL_ERROR, _, 3..=4, ..] => Some(Self::MySql),
            // The answer to a request for TLS; or a message's type, and its length (big-endian).
            [b'S' | b'N'] | [b'E' | b'R' | b'v', 0, 0, _, _, ..] => Some(Self::Postgres),
            // A record's type and version.
            [0x15 | 0x16, 3, 0..=4, ..] => Some(Self::Tls),
            _ => None,
        }
    }

    /// What a server of this protocol says in its first bytes. Empty if they are not text.
    pub fn text(self, first: &[u8]) -> String {
        let text = match self {
            // Behind an error's number.
            Self::MySql if first.get(4) == Some(&MYSQL_ERROR) => first.get(7..).unwrap_or_default(),
            Self::MySql => first.get(5..).unwrap_or_default(),
            Self::Postgres | Self::Tls => &[],
            Self::Http | Self::Ssh | Self::Mail | Self::Redis => first,
        };
        let end = text.iter().position(|byte| matches!(byte, 0 | b'\r' | b'\n')).unwrap_or(text.len());
        printable(&text[..end], SHOWN_CHARACTERS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_tell_the_protocol() {
        let mut postgres_error = b"E\0\0\0\x60SFATAL\0".to_vec();
        postgres_error.resize(0x61, b'x');
        let cases: [(&[u8], SpokenProtocol, &str); 9] = [
            (b"\x59\0\0\0\x0a5.5.5-10.11.19-MariaDB\0\x05", SpokenProtocol::MySql, "5.5.5-10.11.19-MariaDB"),
            (b"\x4e\0\0\0\x0a8.4.0\0", SpokenProtocol::MySql, "8.4.0"),
            (
                b"\x45\0\0\0\xff\x69\x04Host '::1' is not allowed",
                SpokenProtocol::MySql,
                "Host '::1' is not allowed",
            ),
            (b"N", SpokenProtocol::Postgres, ""),
            (&postgres_error, SpokenProtocol::Postgres, ""),
            (b"\x15\x03\x01\0\x02\x02\x46", SpokenProtocol::Tls, ""),
            (b"HTTP/1.1 400 Bad Request\r\nServer: x", SpokenProtocol::Http, "HTTP/1.1 400 Bad Request"),
            (b"SSH-2.0-OpenSSH_9.2p1\r\n", SpokenProtocol::Ssh, "SSH-2.0-OpenSSH_9.2p1"),
            (b"-ERR unknown command\r\n", SpokenProtocol::Redis, "-ERR unknown command"),
        ];
        for (first, protocol, text) in cases {
            assert_eq!(SpokenProtocol::of(first), Some(protocol), "{}", first.escape_ascii());
            assert_eq!(protocol.text(first), text);
        }
        for unknown in [&b""[..], b"x", b"\0\0\0\0\0\0\0\0", b"hello"] {
            assert_eq!(SpokenProtocol::of(unknown), None, "{}", unknown.escape_ascii());
        }
    }
}
