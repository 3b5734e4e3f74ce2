//! The server as a URL. A password in it is refused: command lines are visible to all users.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ciphertoll_net::tls::{FilePurpose, Identity, TrustAnchors, Verification};
use ciphertoll_vocabulary::{SqlFamily, SqlPlace, SqlUrl, SqlUrlError};

use crate::hosts::{LoadBalance, TargetSession};

/// Far more than a cluster has.
const MAX_HOSTS: usize = 16;

/// A server, and how to connect to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUrl {
    pub protocol: ProtocolKind,
    /// The first host.
    pub address: ServerAddress,
    pub further: Vec<ServerAddress>,
    pub target: TargetSession,
    pub balance: LoadBalance,
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
        "not a URL; expected postgres://USER@HOST:PORT/DATABASE?sslrootcert=FILE or \
         mysql://USER@HOST:PORT/DATABASE?ssl-ca=FILE"
    )]
    Shape,
    #[error(transparent)]
    Syntax(SqlUrlError),
    #[error("unknown scheme {0}://; expected postgres://, mysql:// or mariadb://")]
    Scheme(String),
    #[error("the URL contains a password: remove it, and use the environment or a password file")]
    Password,
    #[error("no user: write USER@ before the host")]
    NoUser,
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
    /// Anyone can get a certificate of the system's authorities.
    #[error(
        "{mode} does not verify the host name, and needs a CA of your own: write {authority}=FILE, or {full}",
        authority = .protocol.file_options()[0].0,
        full = .protocol.full()
    )]
    AnyonesCertificate { mode: String, protocol: ProtocolKind },
    #[error("a unix socket has no TLS: add {}", .0.disabled())]
    SocketNeedsDisable(ProtocolKind),
    #[error("{option} cannot be \"{value}\": write {known}")]
    Choice { option: &'static str, value: String, known: String },
    #[error("it names {0} hosts; at most {MAX_HOSTS} are supported")]
    TooManyHosts(usize),
    #[error("it names {0} twice")]
    SameHost(String),
    #[error("a unix socket cannot be one of several hosts of MySQL or MariaDB")]
    SocketAmongHosts,
}

struct UrlSyntax {
    schemes: [&'static str; 2],
    family: SqlFamily,
    files: [(&'static str, FilePurpose); 3],
    /// Options that name the place.
    place: &'static [&'static str],
    mode: &'static str,
    /// In the order of [`MODES`].
    modes: [&'static str; 4],
    /// The role that connections need, and the order of the hosts.
    target: &'static str,
    balance: &'static str,
}

const MODES: [TlsMode; 4] = [
    TlsMode::Disable,
    TlsMode::Tls(Verification::Off),
    TlsMode::Tls(Verification::Authority),
    TlsMode::Tls(Verification::Full),
];

const POSTGRES: UrlSyntax = UrlSyntax {
    schemes: ["postgres", "postgresql"],
    family: SqlFamily::Postgres,
    files: [
        ("sslrootcert", FilePurpose::Authorities),
        ("sslcert", FilePurpose::Certificate),
        ("sslkey", FilePurpose::Key),
    ],
    place: &["host", "port"],
    mode: "sslmode",
    modes: ["disable", "require", "verify-ca", "verify-full"],
    target: "target_session_attrs",
    balance: "load_balance_hosts",
};

const MYSQL: UrlSyntax = UrlSyntax {
    schemes: ["mysql", "mariadb"],
    family: SqlFamily::MySql,
    files: [
        ("ssl-ca", FilePurpose::Authorities),
        ("ssl-cert", FilePurpose::Certificate),
        ("ssl-key", FilePurpose::Key),
    ],
    place: &["socket"],
    mode: "ssl-mode",
    modes: ["DISABLED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY"],
    target: "target-session-attrs",
    balance: "load-balance-hosts",
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
        let UrlSyntax { mode, files, place, target, balance, .. } = self.syntax();
        [&[*mode][..], &files.map(|(name, _)| name), place, &[*target, *balance]].concat().join(", ")
    }

    fn modes(self) -> String {
        let [disable, require, authority, full] = self.syntax().modes;
        format!("{disable}, {require}, {authority} or {full} (the default)")
    }

    fn disabled(self) -> String {
        format!("{}={}", self.syntax().mode, self.syntax().modes[0])
    }

    fn full(self) -> String {
        format!("{}={}", self.syntax().mode, self.syntax().modes[3])
    }

    /// The value of the option for authorities that means the system's. libpq has it since PostgreSQL 16; to MySQL's
    /// clients it is a file's name.
    fn system_authorities(self) -> Option<&'static str> {
        match self {
            Self::Postgres => Some("system"),
            Self::MySql => None,
        }
    }
}

impl FromStr for ServerUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let scheme = SqlUrl::scheme(text).map_err(|_| UrlError::Shape)?;
        let protocol = [ProtocolKind::Postgres, ProtocolKind::MySql]
            .into_iter()
            .find(|protocol| protocol.syntax().schemes.contains(&scheme.as_str()))
            .ok_or(UrlError::Scheme(scheme))?;
        match Self::of_one(text, protocol) {
            Err(UrlError::Syntax(SqlUrlError::SeveralHosts)) => Self::of_several(text, protocol),
            parsed => parsed,
        }
    }
}

impl ServerUrl {
    /// A URL with several hosts, each with its own name and port.
    fn of_several(text: &str, protocol: ProtocolKind) -> Result<Self, UrlError> {
        let urls = SqlUrl::of_each_host(text, protocol.syntax().family)?;
        if urls.len() > MAX_HOSTS {
            return Err(UrlError::TooManyHosts(urls.len()));
        }
        let mut all = urls.iter().map(|url| Self::of_one(url, protocol)).collect::<Result<Vec<_>, _>>()?;
        let addresses: Vec<ServerAddress> = all.iter().map(|url| url.address.clone()).collect();
        if let Some((at, _)) = addresses.iter().enumerate().find(|(at, own)| addresses[..*at].contains(own)) {
            return Err(UrlError::SameHost(addresses[at].to_string()));
        }
        let has_socket = addresses.iter().any(|address| matches!(address, ServerAddress::Socket(_)));
        if has_socket && protocol == ProtocolKind::MySql {
            return Err(UrlError::SocketAmongHosts);
        }
        let further = addresses.into_iter().skip(1).collect();
        Ok(Self { further, ..all.swap_remove(0) })
    }

    fn of_one(text: &str, protocol: ProtocolKind) -> Result<Self, UrlError> {
        let url = SqlUrl::parse(text, protocol.syntax().family)?;
        if url.user.is_empty() {
            return Err(UrlError::NoUser);
        }
        let database = match protocol {
            ProtocolKind::Postgres => url.database.or_else(|| Some(url.user.clone())),
            ProtocolKind::MySql => url.database,
        };
        let mut options = UrlOptions::default();
        for (name, value) in url.options {
            options.take(protocol, &name, value)?;
        }
        let address = match url.place {
            SqlPlace::Host { host, port } => ServerAddress::Host { host, port },
            SqlPlace::Socket(file) => ServerAddress::Socket(file),
        };
        let encryption = options.encryption(protocol, &address)?;
        let (target, balance) = (options.target.unwrap_or_default(), options.balance.unwrap_or_default());
        let (user, further) = (url.user, Vec::new());
        Ok(Self { protocol, address, further, target, balance, user, database, encryption })
    }

    /// All hosts, in the order of the URL.
    pub fn hosts(&self) -> impl Iterator<Item = &ServerAddress> {
        std::iter::once(&self.address).chain(&self.further)
    }

    /// All hosts, for the log and the status.
    pub fn label(&self) -> String {
        self.hosts().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    /// Whether there are several hosts, or a role is needed.
    pub fn is_watched(&self) -> bool {
        !self.further.is_empty() || self.target != TargetSession::Any
    }
}

impl From<SqlUrlError> for UrlError {
    fn from(error: SqlUrlError) -> Self {
        match error {
            SqlUrlError::Password => Self::Password,
            error => Self::Syntax(error),
        }
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
        self.hosts().any(|address| matches!(address, ServerAddress::Host { .. })) && !shows_certificate
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

fn choice(option: &'static str, value: String, known: String) -> UrlError {
    UrlError::Choice { option, value, known }
}

#[derive(Default)]
struct UrlOptions {
    mode: Option<TlsMode>,
    target: Option<TargetSession>,
    balance: Option<LoadBalance>,
    files: Vec<(&'static str, FilePurpose, PathBuf)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
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
        } else if name == syntax.target {
            twice(self.target.is_some(), syntax.target)?;
            let known = || TargetSession::ALL.map(TargetSession::label).join(", ");
            let target = TargetSession::from_label(&value);
            self.target = Some(target.ok_or_else(|| choice(syntax.target, value, known()))?);
        } else if name == syntax.balance {
            twice(self.balance.is_some(), syntax.balance)?;
            let balance = LoadBalance::from_label(&value);
            let known = || "disable, random".to_owned();
            self.balance = Some(balance.ok_or_else(|| choice(syntax.balance, value, known()))?);
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
            (Some(TlsMode::Tls(verification)), ServerAddress::Host { .. }) => verification,
        };
        let ca = self.file(FilePurpose::Authorities);
        let names_system = ca.as_ref().is_some_and(|file| {
            protocol.system_authorities().is_some_and(|system| file.as_os_str() == system)
        });
        // Like libpq: a CA that is named implies that the certificate is verified.
        let verification = match verification {
            Verification::Off if ca.is_some() => Verification::Authority,
            verification => verification,
        };
        let anchors = match ca {
            Some(file) if !names_system => TrustAnchors::File(file),
            // Like libpq and MySQL's clients: they refuse authorities of everyone without a name to verify.
            Some(_) | None if verification == Verification::Authority => {
                return Err(UrlError::AnyonesCertificate { mode: self.mode_text(protocol), protocol });
            }
            Some(_) | None => TrustAnchors::System,
        };
        Ok(UpstreamEncryption::Tls { verification, anchors, identity })
    }

    /// The mode as the URL has it.
    fn mode_text(&self, protocol: ProtocolKind) -> String {
        let UrlSyntax { mode, modes, .. } = protocol.syntax();
        let at = MODES.iter().position(|known| Some(*known) == self.mode);
        format!("{mode}={}", at.map_or("", |at| modes[at]))
    }
}

#[cfg(test)]
mod tests;
