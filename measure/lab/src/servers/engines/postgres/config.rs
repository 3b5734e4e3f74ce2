//! PostgreSQL's configuration file.

use std::fmt::Write;
use std::path::Path;

use ciphertoll_host::programs::version_numbers;
use ciphertoll_model::cache::default_buffers;
use ciphertoll_model::{Clients, Engine, Group, SecurityLevel};

use super::access::{certificate_request_file, identity_map};
use crate::servers::config::{CERTIFICATE_FILE, Config, KEY_FILE, Network};
use crate::tls::support::openssl_has_group;

/// The first version that supports several groups (`ssl_groups`).
const SEVERAL_GROUPS: u32 = 18;

/// The process of a closed connection ends soon, but the next connection may come earlier.
const MAX_CONNECTIONS: u16 = Clients::MOST_OF_PRIVATE_SERVERS * 4;

pub(super) fn text(config: &Config<'_>) -> String {
    let mut text = String::new();
    let options = options(config);
    let own = options.iter().map(|(name, value)| (*name, value)).filter(|(name, _)| !config.is_set(name));
    // Our own options come last: the last value of an option takes effect.
    let all = config.settings().map(|(name, value)| (name.as_str(), value)).chain(own);
    for (name, value) in all {
        let value = value.replace('\\', "\\\\").replace('\'', "''");
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name} = '{value}'");
    }
    text
}

fn options(config: &Config<'_>) -> Vec<(&'static str, String)> {
    let path = |path: &Path| path.display().to_string();
    let own_rules = config.data.join("pg_hba.conf");
    let access = config.access.unwrap_or(&own_rules);
    let mut options = vec![
        ("data_directory", path(config.data)),
        ("hba_file", path(access)),
        ("ident_file", path(&identity_map(access))),
        ("unix_socket_directories", path(config.run)),
        ("external_pid_file", path(&config.run.join("pid"))),
        ("port", config.port().to_string()),
        ("max_connections", MAX_CONNECTIONS.to_string()),
        ("password_encryption", "scram-sha-256".to_owned()),
    ];
    if version_numbers(&config.build.version).first().is_some_and(|major| *major >= SEVERAL_GROUPS) {
        options.push(("ssl_groups", groups(config.build.tls_library().as_deref())));
    }
    // Scales are relative to these buffers.
    options.extend(default_buffers(Engine::Postgres).map(|(name, value)| (name, value.to_owned())));
    match &config.network {
        Network::SocketOnly => options.push(("listen_addresses", String::new())),
        Network::Tcp { listen, tls, .. } => options.extend([
            ("listen_addresses", listen.address().to_owned()),
            ("ssl", "on".to_owned()),
            ("ssl_cert_file", path(&tls.join(CERTIFICATE_FILE))),
            ("ssl_key_file", path(&tls.join(KEY_FILE))),
            ("ssl_min_protocol_version", min_tls_version(config.strength).to_owned()),
            // Created and removed while the server runs.
            ("include_if_exists", path(&certificate_request_file(access))),
        ]),
    }
    options
}

/// All groups that the server's OpenSSL has, as a value of `ssl_groups`: it does not start with one that it lacks. Those
/// with ML-KEM are last, because the server prefers its first group: a client that offers them and a default group gets
/// the same as with the server's default.
fn groups(tls_library: Option<&str>) -> String {
    let known = Group::ALL.into_iter().filter(|group| openssl_has_group(tls_library, *group));
    let (ml_kem, others): (Vec<Group>, Vec<Group>) = known.partition(|group| group.has_ml_kem());
    others.into_iter().chain(ml_kem).map(Group::openssl_name).collect::<Vec<_>>().join(":")
}

fn min_tls_version(strength: SecurityLevel) -> &'static str {
    match strength {
        SecurityLevel::Default | SecurityLevel::Weak => "TLSv1.2",
        SecurityLevel::Obsolete => "TLSv1",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_groups_that_the_servers_openssl_has_are_configured() {
        for (library, version) in
            [(None, [0, 0]), (Some("OpenSSL 1.1.1  11 Sep 2018"), [1, 1]), (Some("OpenSSL 3.5.1"), [3, 5])]
        {
            let groups = groups(library);
            for group in Group::ALL {
                let is_listed = groups.split(':').any(|name| name == group.openssl_name());
                let has = group.openssl_since().is_none_or(|since| since <= version);
                assert_eq!(is_listed, has, "{group} in {groups} of {library:?}");
            }
        }
        assert!(groups(Some("OpenSSL 3.5.1")).starts_with("X25519:P-256:"), "the server's own order");
    }
}
