//! `ProxySQL`: a configuration of its own with the account in it, admin by a unix socket that only we and it can reach. It
//! verifies the server's authority, and not its name.

use std::collections::BTreeMap;

use ciphertoll_model::Endpoint;

use super::{Program, ProxyStart, Wiring};
use crate::error::Error;
use crate::hex::hex;
use crate::programs;

const ADMIN_PASSWORD_BYTES: usize = 16;
pub(crate) const HOW_TO_GET: &str =
    "install proxysql from ProxySQL's own APT repository (neither Debian nor Ubuntu has such a package)";

pub(super) fn program(
    wiring: &Wiring<'_>,
    start: &ProxyStart<'_>,
    front: &Endpoint,
) -> Result<Program, Error> {
    let file = programs::search("proxysql")
        .ok_or_else(|| Error::ProgramMissing { program: "proxysql", how_to_get: HOW_TO_GET.to_owned() })?;
    let config = wiring.write("proxysql.cnf", &text(wiring, start, front)?)?;
    // One process in front, whose end is an end; its own tables are in the directory that goes with it.
    let mut arguments = ["-f", "-e", "-M", "--initial", "-c"].map(ToOwned::to_owned).to_vec();
    arguments.extend([config.display().to_string(), "-D".to_owned(), wiring.run.display().to_string()]);
    Ok(Program { file, arguments, environment: BTreeMap::new(), secrets: BTreeMap::new() })
}

fn text(wiring: &Wiring<'_>, start: &ProxyStart<'_>, front: &Endpoint) -> Result<String, Error> {
    let mut admin = [0; ADMIN_PASSWORD_BYTES];
    openssl::rand::rand_bytes(&mut admin)?;
    let interface = match front {
        Endpoint::Unix(path) => path.display().to_string(),
        Endpoint::Tcp(address) => address.to_string(),
        Endpoint::Host { host, port, .. } => format!("{host}:{port}"),
    };
    let admin_socket = wiring.run.join("admin.sock");
    let (behind, pool) = (start.behind, start.pool_size());
    Ok(format!(
        "datadir=\"{run}\"\n\
         admin_variables=\n{{\n admin_credentials=\"admin:{admin}\"\n mysql_ifaces=\"{admin_socket}\"\n}}\n\
         mysql_variables=\n{{\n interfaces=\"{interface}\"\n max_connections={most}\n default_schema=\"{database}\"\n \
         monitor_enabled=false\n have_ssl=false\n ssl_p2s_ca=\"{authority}\"\n}}\n\
         mysql_servers=\n(\n {{ address=\"{address}\" port={port} hostgroup=0 use_ssl=1 max_connections={pool} }}\n)\n\
         mysql_users=\n(\n {{ username=\"{user}\" password=\"{password}\" default_hostgroup=0 active=1 }}\n)\n",
        run = wiring.run.display(),
        admin = hex(&admin),
        admin_socket = admin_socket.display(),
        most = start.most_clients(),
        database = start.server.database(),
        authority = start.server.ca_file().display(),
        address = behind.ip(),
        port = behind.port(),
        user = start.account.user,
        password = wiring.password_text(),
    ))
}
