//! URLs of existing servers, in the format of each engine's clients: `postgres://USER@HOST:PORT/DATABASE?sslmode=…`.
//! Passwords are refused: they would reach the plan, the record and the report.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ciphertoll_vocabulary::{Identity, SqlFamily, SqlPlace, SqlUrl, SqlUrlError, Verification};
use percent_encoding::percent_decode_str;

use self::documents::DocumentsUrl;
pub use self::documents::UrlHost;
use super::{Engine, as_text};

pub(super) mod documents;

/// Schemes with their engine and its option names.
const SCHEMES: [(&str, Engine, &OptionNames); 4] = [
    ("postgres", Engine::Postgres, &POSTGRES),
    ("postgresql", Engine::Postgres, &POSTGRES),
    ("mariadb", Engine::MariaDb, &MYSQL),
    ("mysql", Engine::MySql, &MYSQL),
];

/// The first scheme of an SQL engine, and its option names.
fn option_names(engine: Engine) -> Option<(&'static str, &'static OptionNames)> {
    SCHEMES.iter().find(|(_, own, _)| *own == engine).map(|(scheme, _, words)| (*scheme, *words))
}

/// The address of an existing server and how to log in. Prints as it was written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerUrl {
    text: String,
    engine: Engine,
    /// Empty for no login, which only document databases accept.
    pub user: String,
    pub place: UrlPlace,
    /// The engine's default if absent.
    pub database: Option<String>,
    pub tls: UrlTls,
    pub documents: Option<Box<DocumentsUrl>>,
}

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
    const fn new(name: &'static str, content: UrlFileContent) -> Self {
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
    #[error("{scheme}:// is not supported; the schemes are {}", schemes())]
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

impl ServerUrl {
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// The URL with the scheme of `engine`, which must be of the same family.
    #[must_use]
    pub fn spoken_by(&self, engine: Engine) -> Self {
        let scheme = option_names(engine).map_or_else(|| documents::scheme_of(engine), |(scheme, _)| scheme);
        let Some((_, rest)) = self.text.split_once("://") else { return self.clone() };
        Self { text: format!("{scheme}://{rest}"), engine, ..self.clone() }
    }

    /// The URL of one member of its replica set, with a direct connection.
    pub fn for_member(&self, member: &UrlHost) -> Result<Self, UrlError> {
        documents::for_member(self, member)
    }

    /// The name or address that the certificate must contain.
    pub fn host(&self) -> Option<&str> {
        match &self.place {
            UrlPlace::Host { host, .. } => Some(host),
            UrlPlace::Socket(_) => None,
        }
    }

    /// Every scheme with its options that name files for TLS.
    pub fn file_options() -> impl Iterator<Item = (&'static str, &'static [UrlFileOption])> {
        let of_rows = SCHEMES.iter().map(|(scheme, _, words)| (*scheme, words.files));
        of_rows.chain(documents::file_options())
    }

    /// The files for TLS that it names, each with its option.
    pub fn files(&self) -> Vec<(UrlFileOption, &Path)> {
        let all = option_names(self.engine).map_or(documents::FILES, |(_, words)| words.files);
        let identity = self.tls.identity.as_ref();
        let file = |option: &UrlFileOption| match option.content {
            UrlFileContent::Authorities => self.tls.ca_file.as_deref(),
            UrlFileContent::Certificate | UrlFileContent::CertificateAndKey => {
                identity.map(|identity| identity.certificate_file.as_path())
            }
            UrlFileContent::Key => identity.map(|identity| identity.key_file.as_path()),
        };
        all.iter().filter_map(|option| Some((*option, file(option)?))).collect()
    }

    /// The option that requests both, with and without TLS.
    pub fn compare_option(&self) -> &'static str {
        option_names(self.engine).map_or(documents::COMPARE, |(_, words)| words.compare)
    }

    /// Splits a URL into the URL without its password, and the password.
    pub fn split_password(text: &str) -> (String, Option<String>) {
        if documents::is_one(text) {
            let split = documents::split_password(text);
            return split.map_or_else(|| (text.to_owned(), None), |(text, password)| (text, Some(password)));
        }
        let split = documents::split_password(text).filter(|(_, password)| !password.is_empty());
        split.map_or_else(|| (text.to_owned(), None), |(text, password)| (text, Some(password)))
    }

    /// Fails if anyone can get a certificate that its TLS options accept: one of the system's authorities, for any name.
    /// libpq and MySQL's clients refuse these options, too. Not an error of parsing: records of earlier versions have
    /// such URLs.
    pub fn check_protection(&self) -> Result<(), UrlError> {
        let Some((_, words)) = option_names(self.engine) else { return Ok(()) };
        match (self.tls.demand, &self.tls.ca_file) {
            (TlsDemand::Always(Verification::Authority), None) => {
                Err(words.anyones_certificate(Verification::Authority))
            }
            _ => Ok(()),
        }
    }
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

impl FromStr for ServerUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        // Checked first: a list of hosts with ports is not a standard URL.
        if documents::is_one(text) {
            return documents::parse(text);
        }
        let scheme = SqlUrl::scheme(text).map_err(|_| UrlError::Shape)?;
        let known = SCHEMES.iter().find(|(known, ..)| *known == scheme);
        let Some((_, engine, words)) = known else { return Err(UrlError::Scheme { scheme }) };
        let url = SqlUrl::parse(text, words.family)?;
        if url.user.is_empty() {
            return Err(UrlError::NoUser(scheme));
        }
        let mut options = Options::default();
        for (name, value) in &url.options {
            options.take(words, name, value)?;
        }
        let place = match url.place {
            SqlPlace::Host { host, port } => UrlPlace::Host { host, port },
            SqlPlace::Socket(file) => UrlPlace::Socket(file),
        };
        let demand = options.demand(words)?;
        let mut tls = options.files.tls(demand, &place, words.disabled)?;
        if options.names_system(words) {
            tls.ca_file = None;
        }
        let (text, engine, database) = (text.to_owned(), *engine, url.database);
        Ok(Self { text, engine, user: url.user, place, database, tls, documents: None })
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

impl fmt::Display for ServerUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

as_text!(ServerUrl);

#[derive(Default)]
struct Options {
    demand: Option<TlsDemand>,
    files: TlsFiles,
}

/// The option names of an engine's own clients.
struct OptionNames {
    family: SqlFamily,
    /// The option for TLS.
    mode: &'static str,
    /// Options that name the place.
    place: &'static [&'static str],
    files: &'static [UrlFileOption],
    /// The TLS modes: disabled; required; CA verified; CA and name verified; both with and without TLS, which is our
    /// extension.
    demands: [&'static str; 5],
    /// Disables TLS.
    disabled: &'static str,
    /// Requests both, with and without TLS.
    compare: &'static str,
    /// The hint for an unsupported mode.
    expected: &'static str,
    /// Instead of a CA file: the system's authorities.
    system_authorities: Option<&'static str>,
}

const POSTGRES: OptionNames = OptionNames {
    family: SqlFamily::Postgres,
    mode: "sslmode",
    place: &["host", "port"],
    files: &[
        UrlFileOption::new("sslrootcert", UrlFileContent::Authorities),
        UrlFileOption::new("sslcert", UrlFileContent::Certificate),
        UrlFileOption::new("sslkey", UrlFileContent::Key),
    ],
    demands: ["disable", "require", "verify-ca", "verify-full", "compare"],
    disabled: "sslmode=disable",
    compare: "sslmode=compare",
    expected: "write compare to measure with TLS and without, or disable, require, verify-ca or verify-full",
    // In libpq since PostgreSQL 16.
    system_authorities: Some("system"),
};

const MYSQL: OptionNames = OptionNames {
    family: SqlFamily::MySql,
    mode: "ssl-mode",
    place: &["socket"],
    files: &[
        UrlFileOption::new("ssl-ca", UrlFileContent::Authorities),
        UrlFileOption::new("ssl-cert", UrlFileContent::Certificate),
        UrlFileOption::new("ssl-key", UrlFileContent::Key),
    ],
    demands: ["DISABLED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY", "COMPARE"],
    disabled: "ssl-mode=DISABLED",
    compare: "ssl-mode=COMPARE",
    expected: "write COMPARE to measure with TLS and without, or DISABLED, REQUIRED, VERIFY_CA or VERIFY_IDENTITY",
    system_authorities: None,
};

impl OptionNames {
    fn options(&self) -> String {
        let files = self.files.iter().map(|option| option.name);
        [self.mode].into_iter().chain(files).chain(self.place.iter().copied()).collect::<Vec<_>>().join(", ")
    }

    fn anyones_certificate(&self, verification: Verification) -> UrlError {
        let [_, off, authority, full, _] = self.demands.map(|demand| format!("{}={demand}", self.mode));
        let mode = match verification {
            Verification::Off => off,
            Verification::Authority => authority,
            Verification::Full => full.clone(),
        };
        UrlError::AnyonesCertificate { mode, authority: self.files[0].name, full }
    }
}

impl Options {
    fn take(&mut self, words: &OptionNames, name: &str, value: &str) -> Result<(), UrlError> {
        // If an option appeared twice, the last one would win, and might weaken the first.
        let once = |first: bool, option| if first { Ok(()) } else { Err(UrlError::Twice { option }) };
        if let Some(option) = words.files.iter().find(|option| option.name == name) {
            return self.files.take(*option, value);
        }
        if name == words.mode {
            once(self.demand.is_none(), words.mode)?;
            self.demand = Some(demand(words, name, value)?);
        } else {
            return Err(UrlError::Option { option: name.to_owned(), known: words.options() });
        }
        Ok(())
    }

    fn demand(&self, words: &OptionNames) -> Result<TlsDemand, UrlError> {
        match self.demand.unwrap_or_default() {
            // As in libpq since PostgreSQL 16.
            TlsDemand::Always(verification)
                if self.names_system(words) && verification != Verification::Full =>
            {
                Err(words.anyones_certificate(verification))
            }
            // As in libpq, a named CA file is used for verification.
            TlsDemand::Always(Verification::Off) if self.files.names(UrlFileContent::Authorities) => {
                Ok(TlsDemand::Always(Verification::Authority))
            }
            demand => Ok(demand),
        }
    }

    fn names_system(&self, words: &OptionNames) -> bool {
        let file = self.files.path(UrlFileContent::Authorities);
        words.system_authorities.is_some_and(|system| file.is_some_and(|file| file.as_os_str() == system))
    }
}

/// The files for TLS that a URL names.
#[derive(Default)]
struct TlsFiles(Vec<(UrlFileOption, PathBuf)>);

impl TlsFiles {
    fn take(&mut self, option: UrlFileOption, value: &str) -> Result<(), UrlError> {
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

    fn names(&self, content: UrlFileContent) -> bool {
        self.0.iter().any(|(option, _)| option.content == content)
    }

    fn path(&self, content: UrlFileContent) -> Option<PathBuf> {
        self.0.iter().find(|(option, _)| option.content == content).map(|(_, path)| path.clone())
    }

    /// Naming a file requests TLS: unless the URL has a TLS mode, plaintext is not allowed.
    fn tls(&self, demand: TlsDemand, place: &UrlPlace, disabled: &'static str) -> Result<UrlTls, UrlError> {
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

/// The clients' *prefer* is not supported, as it would hide what is measured.
fn demand(words: &OptionNames, option: &str, value: &str) -> Result<TlsDemand, UrlError> {
    let OptionNames { demands, expected, .. } = words;
    match demands.iter().position(|word| word.eq_ignore_ascii_case(value)) {
        Some(0) => Ok(TlsDemand::Never),
        Some(1) => Ok(TlsDemand::Always(Verification::Off)),
        Some(2) => Ok(TlsDemand::Always(Verification::Authority)),
        Some(3) => Ok(TlsDemand::Always(Verification::Full)),
        Some(_) => Ok(TlsDemand::Both),
        None => Err(UrlError::Value { option: option.to_owned(), value: value.to_owned(), expected }),
    }
}

fn decoded(text: &str, what: &'static str) -> Result<String, UrlError> {
    percent_decode_str(text).decode_utf8().map(Into::into).map_err(|_| UrlError::NoText(what))
}

fn schemes() -> String {
    let all = SCHEMES.iter().map(|(scheme, ..)| *scheme).chain([documents::scheme()]);
    all.map(|scheme| format!("{scheme}://")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
