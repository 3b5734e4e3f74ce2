//! PgBouncer, with the account in a file. Clients need no password on its Unix socket, which is in a directory that only we
//! and it can enter, unless the start requires one; over TCP they use SCRAM-SHA-256.

use std::fmt::Write;
use std::path::Path;

use crate::factor::TlsVersion;
use crate::factor::proxy_program::{
    ProxyConfiguration, ProxyDefinition, ProxyListen, ProxyProtocol, ProxySite, ProxySource, SocketAuth,
};

pub(super) static DEFINITION: ProxyDefinition = ProxyDefinition {
    label: "pgbouncer",
    display_name: "PgBouncer",
    protocol: ProxyProtocol::Postgres,
    older_version: Some(TlsVersion::Tls12),
    insufficient: None,
    source: ProxySource::Package("pgbouncer"),
    configure: Some(configuration),
};

fn configuration(site: &ProxySite<'_>) -> ProxyConfiguration {
    const FILE: &str = "pgbouncer.ini";
    const USERS: &str = "users.txt";
    let users = format!("\"{}\" \"{}\"\n", site.user, site.password);
    let text = text(site, &site.file(USERS), !site.password.is_empty());
    ProxyConfiguration { files: vec![(USERS, users), (FILE, text)], arguments: vec![site.file(FILE)] }
}

fn text(site: &ProxySite<'_>, users: &str, has_password: bool) -> String {
    let (database, behind) = (site.database, site.upstream);
    let mut text = format!(
        "[databases]\n{database} = host={} port={} dbname={database}\n[pgbouncer]\n",
        behind.ip(),
        behind.port()
    );
    let [address, port, directory, auth] = match site.listen {
        ProxyListen::Unix(socket) => {
            let port = socket.extension().unwrap_or_default().to_string_lossy().into_owned();
            let auth = match site.admission {
                SocketAuth::Trusted => "trust",
                SocketAuth::Password => "scram-sha-256",
            };
            let directory = socket.parent().unwrap_or(Path::new("/")).display().to_string();
            [String::new(), port, directory, auth.to_owned()]
        }
        ProxyListen::Tcp(address) => {
            let auth = if has_password { "scram-sha-256" } else { "trust" };
            [address.ip().to_string(), address.port().to_string(), String::new(), auth.to_owned()]
        }
    };
    let version = match site.version {
        TlsVersion::Tls13 => "tlsv1.3",
        TlsVersion::Tls12 | TlsVersion::Tls11 | TlsVersion::Tls10 => "tlsv1.2",
    };
    let options: [(&str, String); 21] = [
        ("listen_addr", address),
        ("listen_port", port),
        ("unix_socket_dir", directory),
        ("auth_type", auth),
        ("auth_file", users.to_owned()),
        ("pool_mode", site.mode.label().to_owned()),
        // Runs after each client in session mode.
        ("server_reset_query", "DISCARD ALL".to_owned()),
        ("default_pool_size", site.pool_size.to_string()),
        ("max_client_conn", site.max_clients.to_string()),
        // By default, connects fail if 128 clients come at once.
        ("listen_backlog", "4096".to_owned()),
        ("server_tls_sslmode", "verify-full".to_owned()),
        ("server_tls_ca_file", site.authority.display().to_string()),
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
