//! OpenVPN: point to point, with a process and a network interface at each end, and certificates on both sides.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Instant;

use ciphertoll_host::exec::{Provisions, Rights};
use ciphertoll_host::files::{self, PRIVATE_DIRECTORY, PRIVATE_FILE, PUBLIC_FILE};
use ciphertoll_host::programs;
use ciphertoll_host::user::RunAs;
use ciphertoll_model::{Leg, OpenVpnCipher, ServerKey};

use super::setup::{CpuOwner, Side, StartedTunnel, Traffic, TunnelContext, TunnelEnd, TunnelStart, VPN};
use crate::error::Error;
use crate::middle::listener::{SocketProtocol, on_a_free_port, wait_for_listener, wait_until};
use crate::servers::config::{CA_FILE, CERTIFICATE_FILE, CLIENT_CA_FILE, KEY_FILE};

const INTERFACE: &str = "tun0";
/// The common name of the client's certificate, which the server verifies.
const CLIENT: &str = "ciphertoll-client";
const READY: &str = "Initialization Sequence Completed";
/// Comes behind the line that says it is ready, and on its own: the cipher is not known before.
const DATA_CHANNEL: &str = "Data Channel: cipher ";

pub(super) fn start(
    context: &TunnelContext<'_>,
    start: &TunnelStart<'_>,
    cipher: OpenVpnCipher,
) -> Result<StartedTunnel, Error> {
    let program = programs::find(&["openvpn"], "openvpn")?;
    let [client_keys, server_keys] = write_credentials(context)?;
    let began = Instant::now();
    let (server_end, far) = on_a_free_port("openvpn", IpAddr::from(start.server_address()), |far| {
        let arguments = server_arguments(&server_keys, far);
        let end = end(Side::Server, &program, arguments, cipher);
        let mut server_end = context.spawn(start, end)?;
        wait_for_listener(&mut server_end, SocketProtocol::Udp, far.port())?;
        Ok((server_end, far))
    })?;
    let end = end(Side::Client, &program, client_arguments(&client_keys, far), cipher);
    let mut ends = vec![context.spawn(start, end)?, server_end];
    for end in &mut ends {
        wait_until(end, "its key exchange was not completed", |end| {
            let output = end.output();
            Ok([READY, DATA_CHANNEL].iter().all(|line| output.contains(line)))
        })?;
    }
    let leg = leg(&ends[0].output());
    let endpoint = SocketAddr::from((VPN[1], start.server.port()));
    Ok(StartedTunnel {
        ends,
        endpoint,
        leg,
        traffic: Traffic::Interface(INTERFACE),
        cpu: CpuOwner::Ends,
        began,
    })
}

/// Writes the credentials; returns the directories of client and server.
fn write_credentials(context: &TunnelContext<'_>) -> Result<[PathBuf; 2], Error> {
    let authorities = &context.workspace.authorities;
    let client = (&authorities.servers, authorities.clients.issue_to_client(CLIENT)?, CA_FILE);
    let server = (&authorities.clients, authorities.servers.issue(ServerKey::P256)?, CLIENT_CA_FILE);
    let directories = ["client", "server"].map(|name| context.directory.join(name));
    for ((trusts, own, trusts_file), directory) in [client, server].into_iter().zip(&directories) {
        files::make_directory(directory, PRIVATE_DIRECTORY, RunAs::Ourselves)?;
        let write = |name: &str, bytes: &[u8], mode| {
            files::write(&directory.join(name), bytes, mode, RunAs::Ourselves)
        };
        write(trusts_file, &trusts.certificate_pem()?, PUBLIC_FILE)?;
        write(CERTIFICATE_FILE, &own.certificate_pem, PUBLIC_FILE)?;
        write(KEY_FILE, &own.key_pem, PRIVATE_FILE)?;
    }
    Ok(directories)
}

fn end(side: Side, program: &Path, arguments: Vec<String>, cipher: OpenVpnCipher) -> TunnelEnd<'_> {
    // The kernel's data channel (DCO) supports AEAD ciphers only and has no process to measure.
    let cipher = cipher.openvpn_name();
    let common = format!(
        "--dev {INTERFACE} --dev-type tun --disable-dco --data-ciphers {cipher} --cipher {cipher} --auth SHA256 \
         --verb 3 --script-security 1"
    );
    let arguments = words(&common).chain(arguments).collect();
    let provisions = Provisions { rights: Rights::Network, ..Provisions::default() };
    let (what, environment) = (side.process("openvpn"), BTreeMap::new());
    TunnelEnd { side, what, program, arguments, environment, provisions }
}

fn server_arguments(keys: &Path, far: SocketAddr) -> Vec<String> {
    let ([client, server], address, port) = (VPN, far.ip(), far.port());
    let own = format!(
        "--tls-server --dh none --proto udp4 --local {address} --lport {port} --ifconfig {server} {client} \
         --verify-x509-name {CLIENT} name --remote-cert-tls client"
    );
    words(&own).chain(key_arguments(keys, CLIENT_CA_FILE)).collect()
}

fn client_arguments(keys: &Path, far: SocketAddr) -> Vec<String> {
    let ([client, server], address, port) = (VPN, far.ip(), far.port());
    let own = format!(
        "--tls-client --nobind --proto udp4 --remote {address} {port} --ifconfig {client} {server} \
         --remote-cert-tls server"
    );
    words(&own).chain(key_arguments(keys, CA_FILE)).collect()
}

fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(' ').map(ToOwned::to_owned)
}

fn key_arguments(keys: &Path, authority: &str) -> Vec<String> {
    let path = |name: &str| keys.join(name).display().to_string();
    let words = [("--ca", authority), ("--cert", CERTIFICATE_FILE), ("--key", KEY_FILE)];
    words.into_iter().flat_map(|(option, name)| [option.to_owned(), path(name)]).collect()
}

/// The cipher in the client's output.
fn leg(said: &str) -> Leg {
    let quoted = |words: &str| {
        let line = said.lines().find_map(|line| line.split_once(words).map(|(_, rest)| rest))?;
        line.split('\'').nth(1).map(ToOwned::to_owned)
    };
    Leg {
        from: "openvpn".to_owned(),
        to: "openvpn".to_owned(),
        // OpenVPN reports the cipher `none` as `[null-cipher]`.
        suite: quoted(DATA_CHANNEL).map(|cipher| cipher.replace("[null-cipher]", "none")),
        key: Some(ServerKey::P256.label().to_owned()),
        library: Some("OpenVPN".to_owned()),
        ..Leg::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cipher_is_read_from_the_clients_output() {
        let said = "2026-01-01 00:00:00 Data Channel: cipher 'AES-256-GCM', peer-id: 0\n";
        assert_eq!(leg(said).suite.as_deref(), Some("AES-256-GCM"));
        assert_eq!(
            leg("Data Channel: cipher '[null-cipher]', auth 'SHA256'\n").suite.as_deref(),
            Some("none")
        );
        assert_eq!(leg("").suite, None);
    }
}
