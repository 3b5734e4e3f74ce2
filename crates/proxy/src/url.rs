//! The server as a URL. A password in it is refused: command lines are visible to all users.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ciphertoll_net::tls::{FilePurpose, Identity, TrustAnchors, Verification};
use percent_encoding::percent_decode_str;

/// A server, and how to connect to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUrl {
    pub protocol: ProtocolKind,
    pub address: ServerAddress,
    pub user: String,
    /// The database of clients that name none.
    pub database: Option<String>,
    pub encryption: UpstreamEncryption,
}

/// The protocol of a server. Options in its URL have the names that the server's own clients use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolKind {
    Postgres,
    MySql,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAddress {
    Host {
        /// A name or an address, without brackets.
        host: String,
        port: u16,
    },
    Socket(PathBuf),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpstreamEncryption {
    /// Plaintext, as `sslmode=disable` or `ssl-mode=DISABLED` requests explicitly.
    None,
    Tls {
        verification: Verification,
        anchors: TrustAnchors,
        identity: Option<Identity>,
    },
}

/// Why a URL cannot be used. Does not contain the URL, which may hold a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error(
        "not a URL ({0}); expected postgres://USER@HOST:PORT/DATABASE?sslrootcert=FILE or \
         mysql://USER@HOST:PORT/DATABASE?ssl-ca=FILE"
    )]
    Shape(String),
    #[error("unknown scheme {0}://; expected postgres://, mysql:// or mariadb://")]
    Scheme(String),
    #[error("the URL contains a password: remove it, and use the environment or a password file")]
    Password,
    #[error("no user: write USER@ before the host")]
    NoUser,
    #[error("no host")]
    NoHost,
    #[error("the {0} is not UTF-8 or contains a NUL")]
    NoText(&'static str),
    #[error("unknown option \"{name}\"; known are {}", .protocol.options())]
    Option { name: String, protocol: ProtocolKind },
    #[error("{} cannot be \"{mode}\": write {}", .protocol.syntax().mode, .protocol.modes())]
    Mode { mode: String, protocol: ProtocolKind },
    #[error("{0} is given twice")]
    Twice(&'static str),
    #[error("{0} names no file")]
    NoFile(&'static str),
    #[error("{option} names a file for TLS, but {} disables TLS: remove one of them", .protocol.disabled())]
    FileWithoutTls { option: &'static str, protocol: ProtocolKind },
    #[error("a client certificate and its key must be given together")]
    IncompleteIdentity,
    #[error("a unix socket has no TLS: add {}", .0.disabled())]
    SocketNeedsDisable(ProtocolKind),
}

struct UrlSyntax {
    schemes: [&'static str; 2],
    default_port: u16,
    files: [(&'static str, FilePurpose); 3],
    socket: &'static str,
    mode: &'static str,
    /// In the order of [`MODES`].
    modes: [&'static str; 4],
}

const MODES: [TlsMode; 4] = [
    TlsMode::Disable,
    TlsMode::Tls(Verification::Off),
    TlsMode::Tls(Verification::Authority),
    TlsMode::Tls(Verification::Full),
];

const POSTGRES: UrlSyntax = UrlSyntax {
    schemes: ["postgres", "postgresql"],
    default_port: 5432,
    files: [
        ("sslrootcert", FilePurpose::Authorities),
        ("sslcert", FilePurpose::Certificate),
        ("sslkey", FilePurpose::Key),
    ],
    socket: "host",
    mode: "sslmode",
    modes: ["disable", "require", "verify-ca", "verify-full"],
};

const MYSQL: UrlSyntax = UrlSyntax {
    schemes: ["mysql", "mariadb"],
    default_port: 3306,
    files: [
        ("ssl-ca", FilePurpose::Authorities),
        ("ssl-cert", FilePurpose::Certificate),
        ("ssl-key", FilePurpose::Key),
    ],
    socket: "socket",
    mode: "ssl-mode",
    modes: ["DISABLED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY"],
};

impl ProtocolKind {
    fn syntax(self) -> &'static UrlSyntax {
        match self {
            Self::Postgres => &POSTGRES,
            Self::MySql => &MYSQL,
        }
    }

    /// The options that name files for TLS. Parsing and checking both use this table.
    pub fn file_options(self) -> [(&'static str, FilePurpose); 3] {
        self.syntax().files
    }

    fn options(self) -> String {
        let UrlSyntax { mode, files, socket, .. } = self.syntax();
        [&[*mode][..], &files.map(|(name, _)| name), &[*socket]].concat().join(", ")
    }

    fn modes(self) -> String {
        let [disable, require, authority, full] = self.syntax().modes;
        format!("{disable}, {require}, {authority} or {full} (the default)")
    }

    fn disabled(self) -> String {
        format!("{}={}", self.syntax().mode, self.syntax().modes[0])
    }
}

impl FromStr for ServerUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let url = url::Url::parse(text).map_err(|error| UrlError::Shape(error.to_string()))?;
        let protocol = [ProtocolKind::Postgres, ProtocolKind::MySql]
            .into_iter()
            .find(|protocol| protocol.syntax().schemes.contains(&url.scheme()))
            .ok_or_else(|| UrlError::Scheme(url.scheme().to_owned()))?;
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
            ProtocolKind::Postgres => Some(user.clone()),
            ProtocolKind::MySql => None,
        };
        let mut options = UrlOptions::default();
        for (name, value) in url.query_pairs() {
            options.take(protocol, &name, value.into_owned())?;
        }
        let port = url.port().unwrap_or(protocol.syntax().default_port);
        let address = match (options.socket.take(), protocol) {
            (Some(directory), ProtocolKind::Postgres) => {
                ServerAddress::Socket(directory.join(format!(".s.PGSQL.{port}")))
            }
            (Some(socket), ProtocolKind::MySql) => ServerAddress::Socket(socket),
            (None, _) => ServerAddress::Host { host: host_of(&url)?, port },
        };
        let encryption = options.encryption(protocol, &address)?;
        Ok(Self { protocol, address, user, database, encryption })
    }
}

/// Shown to operators: the address and nothing else.
impl fmt::Display for ServerAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host { host, port } if host.contains(':') => write!(formatter, "[{host}]:{port}"),
            Self::Host { host, port } => write!(formatter, "{host}:{port}"),
            Self::Socket(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

impl ServerUrl {
    /// Whether the server may ask for a password. Not for a unix socket or a client certificate.
    pub fn may_ask_for_password(&self) -> bool {
        let shows_certificate = matches!(&self.encryption, UpstreamEncryption::Tls { identity: Some(_), .. });
        matches!(self.address, ServerAddress::Host { .. }) && !shows_certificate
    }

    /// The files for TLS, each with the option that names it.
    pub fn files(&self) -> Vec<(&'static str, FilePurpose, &Path)> {
        let UpstreamEncryption::Tls { anchors, identity, .. } = &self.encryption else { return Vec::new() };
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
struct UrlOptions {
    mode: Option<TlsMode>,
    files: Vec<(&'static str, FilePurpose, PathBuf)>,
    socket: Option<PathBuf>,
}

#[derive(Clone, Copy)]
enum TlsMode {
    Disable,
    Tls(Verification),
}

impl UrlOptions {
    fn take(&mut self, protocol: ProtocolKind, name: &str, value: String) -> Result<(), UrlError> {
        // With contradicting options the last one would win, which may protect less.
        let twice = |is_there: bool, name| if is_there { Err(UrlError::Twice(name)) } else { Ok(()) };
        let syntax = protocol.syntax();
        let file = syntax.files.into_iter().find(|(option, _)| *option == name);
        if let Some((option, purpose)) = file {
            twice(self.files.iter().any(|(known, ..)| *known == option), option)?;
            if value.is_empty() {
                return Err(UrlError::NoFile(option));
            }
            self.files.push((option, purpose, value.into()));
        } else if name == syntax.mode {
            twice(self.mode.is_some(), syntax.mode)?;
            let at = syntax.modes.iter().position(|mode| *mode == value);
            self.mode = Some(MODES[at.ok_or(UrlError::Mode { mode: value, protocol })?]);
        } else if name == syntax.socket {
            twice(self.socket.is_some(), syntax.socket)?;
            self.socket = Some(value.into());
        } else {
            return Err(UrlError::Option { name: name.to_owned(), protocol });
        }
        Ok(())
    }

    fn file(&self, required: FilePurpose) -> Option<PathBuf> {
        self.files.iter().find(|(_, purpose, _)| *purpose == required).map(|(.., path)| path.clone())
    }

    fn encryption(
        &self,
        protocol: ProtocolKind,
        address: &ServerAddress,
    ) -> Result<UpstreamEncryption, UrlError> {
        let ca = self.file(FilePurpose::Authorities);
        let identity = match (self.file(FilePurpose::Certificate), self.file(FilePurpose::Key)) {
            (Some(certificate_file), Some(key_file)) => Some(Identity { certificate_file, key_file }),
            (None, None) => None,
            _ => return Err(UrlError::IncompleteIdentity),
        };
        let verification = match (self.mode, address) {
            (Some(TlsMode::Disable), _) => {
                return match self.files.first() {
                    Some((option, ..)) => Err(UrlError::FileWithoutTls { option, protocol }),
                    None => Ok(UpstreamEncryption::None),
                };
            }
            (_, ServerAddress::Socket(_)) => return Err(UrlError::SocketNeedsDisable(protocol)),
            (None, ServerAddress::Host { .. }) => Verification::Full,
            // Like libpq: a CA file implies that the certificate is verified.
            (Some(TlsMode::Tls(Verification::Off)), ServerAddress::Host { .. }) if ca.is_some() => {
                Verification::Authority
            }
            (Some(TlsMode::Tls(verification)), ServerAddress::Host { .. }) => verification,
        };
        let anchors = match ca {
            None => TrustAnchors::System,
            Some(file) if file.as_os_str() == "system" => TrustAnchors::System,
            Some(file) => TrustAnchors::File(file),
        };
        Ok(UpstreamEncryption::Tls { verification, anchors, identity })
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
mod tests;
