//! OpenSSH: an sshd that takes one connection, and an ssh that forwards a port through it. Both are ours alone: keys are
//! fresh, nobody's own configuration is read.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use ciphertoll_model::{Leg, SshSession, SshTunnel};
use nix::unistd::{User, geteuid};

use super::end::{Protocol, on_a_free_port, wait_for_listener};
use super::{Cpu, End, Side, Traffic, TunnelStart, Up, Wiring};
use crate::error::{Context, Error};
use crate::exec::{Provisions, Stdin};
use crate::files::{self, PRIVATE_FILE};
use crate::programs;
use crate::user::RunAs;

/// Whom the client takes the server for, wherever it is.
const ALIAS: &str = "ciphertoll";
const HOST_KEY: &str = "host";
const USER_KEY: &str = "user";
const KNOWN_HOSTS: &str = "known-hosts";
const SERVER_CONFIG: &str = "sshd.conf";
const CLIENT_CONFIG: &str = "ssh.conf";

pub(super) fn start(wiring: &Wiring<'_>, start: &mut TunnelStart<'_>, ssh: SshTunnel) -> Result<Up, Error> {
    let sshd = programs::find(&["sshd"], "openssh-server")?;
    let client = programs::find(&["ssh"], "openssh-client")?;
    make_keys(wiring.place)?;
    let user = own_name()?;
    write_configurations(wiring.place, ssh)?;
    let began = Instant::now();
    let far = IpAddr::from(start.far());
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, start.server.port()));
    on_a_free_port("ssh", Ipv4Addr::LOCALHOST.into(), |endpoint| {
        // With a client that found its port taken, a server that takes one connection has ended, too.
        let (server_end, address) = on_a_free_port("sshd", far, |address| {
            let mut server_end = wiring.spawn(start, server_end(wiring.place, &sshd, address))?;
            wait_for_listener(&mut server_end, Protocol::Tcp, address.port())?;
            Ok((server_end, start.reach(address)?))
        })?;
        let forward = Forward { user: &user, address, endpoint, to, session: ssh.session };
        let mut client_end = wiring.spawn(start, client_end(wiring.place, &client, &forward))?;
        wait_for_listener(&mut client_end, Protocol::Tcp, endpoint.port())?;
        let leg = leg(&client_end.said());
        Ok(Up {
            ends: vec![client_end, server_end],
            endpoint,
            leg,
            traffic: Traffic::Written,
            cpu: Cpu::OfEnds,
            began,
        })
    })
}

/// What is forwarded where.
struct Forward<'a> {
    user: &'a str,
    /// The sshd's.
    address: SocketAddr,
    /// For clients.
    endpoint: SocketAddr,
    /// The server, as the sshd sees it.
    to: SocketAddr,
    session: SshSession,
}

/// It logs in its own user only, unless it is root; and root it must not be in the lab.
fn server_end<'a>(place: &Path, program: &'a Path, address: SocketAddr) -> End<'a> {
    let config = place.join(SERVER_CONFIG).display().to_string();
    // As root it asks for a directory that only its service has made.
    let run = geteuid().is_root().then(|| vec!["sshd".to_owned()]);
    End {
        side: Side::Server,
        what: "sshd",
        program,
        // One connection, which is there already; errors to where we read them.
        arguments: ["-i", "-e", "-f", &config].map(ToOwned::to_owned).to_vec(),
        environment: &[],
        provisions: Provisions { stdin: Stdin::Connection(address), run, ..Provisions::default() },
        run_as: RunAs::Ourselves,
    }
}

fn client_end<'a>(place: &Path, program: &'a Path, forward: &Forward<'_>) -> End<'a> {
    let Forward { user, address, endpoint, to, session } = forward;
    let config = place.join(CLIENT_CONFIG).display().to_string();
    let (login, port) = (format!("{user}@{}", address.ip()), address.port().to_string());
    let forward = format!("{endpoint}:{to}");
    let mut arguments = ["-F", &config, "-p", &port, "-L", &forward].map(ToOwned::to_owned).to_vec();
    let rest = match session {
        // sshd's own, within its process: neither a shell nor a program that could be left behind.
        SshSession::Open => vec!["-s".to_owned(), login, "sftp".to_owned()],
        SshSession::None => vec!["-N".to_owned(), login],
    };
    arguments.extend(rest);
    End {
        side: Side::Client,
        what: "ssh",
        program,
        arguments,
        environment: &[],
        provisions: Provisions { stdin: Stdin::Held, ..Provisions::default() },
        run_as: RunAs::Ourselves,
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
    // What was agreed on is said by `kex.c`, and by it alone all is asked for: at a level that says it anyway, there would
    // be lines for each connection, too.
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
    files::write(&place.join(KNOWN_HOSTS), known.as_bytes(), PRIVATE_FILE, RunAs::Ourselves)
}

fn make_keys(place: &Path) -> Result<(), Error> {
    let program = programs::find(&["ssh-keygen"], "openssh-client")?;
    [HOST_KEY, USER_KEY].into_iter().try_for_each(|name| {
        let mut command = Command::new(&program);
        command.args(["-q", "-t", "ed25519", "-N", "", "-C", ALIAS, "-f"]).arg(place.join(name));
        let output = command.stdin(Stdio::null()).output().context("start", &program)?;
        let reason = || String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if output.status.success() {
            Ok(())
        } else {
            Err(Error::Program { program: program.clone(), reason: reason() })
        }
    })
}

fn own_name() -> Result<String, Error> {
    let user = User::from_uid(geteuid()).ok().flatten();
    user.map(|user| user.name).ok_or_else(|| Error::TunnelUnavailable {
        tunnel: "SSH".to_owned(),
        reason: format!("sshd logs in users that have a name, and the id {} has none", geteuid()),
    })
}

/// What the client says that both agreed on; versions before 8.5 do not.
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
    fn what_was_agreed_on_is_read_from_what_the_client_says() {
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
