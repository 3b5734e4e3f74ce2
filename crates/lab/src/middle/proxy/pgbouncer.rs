//! `PgBouncer`: a configuration of its own, and the account in a file beside it. Nobody is asked for a password on its unix
//! socket, which is in a directory that only we and it can enter; by TCP, by SCRAM-SHA-256.

use std::collections::BTreeMap;
use std::fmt::Write;

use ciphertoll_model::{Endpoint, TlsVersion};

use super::{Admission, Program, ProxyStart, Wiring, directory_of};
use crate::error::Error;
use crate::programs;

pub(super) fn program(
    wiring: &Wiring<'_>,
    start: &ProxyStart<'_>,
    front: &Endpoint,
) -> Result<Program, Error> {
    let file = programs::find(&["pgbouncer"], "pgbouncer")?;
    let (user, password) = (&start.account.user, wiring.password_text());
    let users = wiring.write("users.txt", &format!("\"{user}\" \"{password}\"\n"))?;
    let text = text(start, front, &users.display().to_string(), !password.is_empty());
    let config = wiring.write("pgbouncer.ini", &text)?;
    Ok(Program {
        file,
        arguments: vec![config.display().to_string()],
        environment: BTreeMap::new(),
        secrets: BTreeMap::new(),
    })
}

fn text(start: &ProxyStart<'_>, front: &Endpoint, users: &str, has_password: bool) -> String {
    let (database, behind) = (start.server.database(), start.behind);
    let mut text = format!(
        "[databases]\n{database} = host={} port={} dbname={database}\n[pgbouncer]\n",
        behind.ip(),
        behind.port()
    );
    let [address, port, directory, auth] = match front {
        Endpoint::Unix(socket) => {
            let port = socket.extension().unwrap_or_default().to_string_lossy().into_owned();
            let auth = match start.admission {
                Admission::Free => "trust",
                Admission::Password => "scram-sha-256",
            };
            [String::new(), port, directory_of(socket), auth.to_owned()]
        }
        Endpoint::Tcp(address) => {
            let auth = if has_password { "scram-sha-256" } else { "trust" };
            [address.ip().to_string(), address.port().to_string(), String::new(), auth.to_owned()]
        }
        Endpoint::Host { host, port, .. } => {
            [host.clone(), port.to_string(), String::new(), "trust".to_owned()]
        }
    };
    let version = match start.proxy.version {
        TlsVersion::Tls13 => "tlsv1.3",
        TlsVersion::Tls12 | TlsVersion::Tls11 | TlsVersion::Tls10 => "tlsv1.2",
    };
    let options: [(&str, String); 20] = [
        ("listen_addr", address),
        ("listen_port", port),
        ("unix_socket_dir", directory),
        ("auth_type", auth),
        ("auth_file", users.to_owned()),
        ("pool_mode", start.proxy.mode.label().to_owned()),
        // After each client, in session mode.
        ("server_reset_query", "DISCARD ALL".to_owned()),
        ("default_pool_size", start.pool_size().to_string()),
        ("max_client_conn", start.most_clients().to_string()),
        ("server_tls_sslmode", "verify-full".to_owned()),
        ("server_tls_ca_file", start.server.ca_file().display().to_string()),
        ("server_tls_protocols", version.to_owned()),
        // In front, and nowhere else: a line for each client would be a part of what is measured.
        ("logfile", String::new()),
        ("pidfile", String::new()),
        ("syslog", "0".to_owned()),
        ("log_connections", "0".to_owned()),
        ("log_disconnections", "0".to_owned()),
        ("log_stats", "0".to_owned()),
        // Drivers set these at their start.
        ("ignore_startup_parameters", "extra_float_digits".to_owned()),
        // A server that does not let it in is told at once.
        ("server_login_retry", "1".to_owned()),
    ];
    for (name, value) in options {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name} = {value}");
    }
    text
}
