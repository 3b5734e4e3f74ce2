//! `MySQL Router`: a configuration of its own with one route and a pool. Clients log in to the server through it, so that
//! no password is written down.

use std::collections::BTreeMap;

use ciphertoll_model::Endpoint;

use super::{Program, ProxyStart, Wiring};
use crate::error::Error;
use crate::programs;

/// Debian has no package of it.
pub(crate) const HOW_TO_GET: &str = "install mysql-router from MySQL's own APT repository or, on Ubuntu, from Ubuntu's (Debian has no such package)";

pub(super) fn program(
    wiring: &Wiring<'_>,
    start: &ProxyStart<'_>,
    front: &Endpoint,
) -> Result<Program, Error> {
    // A pool it has from version 8.0.30 on.
    let file = programs::search("mysqlrouter")
        .ok_or_else(|| Error::ProgramMissing { program: "mysqlrouter", how_to_get: HOW_TO_GET.to_owned() })?;
    let listen = match front {
        Endpoint::Unix(path) => format!("socket={}", path.display()),
        Endpoint::Tcp(address) => format!("bind_address={}\nbind_port={}", address.ip(), address.port()),
        Endpoint::Host { host, port, .. } => format!("bind_address={host}\nbind_port={port}"),
    };
    let run = wiring.run.display();
    let text = format!(
        "[DEFAULT]\nlogging_folder=\nruntime_folder={run}\ndata_folder={run}\n[logger]\nlevel=WARNING\n\
         [connection_pool]\nmax_idle_server_connections={pool}\n\
         [routing:lab]\n{listen}\ndestinations={behind}\nrouting_strategy=first-available\nprotocol=classic\n\
         client_ssl_mode=DISABLED\nserver_ssl_mode=REQUIRED\nserver_ssl_verify=VERIFY_IDENTITY\n\
         server_ssl_ca={authority}\nmax_connections={most}\n",
        pool = start.pool_size(),
        behind = start.behind,
        authority = start.server.ca_file().display(),
        most = start.most_clients(),
    );
    let config = wiring.write("mysqlrouter.conf", &text)?;
    let arguments = vec!["-c".to_owned(), config.display().to_string()];
    Ok(Program { file, arguments, environment: BTreeMap::new(), secrets: BTreeMap::new() })
}
