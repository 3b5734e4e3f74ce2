//! OpenSSH: an sshd that accepts one connection, and an ssh that forwards a port through it. Both use new keys and read no
//! other configuration.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use ciphertoll_host::exec::{Provisions, Stdin};
use ciphertoll_host::files::{self, PRIVATE_FILE};
use ciphertoll_host::programs;
use ciphertoll_host::user::RunAs;
use ciphertoll_model::{Leg, SshSession, SshTunnel};
use ciphertoll_record::Context;
use nix::unistd::{User, geteuid};

use super::setup::{CpuOwner, Side, StartedTunnel, Traffic, TunnelContext, TunnelEnd, TunnelStart};
use crate::error::Error;
use crate::middle::listener::{SocketProtocol, on_a_free_port, wait_for_listener};

/// The server's name in the client's known hosts, independent of its address.
const ALIAS: &str = "ciphertoll";
const HOST_KEY: &str = "host";
const USER_KEY: &str = "user";
const KNOWN_HOSTS: &str = "known-hosts";
const SERVER_CONFIG: &str = "sshd.conf";
const CLIENT_CONFIG: &str = "ssh.conf";

pub(super) fn start(
    context: &TunnelContext<'_>,
    start: &mut TunnelStart<'_>,
    ssh: SshTunnel,
) -> Result<StartedTunnel, Error> {
    let sshd = programs::find(&["sshd"], "openssh-server")?;
    let client = programs::find(&["ssh"], "openssh-client")?;
    make_keys(context.directory)?;
    let user = own_name()?;
    write_configurations(context.directory, ssh)?;
    let began = Instant::now();
    let far = IpAddr::from(start.server_address());
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, start.server.port()));
    on_a_free_port("ssh", Ipv4Addr::LOCALHOST.into(), |endpoint| {
        // If the client's port is in use, the server has ended too, because it accepts one connection only.
        let (server_end, address) = on_a_free_port("sshd", far, |address| {
            let mut server_end = context.spawn(start, server_end(context.directory, &sshd, address))?;
            wait_for_listener(&mut server_end, SocketProtocol::Tcp, address.port())?;
            Ok((server_end, start.reachable_address(address)?))
        })?;
        let forward = Forward { user: &user, address, endpoint, to, session: ssh.session };
        let mut client_end = context.spawn(start, client_end(context.directory, &client, &forward))?;
        wait_for_listener(&mut client_end, SocketProtocol::Tcp, endpoint.port())?;
        let leg = leg(&client_end.output());
        Ok(StartedTunnel {
            ends: vec![client_end, server_end],
            endpoint,
            leg,
            traffic: Traffic::Written,
            cpu: CpuOwner::Ends,
            began,
        })
    })
}

struct Forward<'a> {
    user: &'a str,
    /// The address of sshd.
    address: SocketAddr,
    endpoint: SocketAddr,
    /// The server's address as seen by sshd.
    to: SocketAddr,
    session: SshSession,
}

/// It runs as ourselves: an unprivileged sshd can log in its own user only.
fn server_end<'a>(place: &Path, program: &'a Path, address: SocketAddr) -> TunnelEnd<'a> {
    let config = place.join(SERVER_CONFIG).display().to_string();
    // As root, sshd requires `/run/sshd`, which its system service creates.
    let run = geteuid().is_root().then(|| vec!["sshd".to_owned()]);
    TunnelEnd {
        side: Side::Server,
        what: "sshd".to_owned(),
        program,
        // -i: one connection on stdin; -e: errors to stderr.
        arguments: ["-i", "-e", "-f", &config].map(ToOwned::to_owned).to_vec(),
        environment: BTreeMap::new(),
        provisions: Provisions { stdin: Stdin::Connection(address), run, ..Provisions::default() },
    }
}

fn client_end<'a>(place: &Path, program: &'a Path, forward: &Forward<'_>) -> TunnelEnd<'a> {
    let Forward { user, address, endpoint, to, session } = forward;
    let config = place.join(CLIENT_CONFIG).display().to_string();
    let (login, port) = (format!("{user}@{}", address.ip()), address.port().to_string());
    let forward = format!("{endpoint}:{to}");
    let mut arguments = ["-F", &config, "-p", &port, "-L", &forward].map(ToOwned::to_owned).to_vec();
    let rest = match session {
        // sftp runs in the sshd process, so no shell or program can be left behind.
        SshSession::Open => vec!["-s".to_owned(), login, "sftp".to_owned()],
        SshSession::None => vec!["-N".to_owned(), login],
    };
    arguments.extend(rest);
    TunnelEnd {
        side: Side::Client,
        what: "ssh".to_owned(),
        program,
        arguments,
        environment: BTreeMap::new(),
        provisions: Provisions { stdin: Stdin::Held, ..Provisions::default() },
    }
}

fn write_configurations(place: &Path, ssh: SshTunnel) -> Result<(), Error> {
    let cipher = ssh.cipher.ssh_name();
    let path = |name: &str| place.join(name).display().to_string();
    let server = format!(
        "HostKey {}\nAuthorizedKeysFile {}\nCiphers {cipher}\nPidFile none\nStrictModes no\nUsePAM no\n\
         PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n\
         AllowTcpForwarding local\nSubsystem sftp internal-sftp\nPrintMotd no\nPrintLastLog no\n",
        path(HOST_KEY),
        path(&format!("{USER_KEY}.pub")),
    );
    // `LogVerbose` for kex.c logs the agreed algorithms. A higher log level would also log lines per connection.
    let client = format!(
        "IdentityFile {}\nIdentitiesOnly yes\nIdentityAgent none\nUserKnownHostsFile {}\n\
         GlobalKnownHostsFile /dev/null\nStrictHostKeyChecking yes\nHostKeyAlias {ALIAS}\nCiphers {cipher}\n\
         BatchMode yes\nExitOnForwardFailure yes\nIgnoreUnknown LogVerbose\nLogVerbose kex.c:*:*\n",
        path(USER_KEY),
        path(KNOWN_HOSTS),
    );
    for (name, text) in [(SERVER_CONFIG, server), (CLIENT_CONFIG, client)] {
        files::write(&place.join(name), text.as_bytes(), PRIVATE_FILE, RunAs::Ourselves)?;
    }
    let public = place.join(format!("{HOST_KEY}.pub"));
    let host_key = fs::read_to_string(&public).context("read", &public)?;
    let known = format!("{ALIAS} {host_key}");
    Ok(files::write(&place.join(KNOWN_HOSTS), known.as_bytes(), PRIVATE_FILE, RunAs::Ourselves)?)
}

fn make_keys(place: &Path) -> Result<(), Error> {
    let program = programs::find(&["ssh-keygen"], "openssh-client")?;
    Ok([HOST_KEY, USER_KEY].into_iter().try_for_each(|name| {
        let mut command = Command::new(&program);
        command.args(["-q", "-t", "ed25519", "-N", "", "-C", ALIAS, "-f"]).arg(place.join(name));
        let output = command.stdin(Stdio::null()).output().context("start", &program)?;
        let reason = || String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if output.status.success() {
            Ok(())
        } else {
            Err(ciphertoll_host::Error::Program { program: program.clone(), reason: reason() })
        }
    })?)
}

fn own_name() -> Result<String, Error> {
    let user = User::from_uid(geteuid()).ok().flatten();
    user.map(|user| user.name).ok_or_else(|| Error::TunnelUnavailable {
        tunnel: "SSH".to_owned(),
        reason: format!("sshd requires a user name, but the user id {} has none", geteuid()),
    })
}

/// The agreed algorithms in the client's output; versions before 8.5 do not report them.
fn leg(said: &str) -> Leg {
    let after = |words: &str| {
        let line = said.lines().find_map(|line| line.split_once(words).map(|(_, rest)| rest.trim()))?;
        line.split_ascii_whitespace().next().map(ToOwned::to_owned)
    };
    Leg {
        from: "ssh".to_owned(),
        to: "sshd".to_owned(),
        suite: after("kex: client->server cipher: "),
        group: after("kex: algorithm: "),
        key: after("kex: host key algorithm: "),
        library: Some("OpenSSH".to_owned()),
        ..Leg::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agreed_algorithms_are_read_from_the_clients_output() {
        let said = "kex.c:700 x(): debug1: kex: algorithm: sntrup761x25519-sha512@openssh.com\r\n\
                    debug1: kex: host key algorithm: ssh-ed25519\r\n\
                    debug1: kex: server->client cipher: aes256-ctr MAC: umac-64-etm@openssh.com compression: none\r\n\
                    debug1: kex: client->server cipher: aes256-cbc MAC: umac-64-etm@openssh.com compression: none\r\n";
        let leg = leg(said);
        assert_eq!(leg.suite.as_deref(), Some("aes256-cbc"));
        assert_eq!(leg.group.as_deref(), Some("sntrup761x25519-sha512@openssh.com"));
        assert_eq!(leg.key.as_deref(), Some("ssh-ed25519"));
        assert_eq!(super::leg("").suite, None);
    }
}
