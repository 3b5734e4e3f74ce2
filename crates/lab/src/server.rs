//! A server of the lab's own: private data, private accounts, fresh certificates. What is the same for
//! every engine is here, the rest in the engine's own module.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ciphertoll_model::{Auth, Endpoint, Engine, ServerKey};
use ciphertoll_record::{Ended, Scratch};
use ciphertoll_wire::Secret;

use crate::accounting::CpuMeter;
use crate::certificates::Authority;
use crate::config::{CA_FILE, CERTIFICATE_FILE, Config, KEY_FILE, Network, socket_path};
use crate::control::Control;
use crate::error::{Context, Error};
use crate::files::{self, PRIVATE_DIRECTORY, PRIVATE_FILE, PUBLIC_FILE};
use crate::find::Build;
use crate::hex::hex;
use crate::lab::Lab;
use crate::port::free_port;
use crate::process::ServerProcess;
use crate::template::Template;
use crate::user::RunAs;
use crate::{mariadb, postgres, rows};

const PASSWORD_BYTES: usize = 24;
const MOST_PORTS: usize = 5;
/// Others pass through to their own directories in it, and see none of the names.
const PASS_THROUGH: u32 = 0o711;
/// Points to the directory of the certificate in use.
const CURRENT: &str = "current";

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
}

/// Who a client logs in as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The account's name.
    pub user: String,
    /// The file, 0600 and ours, whose whole content is its password.
    pub password_file: PathBuf,
}

/// A running server. Ended, and its files removed, when dropped, in this order.
pub struct Server {
    process: ServerProcess,
    engine: Engine,
    control: Control,
    place: Place,
    port: u16,
    installed: ServerKey,
    about: About,
    /// Names of the accounts that there are for clients.
    accounts: Vec<String>,
    /// The server's files lie in it.
    _scratch: Arc<Scratch>,
}

/// Where a server's files are; gone when dropped. Only `data` and `run` can be written to by the
/// server's user, so that it can put nothing in our way.
pub(crate) struct Place {
    pub(crate) root: PathBuf,
    data: PathBuf,
    run: PathBuf,
    tls: PathBuf,
    password: PathBuf,
    no_password: PathBuf,
}

/// What the server says of itself.
pub(crate) struct About {
    pub(crate) version: String,
    pub(crate) tls_library: Option<String>,
    pub(crate) settings: BTreeMap<String, String>,
}

impl Server {
    pub(crate) fn start(lab: &Lab, start: &Start<'_>) -> Result<Self, Error> {
        let place = Place::make(lab, start.name)?;
        files::copy_directory(&start.template.path, &place.data, lab.run_as)?;
        place.write_certificates(&lab.authority, lab.run_as)?;
        place.point_to(start.key)?;
        let password = generate_password()?;
        files::write(&place.password, password.expose(), PRIVATE_FILE, RunAs::Ourselves)?;
        files::write(&place.no_password, &[], PRIVATE_FILE, RunAs::Ourselves)?;
        let engine = start.build.engine;
        let access = match engine {
            Engine::MariaDb => mariadb::write_accounts(&place, &password, lab.run_as)?,
            Engine::Postgres => postgres::write_access_rules(&place, lab.run_as)?,
        };
        let (process, control, port) = start_on_a_free_port(lab, start, &place, &access, &password)?;
        let about = match engine {
            Engine::MariaDb => {
                fs::remove_file(&access).context("remove", &access)?;
                mariadb::ask(&control, &place.root)?
            }
            Engine::Postgres => postgres::ask(&control)?,
        };
        let (installed, scratch) = (start.key, Arc::clone(&lab.scratch));
        let accounts = Vec::new();
        let mut server =
            Self { process, engine, control, place, port, installed, about, accounts, _scratch: scratch };
        server.prepare_auth(Auth::default_of(engine))?;
        Ok(server)
    }

    /// The account whose clients authenticate like this; it is there once [`Self::prepare_auth`] has
    /// made it.
    pub fn account(&self, auth: Auth) -> Account {
        let user = match self.engine {
            Engine::MariaDb => mariadb::account_name(auth).to_owned(),
            Engine::Postgres => postgres::role_name(auth),
        };
        let password_file = if auth == Auth::Trust { &self.place.no_password } else { &self.place.password };
        Account { user, password_file: password_file.clone() }
    }

    /// Makes the account for `auth` if it is not there yet. The default one always is.
    pub fn prepare_auth(&mut self, auth: Auth) -> Result<(), Error> {
        if self.engine == Engine::MariaDb {
            mariadb::check(auth)?;
        }
        let user = self.account(auth).user;
        if self.accounts.contains(&user) {
            return Ok(());
        }
        match self.engine {
            Engine::MariaDb => mariadb::make_account(&self.control, auth)?,
            Engine::Postgres => {
                let password = fs::read(&self.place.password).context("read", &self.place.password)?;
                postgres::make_role(&self.control, auth, &Secret::new(password))?;
            }
        }
        self.accounts.push(user);
        Ok(())
    }

    /// What its CPU time is read from.
    pub fn cpu_meter(&self) -> CpuMeter {
        self.process.cpu_meter()
    }

    /// The one process whose resident memory is the server's; none where a server is many processes.
    pub fn memory_pid(&self) -> Option<i32> {
        match self.engine {
            Engine::MariaDb => Some(self.pid()),
            Engine::Postgres => None,
        }
    }

    /// Its engine.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// Makes the server use the certificate with this key from the next connection on; without a
    /// restart, and without doing anything where it is in use already.
    pub fn install_certificate(&mut self, key: ServerKey) -> Result<(), Error> {
        if self.installed == key {
            return Ok(());
        }
        self.place.point_to(key)?;
        match self.engine {
            Engine::MariaDb => mariadb::reload_certificate(&self.control)?,
            Engine::Postgres => postgres::reload_certificate(&self.control)?,
        }
        self.installed = key;
        Ok(())
    }

    /// Reads all rows until none of their pages comes from disk any more, or a pass brings no fewer
    /// than the one before: then they do not fit.
    pub fn prewarm(&self) -> Result<(), Error> {
        match self.engine {
            Engine::MariaDb => mariadb::prewarm(&self.control),
            Engine::Postgres => postgres::prewarm(&self.control),
        }
    }

    /// Pages that were read from disk so far because the server's own buffers did not have them. On
    /// `PostgreSQL`: of tables and indexes; what connections count that are still open may come up to
    /// ten seconds late.
    pub fn buffer_misses(&self) -> Result<u64, Error> {
        match self.engine {
            Engine::MariaDb => mariadb::buffer_misses(&self.control),
            Engine::Postgres => postgres::buffer_misses(&self.control),
        }
    }

    /// Ends the server in an orderly way if it lets itself, and removes its files.
    pub fn stop(mut self) -> Result<Ended, Error> {
        let ended = self.process.stop()?;
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
            None => Ok(()),
        }
    }

    /// As [`Self::check_alive`] where something else speaks of its death already: a killed server closes
    /// its sockets some milliseconds before it has ended.
    pub fn check_survived(&mut self) -> Result<(), Error> {
        const DYING: std::time::Duration = std::time::Duration::from_millis(500);
        match self.process.child.wait(DYING)? {
            Some(status) => Err(self.process.child.died(status)),
            None => Ok(()),
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

    /// Where it listens for TCP, with and without TLS.
    pub fn tcp_endpoint(&self) -> Endpoint {
        Endpoint::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)))
    }

    /// Its unix socket.
    pub fn unix_endpoint(&self) -> Endpoint {
        Endpoint::Unix(socket_path(self.engine, &self.place.run, self.port))
    }

    /// The name of the account for the engine's default authentication.
    pub fn user(&self) -> &'static str {
        match self.engine {
            Engine::MariaDb => mariadb::USER,
            Engine::Postgres => postgres::DEFAULT_ROLE,
        }
    }

    /// The file, 0600 and ours, whose whole content is that account's password.
    pub fn password_file(&self) -> &Path {
        &self.place.password
    }

    /// The database with the rows.
    pub fn database(&self) -> &'static str {
        rows::SCHEMA
    }

    /// The authority that signed its certificates, for clients to trust.
    pub fn ca_file(&self) -> PathBuf {
        self.place.root.join(CA_FILE)
    }

    /// The address that its certificates carry.
    pub fn server_name(&self) -> &'static str {
        "127.0.0.1"
    }
}

impl Place {
    fn make(lab: &Lab, name: &str) -> Result<Self, Error> {
        let mode = if lab.run_as == RunAs::Ourselves { PRIVATE_DIRECTORY } else { PASS_THROUGH };
        let root = lab.scratch.make_directory(name, mode)?;
        let place = Self {
            data: root.join("data"),
            run: root.join("run"),
            tls: root.join("tls"),
            password: root.join("password"),
            no_password: root.join("no-password"),
            root,
        };
        files::make_directory(&place.run, PRIVATE_DIRECTORY, lab.run_as)?;
        files::make_directory(&place.tls, mode, RunAs::Ourselves)?;
        Ok(place)
    }

    /// A directory for each kind of key.
    fn write_certificates(&self, authority: &Authority, run_as: RunAs) -> Result<(), Error> {
        let ca = authority.certificate_pem()?;
        files::write(&self.root.join(CA_FILE), &ca, PUBLIC_FILE, RunAs::Ourselves)?;
        for key in ServerKey::ALL {
            let certificate = authority.issue(key)?;
            let directory = self.tls.join(key.label());
            files::make_directory(&directory, PRIVATE_DIRECTORY, run_as)?;
            files::write(&directory.join(CA_FILE), &ca, PUBLIC_FILE, run_as)?;
            files::write(
                &directory.join(CERTIFICATE_FILE),
                &certificate.certificate_pem,
                PUBLIC_FILE,
                run_as,
            )?;
            files::write(&directory.join(KEY_FILE), &certificate.key_pem, PRIVATE_FILE, run_as)?;
        }
        Ok(())
    }

    fn remove(&self) -> Result<(), Error> {
        fs::remove_dir_all(&self.root).context("remove", &self.root)
    }

    /// Swaps certificate and key in one step: a server that reads them meanwhile sees no mixed pair.
    fn point_to(&self, key: ServerKey) -> Result<(), Error> {
        let next = self.tls.join("next");
        symlink(key.label(), &next).context("make", &next)?;
        fs::rename(&next, self.tls.join(CURRENT)).context("swap", &next)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What cannot be removed now goes with the scratch directory.
        let _ = self.remove();
    }
}

/// Between our look at a port and the server's bind somebody else may take it.
fn start_on_a_free_port(
    lab: &Lab,
    start: &Start<'_>,
    place: &Place,
    access: &Path,
    password: &Secret,
) -> Result<(ServerProcess, Control, u16), Error> {
    let engine = start.build.engine;
    let what = format!("{} {}", engine.display_name(), start.build.version);
    let mut tried = Vec::new();
    while tried.len() < MOST_PORTS {
        let preferred = start.preferred_port.filter(|_| tried.is_empty());
        let Some(port) = preferred.or_else(|| free_port(&tried)) else { break };
        tried.push(port);
        let config = Config {
            build: start.build,
            data: &place.data,
            run: &place.run,
            network: Network::Loopback { port, tls: place.tls.join(CURRENT) },
            access: Some(access),
        };
        let control = match engine {
            Engine::MariaDb => Control::mariadb(&config.socket(), mariadb::CONTROL_USER, password.clone()),
            Engine::Postgres => Control::postgres(&config.socket(), postgres::CONTROL_ROLE, rows::SCHEMA),
        };
        let config_file = place.root.join(format!("{}-{port}.conf", engine.label()));
        let log = start.log.clone();
        match ServerProcess::start(&lab.surroundings(), what.clone(), &config, &config_file, log, &control) {
            Err(Error::Died { log_end, .. }) if says_port_taken(&log_end) => {}
            started => return Ok((started?, control, port)),
        }
    }
    Err(Error::PortsTaken { what, tried })
}

fn says_port_taken(log_end: &str) -> bool {
    [mariadb::PORT_TAKEN, postgres::PORT_TAKEN].concat().iter().any(|words| log_end.contains(words))
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
