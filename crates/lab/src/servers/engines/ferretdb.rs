//! What only `FerretDB` does: how it is started, and what it can do. Of version 1, with its `SQLite` back end.
//!
//! Measured on 1.24.2, built with Go 1.26:
//! - It has no configuration file; what it is told are arguments and variables (`FERRETDB_SETUP_PASSWORD`).
//! - One process listens on a port in the clear, on another for TLS, and on a unix socket. TLS begins with the first
//!   byte; there is no port for both.
//! - It reads its certificate when it starts and never again. With `--listen-tls-ca-file` it demands a certificate of
//!   every client that comes by TLS, without it asks none. Either is changed by a new start: 0.1 s.
//! - It has accounts (`--test-enable-new-auth`) or lets in everybody; that, too, is for its start.
//! - TLS is Go's: versions 1.2 and 1.3; suites with ECDHE only; X25519, P-256, P-384, P-521 and, by default,
//!   X25519MLKEM768; sessions are taken up by tickets, not by id; no message is compressed.
//! - The account of `--setup-username` comes into being only where the database `--setup-database` is not there yet.
//!   Whoever has an account may do everything: there are no roles. An account has keys for SCRAM-SHA-256 of 15000
//!   iterations and for SCRAM-SHA-1 of 10000, which cannot be chosen.
//! - At SIGTERM it accepts nobody any more and waits for open connections, three seconds at most; it ends with 0. A second
//!   SIGTERM ends it at once.
//! - It runs on as many processors at once as it may run on when it starts, or as the quota of its cgroup is; there is no
//!   option but `GOMAXPROCS` in its environment.
//! - `buildInfo` has a version of `MongoDB`'s, which it speaks like, and its own beside. `serverStatus` counts commands, and
//!   neither connections nor reads.
//! - `SQLite` has a cache of 2 MB for each of its connections; the rest is the system's.
//! - At `--log-level=INFO` it writes two lines for each connection.

use std::collections::BTreeMap;

use ciphertoll_model::{Auth, Engine};
use ciphertoll_wire::Secret;
use serde_json::json;

use crate::config::{CERTIFICATE_FILE, Config, KEY_FILE, Network};
use crate::control::Control;
use crate::credentials::Credentials;
use crate::documents::{self, ADMIN, CONTROL_USER, command};
use crate::error::Error;
use crate::exec::Provisions;
use crate::find::Build;
use crate::server::{About, Admission, CertificateRequest};

/// What the log of a server says that could not have its port.
pub(crate) const PORT_TAKEN: &[&str] = &["bind: address already in use"];

/// What every server is told that others could be told otherwise.
const CHOICES: [(&str, &str); 4] =
    [("handler", "sqlite"), ("log-level", "ERROR"), ("telemetry", "disable"), ("debug-addr", "-")];
/// Documents that it writes in one transaction while it is loaded; 100, where it is not told.
const LOADED_AT_ONCE: u16 = 500;
/// What it reads the first account's password from.
const PASSWORD_VARIABLE: &str = "FERRETDB_SETUP_PASSWORD";

/// All that a server is told but for secrets.
pub(crate) fn arguments(config: &Config<'_>) -> Vec<String> {
    let mut arguments: Vec<String> =
        CHOICES.iter().map(|(name, value)| format!("--{name}={value}")).collect();
    let (data, haste) = (
        config.data.display(),
        match config.network {
            // Whoever makes a template takes it whole or not at all.
            Network::SocketOnly => "?_pragma=synchronous(off)",
            Network::Tcp { .. } => "",
        },
    );
    arguments.extend([
        format!("--sqlite-url=file:{data}/{haste}"),
        // Nothing that lasts: it is where its sockets are.
        format!("--state-dir={}", config.run.display()),
        format!("--listen-unix={}", config.socket().display()),
    ]);
    match &config.network {
        Network::SocketOnly => {
            arguments.extend(["--listen-addr=".to_owned(), format!("--test-batch-size={LOADED_AT_ONCE}")]);
        }
        Network::Tcp { listen, ports, tls, client_ca, terms, .. } => {
            let address = listen.address();
            arguments.extend([
                format!("--listen-addr={address}:{}", ports.plain),
                format!("--listen-tls={address}:{}", ports.tls),
                format!("--listen-tls-cert-file={}", tls.join(CERTIFICATE_FILE).display()),
                format!("--listen-tls-key-file={}", tls.join(KEY_FILE).display()),
            ]);
            if terms.admission == Admission::Accounts {
                arguments.push("--test-enable-new-auth".to_owned());
            }
            if terms.request == CertificateRequest::Sent {
                arguments.push(format!("--listen-tls-ca-file={}", client_ca.display()));
            }
        }
    }
    if config.access.is_some() {
        arguments.extend([format!("--setup-username={CONTROL_USER}"), format!("--setup-database={ADMIN}")]);
    }
    arguments
}

/// The first account's password, where that is to be made: its file is the access that the server is told of.
pub(crate) fn provisions(config: &Config<'_>) -> Provisions {
    let secrets = config.access.map(|file| (PASSWORD_VARIABLE.to_owned(), file.to_owned()));
    Provisions { secrets: secrets.into_iter().collect(), ..Provisions::default() }
}

/// Makes the account for these credentials.
pub(crate) fn make_account(
    control: &Control,
    credentials: Credentials,
    password: &Secret,
) -> Result<(), Error> {
    // Whoever has an account may do everything, and it takes no role for an answer.
    documents::make_account(control, credentials, password, &json!([]))
}

/// Fails where no server has `auth`.
pub(crate) fn check_release(auth: Auth, release: &str) -> Result<(), Error> {
    let name = format!("{} {release}", Engine::FerretDb.display_name());
    let default = Auth::default_of(Engine::FerretDb);
    let reason = match auth {
        // For the one, everybody is let in.
        Auth::Trust | Auth::ScramSha1 => return Ok(()),
        auth if auth == default => return Ok(()),
        Auth::Scram { .. } => {
            format!("{name} does not let the iterations of SCRAM be chosen: it has {default}")
        }
        auth => format!("{name} has no {auth}"),
    };
    Err(Error::AuthUnavailable { auth: auth.to_string(), reason })
}

/// What the server says of itself: its own version, not the one of `MongoDB` that it claims to be.
pub(crate) fn ask(control: &Control, build: &Build) -> Result<About, Error> {
    let command = command("buildInfo", &json!(1), &[]);
    let said = documents::ask(&mut control.connect()?, "ask the server about itself", &command)?;
    let text = |name: &str| said.get(name).and_then(|value| value.as_str());
    let own = text("ferretdbVersion").map(|version| version.trim_start_matches('v'));
    let mut settings: BTreeMap<String, String> =
        CHOICES.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    settings.insert("test-enable-new-auth".to_owned(), "true".to_owned());
    if let Some(claimed) = text("version") {
        settings.insert("mongodb-version".to_owned(), claimed.to_owned());
    }
    Ok(About {
        version: own.unwrap_or(&build.version).to_owned(),
        tls_library: build.tls_library(),
        settings,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_cannot_be_logged_in_with_is_said() {
        let of =
            |auth: &str| check_release(auth.parse().unwrap(), "1.24.2").err().map(|error| error.to_string());
        assert_eq!([of("scram-15000"), of("scram-sha1"), of("trust")], [None, None, None]);
        assert_eq!(
            of("scram-4096").unwrap(),
            "FerretDB 1.24.2 does not let the iterations of SCRAM be chosen: it has scram-15000"
        );
        assert_eq!(of("cert").unwrap(), "FerretDB 1.24.2 has no cert");
    }
}
