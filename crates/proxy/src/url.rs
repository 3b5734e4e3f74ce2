//! The server behind, as a URL says it. It has no place for a password: command lines can be read by everybody.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ciphertoll_net::tls::{FilePurpose, Identity, TrustAnchors, Verification};
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
    /// An option that is there twice.
    #[error("it says {0} twice")]
    Twice(&'static str),
    /// An option that names no file.
    #[error("{0} names no file")]
    NoFile(&'static str),
    /// A file for TLS, and no TLS.
    #[error("{option} names a file for TLS, and {} asks for no TLS: leave one of them out", .protocol.disabled())]
    FileWithoutTls {
        /// The option that names the file.
        option: &'static str,
        /// Whose it is.
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

    /// The options that name files for TLS. They are declared here only: URLs are parsed and files are checked by this table.
    pub fn file_options(self) -> [(&'static str, FilePurpose); 3] {
        let [authorities, certificate, key] = match self {
            Self::Postgres => ["sslrootcert", "sslcert", "sslkey"],
            Self::MySql => ["ssl-ca", "ssl-cert", "ssl-key"],
        };
        [
            (authorities, FilePurpose::Authorities),
            (certificate, FilePurpose::Certificate),
            (key, FilePurpose::Key),
        ]
    }

    fn socket(self) -> &'static str {
        match self {
            Self::Postgres => "host",
            Self::MySql => "socket",
        }
    }

    fn options(self) -> String {
        let files = self.file_options().map(|(name, _)| name);
        [&[self.mode()][..], &files, &[self.socket()]].concat().join(", ")
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

impl ServerUrl {
    /// Whether its user may need a password: a local socket and a client certificate can do without.
    pub fn may_ask_for_password(&self) -> bool {
        let shows_certificate = matches!(&self.encryption, Encryption::Tls { identity: Some(_), .. });
        matches!(self.place, Place::Host { .. }) && !shows_certificate
    }

    /// The files for TLS that it names, each with the option that names it.
    pub fn files(&self) -> Vec<(&'static str, FilePurpose, &Path)> {
        let Encryption::Tls { anchors, identity, .. } = &self.encryption else { return Vec::new() };
        let identity = identity.as_ref();
        let file = |purpose: FilePurpose| match purpose {
            FilePurpose::Authorities => match anchors {
                TrustAnchors::File(file) | TrustAnchors::FileAndSystem(file) => Some(file.as_path()),
                TrustAnchors::System => None,
            },
            FilePurpose::Certificate => identity.map(|identity| identity.certificate_file.as_path()),
            FilePurpose::Key => identity.map(|identity| identity.key_file.as_path()),
        };
        let options = self.protocol.file_options().into_iter();
        options.filter_map(|(name, purpose)| Some((name, purpose, file(purpose)?))).collect()
    }
}

#[derive(Default)]
struct Options {
    mode: Option<Mode>,
    files: Vec<(&'static str, FilePurpose, PathBuf)>,
    socket: Option<PathBuf>,
}

#[derive(Clone, Copy)]
enum Mode {
    Disable,
    Tls(Verification),
}

impl Options {
    fn take(&mut self, protocol: Protocol, name: &str, value: String) -> Result<(), UrlError> {
        // The last of two that contradict each other would win, and it may ask for less.
        let twice = |is_there: bool, name| if is_there { Err(UrlError::Twice(name)) } else { Ok(()) };
        let file = protocol.file_options().into_iter().find(|(option, _)| *option == name);
        if let Some((option, purpose)) = file {
            twice(self.files.iter().any(|(known, ..)| *known == option), option)?;
            if value.is_empty() {
                return Err(UrlError::NoFile(option));
            }
            self.files.push((option, purpose, value.into()));
        } else if name == protocol.mode() {
            twice(self.mode.is_some(), protocol.mode())?;
            let mode = protocol.mode_of(&value);
            self.mode = Some(mode.ok_or(UrlError::Mode { mode: value, protocol })?);
        } else if name == protocol.socket() {
            twice(self.socket.is_some(), protocol.socket())?;
            self.socket = Some(value.into());
        } else {
            return Err(UrlError::Option { name: name.to_owned(), protocol });
        }
        Ok(())
    }

    fn file(&self, wanted: FilePurpose) -> Option<PathBuf> {
        self.files.iter().find(|(_, purpose, _)| *purpose == wanted).map(|(.., path)| path.clone())
    }

    fn encryption(&self, protocol: Protocol, place: &Place) -> Result<Encryption, UrlError> {
        let ca = self.file(FilePurpose::Authorities);
        let identity = match (self.file(FilePurpose::Certificate), self.file(FilePurpose::Key)) {
            (Some(certificate_file), Some(key_file)) => Some(Identity { certificate_file, key_file }),
            (None, None) => None,
            _ => return Err(UrlError::HalfAnIdentity),
        };
        let verification = match (self.mode, place) {
            (Some(Mode::Disable), _) => {
                return match self.files.first() {
                    Some((option, ..)) => Err(UrlError::FileWithoutTls { option, protocol }),
                    None => Ok(Encryption::None),
                };
            }
            (_, Place::Socket(_)) => return Err(UrlError::SocketNeedsDisable(protocol)),
            (None, Place::Host { .. }) => Verification::Full,
            // As libpq does: an authority that is named is what the certificate is verified by.
            (Some(Mode::Tls(Verification::Off)), Place::Host { .. }) if ca.is_some() => {
                Verification::Authority
            }
            (Some(Mode::Tls(verification)), Place::Host { .. }) => verification,
        };
        let anchors = match ca {
            None => TrustAnchors::System,
            Some(file) if file.as_os_str() == "system" => TrustAnchors::System,
            Some(file) => TrustAnchors::File(file),
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
        let url = parse("mysql://a@h/?ssl-mode=REQUIRED&ssl-ca=/ca.pem").unwrap();
        let Encryption::Tls { verification, .. } = url.encryption else { panic!("no TLS") };
        assert_eq!(verification, Verification::Authority, "an authority that is named is verified by");
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
        for protocol in [Protocol::Postgres, Protocol::MySql] {
            let scheme = if protocol == Protocol::Postgres { "postgres" } else { "mysql" };
            for (option, _) in protocol.file_options() {
                let of = |options: String| parse(&format!("{scheme}://a@h/?{options}"));
                let all = protocol.file_options().map(|(name, _)| format!("{name}=/f")).join("&");
                assert_eq!(
                    of(format!("{}&{all}", protocol.disabled())).map(drop),
                    Err(UrlError::FileWithoutTls { option: protocol.file_options()[0].0, protocol })
                );
                assert_eq!(of(format!("{option}=")), Err(UrlError::NoFile(option)));
                assert_eq!(of(format!("{all}&{option}=/g")), Err(UrlError::Twice(option)));
            }
        }
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
