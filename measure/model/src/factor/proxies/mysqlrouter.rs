//! MySQL Router with one route and a pool. Clients log in to the server through it, so its configuration contains no
//! password.

use std::path::{Path, PathBuf};

use crate::factor::proxy_program::{
    PoolMode, ProxyConfiguration, ProxyDefinition, ProxyListen, ProxyProtocol, ProxySite, ProxySource,
};

/// Longer than any trial: idle connections stay in the pool, as in the other proxies.
const IDLE_LIMIT_S: u32 = 86_400;
/// TLS and a login to the server take a dozen round trips, and the longest link has ten seconds.
const CONNECT_LIMIT_S: u32 = 180;

pub(super) static DEFINITION: ProxyDefinition = ProxyDefinition {
    label: "mysqlrouter",
    display_name: "MySQL Router",
    // Observed with version 9.7.4 and MariaDB 10.11, which also refuses the password of its native authentication.
    protocol: ProxyProtocol::MySqlOnly,
    older_version: None,
    insufficient: None,
    source: ProxySource::Elsewhere(
        "run `ciphertoll servers fetch mysqlrouter`, or install mysql-router from MySQL's own APT repository or, on \
         Ubuntu, from Ubuntu's",
    ),
    configure: Some(configuration),
};

fn configuration(site: &ProxySite<'_>) -> ProxyConfiguration {
    const FILE: &str = "mysqlrouter.conf";
    ProxyConfiguration { files: vec![(FILE, text(site))], arguments: vec!["-c".to_owned(), site.file(FILE)] }
}

/// The directory of its plugins if it is in the usual place relative to the program. A program that was moved searches
/// them where it was built for.
fn plugins(program: &Path) -> Option<PathBuf> {
    const BELOW: &str = "lib/mysqlrouter/plugin";
    let program = program.canonicalize().ok()?;
    let plugins = program.parent()?.parent()?.join(BELOW);
    plugins.is_dir().then_some(plugins)
}

fn text(site: &ProxySite<'_>) -> String {
    let plugins = plugins(site.program).map(|folder| format!("plugin_folder={}\n", folder.display()));
    let listen = match site.listen {
        ProxyListen::Unix(path) => format!("socket={}", path.display()),
        ProxyListen::Tcp(address) => format!("bind_address={}\nbind_port={}", address.ip(), address.port()),
    };
    // In transaction mode, an idle client gives its connection back at once.
    let sharing = match site.mode {
        PoolMode::Session => "0",
        PoolMode::Transaction => "1\nconnection_sharing_delay=0",
    };
    format!(
        "[DEFAULT]\n{plugins}logging_folder=\nruntime_folder={run}\ndata_folder={run}\n\
         max_total_connections={most}\n[logger]\nlevel=WARNING\n\
         [connection_pool]\nmax_idle_server_connections={pool}\nidle_timeout={IDLE_LIMIT_S}\n\
         [routing:lab]\n{listen}\ndestinations={behind}\nrouting_strategy=first-available\nprotocol=classic\n\
         client_ssl_mode=DISABLED\nserver_ssl_mode=REQUIRED\nserver_ssl_verify=VERIFY_IDENTITY\n\
         server_ssl_ca={authority}\nconnection_sharing={sharing}\nmax_connections={most}\n\
         connect_timeout={CONNECT_LIMIT_S}\nclient_connect_timeout={CONNECT_LIMIT_S}\n",
        plugins = plugins.unwrap_or_default(),
        run = site.run.display(),
        pool = site.pool_size,
        behind = site.upstream,
        authority = site.authority.display(),
        most = site.max_clients,
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn plugins_are_found_relative_to_the_program() {
        let place = tempfile::tempdir().unwrap();
        let [bin, folder] = ["bin", "lib/mysqlrouter/plugin"].map(|below| place.path().join(below));
        let program = bin.join("mysqlrouter");
        fs::create_dir_all(&bin).unwrap();
        fs::write(&program, "").unwrap();
        assert_eq!(plugins(&program), None, "it uses those of its build");
        fs::create_dir_all(&folder).unwrap();
        assert_eq!(plugins(&program), Some(folder.canonicalize().unwrap()));
    }
}
