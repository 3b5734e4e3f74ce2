//! Odyssey, with the account in its configuration. Clients need no password on its Unix socket, which is in a directory
//! that only we and it can enter, unless the start requires one; over TCP they use SCRAM-SHA-256. It verifies the CA of
//! the server's certificate, but not the name, and negotiates the newest TLS version whatever `tls_protocols` says.

use crate::factor::proxy_program::{
    PoolMode, ProxyConfiguration, ProxyDefinition, ProxyListen, ProxyProtocol, ProxySite, ProxySource,
    SocketAuth,
};

pub(super) static DEFINITION: ProxyDefinition = ProxyDefinition {
    label: "odyssey",
    display_name: "Odyssey",
    protocol: ProxyProtocol::Postgres,
    older_version: None,
    insufficient: Some("Odyssey does not verify the server's name"),
    source: ProxySource::Elsewhere("run `ciphertoll servers fetch odyssey`, or build it from its source"),
    configure: Some(configuration),
};

fn configuration(site: &ProxySite<'_>) -> ProxyConfiguration {
    const FILE: &str = "odyssey.conf";
    ProxyConfiguration { files: vec![(FILE, text(site))], arguments: vec![site.file(FILE)] }
}

fn text(site: &ProxySite<'_>) -> String {
    let password = site.password;
    let (listen, scram) = match site.listen {
        ProxyListen::Unix(socket) => {
            let port = socket.extension().unwrap_or_default().to_string_lossy();
            (format!("port {port}"), site.admission == SocketAuth::Password)
        }
        ProxyListen::Tcp(address) => {
            (format!("host \"{}\"\n port {}", address.ip(), address.port()), !password.is_empty())
        }
    };
    let admission = if scram {
        format!("authentication \"scram-sha-256\"\n  password \"{password}\"")
    } else {
        "authentication \"none\"".to_owned()
    };
    let login = format!("storage_user \"{}\"\n  storage_password \"{password}\"", site.user);
    // In session mode, each session is reset. In transaction mode, prepared statements follow the client.
    let pooling = match site.mode {
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
        run = site.run.display(),
        most = site.max_clients,
        address = site.upstream.ip(),
        port = site.upstream.port(),
        authority = site.authority.display(),
        database = site.database,
        user = site.user,
        mode = site.mode.label(),
        pool = site.pool_size,
    )
}
