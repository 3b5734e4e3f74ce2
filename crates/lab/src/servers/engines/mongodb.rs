//! What only `mongod` does: how it is told, its first account, how it is asked.
//!
//! Written from its manual and never run: no registry has a `mongod`. It is started with access control from the first
//! moment on; who comes by the unix socket before there is any account may make the first one, and nothing else.

use std::collections::BTreeMap;

use ciphertoll_model::{Auth, Engine};
use ciphertoll_wire::Secret;
use serde_json::{Value, json};

use crate::config::{BOTH_FILE, Config, Network};
use crate::control::{self, Control};
use crate::credentials::Credentials;
use crate::documents::{self, ADMIN, CONTROL_USER, DATABASE, command};
use crate::error::Error;
use crate::find::version_numbers;
use crate::server::{About, Admission, CertificateRequest};

/// What the log of a server says that could not have its port.
pub(crate) const PORT_TAKEN: &[&str] = &["Address already in use"];

/// As large as the buffers of the others; the least that it takes is larger.
const CACHE_GB: f64 = 0.25;
/// The first that reads its certificate again while it runs.
const ROTATES: u32 = 5;
/// The fewest iterations that it stores.
const FEWEST_ITERATIONS: u32 = 5_000;

/// The configuration file: JSON, which is YAML.
pub(crate) fn config_text(config: &Config<'_>) -> String {
    let sockets = json!({ "enabled": true, "pathPrefix": config.run.display().to_string() });
    let network = match &config.network {
        // It takes a socket for an address, and has to have one.
        Network::SocketOnly => {
            let bound = config.run.join("bound").display().to_string();
            json!({ "bindIp": bound, "port": config.port(), "unixDomainSocket": sockets })
        }
        Network::Tcp { listen, ports, tls, client_ca, terms, .. } => json!({
            "bindIp": listen.address(),
            "port": ports.plain,
            "unixDomainSocket": sockets,
            "tls": {
                "mode": "preferTLS",
                "certificateKeyFile": tls.join(BOTH_FILE).display().to_string(),
                "CAFile": client_ca.display().to_string(),
                "allowConnectionsWithoutCertificates": terms.request == CertificateRequest::Omitted,
            },
        }),
    };
    let authorization = match &config.network {
        Network::Tcp { terms, .. } if terms.admission == Admission::Accounts => "enabled",
        Network::SocketOnly | Network::Tcp { .. } => "disabled",
    };
    let file = json!({
        "storage": {
            "dbPath": config.data.display().to_string(),
            "wiredTiger": { "engineConfig": { "cacheSizeGB": CACHE_GB } },
        },
        "net": network,
        "security": { "authorization": authorization },
        "setParameter": { "diagnosticDataCollectionEnabled": false },
    });
    format!("{file:#}\n")
}

/// Makes the account of control connections, as whoever comes first may; returns how it logs in.
pub(crate) fn make_first_account(control: &Control, password: &Secret) -> Result<Control, Error> {
    let roles = json!(["root"]);
    let mut client = control.connect()?;
    documents::create_user(&mut client, CONTROL_USER, password, &roles, &["SCRAM-SHA-256"])?;
    control::close(client)?;
    Ok(control.as_account(CONTROL_USER, password.clone()))
}

/// Makes the account for these credentials.
pub(crate) fn make_account(
    control: &Control,
    credentials: Credentials,
    password: &Secret,
) -> Result<(), Error> {
    if let Auth::Scram { iterations, .. } = credentials.auth {
        let command =
            command("setParameter", &json!(1), &[("scramSHA256IterationCount", json!(iterations.number()))]);
        let mut client = control.connect()?;
        control::execute(&mut client, "choose the iterations of SCRAM", &command)?;
    }
    let roles = json!([{ "role": "readWrite", "db": DATABASE }]);
    documents::make_account(control, credentials, password, &roles)
}

/// Fails where no server has `auth`.
pub(crate) fn check_release(auth: Auth, release: &str) -> Result<(), Error> {
    let name = format!("{} {release}", Engine::MongoDb.display_name());
    let reason = match auth {
        Auth::Scram { iterations, .. } if iterations.number() < FEWEST_ITERATIONS => {
            format!("{name} stores no fewer than {FEWEST_ITERATIONS} iterations of SCRAM")
        }
        // For the last, everybody is let in.
        Auth::Scram { .. } | Auth::ScramSha1 | Auth::Trust => return Ok(()),
        Auth::Cert => format!("{name} has it (MONGODB-X509), but ciphertoll does not make such accounts yet"),
        auth => format!("{name} has no {auth}"),
    };
    Err(Error::AuthUnavailable { auth: auth.to_string(), reason })
}

/// Whether a server of this version reads its certificate again while it runs.
pub(crate) fn rotates(release: &str) -> bool {
    version_numbers(release).first().is_some_and(|major| *major >= ROTATES)
}

pub(crate) fn reload_certificate(control: &Control) -> Result<(), Error> {
    let command = command("rotateCertificates", &json!(1), &[]);
    let doing = "make the server read its certificate";
    control::execute(&mut control.in_database(ADMIN).connect()?, doing, &command)
}

/// What the server says of itself; paths are left out of the settings.
pub(crate) fn ask(control: &Control) -> Result<About, Error> {
    let doing = "ask the server about itself";
    let mut client = control.connect()?;
    let build = documents::ask(&mut client, doing, &command("buildInfo", &json!(1), &[]))?;
    let version = build.get("version").and_then(Value::as_str).unwrap_or_default().to_owned();
    let library = build.get("openssl").and_then(|library| library.get("running")?.as_str());
    let told = documents::ask(&mut client, doing, &command("getCmdLineOpts", &json!(1), &[]))?;
    let mut settings = BTreeMap::new();
    if let Some(parsed) = told.get("parsed") {
        flatten("", parsed, &mut settings);
    }
    settings.retain(|_, value| !value.contains('/'));
    Ok(About { version, tls_library: library.map(ToOwned::to_owned), settings })
}

/// `storage.wiredTiger.engineConfig.cacheSizeGB`
fn flatten(name: &str, value: &Value, settings: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(inner) => {
            for (key, value) in inner {
                let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                flatten(&name, value, settings);
            }
        }
        Value::String(text) => drop(settings.insert(name.to_owned(), text.clone())),
        other => drop(settings.insert(name.to_owned(), other.to_string())),
    }
}
