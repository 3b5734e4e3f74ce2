//! URLs of existing servers, in the format of each engine's clients: `postgres://USER@HOST:PORT/DATABASE?sslmode=…`.
//! Passwords are refused: they would reach the plan, the record and the report.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use ciphertoll_vocabulary::{SqlFamily, SqlPlace, SqlUrl, TargetSession, Verification};

pub use self::documents::UrlHost;
use self::documents::{DocumentsParts, DocumentsUrl};
pub use self::parts::{TlsDemand, UrlError, UrlFileContent, UrlFileOption, UrlPlace, UrlTls};
use self::parts::{TlsFiles, is_limit, time_limit};
use super::{Engine, as_text};

pub(super) mod documents;
mod parts;

/// Schemes with their engine and its option names.
const SCHEMES: [(&str, Engine, &OptionNames); 4] = [
    ("postgres", Engine::Postgres, &POSTGRES),
    ("postgresql", Engine::Postgres, &POSTGRES),
    ("mariadb", Engine::MariaDb, &MYSQL),
    ("mysql", Engine::MySql, &MYSQL),
];

/// The most hosts that an SQL URL may name.
const MAX_HOSTS: usize = 16;

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
    /// The time limit of a login; the program's if absent.
    pub connect_timeout: Option<Duration>,
    /// Parameters of PostgreSQL's startup message.
    pub startup: Vec<(String, String)>,
    /// The URLs of the single hosts that an SQL URL names, if it names several; `place` is that of the first.
    pub hosts: Vec<ServerUrl>,
    /// What the session at an SQL server must be.
    pub target_session: TargetSession,
    pub documents: Option<Box<DocumentsUrl>>,
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
        documents::for_member(&self.text, member)?.parse()
    }

    /// The name or address that the certificate must contain.
    pub fn host(&self) -> Option<&str> {
        match &self.place {
            UrlPlace::Host { host, .. } => Some(host),
            UrlPlace::Socket(_) => None,
        }
    }

    /// `db.example:5432`, or the socket's file.
    pub fn address(&self) -> String {
        match &self.place {
            UrlPlace::Host { host, port } if host.contains(':') => format!("[{host}]:{port}"),
            UrlPlace::Host { host, port } => format!("{host}:{port}"),
            UrlPlace::Socket(file) => file.display().to_string(),
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

impl FromStr for ServerUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        // Checked first: a list of hosts with ports is not a standard URL.
        if documents::is_one(text) {
            let DocumentsParts { engine, user, place, database, tls, connect_timeout, documents } =
                documents::parse(text)?;
            let (text, documents) = (text.to_owned(), Some(Box::new(documents)));
            let (startup, hosts, target_session) = (Vec::new(), Vec::new(), TargetSession::Any);
            return Ok(Self {
                text,
                engine,
                user,
                place,
                database,
                tls,
                connect_timeout,
                startup,
                hosts,
                target_session,
                documents,
            });
        }
        let scheme = SqlUrl::scheme(text).map_err(|_| UrlError::Shape)?;
        let known = SCHEMES.iter().find(|(known, ..)| *known == scheme);
        let Some((_, engine, words)) = known else { return Err(UrlError::Scheme { scheme }) };
        let each = SqlUrl::of_each_host(text, words.family)?;
        if each.len() > MAX_HOSTS {
            return Err(UrlError::TooManyHosts { limit: MAX_HOSTS });
        }
        if each.len() > 1 {
            let hosts = each.iter().map(|url| url.parse()).collect::<Result<Vec<Self>, _>>()?;
            return Ok(Self { text: text.to_owned(), hosts: hosts.clone(), ..hosts[0].clone() });
        }
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
        let (user, connect_timeout, startup) =
            (url.user, options.connect_timeout.filter(is_limit), options.startup);
        let (hosts, target_session) = (Vec::new(), options.target_session.unwrap_or_default());
        Ok(Self {
            text,
            engine,
            user,
            place,
            database,
            tls,
            connect_timeout,
            startup,
            hosts,
            target_session,
            documents: None,
        })
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
    connect_timeout: Option<Duration>,
    startup: Vec<(String, String)>,
    target_session: Option<TargetSession>,
    /// Accepted options without an effect.
    unused: Vec<&'static str>,
}

/// The option names of an engine's own clients.
struct OptionNames {
    family: SqlFamily,
    /// The option for TLS.
    mode: &'static str,
    /// Options that name the place.
    place: &'static [&'static str],
    /// The option for the time limit of a login, and its unit.
    connect_timeout: (&'static str, Duration),
    /// Options that are sent to the server.
    startup: &'static [&'static str],
    /// The option for what the session must be.
    target_session: Option<&'static str>,
    /// Options that change nothing if they have one of these values; any value if there are none.
    unused: &'static [(&'static str, &'static [&'static str])],
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
    connect_timeout: ("connect_timeout", Duration::from_secs(1)),
    startup: &["application_name", "options"],
    target_session: Some("target_session_attrs"),
    unused: POSTGRES_UNUSED,
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

/// Those of libpq whose named values are what ciphertoll does, or that concern only idle connections and Kerberos.
const POSTGRES_UNUSED: &[(&str, &[&str])] = &[
    ("fallback_application_name", &[]),
    ("client_encoding", &["UTF8", "utf8", "UTF-8", "utf-8"]),
    ("channel_binding", &["prefer"]),
    ("gssencmode", &["disable", "prefer"]),
    ("sslcompression", &["0"]),
    ("sslnegotiation", &["postgres"]),
    ("load_balance_hosts", &["disable"]),
    ("keepalives", &[]),
    ("keepalives_idle", &[]),
    ("keepalives_interval", &[]),
    ("keepalives_count", &[]),
    ("tcp_user_timeout", &[]),
    ("krbsrvname", &[]),
    ("gsslib", &[]),
];

/// Those of MySQL Shell.
const MYSQL_UNUSED: &[(&str, &[&str])] = &[
    ("compression", &["DISABLED", "disabled", "0", "false"]),
    ("connection-attributes", &[]),
    ("get-server-public-key", &["true", "1"]),
];

const MYSQL: OptionNames = OptionNames {
    family: SqlFamily::MySql,
    mode: "ssl-mode",
    place: &["socket"],
    // That of URLs of MySQL Shell.
    connect_timeout: ("connect-timeout", Duration::from_millis(1)),
    startup: &[],
    target_session: None,
    unused: MYSQL_UNUSED,
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
        let others = self.place.iter().chain(self.startup).copied().chain(self.target_session);
        let all = [self.mode].into_iter().chain(files).chain(others).chain([self.connect_timeout.0]);
        all.collect::<Vec<_>>().join(", ")
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
        let (timeout, unit) = words.connect_timeout;
        if name == words.mode {
            once(self.demand.is_none(), words.mode)?;
            self.demand = Some(demand(words, name, value)?);
        } else if name == timeout {
            once(self.connect_timeout.is_none(), timeout)?;
            self.connect_timeout = Some(time_limit(timeout, value, unit)?);
        } else if let Some(own) = words.startup.iter().find(|known| **known == name) {
            once(self.startup.iter().all(|(known, _)| known != own), own)?;
            self.startup.push((name.to_owned(), value.to_owned()));
        } else if let Some(own) = words.target_session.filter(|own| *own == name) {
            once(self.target_session.is_none(), own)?;
            self.target_session = Some(target_session(own, value)?);
        } else if let Some((own, values)) = words.unused.iter().find(|(known, _)| *known == name) {
            once(!self.unused.contains(own), own)?;
            if !values.is_empty() && !values.contains(&value) {
                let (option, value) = (name.to_owned(), value.to_owned());
                let expected = "ciphertoll supports only the default of the server's own clients";
                return Err(UrlError::Value { option, value, expected });
            }
            self.unused.push(own);
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

fn target_session(option: &str, value: &str) -> Result<TargetSession, UrlError> {
    let expected = "write any, read-write, read-only, primary, standby or prefer-standby";
    TargetSession::from_label(value).ok_or_else(|| {
        let (option, value) = (option.to_owned(), value.to_owned());
        UrlError::Value { option, value, expected }
    })
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

#[cfg(test)]
mod tests;
