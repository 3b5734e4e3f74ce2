//! Where a server is that is there already: `postgres://USER@HOST:PORT/DATABASE?sslmode=…`, as the clients of each
//! engine write it. A password has no place in it: it would be in the plan, the record and the report.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use percent_encoding::percent_decode_str;
use url::Url;

use self::documents::DocumentsUrl;
pub use self::documents::UrlHost;
use super::{Engine, as_text};
use crate::trial::ClientIdentity;

pub(super) mod documents;

/// Schemes, whose they are, and in which words the rest of a URL is.
const SCHEMES: [(&str, Engine, &Words); 4] = [
    ("postgres", Engine::Postgres, &POSTGRES),
    ("postgresql", Engine::Postgres, &POSTGRES),
    ("mariadb", Engine::MariaDb, &MYSQL),
    ("mysql", Engine::MySql, &MYSQL),
];

/// Where a server is, and how its clients come in. Prints as it was written, without a password.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerUrl {
    text: String,
    engine: Engine,
    /// Who logs in; empty where nobody does, which only servers of documents know.
    pub user: String,
    /// Where it listens.
    pub place: UrlPlace,
    /// Which database; the engine's own choice where absent.
    pub database: Option<String>,
    /// What is said of TLS.
    pub tls: UrlTls,
    /// What only servers of documents are told.
    pub documents: Option<Box<DocumentsUrl>>,
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UrlPlace {
    /// TCP, at a name or an address.
    Host {
        /// The name, or the address without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// A unix socket.
    Socket(PathBuf),
}

/// What a URL says of TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UrlTls {
    /// With, without, or both.
    pub demand: TlsDemand,
    /// The authorities that may have signed the server's certificate; the system's where absent.
    pub ca_file: Option<PathBuf>,
    /// What the client shows of itself.
    pub identity: Option<ClientIdentity>,
}

/// With TLS, without, or both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TlsDemand {
    /// Nothing is said: both are measured, certificates are verified in full.
    #[default]
    Unsaid,
    /// No TLS.
    Never,
    /// Nothing without TLS.
    Always(Verification),
}

/// How far a server's certificate is verified.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Verification {
    /// Its authority and its name.
    #[default]
    Full,
    /// Its authority only: any server that has a certificate of this authority will do.
    Authority,
    /// Not at all: whoever sits in between can read along.
    Off,
}

/// A URL that cannot be used. The user's fault. Never has the URL itself in it, which may hold a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// No URL at all.
    #[error(
        "it is no URL ({0}); it is written postgres://USER@HOST:PORT/DATABASE or mysql://USER@HOST:PORT/DATABASE"
    )]
    Shape(String),
    /// Another database's.
    #[error("{scheme}:// is no server that this version speaks to; the schemes are {}", schemes())]
    Scheme {
        /// Its scheme.
        scheme: String,
    },
    /// Hosts that are only in the name service.
    #[error(
        "mongodb+srv:// wants SRV and TXT records looked up, which is not built in: write the hosts out, as in \
         mongodb://USER@HOST1:27017,HOST2:27017/?tls=true&replicaSet=NAME"
    )]
    LookedUp,
    /// A character of the syntax within a user or a password.
    #[error("an @, a : or a / in a user or a password is written %40, %3A or %2F")]
    Reserved,
    /// It has a password where none may be.
    #[error("it has a password in it: take it out, and give it by CIPHERTOLL_PASSWORD or a password file")]
    Password,
    /// Nobody logs in.
    #[error("it names no user: {0}://USER@HOST")]
    NoUser(String),
    /// No server.
    #[error("it names no host")]
    NoHost,
    /// A host that is none. It is not shown: it may be a piece of a password.
    #[error(
        "a host is a name, an address or, in brackets, an IPv6 address, with or without :PORT; several go without /"
    )]
    Host,
    /// More hosts than a replica set has.
    #[error("it names more than {limit} hosts")]
    TooManyHosts {
        /// As many as there may be.
        limit: usize,
    },
    /// One host is to be gone to, and there are several.
    #[error("directConnection=true is for one host, and it names several")]
    DirectToMany,
    /// A database that cannot be.
    #[error("its database has a character that no database's name has")]
    Database,
    /// An option that is there twice.
    #[error("it says {option} twice")]
    Twice {
        /// Its name.
        option: &'static str,
    },
    /// A login by certificate without one.
    #[error("MONGODB-X509 logs in by tlsCertificateKeyFile=FILE, and by TLS")]
    NoCertificate,
    /// No TLS, and still something said of its certificates.
    #[error("with tls=false there is no certificate to be lenient with")]
    NothingToVerify,
    /// A part is not UTF-8 once it is decoded.
    #[error("its {0} is no text")]
    NoText(&'static str),
    /// An option that is not known.
    #[error("it has the option \"{option}\", and {known} are known")]
    Option {
        /// Its name.
        option: String,
        /// Those that there are.
        known: String,
    },
    /// An option whose value is not known.
    #[error("{option} cannot be \"{value}\": {expected}")]
    Value {
        /// Its name.
        option: String,
        /// What was written.
        value: String,
        /// What can be.
        expected: &'static str,
    },
    /// A client's certificate without its key, or a key without certificate.
    #[error("a client certificate needs its key, and a key its certificate")]
    HalfAnIdentity,
}

impl ServerUrl {
    /// Whose protocol is spoken.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// The same URL with the scheme of `engine`. Of one family only: the rest of a URL means the same there.
    #[must_use]
    pub fn spoken_by(&self, engine: Engine) -> Self {
        let of_rows = SCHEMES.iter().find(|(_, own, _)| *own == engine).map(|(scheme, ..)| *scheme);
        let scheme = of_rows.or_else(|| documents::scheme_of(engine));
        let (Some(scheme), Some((_, rest))) = (scheme, self.text.split_once("://")) else {
            return self.clone();
        };
        Self { text: format!("{scheme}://{rest}"), engine, ..self.clone() }
    }

    /// The same URL for one member of its replica set, which is then gone to directly.
    pub fn for_member(&self, member: &UrlHost) -> Result<Self, UrlError> {
        documents::for_member(self, member)
    }

    /// The name or address that its certificate must carry.
    pub fn host(&self) -> Option<&str> {
        match &self.place {
            UrlPlace::Host { host, .. } => Some(host),
            UrlPlace::Socket(_) => None,
        }
    }

    /// A URL without its password, and the password, if it had one.
    pub fn split_password(text: &str) -> (String, Option<String>) {
        if documents::is_one(text) {
            return match documents::split_password(text) {
                Some((text, password)) => (text, Some(password)),
                None => (text.to_owned(), None),
            };
        }
        let Ok(mut url) = Url::parse(text) else { return (text.to_owned(), None) };
        let Some(password) = url.password().map(|password| percent_decode_str(password).collect::<Vec<u8>>())
        else {
            return (text.to_owned(), None);
        };
        match (url.set_password(None), String::from_utf8(password)) {
            (Ok(()), Ok(password)) => (url.into(), Some(password)),
            _ => (text.to_owned(), None),
        }
    }
}

impl UrlTls {
    /// How far certificates are verified.
    pub fn verification(&self) -> Verification {
        match self.demand {
            TlsDemand::Always(verification) => verification,
            TlsDemand::Unsaid | TlsDemand::Never => Verification::Full,
        }
    }
}

impl FromStr for ServerUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        // Before anything else: several hosts, each with its port, are no URL by the standard.
        if documents::is_one(text) {
            return documents::parse(text);
        }
        let url = Url::parse(text).map_err(|error| UrlError::Shape(error.to_string()))?;
        let known = SCHEMES.iter().find(|(scheme, ..)| *scheme == url.scheme());
        let (_, engine, words) =
            *known.ok_or_else(|| UrlError::Scheme { scheme: url.scheme().to_owned() })?;
        if url.password().is_some() {
            return Err(UrlError::Password);
        }
        let user = decoded(url.username(), "user")?;
        if user.is_empty() {
            return Err(UrlError::NoUser(url.scheme().to_owned()));
        }
        let database = decoded(url.path().trim_start_matches('/'), "database")?;
        let mut options = Options::default();
        for (name, value) in url.query_pairs() {
            options.take(words, &name, &value)?;
        }
        let port = url.port().unwrap_or(words.port);
        let place = match options.socket.take() {
            Some(socket) => UrlPlace::Socket((words.socket_file)(socket, port)),
            None => UrlPlace::Host { host: host_of(&url)?, port },
        };
        let database = Some(database).filter(|name| !name.is_empty());
        let tls = options.tls()?;
        Ok(Self { text: text.to_owned(), engine, user, place, database, tls, documents: None })
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

as_text!(ServerUrl);

/// What comes after the `?`.
#[derive(Default)]
struct Options {
    socket: Option<PathBuf>,
    demand: TlsDemand,
    ca_file: Option<PathBuf>,
    certificate_file: Option<PathBuf>,
    key_file: Option<PathBuf>,
}

/// The words of an engine's own clients.
struct Words {
    /// Where it listens unless told otherwise.
    port: u16,
    /// What TLS is demanded with, the authority's file, the client's certificate and key, and the socket.
    options: [&'static str; 5],
    /// No TLS; TLS; TLS with a certificate of the authority's; and one with the server's name in it, too.
    demands: [&'static str; 4],
    /// What is said to another demand.
    expected: &'static str,
    /// The socket of what is told as one, and of the port.
    socket_file: fn(PathBuf, u16) -> PathBuf,
}

const POSTGRES: Words = Words {
    port: 5432,
    options: ["sslmode", "sslrootcert", "sslcert", "sslkey", "host"],
    demands: ["disable", "require", "verify-ca", "verify-full"],
    expected: "leave it out to measure with TLS and without, or write disable, require, verify-ca or verify-full",
    // libpq is told the directory, MySQL's clients the file.
    socket_file: |directory, port| directory.join(format!(".s.PGSQL.{port}")),
};

const MYSQL: Words = Words {
    port: 3306,
    options: ["ssl-mode", "ssl-ca", "ssl-cert", "ssl-key", "socket"],
    demands: ["DISABLED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY"],
    expected: "leave it out to measure with TLS and without, or write DISABLED, REQUIRED, VERIFY_CA or VERIFY_IDENTITY",
    socket_file: |socket, _| socket,
};

impl Options {
    fn take(&mut self, words: &Words, name: &str, value: &str) -> Result<(), UrlError> {
        let known = words.options;
        let Some(which) = known.iter().position(|known| *known == name) else {
            return Err(UrlError::Option { option: name.to_owned(), known: known.join(", ") });
        };
        match which {
            0 => self.demand = demand(words, name, value)?,
            1 => self.ca_file = Some(value.into()),
            2 => self.certificate_file = Some(value.into()),
            3 => self.key_file = Some(value.into()),
            _ => self.socket = Some(value.into()),
        }
        Ok(())
    }

    fn tls(self) -> Result<UrlTls, UrlError> {
        let Self { demand, ca_file, certificate_file, key_file, socket: _ } = self;
        let identity = match (certificate_file, key_file) {
            (Some(certificate_file), Some(key_file)) => Some(ClientIdentity { certificate_file, key_file }),
            (None, None) => None,
            _ => return Err(UrlError::HalfAnIdentity),
        };
        Ok(UrlTls { demand, ca_file, identity })
    }
}

/// Their *prefer* would hide what is measured.
fn demand(words: &Words, option: &str, value: &str) -> Result<TlsDemand, UrlError> {
    let Words { demands, expected, .. } = words;
    match demands.iter().position(|word| word.eq_ignore_ascii_case(value)) {
        Some(0) => Ok(TlsDemand::Never),
        Some(1) => Ok(TlsDemand::Always(Verification::Off)),
        Some(2) => Ok(TlsDemand::Always(Verification::Authority)),
        Some(_) => Ok(TlsDemand::Always(Verification::Full)),
        None => Err(UrlError::Value { option: option.to_owned(), value: value.to_owned(), expected }),
    }
}

/// Without the brackets of an IPv6 address.
fn host_of(url: &Url) -> Result<String, UrlError> {
    let host = decoded(url.host_str().unwrap_or_default(), "host")?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    if host.is_empty() { Err(UrlError::NoHost) } else { Ok(host) }
}

fn decoded(text: &str, what: &'static str) -> Result<String, UrlError> {
    percent_decode_str(text).decode_utf8().map(Into::into).map_err(|_| UrlError::NoText(what))
}

fn schemes() -> String {
    let all = SCHEMES.iter().map(|(scheme, ..)| *scheme).chain([documents::scheme()]);
    all.map(|scheme| format!("{scheme}://")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ServerUrl, UrlError> {
        text.parse()
    }

    #[test]
    fn a_url_says_where_and_who() {
        let url = parse("postgres://app@db.example:6432/shop?sslmode=verify-ca&sslrootcert=/ca.pem").unwrap();
        assert_eq!(
            (url.engine(), url.user.as_str(), url.database.as_deref()),
            (Engine::Postgres, "app", Some("shop"))
        );
        assert_eq!(url.place, UrlPlace::Host { host: "db.example".to_owned(), port: 6432 });
        assert_eq!(url.tls.verification(), Verification::Authority);
        assert_eq!(url.tls.ca_file, Some("/ca.pem".into()));
        let url = parse("mysql://a%40b@[::1]").unwrap();
        assert_eq!((url.user.as_str(), url.database), ("a@b", None));
        assert_eq!(url.place, UrlPlace::Host { host: "::1".to_owned(), port: 3306 });
        assert_eq!(url.tls, UrlTls::default());
    }

    #[test]
    fn a_url_is_written_in_the_scheme_of_who_answers() {
        let url = parse("mysql://a@h:3307/shop?ssl-mode=REQUIRED").unwrap();
        assert_eq!(url.engine(), Engine::MySql);
        let told = url.spoken_by(Engine::MariaDb);
        assert_eq!(told, parse("mariadb://a@h:3307/shop?ssl-mode=REQUIRED").unwrap());
        assert_eq!(told.spoken_by(Engine::MySql), url);
    }

    #[test]
    fn sockets_are_told_as_each_engines_clients_are() {
        let url = parse("postgresql://app@localhost/shop?host=/run/postgresql").unwrap();
        assert_eq!(url.place, UrlPlace::Socket("/run/postgresql/.s.PGSQL.5432".into()));
        let url = parse("mariadb://app@localhost/shop?socket=/run/mysqld/mysqld.sock").unwrap();
        assert_eq!(url.place, UrlPlace::Socket("/run/mysqld/mysqld.sock".into()));
    }

    #[test]
    fn what_is_said_of_tls_is_understood_or_refused() {
        let of = |text: &str| parse(text).map(|url| url.tls.demand);
        let url = |mode: &str| format!("mysql://a@h/?ssl-mode={mode}");
        assert_eq!(of(&url("DISABLED")), Ok(TlsDemand::Never));
        assert_eq!(of(&url("required")), Ok(TlsDemand::Always(Verification::Off)));
        assert_eq!(of(&url("VERIFY_IDENTITY")), Ok(TlsDemand::Always(Verification::Full)));
        for mode in ["prefer", "allow", "PREFERRED", ""] {
            assert!(matches!(of(&url(mode)), Err(UrlError::Value { .. })), "{mode}");
        }
        assert_eq!(of("postgres://a@h/?sslcert=/c"), Err(UrlError::HalfAnIdentity));
        assert!(matches!(of("postgres://a@h/?ssl-ca=/c"), Err(UrlError::Option { .. })));
        assert!(matches!(of("postgres://a@h/?password=x"), Err(UrlError::Option { .. })));
    }

    #[test]
    fn a_password_is_taken_out_and_never_kept() {
        let (text, password) = ServerUrl::split_password("postgres://app:s%3Acret@h/db?sslmode=require");
        assert_eq!(
            (text.as_str(), password.as_deref()),
            ("postgres://app@h/db?sslmode=require", Some("s:cret"))
        );
        assert_eq!(parse(&text).unwrap().to_string(), text);
        let refused = parse("postgres://app:secret@h/db").unwrap_err();
        assert_eq!(refused, UrlError::Password);
        assert!(!refused.to_string().contains("secret"));
        let (text, password) = ServerUrl::split_password("not a url");
        assert_eq!((text.as_str(), password), ("not a url", None));
    }

    #[test]
    fn what_is_missing_is_named() {
        assert!(matches!(parse("localhost"), Err(UrlError::Shape(_))));
        assert!(matches!(parse("oracle://a@h"), Err(UrlError::Scheme { scheme }) if scheme == "oracle"));
        assert!(matches!(parse("postgres://h/db"), Err(UrlError::NoUser(_))));
        assert_eq!(parse("postgres://a@h/%ff"), Err(UrlError::NoText("database")));
    }
}
