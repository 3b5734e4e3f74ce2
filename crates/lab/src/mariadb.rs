//! A MariaDB server of the lab's own: private data, private account, fresh certificates.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ciphertoll_model::{Endpoint, ServerKey};
use ciphertoll_net::blocking::Client;
use ciphertoll_record::{Ended, Scratch};
use ciphertoll_wire::Secret;
use sha1::{Digest, Sha1};

use crate::certificates::Authority;
use crate::config::{CA_FILE, CERTIFICATE_FILE, Config, KEY_FILE, Network, socket_path};
use crate::control::{self, Control};
use crate::error::{Context, Error};
use crate::files::{self, PRIVATE_DIRECTORY, PRIVATE_FILE, PUBLIC_FILE};
use crate::find::Build;
use crate::hex::hex;
use crate::lab::Lab;
use crate::port::free_port;
use crate::process::ServerProcess;
use crate::rows;
use crate::template::Template;
use crate::user::RunAs;

/// The account that control connections and clients log in with.
const USER: &str = "ciphertoll";
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

/// A running server. Killed, and its files removed, when dropped, in this order.
pub struct MariaDb {
    process: ServerProcess,
    control: Control,
    place: Place,
    port: u16,
    installed: ServerKey,
    about: About,
    /// The server's files lie in it.
    _scratch: Arc<Scratch>,
}

/// Where a server's files are; gone when dropped. Only `data` and `run` can be written to by the
/// server's user, so that it can put nothing in our way.
struct Place {
    root: PathBuf,
    data: PathBuf,
    run: PathBuf,
    tls: PathBuf,
    password: PathBuf,
}

/// What the server says of itself.
struct About {
    version: String,
    tls_library: Option<String>,
    settings: BTreeMap<String, String>,
}

impl MariaDb {
    pub(crate) fn start(lab: &Lab, start: &Start<'_>) -> Result<Self, Error> {
        let place = Place::make(lab, start.name)?;
        files::copy_directory(&start.template.path, &place.data, lab.run_as)?;
        place.write_certificates(&lab.authority, lab.run_as)?;
        place.point_to(start.key)?;
        let password = generate_password()?;
        files::write(&place.password, password.expose(), PRIVATE_FILE, RunAs::Ourselves)?;
        let init_file = place.root.join("init.sql");
        files::write(&init_file, account_statements(&password).as_bytes(), PRIVATE_FILE, lab.run_as)?;
        let control = Control::new(&socket_path(&place.run), USER, password);
        let (process, port) = start_on_a_free_port(lab, start, &place, &init_file, &control)?;
        fs::remove_file(&init_file).context("remove", &init_file)?;
        let about = About::ask(&control, &place.root)?;
        let scratch = Arc::clone(&lab.scratch);
        Ok(Self { process, control, place, port, installed: start.key, about, _scratch: scratch })
    }

    /// Makes the server use the certificate with this key from the next connection on; without a
    /// restart, and without doing anything where it is in use already.
    pub fn install_certificate(&mut self, key: ServerKey) -> Result<(), Error> {
        if self.installed == key {
            return Ok(());
        }
        self.place.point_to(key)?;
        let mut client = self.control.connect()?;
        control::execute(&mut client, "make the server read its certificate", "FLUSH SSL")?;
        self.installed = key;
        Ok(())
    }

    /// Reads all rows until none of their pages comes from disk any more, or a pass brings no fewer
    /// than the one before: then they do not fit.
    pub fn prewarm(&self) -> Result<(), Error> {
        let mut client = self.control.connect()?;
        let mut fewest = u64::MAX;
        loop {
            let before = buffer_misses(&mut client)?;
            control::execute(&mut client, "read all rows once", rows::READ_ALL)?;
            let misses = buffer_misses(&mut client)?.saturating_sub(before);
            if misses == 0 || misses >= fewest {
                return Ok(());
            }
            fewest = misses;
        }
    }

    /// Pages read from disk so far because the buffer pool did not have them.
    pub fn buffer_misses(&self) -> Result<u64, Error> {
        buffer_misses(&mut self.control.connect()?)
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

    /// Its process id.
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
        Endpoint::Unix(socket_path(&self.place.run))
    }

    /// The account's name.
    pub fn user(&self) -> &'static str {
        USER
    }

    /// The file, 0600 and ours, whose whole content is the account's password.
    pub fn password_file(&self) -> &Path {
        &self.place.password
    }

    /// The schema with the rows.
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

impl About {
    fn ask(control: &Control, scratch: &Path) -> Result<Self, Error> {
        let doing = "ask the server about itself";
        let mut client = control.connect()?;
        let identity = control::query(&mut client, doing, "SELECT VERSION(), @@version_ssl_library")?;
        let mut identity = identity.into_iter().flatten();
        let version = identity.next().unwrap_or_default();
        let tls_library =
            identity.next().map(|library| library.trim().to_owned()).filter(|library| !library.is_empty());
        let changed = "SELECT LOWER(variable_name), global_value FROM information_schema.system_variables \
             WHERE global_value_origin IN ('CONFIG', 'COMMAND-LINE') AND global_value <> default_value";
        let scratch = scratch.display().to_string();
        let mut settings = BTreeMap::new();
        for row in control::query(&mut client, doing, changed)? {
            if let [name, value] = <[String; 2]>::try_from(row).unwrap_or_default()
                && !value.starts_with(&scratch)
            {
                settings.insert(name, value);
            }
        }
        Ok(Self { version, tls_library, settings })
    }
}

fn buffer_misses(client: &mut Client) -> Result<u64, Error> {
    let sql = "SELECT variable_value FROM information_schema.global_status \
         WHERE variable_name = 'INNODB_BUFFER_POOL_READS'";
    let rows = control::query(client, "read the server's counters", sql)?;
    let value = rows.into_iter().flatten().next().and_then(|value| value.parse().ok());
    value.ok_or(Error::NoCounter("Innodb_buffer_pool_reads"))
}

/// Between our look at a port and the server's bind somebody else may take it.
fn start_on_a_free_port(
    lab: &Lab,
    start: &Start<'_>,
    place: &Place,
    init_file: &Path,
    control: &Control,
) -> Result<(ServerProcess, u16), Error> {
    let what = format!("MariaDB {}", start.build.version);
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
            init_file: Some(init_file),
        };
        let config_file = place.root.join(format!("my-{port}.cnf"));
        let log = start.log.clone();
        match ServerProcess::start(&lab.surroundings(), what.clone(), &config, &config_file, log, control) {
            Err(Error::Died { log_end, .. }) if says_port_taken(&log_end) => {}
            started => return Ok((started?, port)),
        }
    }
    Err(Error::PortsTaken { what, tried })
}

fn says_port_taken(log_end: &str) -> bool {
    log_end.contains("Bind on TCP/IP port") || log_end.contains("another mysqld server running on port")
}

fn generate_password() -> Result<Secret, Error> {
    let mut bytes = [0; PASSWORD_BYTES];
    openssl::rand::rand_bytes(&mut bytes)?;
    Ok(Secret::new(hex(&bytes).into_bytes()))
}

/// One statement a line. The password itself is in none of them, only what the server stores of it.
fn account_statements(password: &Secret) -> String {
    let stored = Sha1::digest(Sha1::digest(password.expose()));
    let hash = hex(&stored).to_ascii_uppercase();
    format!(
        "CREATE USER '{USER}'@'%' IDENTIFIED VIA mysql_native_password USING '*{hash}';\n\
         GRANT RELOAD ON *.* TO '{USER}'@'%';\n\
         GRANT ALL ON {}.* TO '{USER}'@'%';\n",
        rows::SCHEMA
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_is_made_of_the_hash_only() {
        let statements = account_statements(&Secret::new(b"hunter2".to_vec()));
        // SELECT PASSWORD('hunter2')
        assert!(statements.contains("'*58815970BE77B3720276F63DB198B1FA42E5CC02'"), "{statements}");
        assert!(!statements.contains("hunter2"));
    }

    #[test]
    fn passwords_are_long_and_differ() {
        let (one, other) = (generate_password().unwrap(), generate_password().unwrap());
        assert!(one.expose().len() >= 2 * PASSWORD_BYTES && one.expose() != other.expose());
    }
}
