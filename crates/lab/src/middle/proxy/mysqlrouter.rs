//! MySQL Router with one route and a pool. Clients log in to the server through it, so its configuration contains no
//! password.

use ciphertoll_model::Endpoint;

use super::setup::{ProxyCommand, ProxyContext, ProxyStart};
use crate::error::Error;
use crate::host::programs;

pub(super) fn command(
    context: &ProxyContext<'_>,
    start: &ProxyStart<'_>,
    endpoint: &Endpoint,
) -> Result<ProxyCommand, Error> {
    // Connection pools are available from version 8.0.30.
    let file = programs::find_or("mysqlrouter", || programs::HOW_TO_GET_MYSQL_ROUTER.to_owned())?;
    let listen = match endpoint {
        Endpoint::Unix(path) => format!("socket={}", path.display()),
        Endpoint::Tcp(address) => format!("bind_address={}\nbind_port={}", address.ip(), address.port()),
        Endpoint::Host { host, port, .. } => format!("bind_address={host}\nbind_port={port}"),
    };
    let run = context.run.display();
    let text = format!(
        "[DEFAULT]\nlogging_folder=\nruntime_folder={run}\ndata_folder={run}\n[logger]\nlevel=WARNING\n\
         [connection_pool]\nmax_idle_server_connections={pool}\n\
         [routing:lab]\n{listen}\ndestinations={behind}\nrouting_strategy=first-available\nprotocol=classic\n\
         client_ssl_mode=DISABLED\nserver_ssl_mode=REQUIRED\nserver_ssl_verify=VERIFY_IDENTITY\n\
         server_ssl_ca={authority}\nmax_connections={most}\n",
        pool = start.pool_size(),
        behind = start.behind,
        authority = start.server.ca_file().display(),
        most = start.max_clients(),
    );
    let config = context.write("mysqlrouter.conf", &text)?;
    let arguments = vec!["-c".to_owned(), config.display().to_string()];
    Ok(ProxyCommand::new(file, arguments))
}
