//! What MongoDB and FerretDB have in common.

use std::sync::Arc;

use ciphertoll_model::{Auth, TlsPath, TlsStart};
use ciphertoll_wire::session::Login;
use ciphertoll_wire::{Secret, mongodb};
use serde_json::{Map, Value, json};

use crate::datasets::progress::LoadProgress;
use crate::datasets::tables::Tables;
use crate::documents::commands::{self, DATABASE, command, number};
use crate::documents::loading::{self, DocumentLoad};
use crate::error::Error;
use crate::servers::control::{self, ControlLogin};
use crate::servers::counters::ConnectionCounts;
use crate::servers::engine::{LoginRequest, UrlSyntax};
use crate::tls::support::{TlsServer, unavailable};

/// The account for [`Auth::default_of`].
pub(super) const USER: &str = "ciphertoll";
pub(super) const PROXY_SOCKET: &str = "mongodb-27017.sock";
pub(super) const URL_SYNTAX: UrlSyntax = UrlSyntax {
    scheme: "mongodb",
    ca_option: "tlsCAFile",
    without_name: "tlsAllowInvalidHostnames=true",
    unverified: "tlsInsecure=true",
};

/// Fails if the server does not support the version or the start of `path`.
pub(super) fn check_tls(path: TlsPath, server: TlsServer<'_>) -> Result<(), Error> {
    if path.parameters.version.is_forbidden() {
        return Err(unavailable(format!(
            "{} does not offer {} by default",
            server.name, path.parameters.version
        )));
    }
    match path.start {
        TlsStart::Requested => Ok(()),
        TlsStart::Direct | TlsStart::Eager => {
            let reason = "MongoDB's protocol has no request for TLS: connections always begin with TLS";
            Err(unavailable(reason))
        }
    }
}

/// Loads the documents over `connections` connections.
pub(super) fn load_template(
    control: &ControlLogin,
    name: &str,
    tables: &Tables,
    connections: usize,
    progress: &mut LoadProgress<'_>,
) -> Result<(), Error> {
    let Some(records) = tables.ycsb else { return Ok(()) };
    let (control, records) = (control.in_database(DATABASE), records.rows());
    loading::load(DocumentLoad { control: &control, name, records, connections }, progress).map(drop)
}

/// Creates the account `user` with these roles. For [`Auth::Trust`], access control is disabled instead.
pub(super) fn create_account(
    control: &ControlLogin,
    auth: Auth,
    user: &str,
    password: &Secret,
    roles: &Value,
) -> Result<(), Error> {
    let mechanism = match auth {
        Auth::Trust => return Ok(()),
        Auth::ScramSha1 => "SCRAM-SHA-1",
        _ => "SCRAM-SHA-256",
    };
    commands::create_user(&mut control.connect()?, user, password, roles, &[mechanism])
}

pub(super) fn server_status(control: &ControlLogin) -> Result<Map<String, Value>, Error> {
    let command = command("serverStatus", &json!(1), &[]);
    commands::ask(&mut control.connect()?, "read the server's counters", &command)
}

pub(super) fn connection_counts(control: &ControlLogin) -> Result<ConnectionCounts, Error> {
    let status = server_status(control)?;
    let created = status.get("connections").and_then(|connections| connections.get("totalCreated"));
    let commands = status.get("metrics").and_then(|metrics| metrics.get("commands")?.as_object());
    let total = |commands: &Map<String, Value>| {
        commands.values().filter_map(|command| command.get("total")).filter_map(number).sum()
    };
    Ok(ConnectionCounts {
        connections: created.and_then(number),
        requests: commands.map(total),
        ..ConnectionCounts::default()
    })
}

pub(super) fn write_marker(control: &ControlLogin, table: &str, texts: &[String]) -> Result<(), Error> {
    let documents: Vec<_> =
        texts.iter().enumerate().map(|(number, text)| json!({"_id": number, "word": text})).collect();
    let mut client = control.in_database(DATABASE).connect()?;
    let insert = command("insert", &table.into(), &[("documents", json!(documents))]);
    control::execute(&mut client, "write the marker", &insert)?;
    control::close(client)
}

pub(super) fn remove_marker(control: &ControlLogin, table: &str) -> Result<(), Error> {
    let mut client = control.in_database(DATABASE).connect()?;
    control::execute(&mut client, "remove the marker", &command("drop", &table.into(), &[]))
}

pub(super) fn login(request: &LoginRequest<'_>) -> Login {
    let login = mongodb::MongoDbLogin::new(request.user, request.password.clone());
    let database = request.database.map_or_else(|| login.database.clone(), ToOwned::to_owned);
    let tls = if request.with_tls { mongodb::MongoDbTlsMode::Tls } else { mongodb::MongoDbTlsMode::Plain };
    Login::MongoDb(Arc::new(mongodb::MongoDbLogin { database, tls, ..login }))
}
