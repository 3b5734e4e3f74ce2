//! The server behind, as a URL says it. It has no place for a password: command lines can be read by everybody.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use ciphertoll_net::tls::{Identity, TrustAnchors, Verification};
use percent_encoding::percent_decode_str;

const DEFAULT_PORT: u16 = 5432;
const SCHEMES: [&str; 2] = ["postgres", "postgresql"];
const OPTIONS: &str = "sslmode, sslrootcert, sslcert, sslkey, host";
const MODES: &str = "disable, require, verify-ca or verify-full (which is the default)";

/// A server, and how it is gone to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUrl {
    /// Where it listens.
    pub place: Place,
    /// Who logs in there.
    pub user: String,
    /// The database of clients that name none.
    pub database: String,
    /// Whether and how the way there is encrypted.
    pub encryption: Encryption,
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// TCP.
    Host {
        /// A name or an address, without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// A unix socket.
    Socket(PathBuf),
}

/// Whether and how the way to the server is encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Encryption {
    /// Not at all, as `sslmode=disable` has asked for in so many words.
    None,
    /// TLS, or nothing.
    Tls {
        /// What is verified.
        verification: Verification,
        /// By whose authority.
        anchors: TrustAnchors,
        /// What the proxy shows of itself.
        identity: Option<Identity>,
    },
}

/// A URL that cannot be used. Never has the URL itself in it, which may hold a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// No URL at all.
    #[error("it is no URL ({0}); it is written postgres://USER@HOST:PORT/DATABASE?sslrootcert=FILE")]
    Shape(String),
    /// Another database's.
    #[error("{0}:// is no server that this proxy speaks to; it is written postgres://")]
    Scheme(String),
    /// It has a password in it.
    #[error("it has a password in it: take it out, and give it by PGPASSWORD or a password file")]
    Password,
    /// Nobody logs in.
    #[error("it names no user: postgres://USER@HOST")]
    NoUser,
    /// No server.
    #[error("it names no host")]
    NoHost,
    /// A part is not UTF-8 once it is decoded, or has a NUL.
    #[error("its {0} is no text")]
    NoText(&'static str),
    /// An option that is not known.
    #[error("it has the option \"{0}\", and {OPTIONS} are known")]
    Option(String),
    /// A mode that is not known.
    #[error("sslmode cannot be \"{0}\": write {MODES}")]
    Mode(String),
    /// A certificate without its key, or a key without certificate.
    #[error("a client certificate (sslcert) needs its key (sslkey), and a key its certificate")]
    HalfAnIdentity,
    /// A unix socket has no TLS, and that must be wanted.
    #[error("a unix socket has no TLS: write sslmode=disable with it")]
    SocketNeedsDisable,
}

impl FromStr for ServerUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let url = url::Url::parse(text).map_err(|error| UrlError::Shape(error.to_string()))?;
        if !SCHEMES.contains(&url.scheme()) {
            return Err(UrlError::Scheme(url.scheme().to_owned()));
        }
        if url.password().is_some() {
            return Err(UrlError::Password);
        }
        let user = decoded(url.username(), "user")?;
        if user.is_empty() {
            return Err(UrlError::NoUser);
        }
        let database = decoded(url.path().trim_start_matches('/'), "database")?;
        let database = if database.is_empty() { user.clone() } else { database };
        let mut options = Options::default();
        for (name, value) in url.query_pairs() {
            options.take(&name, value.into_owned())?;
        }
        let port = url.port().unwrap_or(DEFAULT_PORT);
        let place = match options.socket.take() {
            Some(directory) => Place::Socket(directory.join(format!(".s.PGSQL.{port}"))),
            None => Place::Host { host: host_of(&url)?, port },
        };
        let encryption = options.encryption(&place)?;
        Ok(Self { place, user, database, encryption })
    }
}

/// As it is shown to operators: where, and nothing else.
impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host { host, port } if host.contains(':') => write!(formatter, "[{host}]:{port}"),
            Self::Host { host, port } => write!(formatter, "{host}:{port}"),
            Self::Socket(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

#[derive(Default)]
struct Options {
    mode: Mode,
    ca: Option<String>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    socket: Option<PathBuf>,
}

#[derive(Clone, Copy, Default)]
enum Mode {
    #[default]
    Unsaid,
    Disable,
    Tls(Verification),
}

impl Options {
    fn take(&mut self, name: &str, value: String) -> Result<(), UrlError> {
        match name {
            "sslmode" => {
                self.mode = match value.as_str() {
                    "disable" => Mode::Disable,
                    "require" => Mode::Tls(Verification::Off),
                    "verify-ca" => Mode::Tls(Verification::Authority),
                    "verify-full" => Mode::Tls(Verification::Full),
                    _ => return Err(UrlError::Mode(value)),
                }
            }
            "sslrootcert" => self.ca = Some(value),
            "sslcert" => self.certificate = Some(value.into()),
            "sslkey" => self.key = Some(value.into()),
            "host" => self.socket = Some(value.into()),
            _ => return Err(UrlError::Option(name.to_owned())),
        }
        Ok(())
    }

    fn encryption(self, place: &Place) -> Result<Encryption, UrlError> {
        let identity = match (self.certificate, self.key) {
            (Some(certificate_file), Some(key_file)) => Some(Identity { certificate_file, key_file }),
            (None, None) => None,
            _ => return Err(UrlError::HalfAnIdentity),
        };
        let verification = match (self.mode, place) {
            (Mode::Disable, _) => return Ok(Encryption::None),
            (_, Place::Socket(_)) => return Err(UrlError::SocketNeedsDisable),
            (Mode::Unsaid, Place::Host { .. }) => Verification::Full,
            (Mode::Tls(verification), Place::Host { .. }) => verification,
        };
        let anchors = match self.ca.as_deref() {
            None | Some("system") => TrustAnchors::System,
            Some(file) => TrustAnchors::File(file.into()),
        };
        Ok(Encryption::Tls { verification, anchors, identity })
    }
}

fn host_of(url: &url::Url) -> Result<String, UrlError> {
    let host = decoded(url.host_str().unwrap_or_default(), "host")?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    if host.is_empty() { Err(UrlError::NoHost) } else { Ok(host) }
}

fn decoded(text: &str, what: &'static str) -> Result<String, UrlError> {
    let text = percent_decode_str(text).decode_utf8().map_err(|_| UrlError::NoText(what))?;
    if text.contains('\0') { Err(UrlError::NoText(what)) } else { Ok(text.into_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ServerUrl, UrlError> {
        text.parse()
    }

    #[test]
    fn nothing_said_of_tls_is_verified_in_full() {
        let url = parse("postgres://app@db.example/shop").unwrap();
        assert_eq!((url.user.as_str(), url.database.as_str()), ("app", "shop"));
        assert_eq!(url.place, Place::Host { host: "db.example".to_owned(), port: 5432 });
        let full = |anchors| Encryption::Tls { verification: Verification::Full, anchors, identity: None };
        assert_eq!(url.encryption, full(TrustAnchors::System));
        let url = parse("postgresql://a%40b@[::1]:6000?sslrootcert=/ca.pem").unwrap();
        assert_eq!((url.database.as_str(), url.place.to_string().as_str()), ("a@b", "[::1]:6000"));
        assert_eq!(url.encryption, full(TrustAnchors::File("/ca.pem".into())));
    }

    #[test]
    fn plaintext_must_be_asked_for() {
        let url = parse("postgres://a@h/?sslmode=disable").unwrap();
        assert_eq!(url.encryption, Encryption::None);
        assert_eq!(parse("postgres://a@h/?host=/run/pg"), Err(UrlError::SocketNeedsDisable));
        let url = parse("postgres://a@h:1/?host=/run/pg&sslmode=disable").unwrap();
        assert_eq!(url.place, Place::Socket("/run/pg/.s.PGSQL.1".into()));
        for mode in ["prefer", "allow", "", "Disable"] {
            let error = parse(&format!("postgres://a@h/?sslmode={mode}")).unwrap_err();
            assert_eq!(error, UrlError::Mode(mode.to_owned()));
        }
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        assert!(matches!(parse("db.example"), Err(UrlError::Shape(_))));
        assert_eq!(parse("mysql://a@h"), Err(UrlError::Scheme("mysql".to_owned())));
        assert_eq!(parse("postgres://h/db"), Err(UrlError::NoUser));
        assert_eq!(parse("postgres://a@h/%ff"), Err(UrlError::NoText("database")));
        assert_eq!(parse("postgres://a@h/?sslcert=/c"), Err(UrlError::HalfAnIdentity));
        assert_eq!(parse("postgres://a@h/?password=x"), Err(UrlError::Option("password".to_owned())));
        let refused = parse("postgres://a:hunter2@h/db").unwrap_err();
        assert_eq!(refused, UrlError::Password);
        assert!(!refused.to_string().contains("hunter2"));
    }
}
