//! ProxySQL. Its configuration contains the account; its admin interface is a Unix socket that only we and it can reach. It
//! verifies the CA of the server's certificate, but not the name, and negotiates the newest TLS version.

use std::path::PathBuf;

use ciphertoll_host::hex::hex;
use ciphertoll_model::{Endpoint, PoolMode};

use super::setup::{ProxyCommand, ProxyContext, ProxyStart};
use crate::error::Error;

const ADMIN_PASSWORD_BYTES: usize = 16;
/// For the only attempt to log in, so that a refusal is reported at once. Its TLS handshake has 1 s per round trip, which
/// cannot be changed.
const LOGIN_LIMIT_MS: u32 = 10_000;
/// It accepts no more.
const MAX_RESET_QUEUE: u32 = 10_000;

pub(super) fn command(
    file: PathBuf,
    context: &ProxyContext<'_>,
    start: &ProxyStart<'_>,
    endpoint: &Endpoint,
) -> Result<ProxyCommand, Error> {
    let config = context.write("proxysql.cnf", &text(context, start, endpoint)?)?;
    // A single foreground process without a watchdog, which does not ask its maker for newer versions. Its own tables are in
    // the directory that is removed with it.
    let mut arguments =
        ["-f", "-e", "-M", "--no-version-check", "--initial", "-c"].map(ToOwned::to_owned).to_vec();
    arguments.extend([config.display().to_string(), "-D".to_owned(), context.run.display().to_string()]);
    Ok(ProxyCommand::new(file, arguments))
}

fn text(context: &ProxyContext<'_>, start: &ProxyStart<'_>, endpoint: &Endpoint) -> Result<String, Error> {
    let mut admin = [0; ADMIN_PASSWORD_BYTES];
    openssl::rand::rand_bytes(&mut admin)?;
    let interface = match endpoint {
        Endpoint::Unix(path) => path.display().to_string(),
        Endpoint::Tcp(address) => address.to_string(),
        Endpoint::Host { host, port, .. } => format!("{host}:{port}"),
    };
    // Without multiplexing, a client keeps its connection until it leaves; the connection is then reset. With
    // multiplexing, it is not.
    let multiplexing = match start.proxy.mode {
        PoolMode::Session => "false",
        PoolMode::Transaction => "true",
    };
    let admin_socket = context.run.join("admin.sock");
    let (behind, pool) = (start.behind, start.pool_size());
    Ok(format!(
        "datadir=\"{run}\"\n\
         admin_variables=\n{{\n admin_credentials=\"admin:{admin}\"\n stats_credentials=\"stats:{admin}\"\n \
         mysql_ifaces=\"{admin_socket}\"\n}}\n\
         mysql_variables=\n{{\n interfaces=\"{interface}\"\n max_connections={most}\n default_schema=\"{database}\"\n \
         monitor_enabled=false\n have_ssl=false\n ssl_p2s_ca=\"{authority}\"\n multiplexing={multiplexing}\n \
         free_connections_pct=100\n connpoll_reset_queue_length={queue}\n \
         connect_timeout_server={LOGIN_LIMIT_MS}\n connect_retries_on_failure=0\n}}\n\
         mysql_servers=\n(\n {{ address=\"{address}\" port={port} hostgroup=0 use_ssl=1 max_connections={pool} }}\n)\n\
         mysql_users=\n(\n {{ username=\"{user}\" password=\"{password}\" default_hostgroup=0 active=1 }}\n)\n",
        run = context.run.display(),
        admin = hex(&admin),
        admin_socket = admin_socket.display(),
        most = start.max_clients(),
        database = start.server.database(),
        authority = start.server.ca_file().display(),
        // Connections that it cannot queue for a reset are closed.
        queue = pool.min(MAX_RESET_QUEUE),
        address = behind.ip(),
        port = behind.port(),
        user = start.account.user,
        password = context.password_text(),
    ))
}
