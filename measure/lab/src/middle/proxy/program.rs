//! The process of a proxy, of any program.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use ciphertoll_fetch::table::fetched_program;
use ciphertoll_host::exec::Provisions;
use ciphertoll_host::hex::hex;
use ciphertoll_host::programs;
use ciphertoll_host::spawn::{Child, Launch};
use ciphertoll_model::{Endpoint, ProxyFront, ProxyListen, ProxyProgram, ProxySite, ProxySource};

use super::setup::{ProxyCommand, ProxyContext, ProxyStart};
use super::{probe, sidecar};
use crate::error::Error;
use crate::middle::listener::{SocketProtocol, on_a_free_port, wait_for_listener};

/// The file of a proxy's program: an installed one, or else the fetched one. The error says how to get it. `own` is this
/// program, next to which the sidecar is.
pub(super) fn proxy_program(program: ProxyProgram, own: &Path) -> Result<PathBuf, Error> {
    let how_to_get = match program.definition().source {
        ProxySource::Own => return Ok(programs::find_sidecar(own)?),
        ProxySource::Package(package) => programs::how_to_install(package),
        ProxySource::Elsewhere(advice) => advice.to_owned(),
    };
    let name = program.label();
    let found = programs::search(name).or_else(|| fetched_program(name));
    found.ok_or(ciphertoll_host::Error::ProgramMissing { program: name, how_to_get }.into())
}

/// Starts a proxy and waits until it listens; returns its address for clients.
pub(super) fn start(context: &ProxyContext<'_>, start: &ProxyStart<'_>) -> Result<(Child, Endpoint), Error> {
    match start.proxy.front {
        ProxyFront::Unix => {
            let name = start.server.server_engine().properties().proxy_socket_name;
            let socket: PathBuf = context.run.join(name);
            let endpoint = Endpoint::Unix(socket.clone());
            let mut child = spawn(context, start, &endpoint)?;
            probe::wait_for_socket(&mut child, &socket)?;
            Ok((child, endpoint))
        }
        ProxyFront::Tcp => {
            let name = start.proxy.program.display_name();
            on_a_free_port(name, Ipv4Addr::LOCALHOST.into(), |address| {
                let endpoint = Endpoint::Tcp(address);
                let mut child = spawn(context, start, &endpoint)?;
                wait_for_listener(&mut child, SocketProtocol::Tcp, address.port())?;
                Ok((child, endpoint))
            })
        }
    }
}

/// The command of a program that will listen on `endpoint`.
fn command(
    file: PathBuf,
    context: &ProxyContext<'_>,
    start: &ProxyStart<'_>,
    endpoint: &Endpoint,
) -> Result<ProxyCommand, Error> {
    const ADMIN_PASSWORD_BYTES: usize = 16;
    let listen = match endpoint {
        Endpoint::Unix(path) => Some(ProxyListen::Unix(path)),
        Endpoint::Tcp(address) => Some(ProxyListen::Tcp(*address)),
        Endpoint::Host { .. } => None,
    };
    let configure = start.proxy.program.definition().configure;
    let Some((configure, listen)) = configure.zip(listen) else {
        return sidecar::command(&file, context, start, endpoint);
    };
    let mut admin = [0; ADMIN_PASSWORD_BYTES];
    openssl::rand::rand_bytes(&mut admin)?;
    let configuration = configure(&ProxySite {
        program: &file,
        directory: context.directory,
        run: context.run,
        listen,
        mode: start.proxy.mode,
        version: start.proxy.version,
        upstream: start.behind,
        admission: start.admission,
        user: &start.account.user,
        password: &context.password_text(),
        database: start.server.database(),
        authority: &start.server.ca_file(),
        pool_size: start.pool_size(),
        max_clients: start.max_clients(),
        admin_password: &hex(&admin),
    });
    context.configured(file, configuration)
}

/// Starts the program, which will listen on `endpoint`.
fn spawn(context: &ProxyContext<'_>, start: &ProxyStart<'_>, endpoint: &Endpoint) -> Result<Child, Error> {
    let file = proxy_program(start.proxy.program, &context.workspace.helper)?;
    let command = command(file, context, start, endpoint)?;
    let name = start.proxy.to_string().replace(['+', '='], "-");
    let launch = Launch {
        what: start.proxy.program.display_name().to_owned(),
        program: command.file,
        arguments: command.arguments,
        environment: command.environment,
        directory: "/".into(),
        run_as: context.workspace.run_as,
        processors: start.processors.map(<[u16]>::to_vec),
        namespace: start.namespace.cloned(),
        provisions: Provisions { secrets: command.secrets, ..Provisions::default() },
        log: start.logs.join(format!("{name}.log")),
    };
    context.workspace.spawn(&launch)
}
