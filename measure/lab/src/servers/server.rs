//! A running private server: its data, its accounts, its certificates.

mod at_rest;
pub(crate) mod connections;
mod documents;
pub(crate) mod syncs;

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ciphertoll_host::accounting::CpuMeter;
use ciphertoll_host::hex::hex;
use ciphertoll_model::{
    AtRest, Auth, Endpoint, Engine, Link, LinkShape, Path as NetworkPath, QueryLanguage, ServerKey, Settings,
    TlsPath, TlsVersion,
};
use ciphertoll_record::Context;
use ciphertoll_record::ProcessEnd;
use ciphertoll_wire::Secret;

use crate::at_rest::mount::EncryptedMount;
use crate::datasets::sysbench;
use crate::datasets::tables::Tables;
use crate::documents::commands::{CONTROL_USER, DATABASE};
use crate::error::Error;
use crate::servers::config::{AccessControl, CertificateRequest, ClientRequirements, ListenPorts};
use crate::servers::control::ControlLogin;
use crate::servers::counters::Counters;
use crate::servers::directory::ServerDirectory;
use crate::servers::engine::{Change, PreparedLogin, ServerDescription, ServerEngine, UnmetSetting};
use crate::servers::engines;
use crate::servers::launch::{LaunchPlan, ServerStart};
use crate::servers::process::ServerProcess;
use crate::servers::stored_files;
use crate::tls::credentials::ClientAccount;
use crate::tls::credentials::{Credentials, ServerCertificate};
use crate::tls::support::{self, TlsServer};
use crate::workspace::Workspace;

const PASSWORD_BYTES: usize = 24;

/// A running server. On drop, it is ended and its files are removed, in the order of the fields.
pub struct Server {
    process: ServerProcess,
    /// The file system that encrypts its files, if there is one.
    mount: Option<Box<dyn EncryptedMount>>,
    at_rest: AtRest,
    tables: Tables,
    control: ControlLogin,
    directory: ServerDirectory,
    ports: ListenPorts,
    certificate: ServerCertificate,
    description: ServerDescription,
    unmet_settings: Vec<String>,
    accounts: Vec<String>,
    /// The access rules that the server reads at each start.
    access: Option<PathBuf>,
    /// Last: it owns the scratch directory of the other fields.
    plan: LaunchPlan,
}

impl Server {
    /// Starts a server with those of `settings` that are for its engine. [`Self::unmet_settings`] lists the settings that did
    /// not take effect. If the server does not start with them, the error is [`ciphertoll_host::Error::Died`] with its log.
    pub(crate) fn start(
        workspace: &Workspace,
        start: &ServerStart<'_>,
        settings: &Settings,
    ) -> Result<Self, Error> {
        let space = stored_files::tmpfs_bytes(workspace, start)?;
        let directory = ServerDirectory::create(workspace, start.name, start.template.at_rest, space)?;
        let engine = engines::of(start.build.engine);
        let mount = stored_files::copy_template(workspace, start, &directory)?;
        directory.write_authorities(&workspace.authorities)?;
        let certificate = ServerCertificate::from(start.key);
        directory.write_certificate(&workspace.authorities.servers, certificate, workspace.run_as)?;
        directory.select_certificate(certificate)?;
        let password = generate_password()?;
        directory.write_passwords(&password)?;
        let access = engine.write_access(&directory, &password, workspace.run_as)?;
        let settings = settings.of(start.build.engine);
        let plan = LaunchPlan::prepare(workspace, start, &directory, &settings)?;
        let (process, control, ports) = plan.start_on_a_free_port(start, &directory, &access, &password)?;
        if engine.properties().reads_access_once {
            fs::remove_file(&access).context("remove", &access)?;
        }
        let description = engine.describe(&control, &directory.root, start.build)?;
        let mut server = Self {
            process,
            mount,
            at_rest: start.template.at_rest,
            tables: start.template.tables,
            control,
            directory,
            ports,
            certificate,
            description,
            unmet_settings: Vec::new(),
            accounts: Vec::new(),
            // The others have the accounts in their data.
            access: (start.build.engine == Engine::Postgres).then_some(access),
            plan,
        };
        server.unmet_settings = server.compare_settings(&settings)?;
        if matches!(server.at_rest, AtRest::Tde(_)) {
            // The dynamic loader ignores a library that it cannot preload.
            server.check_at_rest()?;
        }
        server.prepare_auth(Auth::default_of(start.build.engine))?;
        Ok(server)
    }

    /// The account for these credentials, which [`Self::prepare_auth`] creates.
    pub fn account(&self, credentials: impl Into<Credentials>) -> ClientAccount {
        let credentials = credentials.into();
        let password_file = match credentials.auth {
            Auth::Trust | Auth::Cert => &self.directory.no_password,
            Auth::Scram { .. }
            | Auth::ScramSha1
            | Auth::Md5
            | Auth::Native
            | Auth::CachingSha2
            | Auth::Ed25519
            | Auth::Parsec
            | Auth::AsAsked => &self.directory.password,
        };
        let user = self.plan.engine.account_name(credentials);
        let identity = credentials.require_certificate().then(|| self.directory.client_identity(&user));
        ClientAccount { user, password_file: password_file.clone(), identity }
    }

    /// Prepares the server for these credentials, and creates their account unless it exists. The account of the default
    /// authentication always exists. If the server does not support it, the error is [`Error::AuthUnavailable`].
    ///
    /// Call it before each use of an account, not only the first. PostgreSQL, MongoDB and FerretDB request a client
    /// certificate only if the account requires one, because the request is a part of the handshake that other accounts must
    /// not pay for; MariaDB and MySQL request one always. MongoDB and FerretDB disable access control for [`Auth::Trust`].
    /// Both changes restart MongoDB and FerretDB; see [`Self::install_certificate`]. MySQL gets its password cache warmed for
    /// [`Auth::CachingSha2`].
    pub fn prepare_auth(&mut self, credentials: impl Into<Credentials>) -> Result<(), Error> {
        let credentials = credentials.into();
        self.check_auth(credentials.auth)?;
        self.apply_requirements(credentials)?;
        let user = self.plan.engine.account_name(credentials);
        if !self.accounts.contains(&user) {
            if credentials.require_certificate() {
                self.directory.write_client_identity(&self.plan.workspace.authorities.clients, &user)?;
            }
            let password = self.directory.read_password()?;
            self.plan.engine.create_account(
                &self.control,
                credentials,
                &password,
                &self.plan.build.name(),
            )?;
            self.accounts.push(user);
        }
        self.plan.engine.prepare_login(PreparedLogin {
            credentials,
            account: self.account(credentials),
            password: self.directory.read_password()?,
            socket: self.socket_path(),
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports.plain)),
            listen: self.plan.listen,
            ca_file: &self.ca_file(),
        })
    }

    /// Creates the certificate of the path, which may take a second or more. Fails with the reason if the server or this
    /// machine's TLS library does not support the path.
    pub fn prepare_tls(&self, path: TlsPath) -> Result<(), Error> {
        support::check_client(path)?;
        let (name, release) = (&self.plan.build.name(), self.plan.build.version.as_str());
        let server = TlsServer { name, release, tls_library: self.tls_library() };
        support::check_release(path, self.engine(), server)?;
        self.plan.engine.check_tls(path, server)?;
        self.prepare_certificate(path.into())
    }

    /// Checks the authentication over TLS: the caller decides whether the path has it.
    fn check_auth(&self, auth: Auth) -> Result<(), Error> {
        let tls = NetworkPath::tls(TlsVersion::Tls13, ServerKey::P256);
        match auth.impossible(self.engine(), tls) {
            Some(reason) => Err(Error::AuthUnavailable { auth: auth.to_string(), reason }),
            None => self.plan.engine.check_auth(auth, &self.plan.build.version),
        }
    }

    fn apply_requirements(&mut self, credentials: Credentials) -> Result<(), Error> {
        let certificate = if credentials.require_certificate() {
            CertificateRequest::Sent
        } else {
            CertificateRequest::Omitted
        };
        let access = match (self.engine().query_language(), credentials.auth) {
            (QueryLanguage::Documents, Auth::Trust) => AccessControl::Disabled,
            _ => AccessControl::Accounts,
        };
        let required = ClientRequirements { certificate, access };
        if self.plan.requirements == required {
            return Ok(());
        }
        match self.plan.engine.apply_requirements(&self.control, &self.directory, required)? {
            Change::NotApplicable => {}
            Change::Applied => self.plan.requirements = required,
            Change::NeedsRestart => {
                self.control = match access {
                    AccessControl::Accounts => {
                        self.control.as_account(CONTROL_USER, self.directory.read_password()?)
                    }
                    AccessControl::Disabled => self.control.without_account(),
                };
                let before = std::mem::replace(&mut self.plan.requirements, required);
                if let Err(error) = self.restart() {
                    // The next call must try again.
                    self.plan.requirements = before;
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    pub fn cpu_meter(&self) -> CpuMeter {
        self.process.cpu_meter()
    }

    /// The process whose resident memory is the server's; `None` for a server of several processes.
    pub fn memory_pid(&self) -> Option<i32> {
        self.process.is_single().then(|| self.pid())
    }

    pub fn tables(&self) -> Tables {
        self.tables
    }

    pub fn engine(&self) -> Engine {
        self.plan.build.engine
    }

    pub(crate) fn server_engine(&self) -> &'static dyn ServerEngine {
        self.plan.engine
    }

    fn prepare_certificate(&self, certificate: ServerCertificate) -> Result<(), Error> {
        let Workspace { authorities, run_as, .. } = &self.plan.workspace;
        self.directory.write_certificate(&authorities.servers, certificate, *run_as)
    }

    /// Makes the server use this certificate from the next connection on; does nothing if it is in use. A server that cannot
    /// reload its certificate (FerretDB) restarts on the same data and ports; [`Self::pid`] and [`Self::cpu_meter`] change.
    pub fn install_certificate(&mut self, certificate: impl Into<ServerCertificate>) -> Result<(), Error> {
        let certificate = certificate.into();
        if self.certificate == certificate {
            return Ok(());
        }
        self.prepare_certificate(certificate)?;
        self.directory.select_certificate(certificate)?;
        match self.plan.engine.reload_certificate(&self.control, &self.plan.build.version)? {
            Change::Applied | Change::NotApplicable => {}
            Change::NeedsRestart => self.restart()?,
        }
        self.certificate = certificate;
        Ok(())
    }

    /// Restarts the server on the same data and ports, and reads its data into the buffers again.
    pub fn restart(&mut self) -> Result<(), Error> {
        self.process.stop()?;
        let access = self.access.as_deref();
        self.process = self.plan.start_again(&self.directory, self.ports, access, &self.control)?;
        self.prewarm()
    }

    /// Reads all tables and indexes until none of their pages comes from disk, or until a pass reads as many pages as the one
    /// before, because they do not fit. For FerretDB, which relies on the page cache, reads its files.
    pub fn prewarm(&self) -> Result<(), Error> {
        self.plan.engine.prewarm(&self.control, &self.tables, &self.directory.data)
    }

    /// Pages read from disk because the server's buffers did not contain them. PostgreSQL counts pages of tables and indexes
    /// only; counts of open connections may be up to ten seconds late. `None` if the server does not report it: FerretDB has
    /// no buffers.
    pub fn buffer_misses(&self) -> Result<Option<u64>, Error> {
        self.plan.engine.buffer_misses(&self.control)
    }

    /// Writes out changed pages, which the server would otherwise do during a measurement.
    pub fn write_out(&self) -> Result<(), Error> {
        self.plan.engine.write_out(&self.control, &self.tables)
    }

    /// Removes dead rows and index bloat (PostgreSQL) and pgbench's history (all SQL engines), as pgbench does at its start.
    pub fn refresh(&self) -> Result<(), Error> {
        self.plan.engine.refresh(&self.control, &self.tables)
    }

    /// Reads the counters of pages, log and checkpoints. On PostgreSQL, it waits for closed connections, because they publish
    /// their counters when they end.
    pub fn counters(&self) -> Result<Counters, Error> {
        self.plan.engine.counters(&self.control)
    }

    /// Shuts the server down and removes its files.
    pub fn stop(mut self) -> Result<ProcessEnd, Error> {
        let ended = self.process.stop()?;
        if let Some(mount) = &mut self.mount {
            mount.unmount()?;
        }
        self.directory.remove()?;
        Ok(ended)
    }

    pub fn is_alive(&mut self) -> bool {
        self.process.child.ended().is_none()
    }

    /// Fails if the server is stopped (SIGSTOP), and with its exit status and the end of its log if it has ended.
    pub fn check_alive(&mut self) -> Result<(), Error> {
        self.process.child.check()?;
        self.check_mount()
    }

    /// Like [`Self::check_alive`], after a sign of the server's end: a killed server closes its sockets some milliseconds
    /// before it has ended.
    pub fn check_survived(&mut self) -> Result<(), Error> {
        const ENDING_LIMIT: Duration = Duration::from_secs(2);
        self.process.child.wait(ENDING_LIMIT)?;
        self.check_alive()
    }

    /// The process id; of the postmaster for PostgreSQL.
    pub fn pid(&self) -> i32 {
        self.process.child.pid()
    }

    pub fn version(&self) -> &str {
        &self.description.version
    }

    pub fn tls_library(&self) -> Option<&str> {
        self.description.tls_library.as_deref()
    }

    /// Settings that differ from the defaults, except paths in the scratch directory.
    pub fn settings(&self) -> &BTreeMap<String, String> {
        &self.description.settings
    }

    /// A sentence for each requested setting that did not take effect.
    pub fn unmet_settings(&self) -> &[String] {
        &self.unmet_settings
    }

    fn compare_settings(&self, requested: &BTreeMap<String, String>) -> Result<Vec<String>, Error> {
        if requested.is_empty() {
            return Ok(Vec::new());
        }
        let unmet = self.plan.engine.unmet_settings(&self.control, requested)?;
        let sentence = |UnmetSetting { name, value }: UnmetSetting| {
            let (setting, server) = (format!("{}.{name}", self.engine()), self.plan.build.name());
            match value {
                Some(value) => format!(
                    "{setting}={} did not take effect: {server} has {value:?}",
                    requested.get(&name).map_or("", String::as_str),
                ),
                None => format!("{setting} took no effect: {server} has no such variable"),
            }
        };
        Ok(unmet.into_iter().map(sentence).collect())
    }

    /// The TCP address; it also accepts TLS, except for FerretDB, which has [`Self::tls_endpoint`] for it.
    pub fn tcp_endpoint(&self) -> Endpoint {
        self.endpoint_over(Link::Local)
    }

    /// The TCP address for TLS, which equals [`Self::tcp_endpoint`] for most engines.
    pub fn tls_endpoint(&self) -> Endpoint {
        self.tls_endpoint_over(Link::Local)
    }

    /// [`Self::tcp_endpoint`] as clients reach it over a link; the server must have been started in the link's network.
    pub fn endpoint_over(&self, link: Link) -> Endpoint {
        Self::at(link, self.ports.plain)
    }

    /// [`Self::tls_endpoint`] over a link.
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

    pub(crate) fn port(&self) -> u16 {
        self.ports.plain
    }

    fn socket_path(&self) -> PathBuf {
        self.plan.engine.socket_path(&self.directory.run, self.ports.plain)
    }

    pub fn unix_endpoint(&self) -> Endpoint {
        Endpoint::Unix(self.socket_path())
    }

    /// The account of the engine's default authentication.
    pub fn user(&self) -> &'static str {
        self.plan.engine.properties().default_user
    }

    /// A private file (0600) whose whole content is that account's password.
    pub fn password_file(&self) -> &Path {
        &self.directory.password
    }

    pub fn database(&self) -> &'static str {
        match self.engine().query_language() {
            QueryLanguage::Sql => sysbench::SCHEMA,
            QueryLanguage::Documents => DATABASE,
        }
    }

    pub fn ca_file(&self) -> PathBuf {
        self.directory.ca_file(self.certificate)
    }

    /// The loopback address in its certificates, which also contain the addresses of links.
    pub fn server_name(&self) -> &'static str {
        "127.0.0.1"
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
    fn passwords_are_long_and_random() {
        let (one, other) = (generate_password().unwrap(), generate_password().unwrap());
        assert!(one.expose().len() >= 2 * PASSWORD_BYTES && one.expose() != other.expose());
    }
}
