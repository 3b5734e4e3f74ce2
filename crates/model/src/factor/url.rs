//! Where a server is that is there already: `postgres://USER@HOST:PORT/DATABASE?sslmode=…`, as the clients of each
//! engine write it. A password has no place in it: it would be in the plan, the record and the report.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use percent_encoding::percent_decode_str;
use url::Url;

use self::documents::DocumentsUrl;
pub use self::documents::UrlHost;
use super::{Engine, as_text};
use crate::trial::Identity;

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
    pub identity: Option<Identity>,
}

/// With TLS, without, or both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TlsDemand {
    /// Nothing is said, and no file is named: both are measured, certificates are verified in full.
    #[default]
    Unsaid,
    /// Both are asked for by name (`sslmode=compare`); certificates are verified in full.
    Both,
    /// No TLS.
    Never,
    /// Nothing without TLS.
    Always(Verification),
}

/// What a file that a URL names for TLS must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UrlFileContent {
    /// Certificates of authorities.
    Authorities,
    /// The client's certificate.
    Certificate,
    /// The key of that certificate.
    Key,
    /// The client's certificate and its key.
    CertificateAndKey,
}

/// An option of a URL that names a file for TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UrlFileOption {
    /// As it is written in the URL.
    pub name: &'static str,
    /// What the file must hold.
    pub content: UrlFileContent,
}

impl UrlFileOption {
    const fn new(name: &'static str, content: UrlFileContent) -> Self {
        Self { name, content }
    }
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
    /// A file for TLS, and no TLS.
    #[error("{option} names a file for TLS, and {disabled} asks for no TLS: leave one of them out")]
    FileWithoutTls {
        /// The option that names the file.
        option: &'static str,
        /// What asks for no TLS.
        disabled: &'static str,
    },
    /// An authority that nothing would be verified by.
    #[error("{option} names an authority, and {insecure} verifies nothing: leave one of them out")]
    AuthorityUnused {
        /// The option that names the authority.
        option: &'static str,
        /// What asks for no verification.
        insecure: &'static str,
    },
    /// TLS over a unix socket.
    #[error("a unix socket has no TLS, and the URL asks for it: leave out what it says of TLS")]
    TlsOverSocket,
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

    /// Every scheme, with its options that name files for TLS.
    pub fn file_options() -> impl Iterator<Item = (&'static str, &'static [UrlFileOption])> {
        let of_rows = SCHEMES.iter().map(|(scheme, _, words)| (*scheme, words.files));
        of_rows.chain(documents::file_options())
    }

    /// The files for TLS that it names, each with the option that names it.
    pub fn files(&self) -> Vec<(UrlFileOption, &Path)> {
        let all = if self.documents.is_some() {
            documents::FILES
        } else {
            SCHEMES.iter().find(|(_, own, _)| *own == self.engine).map_or(&[][..], |(.., words)| words.files)
        };
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

    /// The option by which a URL of its scheme asks for both, with TLS and without.
    pub fn compare_option(&self) -> &'static str {
        let of_rows = SCHEMES.iter().find(|(_, own, _)| *own == self.engine);
        of_rows.map_or(documents::COMPARE, |(.., words)| words.compare)
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
            TlsDemand::Unsaid | TlsDemand::Both | TlsDemand::Never => Verification::Full,
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
        let demand = options.demand.unwrap_or_default();
        // As libpq does: an authority that is named is what the certificate is verified by.
        let demand = match demand {
            TlsDemand::Always(Verification::Off) if options.files.names(UrlFileContent::Authorities) => {
                TlsDemand::Always(Verification::Authority)
            }
            demand => demand,
        };
        let tls = options.files.tls(demand, &place, words.disabled)?;
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
    demand: Option<TlsDemand>,
    files: Files,
}

/// The words of an engine's own clients.
struct Words {
    /// Where it listens unless told otherwise.
    port: u16,
    /// What says how far TLS is demanded.
    mode: &'static str,
    /// What names the socket.
    socket: &'static str,
    /// What names files for TLS.
    files: &'static [UrlFileOption],
    /// No TLS; TLS; TLS with a certificate of the authority's; one with the server's name in it, too; and both, with TLS
    /// and without, which is our own word.
    demands: [&'static str; 5],
    /// What asks for no TLS.
    disabled: &'static str,
    /// What asks for both.
    compare: &'static str,
    /// What is said to another demand.
    expected: &'static str,
    /// The socket of what is told as one, and of the port.
    socket_file: fn(PathBuf, u16) -> PathBuf,
}

const POSTGRES: Words = Words {
    port: 5432,
    mode: "sslmode",
    socket: "host",
    files: &[
        UrlFileOption::new("sslrootcert", UrlFileContent::Authorities),
        UrlFileOption::new("sslcert", UrlFileContent::Certificate),
        UrlFileOption::new("sslkey", UrlFileContent::Key),
    ],
    demands: ["disable", "require", "verify-ca", "verify-full", "compare"],
    disabled: "sslmode=disable",
    compare: "sslmode=compare",
    expected: "write compare to measure with TLS and without, or disable, require, verify-ca or verify-full",
    // libpq is told the directory, MySQL's clients the file.
    socket_file: |directory, port| directory.join(format!(".s.PGSQL.{port}")),
};

const MYSQL: Words = Words {
    port: 3306,
    mode: "ssl-mode",
    socket: "socket",
    files: &[
        UrlFileOption::new("ssl-ca", UrlFileContent::Authorities),
        UrlFileOption::new("ssl-cert", UrlFileContent::Certificate),
        UrlFileOption::new("ssl-key", UrlFileContent::Key),
    ],
    demands: ["DISABLED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY", "COMPARE"],
    disabled: "ssl-mode=DISABLED",
    compare: "ssl-mode=COMPARE",
    expected: "write COMPARE to measure with TLS and without, or DISABLED, REQUIRED, VERIFY_CA or VERIFY_IDENTITY",
    socket_file: |socket, _| socket,
};

impl Words {
    fn options(&self) -> String {
        let files = self.files.iter().map(|option| option.name);
        [self.mode].into_iter().chain(files).chain([self.socket]).collect::<Vec<_>>().join(", ")
    }
}

impl Options {
    fn take(&mut self, words: &Words, name: &str, value: &str) -> Result<(), UrlError> {
        // The last of two that contradict each other would win, and it may ask for less.
        let once = |first: bool, option| if first { Ok(()) } else { Err(UrlError::Twice { option }) };
        if let Some(option) = words.files.iter().find(|option| option.name == name) {
            return self.files.take(*option, value);
        }
        if name == words.mode {
            once(self.demand.is_none(), words.mode)?;
            self.demand = Some(demand(words, name, value)?);
        } else if name == words.socket {
            once(self.socket.is_none(), words.socket)?;
            self.socket = Some(value.into());
        } else {
            return Err(UrlError::Option { option: name.to_owned(), known: words.options() });
        }
        Ok(())
    }
}

/// The files for TLS that a URL names.
#[derive(Default)]
struct Files(Vec<(UrlFileOption, PathBuf)>);

impl Files {
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

    /// Whoever names a file for TLS asks for TLS: without a demand of its own, such a URL allows no plaintext.
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

/// Their *prefer* would hide what is measured.
fn demand(words: &Words, option: &str, value: &str) -> Result<TlsDemand, UrlError> {
    let Words { demands, expected, .. } = words;
    match demands.iter().position(|word| word.eq_ignore_ascii_case(value)) {
        Some(0) => Ok(TlsDemand::Never),
        Some(1) => Ok(TlsDemand::Always(Verification::Off)),
        Some(2) => Ok(TlsDemand::Always(Verification::Authority)),
        Some(3) => Ok(TlsDemand::Always(Verification::Full)),
        Some(_) => Ok(TlsDemand::Both),
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
mod tests;
