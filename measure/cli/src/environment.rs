//! How a client program connects to a server of the lab: environment variables, and the files they name.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::Path;

use ciphertoll_model::{Endpoint, Engine, TlsSpec, TlsStart, TlsVersion, TrialSpec};

const OPTION_FILE: &str = "my.cnf";
const PASSWORD_FILE: &str = "pgpass";

/// The connection settings of a client program.
pub(crate) struct ClientEnvironment<'a> {
    pub(crate) client: &'a TrialSpec,
    pub(crate) password: &'a str,
    /// The private directory of [`Self::files`].
    pub(crate) directory: &'a Path,
}

impl ClientEnvironment<'_> {
    /// Names and contents of the files with the password and the options that are not environment variables.
    pub(crate) fn files(&self) -> Vec<(&'static str, String)> {
        match self.client.engine {
            Engine::MariaDb | Engine::MySql => vec![(OPTION_FILE, self.option_file())],
            Engine::Postgres => vec![(PASSWORD_FILE, self.password_file())],
            Engine::MongoDb | Engine::FerretDb => Vec::new(),
        }
    }

    /// The variables of the engine's own clients, and `CIPHERTOLL_…` for scripts.
    pub(crate) fn variables(&self) -> Vec<(&'static str, OsString)> {
        let of_engine = match self.client.engine {
            Engine::MariaDb | Engine::MySql => self.mysql_variables(),
            Engine::Postgres => self.postgres_variables(),
            // Their clients take a URL.
            Engine::MongoDb | Engine::FerretDb => Vec::new(),
        };
        let authority = self.client.tls.as_ref().and_then(|tls| tls.ca_file.clone());
        let common = [
            Some(("CIPHERTOLL_URL", self.url().into())),
            Some(("CIPHERTOLL_PASSWORD", self.password.into())),
            authority.map(|file| ("CIPHERTOLL_CA", file.into())),
        ];
        of_engine.into_iter().chain(common.into_iter().flatten()).collect()
    }

    /// A name or an IP address, with a port; or the path of a socket.
    fn address(&self) -> (String, Option<u16>) {
        match &self.client.endpoint {
            Endpoint::Tcp(address) => (address.ip().to_string(), Some(address.port())),
            Endpoint::Host { host, port, .. } => (host.clone(), Some(*port)),
            Endpoint::Unix(path) => (path.display().to_string(), None),
        }
    }

    /// Host and port for libpq: of a socket its directory, and the end of its name.
    fn postgres_address(&self) -> (String, String) {
        match self.address() {
            (host, Some(port)) => (host, port.to_string()),
            (socket, None) => {
                let directory = Path::new(&socket).parent().unwrap_or(Path::new("")).display().to_string();
                (directory, socket.rsplit('.').next().unwrap_or_default().to_owned())
            }
        }
    }

    fn database(&self) -> &str {
        self.client.database.as_deref().unwrap_or_default()
    }

    /// In the option syntax of the engine's own clients. `loose-` makes other clients ignore an option.
    fn option_file(&self) -> String {
        let mut text = format!("[client]\nuser={}\n", self.client.user);
        // Writing to a string cannot fail.
        if !self.password.is_empty() {
            let _ = writeln!(text, "password=\"{}\"", self.password);
        }
        let _ = match self.address() {
            (host, Some(port)) => writeln!(text, "protocol=tcp\nhost={host}\nport={port}"),
            (socket, None) => writeln!(text, "protocol=socket\nsocket={socket}"),
        };
        let [without, verified] = match self.client.engine {
            Engine::MySql => ["loose-ssl-mode=DISABLED", "loose-ssl-mode=VERIFY_IDENTITY"],
            Engine::MariaDb | Engine::Postgres | Engine::MongoDb | Engine::FerretDb => {
                ["loose-skip-ssl", "loose-ssl-verify-server-cert"]
            }
        };
        match &self.client.tls {
            None => {
                let _ = writeln!(text, "{without}");
            }
            Some(tls) => {
                let authority = tls.ca_file.as_deref().unwrap_or(Path::new("")).display();
                let _ = writeln!(text, "ssl-ca={authority}\n{verified}\ntls-version={}", version(tls));
                if let Some(identity) = &tls.identity {
                    let (certificate, key) =
                        (identity.certificate_file.display(), identity.key_file.display());
                    let _ = writeln!(text, "ssl-cert={certificate}\nssl-key={key}");
                }
            }
        }
        text
    }

    fn mysql_variables(&self) -> Vec<(&'static str, OsString)> {
        let option_file = self.directory.join(OPTION_FILE);
        let mut variables =
            vec![("MYSQL_HOME", self.directory.into()), ("CIPHERTOLL_OPTION_FILE", option_file.into())];
        match self.address() {
            (socket, None) => variables.push(("MYSQL_UNIX_PORT", socket.into())),
            (host, Some(port)) => {
                variables.extend([("MYSQL_HOST", host.into()), ("MYSQL_TCP_PORT", port.to_string().into())]);
            }
        }
        variables
    }

    /// `host:port:database:user:password`, each with any colon and backslash escaped (libpq, "The Password File").
    fn password_file(&self) -> String {
        let escaped = |text: &str| text.replace('\\', "\\\\").replace(':', "\\:");
        format!("*:*:*:{}:{}\n", escaped(&self.client.user), escaped(self.password))
    }

    fn postgres_variables(&self) -> Vec<(&'static str, OsString)> {
        let (host, port) = self.postgres_address();
        let mut variables: Vec<(&'static str, OsString)> = vec![
            ("PGHOST", host.into()),
            ("PGPORT", port.into()),
            ("PGUSER", self.client.user.clone().into()),
            ("PGDATABASE", self.database().into()),
            ("PGPASSFILE", self.directory.join(PASSWORD_FILE).into()),
        ];
        let Some(tls) = &self.client.tls else {
            variables.push(("PGSSLMODE", "disable".into()));
            return variables;
        };
        variables.push(("PGSSLMODE", "verify-full".into()));
        variables.extend(tls.ca_file.clone().map(|file| ("PGSSLROOTCERT", file.into())));
        variables.push(("PGSSLMINPROTOCOLVERSION", version(tls).into()));
        variables.push(("PGSSLMAXPROTOCOLVERSION", version(tls).into()));
        if tls.start == TlsStart::Direct {
            variables.push(("PGSSLNEGOTIATION", "direct".into()));
        }
        if let Some(identity) = &tls.identity {
            variables.push(("PGSSLCERT", identity.certificate_file.clone().into()));
            variables.push(("PGSSLKEY", identity.key_file.clone().into()));
        }
        variables
    }

    /// A URL for `ciphertoll run --url`, without the password.
    fn url(&self) -> String {
        let authority = self.client.tls.as_ref().and_then(|tls| tls.ca_file.as_deref());
        let authority = authority.map(|file| file.display().to_string()).unwrap_or_default();
        let (scheme, socket, without, with, ca) = match self.client.engine {
            Engine::Postgres => ("postgres", "host", "sslmode=disable", "sslmode=verify-full", "sslrootcert"),
            engine @ (Engine::MariaDb | Engine::MySql) => {
                (engine.label(), "socket", "ssl-mode=DISABLED", "ssl-mode=VERIFY_IDENTITY", "ssl-ca")
            }
            Engine::MongoDb | Engine::FerretDb => {
                ("mongodb", "", "authSource=admin&tls=false", "authSource=admin&tls=true", "tlsCAFile")
            }
        };
        let (user, database) = (&self.client.user, self.database());
        // Empty if the server has no accounts.
        let account = if user.is_empty() { String::new() } else { format!("{user}@") };
        match (self.address(), &self.client.tls) {
            ((path, None), _) if scheme == "mongodb" => {
                format!("mongodb://{account}{}/{database}?{without}", path.replace('/', "%2F"))
            }
            ((_, None), _) if self.client.engine == Engine::Postgres => {
                let (directory, port) = self.postgres_address();
                format!("{scheme}://{user}@/{database}?{socket}={directory}&port={port}")
            }
            ((path, None), _) => format!("{scheme}://{user}@/{database}?{socket}={path}"),
            ((host, Some(port)), None) => format!("{scheme}://{account}{host}:{port}/{database}?{without}"),
            ((host, Some(port)), Some(_)) => {
                format!("{scheme}://{account}{host}:{port}/{database}?{with}&{ca}={authority}")
            }
        }
    }
}

/// The name of the TLS version in OpenSSL, libpq and MySQL clients.
fn version(tls: &TlsSpec) -> &'static str {
    match tls.parameters.version {
        TlsVersion::Tls10 => "TLSv1",
        TlsVersion::Tls11 => "TLSv1.1",
        TlsVersion::Tls12 => "TLSv1.2",
        TlsVersion::Tls13 => "TLSv1.3",
    }
}
