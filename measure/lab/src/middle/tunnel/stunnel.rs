//! stunnel: a process that forwards a local port over TLS, and one next to the server that terminates TLS.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Instant;

use ciphertoll_host::exec::Provisions;
use ciphertoll_host::files::{self, PRIVATE_FILE, PUBLIC_FILE};
use ciphertoll_host::programs;
use ciphertoll_host::spawn::Child;
use ciphertoll_host::user::RunAs;
use ciphertoll_model::{Leg, ServerKey};

use super::setup::{CpuOwner, Side, StartedTunnel, Traffic, TunnelContext, TunnelEnd, TunnelStart};
use crate::error::Error;
use crate::middle::listener::{SocketProtocol, on_a_free_port, wait_for_listener};
use crate::servers::config::{CA_FILE, CERTIFICATE_FILE, KEY_FILE};

const VERSION: &str = "TLSv1.3";
/// The default of OpenSSL and stunnel, set explicitly to exclude others.
const SUITE: &str = "TLS_AES_256_GCM_SHA384";

pub(super) fn start(
    context: &TunnelContext<'_>,
    start: &mut TunnelStart<'_>,
) -> Result<StartedTunnel, Error> {
    let program = programs::find(&["stunnel4", "stunnel"], "stunnel4")?;
    write_credentials(context)?;
    let began = Instant::now();
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, start.server.port()));
    let (server_end, far) = on_a_free_port("stunnel", IpAddr::from(start.server_address()), |far| {
        let text = server_text(context.directory, far, server);
        let server_end = start_end(context, start, Side::Server, &program, &text, far.port())?;
        Ok((server_end, start.reachable_address(far)?))
    })?;
    let (client_end, endpoint) = on_a_free_port("stunnel", Ipv4Addr::LOCALHOST.into(), |endpoint| {
        let text = client_text(context.directory, endpoint, far);
        Ok((start_end(context, start, Side::Client, &program, &text, endpoint.port())?, endpoint))
    })?;
    let leg = Leg {
        from: "stunnel".to_owned(),
        to: "stunnel".to_owned(),
        tls_version: Some("tls1.3".to_owned()),
        suite: Some(SUITE.to_owned()),
        key: Some(ServerKey::P256.label().to_owned()),
        library: Some("stunnel".to_owned()),
        ..Leg::default()
    };
    Ok(StartedTunnel {
        ends: vec![client_end, server_end],
        endpoint,
        leg,
        traffic: Traffic::Written,
        cpu: CpuOwner::Ends,
        began,
    })
}

fn write_credentials(context: &TunnelContext<'_>) -> Result<(), Error> {
    let authority = &context.workspace.authorities.servers;
    let certificate = authority.issue(ServerKey::P256)?;
    let write = |name: &str, bytes: &[u8], mode| {
        files::write(&context.directory.join(name), bytes, mode, RunAs::Ourselves)
    };
    write(CA_FILE, &authority.certificate_pem()?, PUBLIC_FILE)?;
    write(CERTIFICATE_FILE, &certificate.certificate_pem, PUBLIC_FILE)?;
    Ok(write(KEY_FILE, &certificate.key_pem, PRIVATE_FILE)?)
}

fn start_end(
    context: &TunnelContext<'_>,
    start: &TunnelStart<'_>,
    side: Side,
    program: &Path,
    text: &str,
    port: u16,
) -> Result<Child, Error> {
    let what = side.process("stunnel");
    let config = context.directory.join(format!("{what}-{port}.conf"));
    files::write(&config, text.as_bytes(), PRIVATE_FILE, RunAs::Ourselves)?;
    let end = TunnelEnd {
        side,
        what,
        program,
        arguments: vec![config.display().to_string()],
        environment: BTreeMap::new(),
        provisions: Provisions::default(),
    };
    let mut child = context.spawn(start, end)?;
    wait_for_listener(&mut child, SocketProtocol::Tcp, port)?;
    Ok(child)
}

/// Logs warnings to stderr only: the default level logs a line per connection.
const COMMON: &str = "foreground = yes\npid =\nsyslog = no\ndebug = warning\n[database]\n";

fn server_text(place: &Path, accept: SocketAddr, connect: SocketAddr) -> String {
    let path = |name: &str| place.join(name).display().to_string();
    format!(
        "{COMMON}accept = {accept}\nconnect = {connect}\ncert = {}\nkey = {}\nsslVersion = {VERSION}\nciphersuites = {SUITE}\n",
        path(CERTIFICATE_FILE),
        path(KEY_FILE),
    )
}

fn client_text(place: &Path, accept: SocketAddr, connect: SocketAddr) -> String {
    format!(
        "{COMMON}client = yes\naccept = {accept}\nconnect = {connect}\nCAfile = {}\nverifyChain = yes\ncheckIP = {}\n\
         sslVersion = {VERSION}\nciphersuites = {SUITE}\n",
        place.join(CA_FILE).display(),
        connect.ip(),
    )
}
