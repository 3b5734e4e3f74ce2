//! URLs of document databases: `mongodb://USER@HOST:PORT,HOST:PORT/DATABASE?OPTIONS` (MongoDB manual, "Connection
//! Strings"). A list of hosts with ports is not a standard URL.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use ciphertoll_vocabulary::{ReadPreference, Verification};
use serde::{Deserialize, Serialize};

use super::parts::{
    TlsDemand, TlsFiles, UrlError, UrlFileContent, UrlFileOption, UrlPlace, UrlTls, decoded, is_limit,
    time_limit,
};
use crate::factor::Engine;

/// Schemes with their engine. Drivers know only the first; the other records which engine answered.
const SCHEMES: [(&str, Engine); 2] = [("mongodb", Engine::MongoDb), ("ferretdb", Engine::FerretDb)];
/// The scheme whose hosts are looked up in DNS.
const LOOKED_UP: &str = "mongodb+srv";
const PORT: u16 = 27017;
/// The maximum size of a replica set.
const MAX_HOSTS: usize = 50;
/// The default authentication database.
const AUTH_SOURCE: &str = "admin";
/// Characters that database names cannot contain.
const NOT_IN_DATABASES: [char; 6] = ['/', '\\', '.', ' ', '"', '$'];
const DIRECT: &str = "directConnection";
const CONNECT_TIMEOUT: &str = "connectTimeoutMS";
const CA_FILE: &str = "tlsCAFile";
pub(super) const FILES: &[UrlFileOption] = &[
    UrlFileOption::new(CA_FILE, UrlFileContent::Authorities),
    UrlFileOption::new("tlsCertificateKeyFile", UrlFileContent::CertificateAndKey),
];
const DISABLED: &str = "tls=false";
/// Requests both, with and without TLS; our extension.
pub(super) const COMPARE: &str = "tls=compare";

/// Options of document databases.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentsUrl {
    /// Every host in order; the first is the URL's place. Empty for a unix socket.
    pub hosts: Vec<UrlHost>,
    /// The replica set that the server must belong to.
    pub replica_set: Option<String>,
    pub connection: SetConnection,
    pub login: DocumentsLogin,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UrlHost {
    /// An address has no brackets.
    pub name: String,
    pub port: u16,
}

/// Which member of a replica set to connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SetConnection {
    Direct,
    /// The member chosen by the read preference from all members of the set.
    Discovered,
}

/// Login options of document databases.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DocumentsLogin {
    /// The database that stores the user.
    pub auth_source: String,
    pub mechanism: LoginMechanism,
    #[serde(default)]
    pub read_preference: ReadPreference,
}

/// The login method of a document database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoginMechanism {
    /// No login: the URL names no user.
    None,
    /// The strongest SCRAM variant that the server has for the user.
    Negotiated,
    ScramSha256,
    ScramSha1,
    X509,
}

impl fmt::Display for UrlHost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, port } = self;
        if name.contains(':') {
            write!(formatter, "[{name}]:{port}")
        } else {
            write!(formatter, "{name}:{port}")
        }
    }
}

impl FromStr for UrlHost {
    type Err = UrlError;

    /// The format of URLs and of replica set configurations.
    fn from_str(text: &str) -> Result<Self, UrlError> {
        if text.is_empty() {
            return Err(UrlError::NoHost);
        }
        let (name, port) = match text.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or(UrlError::Host)?,
            None => text.split_at(text.find(':').unwrap_or(text.len())),
        };
        let port = match port {
            "" => PORT,
            port => {
                let digits =
                    port.strip_prefix(':').filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
                digits
                    .and_then(|digits| digits.parse().ok())
                    .filter(|port| *port != 0)
                    .ok_or(UrlError::Host)?
            }
        };
        let is_address = text.starts_with('[');
        if is_address && name.parse::<std::net::Ipv6Addr>().is_err() {
            return Err(UrlError::Host);
        }
        let name = decoded(name, "host")?;
        let is_odd = |c: char| !c.is_alphanumeric() && !matches!(c, '-' | '_' | '.');
        let is_name = !name.is_empty() && !name.contains(is_odd);
        if is_address || is_name { Ok(Self { name, port }) } else { Err(UrlError::Host) }
    }
}

/// Whether the URL has a scheme of a document database.
pub(super) fn is_one(text: &str) -> bool {
    let is = |known: &str, scheme: &str| known.eq_ignore_ascii_case(scheme);
    text.split_once("://").is_some_and(|(scheme, _)| {
        is(LOOKED_UP, scheme) || SCHEMES.iter().any(|(known, _)| is(known, scheme))
    })
}

pub(super) fn scheme_of(engine: Engine) -> &'static str {
    SCHEMES.iter().find(|(_, own)| *own == engine).map_or(scheme(), |(scheme, _)| *scheme)
}

/// Each scheme with its options that name files for TLS.
pub(super) fn file_options() -> impl Iterator<Item = (&'static str, &'static [UrlFileOption])> {
    SCHEMES.iter().map(|(scheme, _)| (*scheme, FILES))
}

/// The scheme that drivers know.
pub(super) fn scheme() -> &'static str {
    SCHEMES[0].0
}

/// A URL's parts before decoding.
struct RawUrl<'a> {
    scheme: &'a str,
    user: Option<&'a str>,
    hosts: &'a str,
    database: &'a str,
    options: &'a str,
}

impl<'a> RawUrl<'a> {
    fn of(text: &'a str) -> Result<Self, UrlError> {
        let (scheme, rest) = text.split_once("://").ok_or(UrlError::NoHost)?;
        let (authority, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (Some(user), hosts),
            // A reserved character in a password would turn its rest into an option, which would be printed.
            None if rest.contains('@') => return Err(UrlError::Reserved),
            None => (None, authority),
        };
        if user.is_some_and(|user| user.contains('@')) {
            return Err(UrlError::Reserved);
        }
        let rest = rest.strip_prefix('/').unwrap_or(rest);
        let (database, options) = rest.split_once('?').unwrap_or((rest, ""));
        Ok(Self { scheme, user, hosts, database, options })
    }
}

/// Splits a URL into the URL without its password, and the password.
pub(super) fn split_password(text: &str) -> Option<(String, String)> {
    let start = text.find("://")? + "://".len();
    let (before, rest) = text.split_at_checked(start)?;
    let (authority, tail) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let (user, hosts) = authority.rsplit_once('@')?;
    let (user, password) = user.split_once(':')?;
    let password = decoded(password, "password").ok()?;
    Some((format!("{before}{user}@{hosts}{tail}"), password))
}

/// What a URL of a document database says.
pub(super) struct DocumentsParts {
    pub(super) engine: Engine,
    pub(super) user: String,
    pub(super) place: UrlPlace,
    pub(super) database: Option<String>,
    pub(super) tls: UrlTls,
    pub(super) connect_timeout: Option<Duration>,
    pub(super) documents: DocumentsUrl,
}

/// Parses a URL whose scheme is a document database's.
pub(super) fn parse(text: &str) -> Result<DocumentsParts, UrlError> {
    let parts = RawUrl::of(text)?;
    if parts.scheme.eq_ignore_ascii_case(LOOKED_UP) {
        return Err(UrlError::LookedUp);
    }
    let known = SCHEMES.iter().find(|(scheme, _)| scheme.eq_ignore_ascii_case(parts.scheme));
    let (_, engine) = *known.ok_or_else(|| UrlError::Scheme { scheme: parts.scheme.to_owned() })?;
    if parts.user.is_some_and(|user| user.contains(':')) {
        return Err(UrlError::Password);
    }
    let user = decoded(parts.user.unwrap_or_default(), "user")?;
    let database = decoded(parts.database, "database")?;
    if database.contains(NOT_IN_DATABASES) || database.contains('\0') {
        return Err(UrlError::Database);
    }
    let mut options = Options::default();
    for option in parts.options.split('&').filter(|option| !option.is_empty()) {
        options.take(option)?;
    }
    let (place, hosts) = places(parts.hosts)?;
    let mechanism = options.mechanism(&user, parts.scheme)?;
    let connection = options.connection(&hosts)?;
    let database = Some(database).filter(|name| !name.is_empty());
    let source = options.auth_source.take().or_else(|| database.clone());
    let login = DocumentsLogin {
        auth_source: source.unwrap_or_else(|| AUTH_SOURCE.to_owned()),
        mechanism,
        read_preference: options.read_preference.unwrap_or_default(),
    };
    let replica_set = options.replica_set.take();
    let connect_timeout = options.connect_timeout.filter(is_limit);
    let tls = options.tls(&place)?;
    let documents = DocumentsUrl { hosts, replica_set, connection, login };
    Ok(DocumentsParts { engine, user, place, database, tls, connect_timeout, documents })
}

fn places(text: &str) -> Result<(UrlPlace, Vec<UrlHost>), UrlError> {
    let first = decoded(text, "host")?;
    if first.starts_with('/') {
        return if text.contains(',') {
            Err(UrlError::Host)
        } else {
            Ok((UrlPlace::Socket(first.into()), Vec::new()))
        };
    }
    let hosts = text.split(',').take(MAX_HOSTS + 1).map(str::parse).collect::<Result<Vec<UrlHost>, _>>()?;
    match hosts.first() {
        Some(UrlHost { name, port }) if hosts.len() <= MAX_HOSTS => {
            Ok((UrlPlace::Host { host: name.clone(), port: *port }, hosts))
        }
        _ => Err(UrlError::TooManyHosts { limit: MAX_HOSTS }),
    }
}

/// The URL of one member of a replica set, with a direct connection.
pub(super) fn for_member(url: &str, member: &UrlHost) -> Result<String, UrlError> {
    let RawUrl { scheme, user, database, options, .. } = RawUrl::of(url)?;
    let user = user.map_or_else(String::new, |user| format!("{user}@"));
    let is_ours = |option: &&str| {
        let name = option.split('=').next().unwrap_or_default();
        !option.is_empty() && !name.eq_ignore_ascii_case(DIRECT)
    };
    let direct = format!("{DIRECT}=true");
    let options: Vec<&str> = options.split('&').filter(is_ours).chain([direct.as_str()]).collect();
    Ok(format!("{scheme}://{user}{member}/{database}?{}", options.join("&")))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tls {
    On,
    Off,
    Compare,
}

#[derive(Default)]
struct Options {
    seen: Vec<&'static str>,
    tls: Option<Tls>,
    invalid_hostnames: bool,
    invalid_certificates: bool,
    files: TlsFiles,
    auth_source: Option<String>,
    auth_mechanism: Option<LoginMechanism>,
    replica_set: Option<String>,
    read_preference: Option<ReadPreference>,
    direct: Option<bool>,
    connect_timeout: Option<Duration>,
}

const KNOWN: [&str; 11] = [
    "tls",
    "ssl",
    "tlsAllowInvalidHostnames",
    "tlsAllowInvalidCertificates",
    "tlsInsecure",
    "authSource",
    "authMechanism",
    "replicaSet",
    "readPreference",
    DIRECT,
    CONNECT_TIMEOUT,
];
/// Options of drivers about pools, monitoring and retries, which one connection does not have.
const UNUSED: [&str; 12] = [
    "appName",
    "heartbeatFrequencyMS",
    "localThresholdMS",
    "maxConnecting",
    "maxIdleTimeMS",
    "maxPoolSize",
    "minPoolSize",
    "retryReads",
    "retryWrites",
    "serverSelectionTimeoutMS",
    "socketTimeoutMS",
    "waitQueueTimeoutMS",
];
/// There are too many for one line.
const KNOWN_IN: &str = "the options in docs/measure/url.md";
const TLS: &str = "write true, false, or compare to measure with TLS and without";
const PREFERENCES: &str = "write primary, primaryPreferred, secondary, secondaryPreferred or nearest";
const MECHANISMS: &str =
    "leave it out to let the server choose, or write SCRAM-SHA-256, SCRAM-SHA-1 or MONGODB-X509";

impl Options {
    fn take(&mut self, option: &str) -> Result<(), UrlError> {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        if let Some(file) = FILES.iter().find(|file| file.name.eq_ignore_ascii_case(name)) {
            return self.files.take(*file, &decoded(value, "option")?);
        }
        if UNUSED.iter().any(|unused| unused.eq_ignore_ascii_case(name)) {
            return Ok(());
        }
        let Some(name) = KNOWN.into_iter().find(|known| known.eq_ignore_ascii_case(name)) else {
            let known = KNOWN_IN.to_owned();
            return Err(UrlError::Option { option: decoded(name, "option")?, known });
        };
        // Both names are of the same option.
        let own = if name == "ssl" { "tls" } else { name };
        if self.seen.contains(&own) {
            return Err(UrlError::Twice { option: name });
        }
        self.seen.push(own);
        let value = decoded(value, "option")?;
        let wrong = |expected| UrlError::Value { option: name.to_owned(), value: value.clone(), expected };
        if value.is_empty() {
            return Err(wrong("it has no value"));
        }
        let truth = || match value.as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(wrong("write true or false")),
        };
        match name {
            "tls" | "ssl" => self.tls = Some(one_of(&TLS_VALUES, &value).ok_or_else(|| wrong(TLS))?),
            "tlsAllowInvalidHostnames" => self.invalid_hostnames = truth()?,
            "tlsAllowInvalidCertificates" | "tlsInsecure" => self.invalid_certificates |= truth()?,
            "authSource" => self.auth_source = Some(value),
            "authMechanism" => {
                let mechanism = one_of(&MECHANISM_NAMES, &value);
                self.auth_mechanism = Some(mechanism.ok_or_else(|| wrong(MECHANISMS))?);
            }
            "replicaSet" => self.replica_set = Some(value),
            DIRECT => self.direct = Some(truth()?),
            CONNECT_TIMEOUT => {
                self.connect_timeout = Some(time_limit(name, &value, Duration::from_millis(1))?);
            }
            _ => {
                let known = ReadPreference::ALL.into_iter().find(|known| known.label() == value);
                self.read_preference = Some(known.ok_or_else(|| wrong(PREFERENCES))?);
            }
        }
        Ok(())
    }

    fn mechanism(&self, user: &str, scheme: &str) -> Result<LoginMechanism, UrlError> {
        match self.auth_mechanism {
            None if user.is_empty() => Ok(LoginMechanism::None),
            None => Ok(LoginMechanism::Negotiated),
            Some(LoginMechanism::X509)
                if !self.files.names(UrlFileContent::CertificateAndKey) || self.tls == Some(Tls::Off) =>
            {
                Err(UrlError::NoCertificate)
            }
            Some(LoginMechanism::X509) => Ok(LoginMechanism::X509),
            Some(_) if user.is_empty() => Err(UrlError::NoUser(scheme.to_owned())),
            Some(mechanism) => Ok(mechanism),
        }
    }

    /// A single host is connected to directly unless its set is named.
    fn connection(&self, hosts: &[UrlHost]) -> Result<SetConnection, UrlError> {
        match (self.direct, hosts) {
            (Some(true), [_, _, ..]) => Err(UrlError::DirectToMany),
            (Some(true), _) | (_, []) => Ok(SetConnection::Direct),
            (None, [_]) if self.replica_set.is_none() => Ok(SetConnection::Direct),
            _ => Ok(SetConnection::Discovered),
        }
    }

    fn tls(self, place: &UrlPlace) -> Result<UrlTls, UrlError> {
        let verification = match (self.invalid_certificates, self.invalid_hostnames) {
            (true, _) => Verification::Off,
            (false, true) => Verification::Authority,
            (false, false) => Verification::Full,
        };
        if verification == Verification::Off && self.files.names(UrlFileContent::Authorities) {
            let insecure = "tlsInsecure=true or tlsAllowInvalidCertificates=true";
            return Err(UrlError::AuthorityUnused { option: CA_FILE, insecure });
        }
        let demand = match (self.tls, verification) {
            (Some(Tls::Off), Verification::Full) => TlsDemand::Never,
            (Some(Tls::Off), _) => return Err(UrlError::NothingToVerify),
            (Some(Tls::Compare), Verification::Full) => TlsDemand::Both,
            (Some(Tls::Compare), _) => {
                let (option, value) = ("tls".to_owned(), "compare".to_owned());
                let expected = "it requires full verification";
                return Err(UrlError::Value { option, value, expected });
            }
            (None, Verification::Full) => TlsDemand::Unsaid,
            // An option about certificates requests TLS.
            (Some(Tls::On) | None, verification) => TlsDemand::Always(verification),
        };
        self.files.tls(demand, place, DISABLED)
    }
}

const TLS_VALUES: [(&str, Tls); 3] = [("true", Tls::On), ("false", Tls::Off), ("compare", Tls::Compare)];
const MECHANISM_NAMES: [(&str, LoginMechanism); 3] = [
    ("SCRAM-SHA-256", LoginMechanism::ScramSha256),
    ("SCRAM-SHA-1", LoginMechanism::ScramSha1),
    ("MONGODB-X509", LoginMechanism::X509),
];

fn one_of<T: Copy>(names: &[(&str, T)], value: &str) -> Option<T> {
    names.iter().find(|(name, _)| *name == value).map(|(_, named)| *named)
}

#[cfg(test)]
mod tests;
