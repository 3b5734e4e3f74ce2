//! stunnel: a process that takes a local port further by TLS, and one beside the server that takes TLS to it.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Instant;

use ciphertoll_model::{Leg, ServerKey};

use super::end::{Protocol, on_a_free_port, wait_for_listener};
use super::{Cpu, End, Side, Traffic, TunnelStart, Up, Wiring};
use crate::config::{CA_FILE, CERTIFICATE_FILE, KEY_FILE};
use crate::error::Error;
use crate::exec::Provisions;
use crate::files::{self, PRIVATE_FILE, PUBLIC_FILE};
use crate::programs;
use crate::spawn::Child;
use crate::user::RunAs;

/// What the level stands for.
const VERSION: &str = "TLSv1.3";
/// OpenSSL's own first choice, and stunnel's: said, so that nothing else can be agreed on.
const SUITE: &str = "TLS_AES_256_GCM_SHA384";

pub(super) fn start(wiring: &Wiring<'_>, start: &mut TunnelStart<'_>) -> Result<Up, Error> {
    let program = programs::find(&["stunnel4", "stunnel"], "stunnel4")?;
    write_credentials(wiring)?;
    let began = Instant::now();
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, start.server.port()));
    let (server_end, far) = on_a_free_port("stunnel", IpAddr::from(start.far()), |far| {
        let text = server_text(wiring.place, far, server);
        let server_end = listening(wiring, start, Side::Server, &program, &text, far.port())?;
        Ok((server_end, start.reach(far)?))
    })?;
    let (client_end, endpoint) = on_a_free_port("stunnel", Ipv4Addr::LOCALHOST.into(), |endpoint| {
        let text = client_text(wiring.place, endpoint, far);
        Ok((listening(wiring, start, Side::Client, &program, &text, endpoint.port())?, endpoint))
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
    Ok(Up {
        ends: vec![client_end, server_end],
        endpoint,
        leg,
        traffic: Traffic::Written,
        cpu: Cpu::OfEnds,
        began,
    })
}

fn write_credentials(wiring: &Wiring<'_>) -> Result<(), Error> {
    let authority = &wiring.lab.authorities.servers;
    let certificate = authority.issue(ServerKey::P256)?;
    let write = |name: &str, bytes: &[u8], mode| {
        files::write(&wiring.place.join(name), bytes, mode, RunAs::Ourselves)
    };
    write(CA_FILE, &authority.certificate_pem()?, PUBLIC_FILE)?;
    write(CERTIFICATE_FILE, &certificate.certificate_pem, PUBLIC_FILE)?;
    write(KEY_FILE, &certificate.key_pem, PRIVATE_FILE)
}

fn listening(
    wiring: &Wiring<'_>,
    start: &TunnelStart<'_>,
    side: Side,
    program: &Path,
    text: &str,
    port: u16,
) -> Result<Child, Error> {
    let what = match side {
        Side::Client => "stunnel-client",
        Side::Server => "stunnel-server",
    };
    let config = wiring.place.join(format!("{what}-{port}.conf"));
    files::write(&config, text.as_bytes(), PRIVATE_FILE, RunAs::Ourselves)?;
    let end = End {
        side,
        what,
        program,
        arguments: vec![config.display().to_string()],
        environment: &[],
        provisions: Provisions::default(),
        run_as: RunAs::Ourselves,
    };
    let mut child = wiring.spawn(start, end)?;
    wait_for_listener(&mut child, Protocol::Tcp, port)?;
    Ok(child)
}

/// In front, syslog or a file of its own would be where it logs, and a line for each connection what.
const COMMON: &str = "foreground = yes\npid =\nsyslog = no\ndebug = warning\n[database]\n";

fn server_text(place: &Path, accept: SocketAddr, connect: SocketAddr) -> String {
    let mut text = COMMON.to_owned();
    let path = |name: &str| place.join(name).display().to_string();
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "accept = {accept}\nconnect = {connect}\ncert = {}\nkey = {}\nsslVersion = {VERSION}\nciphersuites = {SUITE}\n",
        path(CERTIFICATE_FILE),
        path(KEY_FILE),
    );
    text
}

fn client_text(place: &Path, accept: SocketAddr, connect: SocketAddr) -> String {
    let mut text = COMMON.to_owned();
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "client = yes\naccept = {accept}\nconnect = {connect}\nCAfile = {}\nverifyChain = yes\ncheckIP = {}\n\
         sslVersion = {VERSION}\nciphersuites = {SUITE}\n",
        place.join(CA_FILE).display(),
        connect.ip(),
    );
    text
}
