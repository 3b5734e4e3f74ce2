//! A private configuration file: everything a server of the lab is told, in a file that only it can read.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use ciphertoll_model::cache::default_buffers;
use ciphertoll_model::{Clients, Engine, SecurityLevel};

use crate::at_rest::{self, Native, Preload};
use crate::exec::{Provisions, SharedMemory};
use crate::find::Build;
use crate::lab::Lab;
use crate::postgres::{certificate_request_file, identity_map};
use crate::server::Terms;
use crate::{ferretdb, mariadb, mongodb, mysql};

/// Churning clients do not wait for the server to be done with the last connection: many times as
/// many as there are clients may still be on their way out.
const MYSQL_FAMILY_CONNECTIONS: u16 = Clients::MAX * 16;
/// A closed connection's process is gone soon, but not before the next connect may come.
const POSTGRES_CONNECTIONS: u16 = Clients::MAX * 4;
/// Threads that wait for the next connection.
const CACHED_THREADS: u16 = Clients::MAX + 50;
/// Of the socket; the kernel cuts it to `net.core.somaxconn`.
const BACKLOG: u16 = 1024;

/// What the options depend on.
pub(crate) struct Config<'a> {
    pub(crate) build: &'a Build,
    pub(crate) data: &'a Path,
    /// Where the server may put sockets and temporary files.
    pub(crate) run: &'a Path,
    pub(crate) network: Network,
    /// MariaDB and MySQL: statements that make the accounts, run before the first login. `PostgreSQL`: who
    /// may log in and how. `FerretDB`: the first account's password, where that is to be made.
    pub(crate) access: Option<&'a Path>,
    /// The OpenSSL configuration that the process reads in place of the system's.
    pub(crate) openssl: Option<&'a Path>,
    /// Whether it takes TLS versions that are forbidden today.
    pub(crate) strength: SecurityLevel,
    /// Where it may put files that it needs for a moment only.
    pub(crate) temporary: &'a Path,
    /// What it encrypts its own files with, where it does.
    pub(crate) native: Option<Native<'a>>,
    /// What encrypts its files from within its process, where that is not its own.
    pub(crate) preload: Option<&'a Preload>,
}

/// Who can reach a server by TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listen {
    /// This machine's processes.
    Loopback,
    /// Whoever is at an end of the link that its network is made for: nobody else is in there.
    Everywhere,
}

impl Listen {
    /// Where the lab's servers are.
    pub(crate) fn of(lab: &Lab) -> Self {
        if lab.network.is_some() { Self::Everywhere } else { Self::Loopback }
    }

    pub(crate) fn address(self) -> &'static str {
        match self {
            Self::Loopback => "127.0.0.1",
            Self::Everywhere => "0.0.0.0",
        }
    }
}

/// Whether and how a server listens beside its unix socket.
pub(crate) enum Network {
    /// Not at all.
    SocketOnly,
    /// On this port, with TLS from a directory and an authority of clients' certificates: for clients, and
    /// with what the user set.
    Tcp {
        listen: Listen,
        ports: Ports,
        tls: PathBuf,
        client_ca: PathBuf,
        terms: Terms,
        settings: BTreeMap<String, String>,
    },
}

/// Where a server listens for TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ports {
    /// In the clear.
    pub(crate) plain: u16,
    /// For TLS: most often the same.
    pub(crate) tls: u16,
}

/// Names the socket of a server that does not listen for TCP and whose socket has a port in its name.
const NO_PORT: u16 = 5432;

/// Where the unix socket is.
pub(crate) fn socket_path(engine: Engine, run: &Path, port: u16) -> PathBuf {
    match engine {
        Engine::MariaDb | Engine::MySql | Engine::FerretDb => run.join("socket"),
        Engine::Postgres => run.join(format!(".s.PGSQL.{port}")),
        Engine::MongoDb => run.join(format!("mongodb-{port}.sock")),
    }
}

/// File names within a directory of TLS files.
pub(crate) const CA_FILE: &str = "ca.pem";
pub(crate) const CLIENT_CA_FILE: &str = "client-ca.pem";
pub(crate) const CERTIFICATE_FILE: &str = "certificate.pem";
pub(crate) const KEY_FILE: &str = "key.pem";
/// Both in one, for who reads one only.
pub(crate) const BOTH_FILE: &str = "certificate-and-key.pem";

impl Config<'_> {
    /// The file's text; none where the server reads no file.
    pub(crate) fn text(&self) -> Option<String> {
        match self.build.engine {
            Engine::MariaDb => Some(self.mysql_family_text("mariadbd", mariadb::options(self.build))),
            Engine::MySql => Some(self.mysql_family_text("mysqld", mysql::options(self.build))),
            Engine::Postgres => Some(self.postgres_text()),
            Engine::MongoDb => Some(mongodb::config_text(self)),
            Engine::FerretDb => None,
        }
    }

    /// The server's arguments, with this text in `file`.
    pub(crate) fn arguments(&self, file: &Path) -> Vec<String> {
        let option = match self.build.engine {
            // It must be the first, or the system's own configuration is read too.
            Engine::MariaDb | Engine::MySql => "defaults-file",
            Engine::Postgres => "config-file",
            Engine::MongoDb => "config",
            Engine::FerretDb => return ferretdb::arguments(self),
        };
        vec![format!("--{option}={}", file.display())]
    }

    /// What is in the process's environment.
    pub(crate) fn environment(&self) -> BTreeMap<String, String> {
        let openssl = self.openssl.map(|file| ("OPENSSL_CONF".to_owned(), file.display().to_string()));
        let preload = self.preload.map(Preload::environment).unwrap_or_default();
        openssl.into_iter().chain(preload).collect()
    }

    /// What the process gets beside.
    pub(crate) fn provisions(&self) -> Provisions {
        match self.build.engine {
            Engine::FerretDb => ferretdb::provisions(self),
            Engine::Postgres => Provisions { shared_memory: SharedMemory::Own, ..Provisions::default() },
            Engine::MariaDb | Engine::MySql | Engine::MongoDb => Provisions::default(),
        }
    }

    /// Its unix socket.
    pub(crate) fn socket(&self) -> PathBuf {
        socket_path(self.build.engine, self.run, self.port())
    }

    /// Of its TCP, where it has one.
    pub(crate) fn port(&self) -> u16 {
        match self.network {
            Network::SocketOnly => NO_PORT,
            Network::Tcp { ports, .. } => ports.plain,
        }
    }

    /// What the user set. Of ours only those are among them that are no more than a good choice.
    fn settings(&self) -> impl Iterator<Item = (&String, &String)> {
        let settings = match &self.network {
            Network::SocketOnly => None,
            Network::Tcp { settings, .. } => Some(settings),
        };
        settings.into_iter().flatten()
    }

    /// What of TLS it takes, in the words of `PostgreSQL` (the oldest) and of MariaDB (all).
    fn tls_versions(&self) -> [&'static str; 2] {
        match (self.strength, self.build.engine) {
            // Told of versions that it does not have any more, MySQL takes none at all.
            (SecurityLevel::Default | SecurityLevel::Weak, _) | (_, Engine::MySql) => {
                ["TLSv1.2", "TLSv1.2,TLSv1.3"]
            }
            (
                SecurityLevel::Obsolete,
                Engine::MariaDb | Engine::Postgres | Engine::MongoDb | Engine::FerretDb,
            ) => ["TLSv1", "TLSv1.0,TLSv1.1,TLSv1.2,TLSv1.3"],
        }
    }

    fn is_set(&self, own: &str) -> bool {
        let own = own.replace('-', "_");
        self.settings().any(|(name, _)| *name == own)
    }

    /// MariaDB's and MySQL's; `own` is what only one of them is told.
    fn mysql_family_text(&self, section: &str, own: Vec<(&'static str, Option<String>)>) -> String {
        let mut text = format!("[{section}]\n");
        for (name, value) in self.settings() {
            // In quotes a # begins no comment; there are no quotes and no backslashes in it.
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name}=\"{value}\"");
        }
        let at_rest =
            self.native.map(|native| at_rest::options(self.build.engine, native)).unwrap_or_default();
        for (name, value) in own.into_iter().chain(at_rest).chain(self.mysql_family_options()) {
            if self.is_set(name) {
                continue;
            }
            // Writing to a string cannot fail.
            let _ = match value {
                Some(value) => writeln!(text, "{name}={value}"),
                None => writeln!(text, "{name}"),
            };
        }
        text
    }

    fn postgres_text(&self) -> String {
        let mut text = String::new();
        let options = self.postgres_options();
        let own = options.iter().map(|(name, value)| (*name, value)).filter(|(name, _)| !self.is_set(name));
        // Ours come last, and of two the last one counts.
        let all = self.settings().map(|(name, value)| (name.as_str(), value)).chain(own);
        for (name, value) in all {
            let value = value.replace('\\', "\\\\").replace('\'', "''");
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name} = '{value}'");
        }
        text
    }

    fn postgres_options(&self) -> Vec<(&'static str, String)> {
        let path = |path: &Path| path.display().to_string();
        let own_rules = self.data.join("pg_hba.conf");
        let access = self.access.unwrap_or(&own_rules);
        let mut options = vec![
            ("data_directory", path(self.data)),
            ("hba_file", path(access)),
            ("ident_file", path(&identity_map(access))),
            ("unix_socket_directories", path(self.run)),
            ("external_pid_file", path(&self.run.join("pid"))),
            ("port", self.port().to_string()),
            ("max_connections", POSTGRES_CONNECTIONS.to_string()),
            ("password_encryption", "scram-sha-256".to_owned()),
        ];
        // Those that scales are relative to.
        options.extend(default_buffers(Engine::Postgres).map(|(name, value)| (name, value.to_owned())));
        match &self.network {
            Network::SocketOnly => options.push(("listen_addresses", String::new())),
            Network::Tcp { listen, tls, .. } => options.extend([
                ("listen_addresses", listen.address().to_owned()),
                ("ssl", "on".to_owned()),
                ("ssl_cert_file", path(&tls.join(CERTIFICATE_FILE))),
                ("ssl_key_file", path(&tls.join(KEY_FILE))),
                ("ssl_min_protocol_version", self.tls_versions()[0].to_owned()),
                // Comes and goes while the server runs.
                ("include_if_exists", path(&certificate_request_file(access))),
            ]),
        }
        options
    }

    fn mysql_family_options(&self) -> Vec<(&'static str, Option<String>)> {
        let path = |path: &Path| Some(path.display().to_string());
        let mut options = vec![
            ("datadir", path(self.data)),
            ("tmpdir", path(self.temporary)),
            ("socket", path(&self.socket())),
            ("pid-file", path(&self.run.join("pid"))),
            ("skip-name-resolve", None),
            ("skip-log-bin", None),
            // Never reads what it was not asked to.
            ("local-infile", Some("OFF".to_owned())),
            ("max_connections", Some(MYSQL_FAMILY_CONNECTIONS.to_string())),
            ("thread_cache_size", Some(CACHED_THREADS.to_string())),
            ("back_log", Some(BACKLOG.to_string())),
            // The most there is: a bulk read's answer is one packet to its limit.
            ("max_allowed_packet", Some("1G".to_owned())),
            ("performance_schema", Some("OFF".to_owned())),
            // A trial must not depend on what the buffers held when the template was made.
            ("innodb_buffer_pool_dump_at_shutdown", Some("OFF".to_owned())),
            ("innodb_buffer_pool_load_at_startup", Some("OFF".to_owned())),
        ];
        // Those that scales are relative to.
        options
            .extend(default_buffers(self.build.engine).map(|(name, value)| (name, Some(value.to_owned()))));
        if let Some(access) = self.access {
            options.push(("init-file", path(access)));
        }
        match &self.network {
            Network::SocketOnly => options.push(("skip-networking", None)),
            Network::Tcp { listen, ports, tls, client_ca, .. } => options.extend([
                ("bind-address", Some(listen.address().to_owned())),
                ("port", Some(ports.plain.to_string())),
                ("ssl-ca", path(client_ca)),
                ("ssl-cert", path(&tls.join(CERTIFICATE_FILE))),
                ("ssl-key", path(&tls.join(KEY_FILE))),
                ("tls_version", Some(self.tls_versions()[1].to_owned())),
            ]),
        }
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{Admission, CertificateRequest};

    fn text(engine: Engine, settings: &[(&str, &str)]) -> String {
        told(engine, settings, Terms::default(), |config| config.text().unwrap())
    }

    fn told<T>(
        engine: Engine,
        settings: &[(&str, &str)],
        terms: Terms,
        ask: impl FnOnce(&Config<'_>) -> T,
    ) -> T {
        let build = Build {
            engine,
            version: "1.2".to_owned(),
            server_program: PathBuf::from("/build/server"),
            install_program: PathBuf::from("/build/install"),
            base_directory: PathBuf::from("/build"),
        };
        let settings = settings.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        let (tls, client_ca) = (PathBuf::from("/tls"), PathBuf::from("/client-ca"));
        let (listen, ports) = (Listen::Loopback, Ports { plain: 4711, tls: 4712 });
        let network = Network::Tcp { listen, ports, tls, client_ca, terms, settings };
        let (data, run, access) = (Path::new("/data"), Path::new("/run"), Some(Path::new("/access/file")));
        let (openssl, strength) = (None, SecurityLevel::Default);
        let (temporary, native, preload) = (run, None, None);
        ask(&Config {
            build: &build,
            data,
            run,
            network,
            access,
            openssl,
            strength,
            temporary,
            native,
            preload,
        })
    }

    #[test]
    fn a_mongod_is_told_in_its_file() {
        let of = |request, admission| -> serde_json::Value {
            let terms = Terms { request, admission };
            serde_json::from_str(&told(Engine::MongoDb, &[], terms, |config| config.text().unwrap())).unwrap()
        };
        let file = of(CertificateRequest::Omitted, Admission::Accounts);
        assert_eq!(file["net"]["bindIp"], "127.0.0.1");
        assert_eq!(file["net"]["port"], 4711);
        assert_eq!(file["net"]["tls"]["mode"], "preferTLS");
        assert_eq!(file["net"]["tls"]["certificateKeyFile"], "/tls/certificate-and-key.pem");
        assert_eq!(file["net"]["tls"]["allowConnectionsWithoutCertificates"], true);
        assert_eq!(file["security"]["authorization"], "enabled");
        let mutual = of(CertificateRequest::Sent, Admission::Everybody);
        assert_eq!(mutual["net"]["tls"]["allowConnectionsWithoutCertificates"], false);
        assert_eq!(mutual["security"]["authorization"], "disabled");
    }

    #[test]
    fn a_ferretdb_is_told_all_but_its_password_in_arguments() {
        let arguments = |request, admission| {
            let terms = Terms { request, admission };
            told(Engine::FerretDb, &[], terms, |config| config.arguments(Path::new("/file"))).join(" ")
        };
        assert_eq!(
            arguments(CertificateRequest::Omitted, Admission::Accounts),
            "--handler=sqlite --log-level=ERROR --telemetry=disable --debug-addr=- --sqlite-url=file:/data/ \
             --state-dir=/run --listen-unix=/run/socket --listen-addr=127.0.0.1:4711 \
             --listen-tls=127.0.0.1:4712 --listen-tls-cert-file=/tls/certificate.pem \
             --listen-tls-key-file=/tls/key.pem --test-enable-new-auth \
             --setup-username=ciphertoll_control --setup-database=admin"
        );
        let mutual = arguments(CertificateRequest::Sent, Admission::Everybody);
        assert!(mutual.contains("--listen-tls-ca-file=/client-ca") && !mutual.contains("auth"), "{mutual}");
        let secrets = told(Engine::FerretDb, &[], Terms::default(), |config| config.provisions().secrets);
        assert_eq!(secrets["FERRETDB_SETUP_PASSWORD"], Path::new("/access/file"));
    }

    #[test]
    fn what_the_user_sets_comes_first_and_replaces_a_choice_of_ours() {
        let postgres = text(Engine::Postgres, &[("shared_buffers", "1GB"), ("work_mem", "8MB")]);
        assert!(postgres.starts_with("shared_buffers = '1GB'\nwork_mem = '8MB'\n"), "{postgres}");
        assert_eq!(postgres.matches("shared_buffers").count(), 1, "{postgres}");
        assert!(postgres.contains("\nport = '4711'\n"), "{postgres}");
        let mariadb = text(Engine::MariaDb, &[("innodb_buffer_pool_size", "64M")]);
        assert!(mariadb.starts_with("[mariadbd]\ninnodb_buffer_pool_size=\"64M\"\nbasedir="), "{mariadb}");
        assert_eq!(mariadb.matches("innodb_buffer_pool_size").count(), 1, "{mariadb}");
        let mysql = text(Engine::MySql, &[("innodb_buffer_pool_size", "64M")]);
        assert!(mysql.starts_with("[mysqld]\ninnodb_buffer_pool_size=\"64M\"\nbasedir="), "{mysql}");
        assert_eq!(mysql.matches("innodb_buffer_pool_size").count(), 1, "{mysql}");
    }

    #[test]
    fn no_server_is_told_what_it_does_not_know() {
        let (mariadb, mysql) = (text(Engine::MariaDb, &[]), text(Engine::MySql, &[]));
        for option in ["mysqlx", "auto_generate_certs", "secure-file-priv"] {
            assert!(mysql.contains(option) && !mariadb.contains(option), "{option}");
        }
        assert!(mariadb.contains("feedback") && !mysql.contains("feedback"));
    }

    #[test]
    fn a_value_stays_on_its_line_and_in_its_quotes() {
        let postgres = text(Engine::Postgres, &[("application_name", r"it's \' # odd")]);
        assert!(postgres.starts_with("application_name = 'it''s \\\\'' # odd'\n"), "{postgres}");
        let mariadb = text(Engine::MariaDb, &[("init_connect", "SET @a = 1 # odd")]);
        assert!(mariadb.contains("\ninit_connect=\"SET @a = 1 # odd\"\n"), "{mariadb}");
    }
}
