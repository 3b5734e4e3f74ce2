//! A server that is there already, at a URL: it is asked what it lets in, and gets tables only where that was asked
//! for. Nothing else of it is touched.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_model::{
    AddressFamily, Endpoint, Engine, QueryLanguage, Refusal, Refused, ServerUrl, TlsDemand, TlsVersion,
    UrlFileContent, UrlPlace,
};
use ciphertoll_net::blocking::Client;
use ciphertoll_net::{Address, tls};
use ciphertoll_wire::session::Login;
use ciphertoll_wire::{Secret, mysql, postgres};

pub use self::documents::Member;

use crate::control;
use crate::error::Error;
use crate::files::{self, PRIVATE_FILE};
use crate::lab::Lab;
use crate::loading::{Watcher, load_mysql_family, load_postgres};
use crate::tables::Tables;
use crate::user::RunAs;

mod documents;

/// The database that tables are made in, and documents loaded into.
pub const DATABASE: &str = "ciphertoll";

/// How long a server may count a connection that is closed.
const ROOM_PATIENCE: Duration = Duration::from_secs(5);
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// What a server at a URL lets in: without TLS, or with a version of it.
type Way = Option<TlsVersion>;

/// What each server at a URL lets us in with, by its name. One that is not named has an empty password.
pub type Passwords = BTreeMap<String, Secret>;

/// A server that is not ours to start.
pub struct Remote {
    name: String,
    url: ServerUrl,
    version: String,
    facts: BTreeMap<String, String>,
    family: AddressFamily,
    /// The most encrypted way in.
    way: Way,
    database: Option<String>,
    password: Secret,
    password_file: PathBuf,
}

/// What was found by knocking.
pub struct Found {
    /// Which engine answered: where it is not the URL's, it is one of the same family.
    pub engine: Engine,
    /// Where it is gone to from here on: the URL with the scheme of who answered, and with the one member of its replica
    /// set that was chosen.
    pub url: ServerUrl,
    /// That member, where there was a choice.
    pub member: Option<Member>,
    /// The server's version, from its own mouth.
    pub version: String,
    /// What it does not let in.
    pub refusals: Vec<Refusal>,
    facts: BTreeMap<String, String>,
    family: AddressFamily,
    way: Way,
}

/// Fails unless every file that `url` names for TLS can be used. Sends nothing.
pub fn check_files(name: &str, url: &ServerUrl) -> Result<(), Error> {
    let certificate = url.tls.identity.as_ref().map(|identity| identity.certificate_file.as_path());
    for (option, path) in url.files() {
        let checked = match option.content {
            UrlFileContent::Authorities => tls::check_authorities(path),
            UrlFileContent::Certificate => tls::check_certificate(path),
            UrlFileContent::Key => tls::check_key(path, certificate.unwrap_or(path)),
            UrlFileContent::CertificateAndKey => {
                tls::check_certificate(path).and_then(|()| tls::check_key(path, path))
            }
        };
        checked.map_err(|source| Error::UrlFile { source, option: option.name, name: name.to_owned() })?;
    }
    Ok(())
}

/// Logs in once in every way that `url` leaves open, encrypted ones first: a certificate that does not verify ends it
/// before anything is tried without TLS, and so do files for TLS that cannot be used. What MySQL's servers remember of a login is there before the plain one, which
/// then needs no key that nobody vouches for. `name` is what the server is called. Of a replica set a member is chosen first.
pub fn knock(name: &str, url: &ServerUrl, passwords: &Passwords) -> Result<Found, Error> {
    check_files(name, url)?;
    let member = documents::discover(name, url)?;
    let url = member.as_ref().map_or(url, |member| &member.url);
    let none = Secret::new(Vec::new());
    let password = passwords.get(name).unwrap_or(&none);
    let visitor = Visitor { url, password };
    let mut found: Option<Found> = None;
    let mut refused = Vec::new();
    for way in ways(url) {
        // Plaintext was asked for only to be compared with TLS.
        if way.is_none()
            && url.tls.demand == TlsDemand::Both
            && found.is_none()
            && let Some((_, error)) = refused.first()
        {
            return Err(unreachable_server(name, error));
        }
        let answered = documents::answers_tls(url, way, refused.last().map(|(_, error)| error));
        match answered.and_then(|()| visitor.connect(way, url.database.as_deref(), None)) {
            Ok(mut client) => {
                let family = client.peer_family().unwrap_or(AddressFamily::V4);
                let (engine, version, facts) = match url.engine().query_language() {
                    QueryLanguage::Documents => documents::who_answers(name, url, &mut client)?,
                    QueryLanguage::Sql => {
                        let version = client.server().version().to_owned();
                        (who_answers(url.engine(), &version), version, BTreeMap::new())
                    }
                };
                control::close(client)?;
                let own = if engine == url.engine() { url.clone() } else { url.spoken_by(engine) };
                let (url, member, refusals) = (own, member.clone(), Vec::new());
                found.get_or_insert(Found { engine, url, member, version, refusals, facts, family, way });
            }
            Err(error) if error.is_too_many_connections() => return Err(unreachable_server(name, &error)),
            Err(error) if is_unverified(&error) => {
                return Err(unverified(name, url, error.to_string()));
            }
            Err(error @ ciphertoll_net::Error::TlsSettings(_)) => {
                return Err(Error::UrlTls { name: name.to_owned(), reason: error.to_string() });
            }
            Err(error) => refused.push((way, error)),
        }
    }
    match (found, refused.first()) {
        (Some(mut found), _) => {
            found.refusals = refused.iter().map(|(way, error)| refusal(name, *way, error)).collect();
            Ok(found)
        }
        (None, Some((_, error))) => Err(unreachable_server(name, error)),
        (None, None) => Err(Error::Unreachable { name: name.to_owned(), reason: "no way in".to_owned() }),
    }
}

/// `mysql://` is often written for a MariaDB, and both speak one protocol: their versions tell them apart.
fn who_answers(asked: Engine, version: &str) -> Engine {
    match asked {
        Engine::Postgres => Engine::Postgres,
        Engine::MariaDb | Engine::MySql if version.to_ascii_lowercase().contains("mariadb") => {
            Engine::MariaDb
        }
        Engine::MariaDb | Engine::MySql => Engine::MySql,
        Engine::MongoDb | Engine::FerretDb => asked,
    }
}

/// Every way in that the URL leaves open, the most encrypted first.
fn ways(url: &ServerUrl) -> Vec<Way> {
    let encrypted = [Some(TlsVersion::Tls13), Some(TlsVersion::Tls12)];
    match (&url.place, url.tls.demand) {
        (UrlPlace::Socket(_), _) | (_, TlsDemand::Never) => vec![None],
        (UrlPlace::Host { .. }, TlsDemand::Unsaid | TlsDemand::Both) => [&encrypted[..], &[None]].concat(),
        (UrlPlace::Host { .. }, TlsDemand::Always(_)) => encrypted.to_vec(),
    }
}

fn refusal(name: &str, way: Way, error: &ciphertoll_net::Error) -> Refusal {
    let reason = match way {
        None => format!("{name} lets nobody in without TLS: {error}"),
        Some(version) => format!("{name} does not do {version}: {error}"),
    };
    Refusal { server: name.to_owned(), what: Refused::Transport(way), reason }
}

fn unreachable_server(name: &str, error: &ciphertoll_net::Error) -> Error {
    let (name, reason) = (name.to_owned(), error.to_string());
    if error.is_wrong_password() {
        Error::WrongPassword { name, reason }
    } else {
        Error::Unreachable { name, reason }
    }
}

impl Found {
    /// Sends `statement` once, as clients of the run will.
    pub fn try_statement(&self, name: &str, passwords: &Passwords, statement: &str) -> Result<(), Error> {
        let none = Secret::new(Vec::new());
        let password = passwords.get(name).unwrap_or(&none);
        let visitor = Visitor { url: &self.url, password };
        let connected = visitor.connect(self.way, self.url.database.as_deref(), None);
        let mut client = connected.map_err(|error| unreachable_server(name, &error))?;
        client.execute(statement).map_err(|error| match error {
            ciphertoll_net::Error::Protocol(refusal) => {
                Error::Statement { name: name.to_owned(), reason: refusal.to_string() }
            }
            error => unreachable_server(name, &error),
        })?;
        control::close(client)
    }
}

/// Whether it was the client that turned away.
fn is_unverified(error: &ciphertoll_net::Error) -> bool {
    matches!(error, ciphertoll_net::Error::Tls(reason) if reason.contains("does not verify"))
}

fn unverified(name: &str, url: &ServerUrl, reason: String) -> Error {
    let [authority, mode] = tls_options(url.engine());
    Error::Unverified { name: name.to_owned(), reason, authority, mode }
}

/// What names the authority, and what asks for less.
fn tls_options(engine: Engine) -> [&'static str; 2] {
    match engine {
        Engine::Postgres => ["sslrootcert=FILE", "sslmode=verify-ca (no name) or sslmode=require (nothing)"],
        Engine::MariaDb | Engine::MySql => {
            ["ssl-ca=FILE", "ssl-mode=VERIFY_CA (no name) or ssl-mode=REQUIRED (nothing)"]
        }
        Engine::MongoDb | Engine::FerretDb => {
            ["tlsCAFile=FILE", "tlsAllowInvalidHostnames=true (no name) or tlsInsecure=true (nothing)"]
        }
    }
}

/// Who comes to a URL, with what in hand.
#[derive(Clone, Copy)]
struct Visitor<'a> {
    url: &'a ServerUrl,
    password: &'a Secret,
}

impl Visitor<'_> {
    /// Where there is no room, again for a while: a server may still count a connection that we have just closed.
    fn connect(
        self,
        way: Way,
        database: Option<&str>,
        family: Option<AddressFamily>,
    ) -> Result<Client, ciphertoll_net::Error> {
        let deadline = Instant::now() + ROOM_PATIENCE;
        loop {
            match self.connect_as(way, family, self.login(way, database)) {
                Err(error) if error.is_too_many_connections() && Instant::now() < deadline => {
                    thread::sleep(ASK_AGAIN_AFTER);
                }
                connected => return connected,
            }
        }
    }

    fn connect_as(
        self,
        way: Way,
        family: Option<AddressFamily>,
        login: Login,
    ) -> Result<Client, ciphertoll_net::Error> {
        Client::connect(&self.address(family), login, self.context(way)?.as_ref())
    }

    fn address(self, family: Option<AddressFamily>) -> Address {
        match &self.url.place {
            UrlPlace::Host { host, port } => Address::Host { name: host.clone(), port: *port, family },
            UrlPlace::Socket(path) => Address::Unix(path.clone()),
        }
    }

    fn context(self, way: Way) -> Result<Option<tls::Context>, ciphertoll_net::Error> {
        way.map(|version| tls::Context::build(&self.tls_settings(version))).transpose()
    }

    fn login(self, way: Way, database: Option<&str>) -> Login {
        let Self { url, password } = self;
        if url.engine().query_language() == QueryLanguage::Documents {
            return documents::login(url, password, way, database);
        }
        let database = database.map(ToOwned::to_owned);
        match url.engine() {
            engine @ (Engine::MariaDb | Engine::MySql) => Login::MySql(Arc::new(mysql::MySqlLogin {
                database,
                plugin: match engine {
                    Engine::MySql => mysql::Plugin::CachingSha2Password,
                    Engine::MariaDb | Engine::Postgres | Engine::MongoDb | Engine::FerretDb => {
                        mysql::Plugin::default()
                    }
                },
                encryption: if way.is_some() { mysql::MySqlTlsMode::Tls } else { mysql::MySqlTlsMode::Plain },
                transport: match &url.place {
                    UrlPlace::Host { .. } => mysql::Transport::Tcp,
                    UrlPlace::Socket(_) => mysql::Transport::UnixSocket,
                },
                ..mysql::MySqlLogin::new(&url.user, password.clone())
            })),
            Engine::Postgres => Login::Postgres(Arc::new(postgres::PostgresLogin {
                user: url.user.clone(),
                password: password.clone(),
                database,
                encryption: if way.is_some() {
                    postgres::PostgresTlsMode::Tls
                } else {
                    postgres::PostgresTlsMode::Plain
                },
                channel_binding: postgres::ChannelBinding::Preferred,
            })),
            Engine::MongoDb | Engine::FerretDb => documents::login(url, password, way, database.as_deref()),
        }
    }

    fn tls_settings(self, version: TlsVersion) -> tls::Settings {
        let Self { url, .. } = self;
        tls::Settings {
            library: tls::TlsLibrary::OpenSsl,
            version,
            verification: url.tls.verification(),
            anchors: match &url.tls.ca_file {
                Some(file) => tls::TrustAnchors::File(file.clone()),
                None => tls::TrustAnchors::System,
            },
            suite: None,
            group: None,
            security_level: tls::SecurityLevel::Default,
            resumption: tls::Resumption::Never,
            peer: tls::PeerName::from(url.host().unwrap_or_default()),
            identity: url.tls.identity.clone(),
        }
    }
}

impl Remote {
    /// Knocks, and keeps the password for load processes in a file of the lab's, 0600.
    pub fn open(lab: &Lab, name: &str, url: &ServerUrl, passwords: &Passwords) -> Result<Self, Error> {
        let Found { engine, version, facts, family, way, url: own, .. } = knock(name, url, passwords)?;
        if engine != url.engine() {
            let answers = engine.display_name();
            let reason = format!("{answers} {version} answers there, whose URL is {own}");
            return Err(Error::Unreachable { name: name.to_owned(), reason });
        }
        let none = Secret::new(Vec::new());
        let password = passwords.get(name).unwrap_or(&none);
        let password_file = lab.scratch.path().join(format!("{name}.password"));
        files::write(&password_file, password.expose(), PRIVATE_FILE, RunAs::Ourselves)?;
        let (name, url, password) = (name.to_owned(), own, password.clone());
        let database = url.database.clone();
        Ok(Self { name, url, version, facts, family, way, database, password, password_file })
    }

    /// Makes and fills `tables` in [`DATABASE`], which clients use from here on. Tables of the right size that are there
    /// already are left as they are, others of those names are made anew.
    pub fn prepare(
        &mut self,
        tables: &Tables,
        progress: &mut dyn FnMut(&str),
        stop: &dyn Fn() -> bool,
    ) -> Result<(), Error> {
        let mut watcher = Watcher { progress, stop };
        if self.url.engine().query_language() == QueryLanguage::Documents {
            if let Some(records) = tables.ycsb {
                self.prepare_documents(records, &mut watcher)?;
            }
            self.database = Some(DATABASE.to_owned());
            return Ok(());
        }
        let mut client = self.connect(self.url.database.as_deref())?;
        make_database(&mut client, self.url.engine())?;
        control::close(client)?;
        let mut client = self.connect(Some(DATABASE))?;
        if !has_tables(&mut client, self.url.engine(), tables)? {
            for table in tables.names() {
                control::execute(&mut client, "make a table anew", &format!("DROP TABLE IF EXISTS {table}"))?;
            }
            match self.url.engine() {
                Engine::MariaDb | Engine::MySql => {
                    load_mysql_family(&mut client, &self.name, tables, &mut watcher)?;
                }
                Engine::Postgres => load_postgres(&mut client, &self.name, tables, &mut watcher)?,
                // These have documents.
                Engine::MongoDb | Engine::FerretDb => {}
            }
        }
        self.database = Some(DATABASE.to_owned());
        control::close(client)
    }

    fn connect(&self, database: Option<&str>) -> Result<Client, Error> {
        let visitor = Visitor { url: &self.url, password: &self.password };
        let connected = visitor.connect(self.way, database, Some(self.family));
        connected.map_err(|source| Error::Control { doing: "log in to the server", source })
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it is.
    pub fn url(&self) -> &ServerUrl {
        &self.url
    }

    /// Its version, from its own mouth.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// What else is worth recording: of a member of a replica set, what it is there.
    pub fn facts(&self) -> &BTreeMap<String, String> {
        &self.facts
    }

    /// Where its clients connect to.
    pub fn endpoint(&self) -> Endpoint {
        match &self.url.place {
            UrlPlace::Host { host, port } => {
                Endpoint::Host { host: host.clone(), port: *port, family: self.family }
            }
            UrlPlace::Socket(path) => Endpoint::Unix(path.clone()),
        }
    }

    /// The database that its clients use; the server's own choice where absent.
    pub fn database(&self) -> Option<&str> {
        self.database.as_deref()
    }

    /// The file, 0600 and ours, whose whole content is the password.
    pub fn password_file(&self) -> &std::path::Path {
        &self.password_file
    }
}

fn make_database(client: &mut Client, engine: Engine) -> Result<(), Error> {
    let doing = "make the database ciphertoll (its user may have to be granted that)";
    match engine {
        Engine::MariaDb | Engine::MySql => {
            control::execute(client, doing, &format!("CREATE DATABASE IF NOT EXISTS {DATABASE}"))
        }
        Engine::Postgres => {
            let known = format!("SELECT 1 FROM pg_database WHERE datname = '{DATABASE}'");
            if control::query(client, doing, &known)?.is_empty() {
                control::execute(client, doing, &format!("CREATE DATABASE {DATABASE}"))?;
            }
            Ok(())
        }
        // Whoever writes to one makes it.
        Engine::MongoDb | Engine::FerretDb => Ok(()),
    }
}

/// Whether all tables are there with as many rows as they should have. pgbench's grow and shrink nowhere but in their
/// history, sysbench's transactions put back what they take.
fn has_tables(client: &mut Client, engine: Engine, tables: &Tables) -> Result<bool, Error> {
    let doing = "look for tables";
    let here = match engine {
        Engine::MariaDb | Engine::MySql => {
            format!("SELECT table_name FROM information_schema.tables WHERE table_schema = '{DATABASE}'")
        }
        Engine::Postgres => "SELECT tablename FROM pg_tables WHERE schemaname = 'public'".to_owned(),
        Engine::MongoDb | Engine::FerretDb => return Ok(false),
    };
    let here: Vec<String> = control::query(client, doing, &here)?.into_iter().flatten().collect();
    if !tables.names().all(|table| here.iter().any(|known| known == table)) {
        return Ok(false);
    }
    for (table, rows) in tables.counts() {
        let count = control::query(client, doing, &format!("SELECT COUNT(*) FROM {table}"))?;
        if count.into_iter().flatten().next() != Some(rows.to_string()) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ways_of(url: &str) -> Vec<Way> {
        ways(&url.parse().unwrap())
    }

    #[test]
    fn only_what_the_url_leaves_open_is_tried() {
        let (tls12, tls13) = (Some(TlsVersion::Tls12), Some(TlsVersion::Tls13));
        assert_eq!(ways_of("postgres://a@h"), [tls13, tls12, None]);
        assert_eq!(ways_of("postgres://a@h?sslmode=require"), [tls13, tls12]);
        assert_eq!(ways_of("postgres://a@h?sslmode=compare&sslrootcert=/ca.pem"), [tls13, tls12, None]);
        assert_eq!(ways_of("mysql://a@h?ssl-mode=DISABLED"), [None]);
        assert_eq!(ways_of("mysql://a@localhost?socket=/s"), [None]);
        assert_eq!(ways_of("mongodb://a@h"), [tls13, tls12, None]);
        assert_eq!(ways_of("mongodb://a@h/?tlsAllowInvalidHostnames=true"), [tls13, tls12]);
        assert_eq!(
            [ways_of("mongodb://h/?tls=false"), ways_of("mongodb://%2Ftmp%2Fs.sock")],
            [[None], [None]]
        );
    }

    #[test]
    fn who_answers_is_told_by_its_version() {
        let (mariadb, mysql) = (Engine::MariaDb, Engine::MySql);
        for asked in [mariadb, mysql] {
            assert_eq!(who_answers(asked, "10.11.19-MariaDB-0+deb12u1"), mariadb);
            assert_eq!(who_answers(asked, "8.0.33"), mysql);
        }
        assert_eq!(who_answers(Engine::Postgres, "15.18"), Engine::Postgres);
    }
}
