//! The server behind, as a URL says it. It has no place for a password: command lines can be read by everybody.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use ciphertoll_net::tls::{Identity, TrustAnchors, Verification};
use percent_encoding::percent_decode_str;

/// A server, and how it is gone to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUrl {
    /// What it speaks.
    pub protocol: Protocol,
    /// Where it listens.
    pub place: Place,
    /// Who logs in there.
    pub user: String,
    /// The database of clients that name none; `None`: they have none.
    pub database: Option<String>,
    /// Whether and how the way there is encrypted.
    pub encryption: Encryption,
}

/// What a server speaks. Options in a URL are called as that server's own clients call them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// PostgreSQL's.
    Postgres,
    /// MySQL's and MariaDB's.
    MySql,
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
    /// Not at all, as `sslmode=disable` or `ssl-mode=DISABLED` has asked for in so many words.
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
    #[error(
        "it is no URL ({0}); it is written postgres://USER@HOST:PORT/DATABASE?sslrootcert=FILE or \
         mysql://USER@HOST:PORT/DATABASE?ssl-ca=FILE"
    )]
    Shape(String),
    /// Another database's.
    #[error(
        "{0}:// is no server that this proxy speaks to; it is written postgres://, mysql:// or mariadb://"
    )]
    Scheme(String),
    /// It has a password in it.
    #[error("it has a password in it: take it out, and give it by the environment or a password file")]
    Password,
    /// Nobody logs in.
    #[error("it names no user, who stands before the host and an @")]
    NoUser,
    /// No server.
    #[error("it names no host")]
    NoHost,
    /// A part is not UTF-8 once it is decoded, or has a NUL.
    #[error("its {0} is no text")]
    NoText(&'static str),
    /// An option that is not known.
    #[error("it has the option \"{name}\", and {} are known", .protocol.options())]
    Option {
        /// The option.
        name: String,
        /// Whose it is not.
        protocol: Protocol,
    },
    /// A mode that is not known.
    #[error("{} cannot be \"{mode}\": write {}", .protocol.mode(), .protocol.modes())]
    Mode {
        /// The mode.
        mode: String,
        /// Whose it is not.
        protocol: Protocol,
    },
    /// A certificate without its key, or a key without certificate.
    #[error("a client certificate needs its key, and a key its certificate")]
    HalfAnIdentity,
    /// A unix socket has no TLS, and that must be wanted.
    #[error("a unix socket has no TLS: write {} with it", .0.disabled())]
    SocketNeedsDisable(Protocol),
}

impl Protocol {
    fn of_scheme(scheme: &str) -> Option<Self> {
        match scheme {
            "postgres" | "postgresql" => Some(Self::Postgres),
            "mysql" | "mariadb" => Some(Self::MySql),
            _ => None,
        }
    }

    fn default_port(self) -> u16 {
        match self {
            Self::Postgres => 5432,
            Self::MySql => 3306,
        }
    }

    fn options(self) -> &'static str {
        match self {
            Self::Postgres => "sslmode, sslrootcert, sslcert, sslkey, host",
            Self::MySql => "ssl-mode, ssl-ca, ssl-cert, ssl-key, socket",
        }
    }

    fn mode(self) -> &'static str {
        match self {
            Self::Postgres => "sslmode",
            Self::MySql => "ssl-mode",
        }
    }

    fn modes(self) -> &'static str {
        match self {
            Self::Postgres => "disable, require, verify-ca or verify-full (which is the default)",
            Self::MySql => "DISABLED, REQUIRED, VERIFY_CA or VERIFY_IDENTITY (which is the default)",
        }
    }

    fn disabled(self) -> &'static str {
        match self {
            Self::Postgres => "sslmode=disable",
            Self::MySql => "ssl-mode=DISABLED",
        }
    }

    fn mode_of(self, mode: &str) -> Option<Mode> {
        Some(match (self, mode) {
            (Self::Postgres, "disable") | (Self::MySql, "DISABLED") => Mode::Disable,
            (Self::Postgres, "require") | (Self::MySql, "REQUIRED") => Mode::Tls(Verification::Off),
            (Self::Postgres, "verify-ca") | (Self::MySql, "VERIFY_CA") => Mode::Tls(Verification::Authority),
            (Self::Postgres, "verify-full") | (Self::MySql, "VERIFY_IDENTITY") => {
                Mode::Tls(Verification::Full)
            }
            _ => return None,
        })
    }
}

impl FromStr for ServerUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let url = url::Url::parse(text).map_err(|error| UrlError::Shape(error.to_string()))?;
        let Some(protocol) = Protocol::of_scheme(url.scheme()) else {
            return Err(UrlError::Scheme(url.scheme().to_owned()));
        };
        if url.password().is_some() {
            return Err(UrlError::Password);
        }
        let user = decoded(url.username(), "user")?;
        if user.is_empty() {
            return Err(UrlError::NoUser);
        }
        let database = decoded(url.path().trim_start_matches('/'), "database")?;
        let database = match protocol {
            _ if !database.is_empty() => Some(database),
            Protocol::Postgres => Some(user.clone()),
            Protocol::MySql => None,
        };
        let mut options = Options::default();
        for (name, value) in url.query_pairs() {
            options.take(protocol, &name, value.into_owned())?;
        }
        let port = url.port().unwrap_or(protocol.default_port());
        let place = match (options.socket.take(), protocol) {
            (Some(directory), Protocol::Postgres) => {
                Place::Socket(directory.join(format!(".s.PGSQL.{port}")))
            }
            (Some(socket), Protocol::MySql) => Place::Socket(socket),
            (None, _) => Place::Host { host: host_of(&url)?, port },
        };
        let encryption = options.encryption(protocol, &place)?;
        Ok(Self { protocol, place, user, database, encryption })
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
    fn take(&mut self, protocol: Protocol, name: &str, value: String) -> Result<(), UrlError> {
        use Protocol::{MySql, Postgres};
        match (protocol, name) {
            (Postgres, "sslmode") | (MySql, "ssl-mode") => {
                let mode = protocol.mode_of(&value);
                self.mode = mode.ok_or(UrlError::Mode { mode: value, protocol })?;
            }
            (Postgres, "sslrootcert") | (MySql, "ssl-ca") => self.ca = Some(value),
            (Postgres, "sslcert") | (MySql, "ssl-cert") => self.certificate = Some(value.into()),
            (Postgres, "sslkey") | (MySql, "ssl-key") => self.key = Some(value.into()),
            (Postgres, "host") | (MySql, "socket") => self.socket = Some(value.into()),
            _ => return Err(UrlError::Option { name: name.to_owned(), protocol }),
        }
        Ok(())
    }

    fn encryption(self, protocol: Protocol, place: &Place) -> Result<Encryption, UrlError> {
        let identity = match (self.certificate, self.key) {
            (Some(certificate_file), Some(key_file)) => Some(Identity { certificate_file, key_file }),
            (None, None) => None,
            _ => return Err(UrlError::HalfAnIdentity),
        };
        let verification = match (self.mode, place) {
            (Mode::Disable, _) => return Ok(Encryption::None),
            (_, Place::Socket(_)) => return Err(UrlError::SocketNeedsDisable(protocol)),
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
        assert_eq!((url.user.as_str(), url.database.as_deref()), ("app", Some("shop")));
        assert_eq!(url.place, Place::Host { host: "db.example".to_owned(), port: 5432 });
        let full = |anchors| Encryption::Tls { verification: Verification::Full, anchors, identity: None };
        assert_eq!(url.encryption, full(TrustAnchors::System));
        let url = parse("postgresql://a%40b@[::1]:6000?sslrootcert=/ca.pem").unwrap();
        assert_eq!((url.database.as_deref(), url.place.to_string().as_str()), (Some("a@b"), "[::1]:6000"));
        assert_eq!(url.encryption, full(TrustAnchors::File("/ca.pem".into())));
    }

    #[test]
    fn a_server_of_mysqls_is_verified_in_full_too() {
        for scheme in ["mysql", "mariadb"] {
            let url = parse(&format!("{scheme}://app@db.example/?ssl-ca=/ca.pem")).unwrap();
            assert_eq!((url.protocol, url.database), (Protocol::MySql, None));
            assert_eq!(url.place, Place::Host { host: "db.example".to_owned(), port: 3306 });
            let anchors = TrustAnchors::File("/ca.pem".into());
            let verification = Verification::Full;
            assert_eq!(url.encryption, Encryption::Tls { verification, anchors, identity: None });
        }
        let url = parse("mysql://a@h:1/shop?ssl-mode=DISABLED&socket=/run/mysqld.sock").unwrap();
        assert_eq!((url.place, url.encryption), (Place::Socket("/run/mysqld.sock".into()), Encryption::None));
        assert_eq!(url.database.as_deref(), Some("shop"));
        for mode in ["PREFERRED", "disabled", ""] {
            let error = parse(&format!("mysql://a@h/?ssl-mode={mode}")).unwrap_err();
            assert_eq!(error, UrlError::Mode { mode: mode.to_owned(), protocol: Protocol::MySql });
        }
    }

    #[test]
    fn plaintext_must_be_asked_for() {
        let url = parse("postgres://a@h/?sslmode=disable").unwrap();
        assert_eq!(url.encryption, Encryption::None);
        assert_eq!(
            parse("postgres://a@h/?host=/run/pg"),
            Err(UrlError::SocketNeedsDisable(Protocol::Postgres))
        );
        let url = parse("postgres://a@h:1/?host=/run/pg&sslmode=disable").unwrap();
        assert_eq!(url.place, Place::Socket("/run/pg/.s.PGSQL.1".into()));
        for mode in ["prefer", "allow", "", "Disable"] {
            let error = parse(&format!("postgres://a@h/?sslmode={mode}")).unwrap_err();
            assert_eq!(error, UrlError::Mode { mode: mode.to_owned(), protocol: Protocol::Postgres });
        }
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        assert!(matches!(parse("db.example"), Err(UrlError::Shape(_))));
        assert_eq!(parse("mongodb://a@h"), Err(UrlError::Scheme("mongodb".to_owned())));
        assert_eq!(parse("postgres://h/db"), Err(UrlError::NoUser));
        assert_eq!(parse("postgres://a@h/%ff"), Err(UrlError::NoText("database")));
        assert_eq!(parse("postgres://a@h/?sslcert=/c"), Err(UrlError::HalfAnIdentity));
        for (scheme, protocol) in [("postgres", Protocol::Postgres), ("mysql", Protocol::MySql)] {
            let error = UrlError::Option { name: "password".to_owned(), protocol };
            assert_eq!(parse(&format!("{scheme}://a@h/?password=x")), Err(error));
        }
        // Each server's options are its own.
        assert!(matches!(parse("mysql://a@h/?sslmode=disable"), Err(UrlError::Option { .. })));
        assert!(matches!(parse("postgres://a@h/?ssl-ca=/ca.pem"), Err(UrlError::Option { .. })));
        let refused = parse("postgres://a:hunter2@h/db").unwrap_err();
        assert_eq!(refused, UrlError::Password);
        assert!(!refused.to_string().contains("hunter2"));
    }
}
