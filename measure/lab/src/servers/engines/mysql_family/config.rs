//! The configuration file of MariaDB and MySQL.

use std::fmt::Write;
use std::path::Path;

use ciphertoll_model::Clients;
use ciphertoll_model::cache::default_buffers;

use super::variant::MySqlVariant;
use crate::at_rest::native;
use crate::servers::config::{CERTIFICATE_FILE, Config, KEY_FILE, Network};

/// With connection churn, many times as many closed connections as clients may still be on the server's side.
const MAX_CONNECTIONS: u16 = Clients::MOST_OF_PRIVATE_SERVERS * 16;
/// Threads kept for the next connection.
const CACHED_THREADS: u16 = Clients::MOST_OF_PRIVATE_SERVERS + 50;
/// The kernel limits it to `net.core.somaxconn`.
const BACKLOG: u16 = 1024;

pub(super) fn text<V: MySqlVariant>(variant: &V, config: &Config<'_>) -> String {
    let mut text = format!("[{}]\n", V::SECTION);
    for (name, value) in config.settings() {
        // In quotes, a # begins no comment. Values have no quotes and no backslashes.
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name}=\"{value}\"");
    }
    let encryption = V::PROPERTIES.native_encryption.zip(config.native);
    let encryption = encryption.map(|(encryption, keys)| native::options(encryption, keys));
    let own = variant.options(config.build);
    for (name, value) in own.into_iter().chain(encryption.unwrap_or_default()).chain(options(variant, config))
    {
        if config.is_set(name) {
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

fn options<V: MySqlVariant>(variant: &V, config: &Config<'_>) -> Vec<(&'static str, Option<String>)> {
    let path = |path: &Path| Some(path.display().to_string());
    let mut options = vec![
        ("datadir", path(config.data)),
        ("tmpdir", path(config.temporary)),
        ("socket", path(&config.run.join("socket"))),
        ("pid-file", path(&config.run.join("pid"))),
        ("skip-name-resolve", None),
        ("skip-log-bin", None),
        // The server must not read the client's files.
        ("local-infile", Some("OFF".to_owned())),
        ("max_connections", Some(MAX_CONNECTIONS.to_string())),
        ("thread_cache_size", Some(CACHED_THREADS.to_string())),
        ("back_log", Some(BACKLOG.to_string())),
        // The maximum: the answer to a bulk read is a single packet.
        ("max_allowed_packet", Some("1G".to_owned())),
        ("performance_schema", Some("OFF".to_owned())),
        // A trial must not depend on the buffers at the time of the template.
        ("innodb_buffer_pool_dump_at_shutdown", Some("OFF".to_owned())),
        ("innodb_buffer_pool_load_at_startup", Some("OFF".to_owned())),
    ];
    // Scales are relative to these buffers.
    options.extend(default_buffers(V::PROPERTIES.engine).map(|(name, value)| (name, Some(value.to_owned()))));
    if let Some(access) = config.access {
        options.push(("init-file", path(access)));
    }
    match &config.network {
        Network::SocketOnly => options.push(("skip-networking", None)),
        Network::Tcp { listen, ports, tls, client_ca, .. } => options.extend([
            ("bind-address", Some(listen.address().to_owned())),
            ("port", Some(ports.plain.to_string())),
            ("ssl-ca", path(client_ca)),
            ("ssl-cert", path(&tls.join(CERTIFICATE_FILE))),
            ("ssl-key", path(&tls.join(KEY_FILE))),
            ("tls_version", Some(variant.tls_versions(config.strength).to_owned())),
        ]),
    }
    options
}
