//! PgBouncer, with the account in a file. Clients need no password on its Unix socket, which is in a directory that only we
//! and it can enter, unless the start requires one; over TCP they use SCRAM-SHA-256.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use ciphertoll_model::{Endpoint, TlsVersion};

use super::setup::{ProxyCommand, ProxyContext, ProxyStart, SocketAuth};
use crate::error::Error;

pub(super) fn command(
    file: PathBuf,
    context: &ProxyContext<'_>,
    start: &ProxyStart<'_>,
    endpoint: &Endpoint,
) -> Result<ProxyCommand, Error> {
    let (user, password) = (&start.account.user, context.password_text());
    let users = context.write("users.txt", &format!("\"{user}\" \"{password}\"\n"))?;
    let text = text(start, endpoint, &users.display().to_string(), !password.is_empty());
    let config = context.write("pgbouncer.ini", &text)?;
    Ok(ProxyCommand::new(file, vec![config.display().to_string()]))
}

fn text(start: &ProxyStart<'_>, endpoint: &Endpoint, users: &str, has_password: bool) -> String {
    let (database, behind) = (start.server.database(), start.behind);
    let mut text = format!(
        "[databases]\n{database} = host={} port={} dbname={database}\n[pgbouncer]\n",
        behind.ip(),
        behind.port()
    );
    let [address, port, directory, auth] = match endpoint {
        Endpoint::Unix(socket) => {
            let port = socket.extension().unwrap_or_default().to_string_lossy().into_owned();
            let auth = match start.admission {
                SocketAuth::Trusted => "trust",
                SocketAuth::Password => "scram-sha-256",
            };
            let directory = socket.parent().unwrap_or(Path::new("/")).display().to_string();
            [String::new(), port, directory, auth.to_owned()]
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
    let options: [(&str, String); 21] = [
        ("listen_addr", address),
        ("listen_port", port),
        ("unix_socket_dir", directory),
        ("auth_type", auth),
        ("auth_file", users.to_owned()),
        ("pool_mode", start.proxy.mode.label().to_owned()),
        // Runs after each client in session mode.
        ("server_reset_query", "DISCARD ALL".to_owned()),
        ("default_pool_size", start.pool_size().to_string()),
        ("max_client_conn", start.max_clients().to_string()),
        // By default, connects fail if 128 clients come at once.
        ("listen_backlog", "4096".to_owned()),
        ("server_tls_sslmode", "verify-full".to_owned()),
        ("server_tls_ca_file", start.server.ca_file().display().to_string()),
        ("server_tls_protocols", version.to_owned()),
        // Logs to stderr only, and not per client, because that would be measured.
        ("logfile", String::new()),
        ("pidfile", String::new()),
        ("syslog", "0".to_owned()),
        ("log_connections", "0".to_owned()),
        ("log_disconnections", "0".to_owned()),
        ("log_stats", "0".to_owned()),
        // Drivers set it at the start of a connection.
        ("ignore_startup_parameters", "extra_float_digits".to_owned()),
        // A refused login is reported at once.
        ("server_login_retry", "1".to_owned()),
    ];
    for (name, value) in options {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name} = {value}");
    }
    text
}
