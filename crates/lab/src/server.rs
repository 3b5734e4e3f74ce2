//! A server of the lab's own: private data, private accounts, fresh certificates. What is the same for
//! every engine is here, the rest in the engine's own module.

mod arrivals;
mod counters;
mod loading;
mod resting;
mod settings;
mod settling;
mod starting;
mod syncs;

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ciphertoll_model::{
    AtRest, Auth, Endpoint, Engine, Identity, Link, LinkShape, Path as NetworkPath, QueryLanguage,
    SecurityLevel, ServerKey, Settings, TlsPath, TlsVersion,
};
use ciphertoll_record::{ProcessEnd, Scratch};
use ciphertoll_wire::Secret;

use crate::accounting::CpuMeter;
use crate::at_rest::Layer;
use crate::certificates::Authorities;
use crate::config::{CA_FILE, Listen, Ports, socket_path};
use crate::control::Control;
use crate::credentials::{Credentials, ServerCertificate};
use crate::error::{Context, Error};
use crate::files;
use crate::find::Build;
use crate::hex::hex;
use crate::lab::Lab;
use crate::place::Place;
use crate::process::ServerProcess;
use crate::tables::Tables;
use crate::template::Template;
use crate::tls_support::{self, Answerer};
use crate::user::RunAs;
use crate::{documents, ferretdb, mariadb, mongodb, mysql, mysql_family, postgres, rows};

use self::starting::Recipe;

pub(crate) use arrivals::Encryption;
pub use arrivals::{Arrivals, Watcher};
pub use counters::Counters;
pub use syncs::SyncTimes;

const PASSWORD_BYTES: usize = 24;

/// What to start.
pub struct Start<'a> {
    /// The build.
    pub build: &'a Build,
    /// What it begins with.
    pub template: &'a Template,
    /// Tells the servers of a run apart; short, as it is part of a socket's path.
    pub name: &'a str,
    /// The first certificate's key.
    pub key: ServerKey,
    /// Where the server's log goes.
    pub log: PathBuf,
    /// Tried before any other.
    pub preferred_port: Option<u16>,
    /// The processors that it keeps to, as [`crate::processors_apart`] gives them; all, where absent.
    pub processors: Option<Vec<u16>>,
    /// Whether it takes keys that its OpenSSL finds too weak by default.
    pub strength: SecurityLevel,
}

/// Who a client logs in as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The account's name.
    pub user: String,
    /// The file, 0600 and ours, whose whole content is its password; empty where it has none.
    pub password_file: PathBuf,
    /// What its clients show of themselves, where the account demands it.
    pub identity: Option<Identity>,
}

/// A running server. Ended, and its files removed, when dropped, in this order.
pub struct Server {
    process: ServerProcess,
    /// What its files lie in, where that is mounted.
    layer: Option<Layer>,
    at_rest: AtRest,
    engine: Engine,
    /// Of the build: `10.11.19`.
    release: String,
    tables: Tables,
    control: Control,
    place: Place,
    recipe: Recipe,
    ports: Ports,
    listens: Listen,
    installed: ServerCertificate,
    about: About,
    unmet_settings: Vec<String>,
    /// Names of the accounts that there are for clients.
    accounts: Vec<String>,
    terms: Terms,
    authorities: Arc<Authorities>,
    run_as: RunAs,
    /// The server's files lie in it.
    _scratch: Arc<Scratch>,
}

/// What all that come must put up with, where it is not the account that says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) request: CertificateRequest,
    pub(crate) admission: Admission,
}

/// Whether the server asks clients for a certificate in the handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CertificateRequest {
    /// It does.
    Sent,
    /// It does not.
    #[default]
    Omitted,
}

/// Whom a server of documents lets in: it has no accounts without a password.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Who has an account.
    #[default]
    Accounts,
    /// Everybody who can reach it.
    Everybody,
}

/// A setting that the server was started with, and that is not what it runs with.
pub(crate) struct Unmet {
    pub(crate) name: String,
    /// What it has instead; none where it has no such setting.
    pub(crate) value: Option<String>,
}

/// What the server says of itself.
pub(crate) struct About {
    pub(crate) version: String,
    pub(crate) tls_library: Option<String>,
    pub(crate) settings: BTreeMap<String, String>,
}

impl Server {
    pub(crate) fn start(lab: &Lab, start: &Start<'_>) -> Result<Self, Error> {
        Self::start_with(lab, start, &Settings::default())
    }

    /// As [`Lab::start`], with those of `settings` that are for this engine. Whether each took effect is in
    /// [`Self::unmet_settings`]; a server that does not start with them is [`Error::Died`], with its log.
    pub fn start_with(lab: &Lab, start: &Start<'_>, settings: &Settings) -> Result<Self, Error> {
        let place = Place::make(lab, start.name, start.template.at_rest, resting::room(lab, start)?)?;
        let engine = start.build.engine;
        let layer = resting::lay(lab, start, &place)?;
        place.write_authorities(&lab.authorities)?;
        let installed = ServerCertificate::from(start.key);
        place.write_certificate(&lab.authorities.servers, installed, lab.run_as)?;
        place.point_to(installed)?;
        let password = generate_password()?;
        place.write_passwords(&password)?;
        let access = match engine {
            Engine::MariaDb => {
                let statements = mariadb::account_statements(&password);
                mysql_family::write_accounts(&place, &statements, lab.run_as)?
            }
            Engine::MySql => {
                let statements = mysql::account_statements(&password)?;
                mysql_family::write_accounts(&place, &statements, lab.run_as)?
            }
            Engine::Postgres => postgres::write_access_rules(&place, lab.run_as)?,
            Engine::MongoDb | Engine::FerretDb => place.password.clone(),
        };
        let settings = settings.of(engine);
        let recipe = Recipe::of(lab, start, &place, &settings)?;
        let (process, control, ports) = recipe.start_on_a_free_port(start, &place, &access, &password)?;
        if engine.is_mysql_family() {
            fs::remove_file(&access).context("remove", &access)?;
        }
        let about = match engine {
            Engine::MariaDb => mariadb::ask(&control, &place.root)?,
            Engine::MySql => mysql::ask(&control, &place.root, start.build)?,
            Engine::Postgres => postgres::ask(&control)?,
            Engine::MongoDb => mongodb::ask(&control)?,
            Engine::FerretDb => ferretdb::ask(&control, start.build)?,
        };
        let mut server = Self {
            process,
            layer,
            at_rest: start.template.at_rest,
            engine,
            release: start.build.version.clone(),
            tables: start.template.tables,
            control,
            place,
            recipe,
            ports,
            listens: Listen::of(lab),
            installed,
            about,
            unmet_settings: Vec::new(),
            accounts: Vec::new(),
            terms: Terms::default(),
            authorities: Arc::clone(&lab.authorities),
            run_as: lab.run_as,
            _scratch: Arc::clone(&lab.scratch),
        };
        server.unmet_settings = server.compare_settings(&settings)?;
        if matches!(server.at_rest, AtRest::Tde(_)) {
            // A loader that cannot preload something goes on without it.
            server.check_at_rest()?;
        }
        server.prepare_auth(Auth::default_of(engine))?;
        Ok(server)
    }

    /// The account whose clients show this; it is there once [`Self::prepare_auth`] has made it.
    pub fn account(&self, credentials: impl Into<Credentials>) -> Account {
        let credentials = credentials.into();
        let password_file = match credentials.auth {
            Auth::Trust | Auth::Cert => &self.place.no_password,
            Auth::Scram { .. }
            | Auth::ScramSha1
            | Auth::Md5
            | Auth::Native
            | Auth::CachingSha2
            | Auth::Ed25519
            | Auth::Parsec
            | Auth::AsAsked => &self.place.password,
        };
        let user = account_name(self.engine, credentials);
        let identity = credentials.need_a_certificate().then(|| self.place.client_identity(&user));
        Account { user, password_file: password_file.clone(), identity }
    }

    /// Makes the account for what clients show if it is not there yet; the default one always is. Where the server
    /// cannot do it, that is [`Error::AuthUnavailable`].
    ///
    /// To be called before each use of an account, not only the first: from here on `PostgreSQL` asks clients for a
    /// certificate if the account demands one, and does not if it does not, since the request is a part of the
    /// handshake that the others must not pay for. `MongoDB` and `FerretDB` do the same, and for [`Auth::Trust`] let
    /// everybody in: each time they are started again, see [`Self::install_certificate`]. MariaDB and MySQL ask every
    /// client in any case, whether or not they are told of an authority. MySQL may have forgotten whom it let in by
    /// [`Auth::CachingSha2`], whose next login would be a longer one.
    pub fn prepare_auth(&mut self, credentials: impl Into<Credentials>) -> Result<(), Error> {
        let credentials = credentials.into();
        self.check_possible(credentials.auth)?;
        self.come_to_terms(credentials)?;
        let user = account_name(self.engine, credentials);
        if !self.accounts.contains(&user) {
            if credentials.need_a_certificate() {
                self.place.write_client_identity(&self.authorities.clients, &user)?;
            }
            let password = self.place.read_password()?;
            let (control, name) = (&self.control, self.name());
            match self.engine {
                Engine::MariaDb => mariadb::make_account(control, credentials, &password, &name)?,
                Engine::MySql => mysql::make_account(control, credentials, &password, &name)?,
                Engine::Postgres => postgres::make_role(control, credentials, &password)?,
                // Nobody asks who they are.
                Engine::MongoDb | Engine::FerretDb if credentials.auth == Auth::Trust => {}
                Engine::MongoDb => mongodb::make_account(control, credentials, &password)?,
                Engine::FerretDb => ferretdb::make_account(control, credentials, &password)?,
            }
            self.accounts.push(user);
        }
        if self.engine == Engine::MySql && credentials.auth == Auth::CachingSha2 {
            self.can_be_visited(credentials)?;
            let visit = mysql::Visit {
                socket: socket_path(self.engine, &self.place.run, self.ports.plain),
                address: SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports.plain)),
                account: self.account(credentials),
                ca_file: self.ca_file(),
            };
            mysql::warm(visit, self.place.read_password()?)?;
        }
        Ok(())
    }

    /// Makes ready what the path says: the certificate, which may take a second or more. Fails where the server or
    /// this machine's TLS library cannot do it, with the reason.
    pub fn prepare_tls(&self, path: TlsPath) -> Result<(), Error> {
        let answerer =
            Answerer { engine: self.engine, release: &self.release, tls_library: self.tls_library() };
        tls_support::check(path, answerer)?;
        self.prepare_certificate(path.into())
    }

    /// Over TLS, as whether the path has it is not for us to say.
    fn check_possible(&self, auth: Auth) -> Result<(), Error> {
        let tls = NetworkPath::tls(TlsVersion::Tls13, ServerKey::P256);
        match auth.impossible(self.engine, tls) {
            Some(reason) => Err(Error::AuthUnavailable { auth: auth.to_string(), reason }),
            None => match self.engine {
                Engine::MariaDb => mariadb::check_release(auth, &self.release),
                Engine::MySql => mysql::check_release(auth, &self.release),
                Engine::Postgres => Ok(()),
                Engine::MongoDb => mongodb::check_release(auth, &self.release),
                Engine::FerretDb => ferretdb::check_release(auth, &self.release),
            },
        }
    }

    /// Fails where the account can be warmed by TCP only, and the server is in another network than we are.
    fn can_be_visited(&self, credentials: Credentials) -> Result<(), Error> {
        if credentials.need_a_certificate() && self.listens == Listen::Everywhere {
            let (auth, link) = (credentials.auth.to_string(), "a made link");
            let reason = format!("with a client certificate it cannot be got ready behind {link}");
            return Err(Error::AuthUnavailable { auth, reason });
        }
        Ok(())
    }

    fn come_to_terms(&mut self, credentials: Credentials) -> Result<(), Error> {
        let request = if credentials.need_a_certificate() {
            CertificateRequest::Sent
        } else {
            CertificateRequest::Omitted
        };
        let admission = match (self.engine.query_language(), credentials.auth) {
            (QueryLanguage::Documents, Auth::Trust) => Admission::Everybody,
            _ => Admission::Accounts,
        };
        let wanted = Terms { request, admission };
        if self.terms == wanted {
            return Ok(());
        }
        match self.engine {
            Engine::MariaDb | Engine::MySql => return Ok(()),
            Engine::Postgres => postgres::request_certificates(&self.control, &self.place, wanted.request)?,
            Engine::MongoDb | Engine::FerretDb => {
                self.recipe.terms = wanted;
                self.control = match wanted.admission {
                    Admission::Accounts => {
                        self.control.as_account(documents::CONTROL_USER, self.place.read_password()?)
                    }
                    Admission::Everybody => self.control.as_nobody(),
                };
                self.start_again()?;
            }
        }
        self.terms = wanted;
        Ok(())
    }

    /// `MariaDB 10.11.19`
    fn name(&self) -> String {
        format!("{} {}", self.engine.display_name(), self.release)
    }

    /// What its CPU time is read from.
    pub fn cpu_meter(&self) -> CpuMeter {
        self.process.cpu_meter()
    }

    /// The one process whose resident memory is the server's; none where a server is many processes.
    pub fn memory_pid(&self) -> Option<i32> {
        match self.engine {
            Engine::MariaDb | Engine::MySql | Engine::MongoDb | Engine::FerretDb => Some(self.pid()),
            Engine::Postgres => None,
        }
    }

    /// Its tables.
    pub fn tables(&self) -> Tables {
        self.tables
    }

    /// Its engine.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// Makes a certificate, which may take seconds, so that it is there before the clock starts.
    fn prepare_certificate(&self, certificate: ServerCertificate) -> Result<(), Error> {
        self.place.write_certificate(&self.authorities.servers, certificate, self.run_as)
    }

    /// Makes the server use this certificate from the next connection on, without doing anything where it is in use
    /// already; without a restart where the server can do that. One that cannot (`FerretDB`) comes back on the same data
    /// and ports as another process: what [`Self::pid`] and [`Self::cpu_meter`] said before is over.
    pub fn install_certificate(&mut self, certificate: impl Into<ServerCertificate>) -> Result<(), Error> {
        let certificate = certificate.into();
        if self.installed == certificate {
            return Ok(());
        }
        self.prepare_certificate(certificate)?;
        self.place.point_to(certificate)?;
        match self.engine {
            Engine::MariaDb => mariadb::reload_certificate(&self.control)?,
            Engine::MySql => mysql::reload_certificate(&self.control)?,
            Engine::Postgres => postgres::reload(&self.control)?,
            Engine::MongoDb if mongodb::rotates(&self.release) => mongodb::reload_certificate(&self.control)?,
            Engine::MongoDb | Engine::FerretDb => self.start_again()?,
        }
        self.installed = certificate;
        Ok(())
    }

    /// Ends the server and starts it on the same data and ports; warm, as it was.
    fn start_again(&mut self) -> Result<(), Error> {
        self.process.stop()?;
        self.process = self.recipe.start_again(&self.place, self.ports, &self.control)?;
        self.prewarm()
    }

    /// Reads all tables and their indexes until none of their pages comes from disk any more, or a pass brings no fewer
    /// than the one before: then they do not fit. Of a `FerretDB`, which leaves that to the system, its files.
    pub fn prewarm(&self) -> Result<(), Error> {
        match self.engine {
            Engine::MariaDb | Engine::MySql => mysql_family::prewarm(&self.control, &self.tables),
            Engine::Postgres => postgres::prewarm(&self.control, &self.tables),
            Engine::MongoDb if self.tables.ycsb.is_none() => Ok(()),
            Engine::MongoDb => documents::prewarm(&self.control),
            Engine::FerretDb => files::read_directory(&self.place.data),
        }
    }

    /// Pages that were read from disk so far because the server's own buffers did not have them. On
    /// `PostgreSQL`: of tables and indexes; what connections count that are still open may come up to
    /// ten seconds late. `None` where the server does not tell: `FerretDB` has no buffers of its own.
    pub fn buffer_misses(&self) -> Result<Option<u64>, Error> {
        match self.engine {
            Engine::MariaDb | Engine::MySql => mysql_family::buffer_misses(&self.control).map(Some),
            Engine::Postgres => postgres::buffer_misses(&self.control).map(Some),
            Engine::MongoDb => documents::buffer_misses(&self.control),
            Engine::FerretDb => Ok(None),
        }
    }

    /// Ends the server in an orderly way if it lets itself, and removes its files.
    pub fn stop(mut self) -> Result<ProcessEnd, Error> {
        let ended = self.process.stop()?;
        if let Some(layer) = &mut self.layer {
            layer.unmount()?;
        }
        self.place.remove()?;
        Ok(ended)
    }

    /// Whether it still runs.
    pub fn is_alive(&mut self) -> bool {
        self.process.child.ended().is_none()
    }

    /// Fails with how it ended and what its log says, if it does not run any more.
    pub fn check_alive(&mut self) -> Result<(), Error> {
        match self.process.child.ended() {
            Some(status) => Err(self.process.child.died(status)),
            None => self.check_layer(),
        }
    }

    /// As [`Self::check_alive`] where something else speaks of its death already: a killed server closes
    /// its sockets some milliseconds before it has ended.
    pub fn check_survived(&mut self) -> Result<(), Error> {
        const DYING: std::time::Duration = std::time::Duration::from_secs(2);
        match self.process.child.wait(DYING)? {
            Some(status) => Err(self.process.child.died(status)),
            None => self.check_layer(),
        }
    }

    /// Its process id; of the postmaster, where it has many.
    pub fn pid(&self) -> i32 {
        self.process.child.pid()
    }

    /// Its version, from its own mouth.
    pub fn version(&self) -> &str {
        &self.about.version
    }

    /// Its TLS library, where it tells.
    pub fn tls_library(&self) -> Option<&str> {
        self.about.tls_library.as_deref()
    }

    /// Settings that differ from its defaults; paths within the scratch directory are left out.
    pub fn settings(&self) -> &BTreeMap<String, String> {
        &self.about.settings
    }

    /// Where it listens for TCP: with TLS, too, but for a `FerretDB`, which has [`Self::tls_endpoint`] for that.
    pub fn tcp_endpoint(&self) -> Endpoint {
        self.endpoint_over(Link::Local)
    }

    /// Where it listens for TLS: most often where it does without.
    pub fn tls_endpoint(&self) -> Endpoint {
        self.tls_endpoint_over(Link::Local)
    }

    /// As [`Self::tcp_endpoint`], as its clients get there over a link; to be there it must have been started in a link's
    /// network.
    pub fn endpoint_over(&self, link: Link) -> Endpoint {
        Self::at(link, self.ports.plain)
    }

    /// The same of [`Self::tls_endpoint`].
    pub fn tls_endpoint_over(&self, link: Link) -> Endpoint {
        Self::at(link, self.ports.tls)
    }

    fn at(link: Link, port: u16) -> Endpoint {
        let [long, short] = ciphertoll_link::SERVER;
        let address = match link {
            Link::Local | Link::AsIs => Ipv4Addr::LOCALHOST,
            Link::Emulated(shape) if shape == LinkShape::of_rtt_us(0) => short,
            Link::Emulated(_) => long,
        };
        Endpoint::Tcp(SocketAddr::from((address, port)))
    }

    /// The port that it listens on for TCP.
    pub(crate) fn port(&self) -> u16 {
        self.ports.plain
    }

    /// Its unix socket.
    pub fn unix_endpoint(&self) -> Endpoint {
        Endpoint::Unix(socket_path(self.engine, &self.place.run, self.ports.plain))
    }

    /// The name of the account for the engine's default authentication.
    pub fn user(&self) -> &'static str {
        match self.engine {
            Engine::MariaDb | Engine::MySql => mysql_family::USER,
            Engine::Postgres => postgres::DEFAULT_ROLE,
            Engine::MongoDb | Engine::FerretDb => documents::USER,
        }
    }

    /// The file, 0600 and ours, whose whole content is that account's password.
    pub fn password_file(&self) -> &Path {
        &self.place.password
    }

    /// The database with the rows.
    pub fn database(&self) -> &'static str {
        match self.engine.query_language() {
            QueryLanguage::Sql => rows::SCHEMA,
            QueryLanguage::Documents => documents::DATABASE,
        }
    }

    /// The authority that signed its certificates, for clients to trust.
    pub fn ca_file(&self) -> PathBuf {
        self.place.root.join(CA_FILE)
    }

    /// The address on loopback that its certificates carry; they carry those of links, too.
    pub fn server_name(&self) -> &'static str {
        "127.0.0.1"
    }
}

fn account_name(engine: Engine, credentials: Credentials) -> String {
    match engine {
        Engine::MariaDb => mariadb::account_name(credentials),
        Engine::MySql => mysql::account_name(credentials),
        Engine::Postgres => postgres::role_name(credentials),
        Engine::MongoDb | Engine::FerretDb => documents::account_name(credentials),
    }
}

fn generate_password() -> Result<Secret, Error> {
    let mut bytes = [0; PASSWORD_BYTES];
    openssl::rand::rand_bytes(&mut bytes)?;
    Ok(Secret::new(hex(&bytes).into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_long_and_differ() {
        let (one, other) = (generate_password().unwrap(), generate_password().unwrap());
        assert!(one.expose().len() >= 2 * PASSWORD_BYTES && one.expose() != other.expose());
    }
}
