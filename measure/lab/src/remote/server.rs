//! A server at a URL that a run uses.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ciphertoll_host::files::{self, PRIVATE_FILE};
use ciphertoll_host::user::RunAs;
use ciphertoll_model::{Endpoint, QueryLanguage, Scale, ServerUrl, UrlPlace, ycsb};
use ciphertoll_net::blocking::Client;
use ciphertoll_wire::Secret;
use ciphertoll_wire::session::ServerInfo;

use super::connection::UrlLogin;
use super::login::{Passwords, password_of};
use super::probe::{ProbedServer, probe};
use crate::datasets::progress::LoadProgress;
use crate::datasets::tables::Tables;
use crate::documents::commands::{self, command, number};
use crate::documents::loading::{self, DocumentLoad};
use crate::error::Error;
use crate::servers::control::{self, ControlLogin};
use crate::servers::engine::ServerEngine;
use crate::servers::engines;
use crate::workspace::Workspace;

/// The database that tables are created in and documents loaded into.
pub const DATABASE: &str = "ciphertoll";

pub struct Remote {
    name: String,
    probed: ProbedServer,
    database: Option<String>,
    password: Secret,
    password_file: PathBuf,
}

impl Remote {
    pub(crate) fn open(
        workspace: &Workspace,
        name: &str,
        url: &ServerUrl,
        passwords: &Passwords,
    ) -> Result<Self, Error> {
        let probed = probe(name, url, passwords)?;
        let ProbedServer { engine, version, url: own, .. } = &probed;
        if *engine != url.engine() {
            let answers = engine.display_name();
            let reason = format!("the server is {answers} {version}, whose URL is {own}");
            return Err(Error::Unreachable { name: name.to_owned(), reason });
        }
        let password = password_of(passwords, name);
        let password_file = workspace.scratch.path().join(format!("{name}.password"));
        files::write(&password_file, password.expose(), PRIVATE_FILE, RunAs::Ourselves)?;
        let database = own.database.clone();
        Ok(Self { name: name.to_owned(), probed, database, password, password_file })
    }

    /// Creates and fills `tables` in [`DATABASE`], which clients use from here on. Existing tables of the right size are kept,
    /// other tables of the same names are replaced.
    pub fn prepare(
        &mut self,
        tables: &Tables,
        progress: &mut dyn FnMut(&str),
        stop: &dyn Fn() -> bool,
    ) -> Result<(), Error> {
        let mut progress = LoadProgress { progress, stop };
        let engine = engines::of(self.probed.url.engine());
        if self.probed.url.engine().query_language() == QueryLanguage::Documents {
            if let Some(records) = tables.ycsb {
                self.prepare_documents(records, &mut progress)?;
            }
            self.database = Some(DATABASE.to_owned());
            return Ok(());
        }
        let mut client = self.connect(self.probed.url.database.as_deref())?;
        let doing = "create the database ciphertoll (the user may lack the right to do that)";
        engine.create_database(&mut client, doing, DATABASE)?;
        control::close(client)?;
        let mut client = self.connect(Some(DATABASE))?;
        if !has_tables(&mut client, engine, tables)? {
            for table in tables.names() {
                control::execute(&mut client, "replace a table", &format!("DROP TABLE IF EXISTS {table}"))?;
            }
            engine.load_tables(&mut client, &self.name, tables, &mut progress)?;
        }
        self.database = Some(DATABASE.to_owned());
        control::close(client)
    }

    fn connect(&self, database: Option<&str>) -> Result<Client, Error> {
        let login = UrlLogin { url: &self.probed.url, password: &self.password };
        let connected = login.connect(self.probed.tls_version, database, Some(self.probed.family));
        connected.map_err(|source| Error::Control { doing: "log in to the server", source })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn url(&self) -> &ServerUrl {
        &self.probed.url
    }

    pub fn version(&self) -> &str {
        &self.probed.version
    }

    /// Facts for the record, such as the role in a replica set.
    pub fn facts(&self) -> &BTreeMap<String, String> {
        &self.probed.facts
    }

    pub fn endpoint(&self) -> Endpoint {
        match &self.probed.url.place {
            UrlPlace::Host { host, port } => {
                Endpoint::Host { host: host.clone(), port: *port, family: self.probed.family }
            }
            UrlPlace::Socket(path) => Endpoint::Unix(path.clone()),
        }
    }

    /// The database that clients use; the server's default if absent.
    pub fn database(&self) -> Option<&str> {
        self.database.as_deref()
    }

    /// A private file (0600) whose whole content is the password.
    pub fn password_file(&self) -> &Path {
        &self.password_file
    }

    /// Loads records into [`DATABASE`], unless it has as many. A secondary must have them from its primary.
    fn prepare_documents(&self, records: Scale, progress: &mut LoadProgress<'_>) -> Result<(), Error> {
        let control = self.control()?;
        let mut client = control.connect()?;
        let count = command("count", &ycsb::COLLECTION.into(), &[]);
        let counted = commands::ask(&mut client, "count the documents", &count)?;
        if counted.get("n").and_then(number) == Some(records.rows().into()) {
            return control::close(client);
        }
        if let ServerInfo::MongoDb(server) = client.server()
            && !server.is_writable_primary
        {
            return Err(Error::NotPrimary { name: self.name.clone(), is: server.role.described() });
        }
        control::close(client)?;
        let connections = engines::of(self.probed.url.engine()).properties().loading_connections;
        let records = records.rows();
        let load = DocumentLoad { control: &control, name: &self.name, records, connections };
        loading::load(load, progress).map(drop)
    }

    /// Login of the lab's own connections to the database of records.
    fn control(&self) -> Result<ControlLogin, Error> {
        let login = UrlLogin { url: &self.probed.url, password: &self.password };
        let tls = login.context(self.probed.tls_version);
        let tls = tls.map_err(|source| Error::Control { doing: "prepare TLS for a login", source })?;
        let address = login.address(Some(self.probed.family));
        let login = login.login(self.probed.tls_version, Some(DATABASE));
        Ok(ControlLogin::new(address, login).with_tls(tls))
    }
}

/// Whether all tables exist with the right number of rows. pgbench changes the row count of its history only; sysbench's
/// transactions restore the row count.
fn has_tables(client: &mut Client, engine: &dyn ServerEngine, tables: &Tables) -> Result<bool, Error> {
    let existing = engine.table_names(client, DATABASE)?;
    if !tables.names().all(|table| existing.iter().any(|known| known == table)) {
        return Ok(false);
    }
    for (table, rows) in tables.counts() {
        let count = control::query(client, "count rows", &format!("SELECT COUNT(*) FROM {table}"))?;
        if count.into_iter().flatten().next() != Some(rows.to_string()) {
            return Ok(false);
        }
    }
    Ok(true)
}
