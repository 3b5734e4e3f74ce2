//! Parts of URLs of all engines, and what is wrong with a URL.

use std::path::PathBuf;
use std::time::Duration;

use ciphertoll_vocabulary::{Identity, SqlUrlError, Verification};
use percent_encoding::percent_decode_str;

/// All schemes, for an error.
pub(super) const SCHEMES: &str = "postgres://, postgresql://, mariadb://, mysql://, mongodb://";

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UrlPlace {
    Host {
        /// An address has no brackets.
        host: String,
        port: u16,
    },
    Socket(PathBuf),
}

/// TLS options of a URL.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UrlTls {
    pub demand: TlsDemand,
    /// CA certificates that verify the server; the system's if absent.
    pub ca_file: Option<PathBuf>,
    pub identity: Option<Identity>,
}

/// Whether to connect with TLS, without, or both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TlsDemand {
    /// Not specified, and no file for TLS is named: both are measured, certificates are fully verified.
    #[default]
    Unsaid,
    /// Both, as requested (`sslmode=compare`); certificates are fully verified.
    Both,
    Never,
    Always(Verification),
}

/// What a file named for TLS must contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UrlFileContent {
    Authorities,
    Certificate,
    Key,
    CertificateAndKey,
}

/// A URL option that names a file for TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UrlFileOption {
    pub name: &'static str,
    pub content: UrlFileContent,
}

impl UrlFileOption {
    pub(super) const fn new(name: &'static str, content: UrlFileContent) -> Self {
        Self { name, content }
    }
}

/// A URL that cannot be used. Never includes the URL, which may contain a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error("it is not a URL; write postgres://USER@HOST:PORT/DATABASE or mysql://USER@HOST:PORT/DATABASE")]
    Shape,
    #[error(transparent)]
    Syntax(SqlUrlError),
    #[error("{scheme}:// is not supported; the schemes are {SCHEMES}")]
    Scheme { scheme: String },
    #[error(
        "mongodb+srv:// needs SRV and TXT records, which are not supported: list the hosts, as in \
         mongodb://USER@HOST1:27017,HOST2:27017/?tls=true&replicaSet=NAME"
    )]
    LookedUp,
    #[error("an @, a : or a / in a user or a password is written %40, %3A or %2F")]
    Reserved,
    #[error("it contains a password: remove it, and set CIPHERTOLL_PASSWORD or use a password file")]
    Password,
    #[error("it names no user: {0}://USER@HOST")]
    NoUser(String),
    #[error("it names no host")]
    NoHost,
    /// An invalid host. Not printed, as it may be part of a password.
    #[error(
        "a host is a name, an address or, in brackets, an IPv6 address, with or without :PORT; several hosts need no /"
    )]
    Host,
    #[error("it names more than {limit} hosts")]
    TooManyHosts { limit: usize },
    #[error("directConnection=true is for one host, and the URL names several")]
    DirectToMany,
    #[error("its database has a character that is not allowed in database names")]
    Database,
    #[error("{option} appears twice")]
    Twice { option: &'static str },
    #[error("{option} names a file for TLS, and {disabled} disables TLS: leave one of them out")]
    FileWithoutTls { option: &'static str, disabled: &'static str },
    #[error("{option} names a CA, and {insecure} disables verification: leave one of them out")]
    AuthorityUnused { option: &'static str, insecure: &'static str },
    #[error("a unix socket has no TLS: leave out the TLS options")]
    TlsOverSocket,
    #[error("MONGODB-X509 needs tlsCertificateKeyFile=FILE and TLS")]
    NoCertificate,
    #[error("options about certificates contradict tls=false")]
    NothingToVerify,
    #[error("its {0} is not valid UTF-8")]
    NoText(&'static str),
    #[error("the option \"{option}\" is unknown; supported are {known}")]
    Option { option: String, known: String },
    #[error("{option} cannot be \"{value}\": {expected}")]
    Value { option: String, value: String, expected: &'static str },
    #[error("a client certificate needs its key, and a key its certificate")]
    HalfAnIdentity,
    /// Anyone can get a certificate of the system's authorities.
    #[error(
        "{mode} does not verify the host name, and needs a CA of your own: write {authority}=FILE, or {full}"
    )]
    AnyonesCertificate { mode: String, authority: &'static str, full: String },
}

impl UrlTls {
    /// How far certificates are verified.
    pub fn verification(&self) -> Verification {
        match self.demand {
            TlsDemand::Always(verification) => verification,
            TlsDemand::Unsaid | TlsDemand::Both | TlsDemand::Never => Verification::Full,
        }
    }
}

impl From<SqlUrlError> for UrlError {
    fn from(error: SqlUrlError) -> Self {
        match error {
            SqlUrlError::Password => Self::Password,
            SqlUrlError::NoHost => Self::NoHost,
            error => Self::Syntax(error),
        }
    }
}

/// The files for TLS that a URL names.
#[derive(Default)]
pub(super) struct TlsFiles(Vec<(UrlFileOption, PathBuf)>);

impl TlsFiles {
    pub(super) fn take(&mut self, option: UrlFileOption, value: &str) -> Result<(), UrlError> {
        if self.names(option.content) {
            return Err(UrlError::Twice { option: option.name });
        }
        if value.is_empty() {
            let (option, value) = (option.name.to_owned(), String::new());
            return Err(UrlError::Value { option, value, expected: "it names no file" });
        }
        self.0.push((option, value.into()));
        Ok(())
    }

    pub(super) fn names(&self, content: UrlFileContent) -> bool {
        self.0.iter().any(|(option, _)| option.content == content)
    }

    pub(super) fn path(&self, content: UrlFileContent) -> Option<PathBuf> {
        self.0.iter().find(|(option, _)| option.content == content).map(|(_, path)| path.clone())
    }

    /// Naming a file requests TLS: unless the URL has a TLS mode, plaintext is not allowed.
    pub(super) fn tls(
        &self,
        demand: TlsDemand,
        place: &UrlPlace,
        disabled: &'static str,
    ) -> Result<UrlTls, UrlError> {
        let demand = match (demand, self.0.first()) {
            (TlsDemand::Never, Some((option, _))) => {
                return Err(UrlError::FileWithoutTls { option: option.name, disabled });
            }
            (TlsDemand::Unsaid, Some(_)) => TlsDemand::Always(Verification::Full),
            (demand, _) => demand,
        };
        let asks_for_tls = matches!(demand, TlsDemand::Always(_) | TlsDemand::Both);
        if asks_for_tls && matches!(place, UrlPlace::Socket(_)) {
            return Err(UrlError::TlsOverSocket);
        }
        let both = self.path(UrlFileContent::CertificateAndKey);
        let certificate_file = self.path(UrlFileContent::Certificate).or_else(|| both.clone());
        let identity = match (certificate_file, self.path(UrlFileContent::Key).or(both)) {
            (Some(certificate_file), Some(key_file)) => Some(Identity { certificate_file, key_file }),
            (None, None) => None,
            _ => return Err(UrlError::HalfAnIdentity),
        };
        Ok(UrlTls { demand, ca_file: self.path(UrlFileContent::Authorities), identity })
    }
}

pub(super) fn decoded(text: &str, what: &'static str) -> Result<String, UrlError> {
    percent_decode_str(text).decode_utf8().map(Into::into).map_err(|_| UrlError::NoText(what))
}

/// An option's number of `unit`s.
pub(super) fn time_limit(option: &str, value: &str, unit: Duration) -> Result<Duration, UrlError> {
    let expected = "write a whole number, or 0 for the default";
    let wrong = || UrlError::Value { option: option.to_owned(), value: value.to_owned(), expected };
    let number = value.parse::<u32>().map_err(|_| wrong())?;
    Ok(unit * number)
}

/// 0 means no time limit, as in the databases' own clients.
pub(super) fn is_limit(limit: &Duration) -> bool {
    !limit.is_zero()
}
