//! Odyssey, with the account in its configuration. Clients need no password on its Unix socket, which is in a directory
//! that only we and it can enter, unless the start requires one; over TCP they use SCRAM-SHA-256. It verifies the CA of
//! the server's certificate, but not the name, and negotiates the newest TLS version whatever `tls_protocols` says.

use std::path::PathBuf;

use ciphertoll_model::{Endpoint, PoolMode};

use super::setup::{ProxyCommand, ProxyContext, ProxyStart, SocketAuth};
use crate::error::Error;

pub(super) fn command(
    file: PathBuf,
    context: &ProxyContext<'_>,
    start: &ProxyStart<'_>,
    endpoint: &Endpoint,
) -> Result<ProxyCommand, Error> {
    let config = context.write("odyssey.conf", &text(context, start, endpoint))?;
    Ok(ProxyCommand::new(file, vec![config.display().to_string()]))
}

fn text(context: &ProxyContext<'_>, start: &ProxyStart<'_>, endpoint: &Endpoint) -> String {
    let password = context.password_text();
    let (listen, scram) = match endpoint {
        Endpoint::Unix(socket) => {
            let port = socket.extension().unwrap_or_default().to_string_lossy();
            (format!("port {port}"), start.admission == SocketAuth::Password)
        }
        Endpoint::Tcp(address) => {
            (format!("host \"{}\"\n port {}", address.ip(), address.port()), !password.is_empty())
        }
        Endpoint::Host { host, port, .. } => (format!("host \"{host}\"\n port {port}"), false),
    };
    let admission = if scram {
        format!("authentication \"scram-sha-256\"\n  password \"{password}\"")
    } else {
        "authentication \"none\"".to_owned()
    };
    let login = format!("storage_user \"{}\"\n  storage_password \"{password}\"", start.account.user);
    // In session mode, each session is reset. In transaction mode, prepared statements follow the client.
    let pooling = match start.proxy.mode {
        PoolMode::Session => "pool_discard yes",
        PoolMode::Transaction => "pool_discard no\n  pool_reserve_prepared_statement yes",
    };
    format!(
        "daemonize no\nlog_to_stdout yes\nlog_format \"%l (%c) %m\\n\"\n\
         log_config no\nlog_session no\nlog_query no\nlog_stats no\nlog_debug no\n\
         unix_socket_dir \"{run}\"\nunix_socket_mode \"0600\"\nlocks_dir \"{run}\"\nclient_max {most}\n\
         listen {{\n {listen}\n tls \"disable\"\n}}\n\
         storage \"server\" {{\n type \"remote\"\n host \"{address}\"\n port {port}\n tls \"verify_full\"\n \
         tls_ca_file \"{authority}\"\n}}\n\
         database \"{database}\" {{\n user \"{user}\" {{\n  {admission}\n  storage \"server\"\n  {login}\n  \
         pool \"{mode}\"\n  pool_size {pool}\n  {pooling}\n  client_fwd_error yes\n }}\n}}\n",
        run = context.run.display(),
        most = start.max_clients(),
        address = start.behind.ip(),
        port = start.behind.port(),
        authority = start.server.ca_file().display(),
        database = start.server.database(),
        user = start.account.user,
        mode = start.proxy.mode.label(),
        pool = start.pool_size(),
    )
}
