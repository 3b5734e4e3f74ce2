//! MySQL Router with one route and a pool. Clients log in to the server through it, so its configuration contains no
//! password.

use std::path::{Path, PathBuf};

use ciphertoll_model::{Endpoint, PoolMode};

use super::setup::{ProxyCommand, ProxyContext, ProxyStart};
use crate::error::Error;

/// Longer than any trial: idle connections stay in the pool, as in the other proxies.
const IDLE_LIMIT_S: u32 = 86_400;
/// TLS and a login to the server take a dozen round trips, and the longest link has ten seconds.
const CONNECT_LIMIT_S: u32 = 180;

pub(super) fn command(
    file: PathBuf,
    context: &ProxyContext<'_>,
    start: &ProxyStart<'_>,
    endpoint: &Endpoint,
) -> Result<ProxyCommand, Error> {
    let config = context.write("mysqlrouter.conf", &text(&file, context.run, start, endpoint))?;
    let arguments = vec!["-c".to_owned(), config.display().to_string()];
    Ok(ProxyCommand::new(file, arguments))
}

/// The directory of its plugins if it is in the usual place relative to the program. A program that was moved searches
/// them where it was built for.
fn plugins(program: &Path) -> Option<PathBuf> {
    const BELOW: &str = "lib/mysqlrouter/plugin";
    let program = program.canonicalize().ok()?;
    let plugins = program.parent()?.parent()?.join(BELOW);
    plugins.is_dir().then_some(plugins)
}

fn text(program: &Path, run: &Path, start: &ProxyStart<'_>, endpoint: &Endpoint) -> String {
    let plugins = plugins(program).map(|folder| format!("plugin_folder={}\n", folder.display()));
    let listen = match endpoint {
        Endpoint::Unix(path) => format!("socket={}", path.display()),
        Endpoint::Tcp(address) => format!("bind_address={}\nbind_port={}", address.ip(), address.port()),
        Endpoint::Host { host, port, .. } => format!("bind_address={host}\nbind_port={port}"),
    };
    // In transaction mode, an idle client gives its connection back at once.
    let sharing = match start.proxy.mode {
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
        run = run.display(),
        pool = start.pool_size(),
        behind = start.behind,
        authority = start.server.ca_file().display(),
        most = start.max_clients(),
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
