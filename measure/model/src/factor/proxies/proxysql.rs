//! ProxySQL. Its configuration contains the account; its admin interface is a Unix socket that only we and it can reach. It
//! verifies the CA of the server's certificate, but not the name, and negotiates the newest TLS version.

use crate::factor::proxy_program::{
    PoolMode, ProxyConfiguration, ProxyDefinition, ProxyListen, ProxyProtocol, ProxySite, ProxySource,
};

/// For the only attempt to log in, so that a refusal is reported at once. Its TLS handshake has 1 s per round trip, which
/// cannot be changed.
const LOGIN_LIMIT_MS: u32 = 10_000;
/// It accepts no more.
const MAX_RESET_QUEUE: u32 = 10_000;

pub(super) static DEFINITION: ProxyDefinition = ProxyDefinition {
    label: "proxysql",
    display_name: "ProxySQL",
    protocol: ProxyProtocol::MySql,
    older_version: None,
    insufficient: Some("ProxySQL does not verify the server's name"),
    source: ProxySource::Elsewhere(
        "install proxysql from ProxySQL's own APT repository (neither Debian nor Ubuntu has such a package)",
    ),
    configure: Some(configuration),
};

fn configuration(site: &ProxySite<'_>) -> ProxyConfiguration {
    const FILE: &str = "proxysql.cnf";
    // A single foreground process without a watchdog, which does not ask its maker for newer versions. Its own tables are in
    // the directory that is removed with it.
    let mut arguments =
        ["-f", "-e", "-M", "--no-version-check", "--initial", "-c"].map(ToOwned::to_owned).to_vec();
    arguments.extend([site.file(FILE), "-D".to_owned(), site.run.display().to_string()]);
    ProxyConfiguration { files: vec![(FILE, text(site))], arguments }
}

fn text(site: &ProxySite<'_>) -> String {
    let interface = match site.listen {
        ProxyListen::Unix(path) => path.display().to_string(),
        ProxyListen::Tcp(address) => address.to_string(),
    };
    // Without multiplexing, a client keeps its connection until it leaves; the connection is then reset. With
    // multiplexing, it is not.
    let multiplexing = match site.mode {
        PoolMode::Session => "false",
        PoolMode::Transaction => "true",
    };
    let admin_socket = site.run.join("admin.sock");
    let (behind, pool) = (site.upstream, site.pool_size);
    format!(
        "datadir=\"{run}\"\n\
         admin_variables=\n{{\n admin_credentials=\"admin:{admin}\"\n stats_credentials=\"stats:{admin}\"\n \
         mysql_ifaces=\"{admin_socket}\"\n}}\n\
         mysql_variables=\n{{\n interfaces=\"{interface}\"\n max_connections={most}\n default_schema=\"{database}\"\n \
         monitor_enabled=false\n have_ssl=false\n ssl_p2s_ca=\"{authority}\"\n multiplexing={multiplexing}\n \
         free_connections_pct=100\n connpoll_reset_queue_length={queue}\n \
         connect_timeout_server={LOGIN_LIMIT_MS}\n connect_retries_on_failure=0\n}}\n\
         mysql_servers=\n(\n {{ address=\"{address}\" port={port} hostgroup=0 use_ssl=1 max_connections={pool} }}\n)\n\
         mysql_users=\n(\n {{ username=\"{user}\" password=\"{password}\" default_hostgroup=0 active=1 }}\n)\n",
        run = site.run.display(),
        admin = site.admin_password,
        admin_socket = admin_socket.display(),
        most = site.max_clients,
        database = site.database,
        authority = site.authority.display(),
        // Connections that it cannot queue for a reset are closed.
        queue = pool.min(MAX_RESET_QUEUE),
        address = behind.ip(),
        port = behind.port(),
        user = site.user,
        password = site.password,
    )
}
