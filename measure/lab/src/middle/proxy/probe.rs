//! Checks that a proxy listens and that clients reach the server through it.

use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_host::spawn::Child;
use ciphertoll_model::Endpoint;
use ciphertoll_net::Address;
use ciphertoll_wire::Secret;

use super::setup::ProxyStart;
use crate::error::Error;
use crate::middle::listener::wait_until;
use crate::servers::control::{self, ControlLogin};
use crate::servers::encryption::ConnectionEncryption;
use crate::servers::engine::{LoginRequest, ServerEngine};

/// TLS and a login to the server take a dozen round trips, and the longest link has ten seconds.
const CONNECT_LIMIT: Duration = Duration::from_mins(3);
/// Interval of checks for the proxy's end.
const DEATH_CHECK: Duration = Duration::from_millis(10);

pub(super) fn wait_for_socket(child: &mut Child, socket: &Path) -> Result<(), Error> {
    let socket = socket.display().to_string();
    wait_until(child, "no process listens", |child| {
        let sockets = fs::read_to_string(format!("/proc/{}/net/unix", child.pid())).unwrap_or_default();
        Ok(sockets.lines().any(|line| is_listener(line, &socket)))
    })
}

/// A line of `/proc/net/unix`: number, references, protocol, flags, type, state, inode, path (proc(5)).
fn is_listener(line: &str, socket: &str) -> bool {
    /// `__SO_ACCEPTCON`
    const ACCEPTS: &str = "00010000";
    let mut fields = line.split_ascii_whitespace().skip(3);
    fields.next() == Some(ACCEPTS) && fields.nth(3) == Some(socket)
}

/// A login through a proxy, like that of the load's clients.
pub(super) struct ProxyProbe {
    control: ControlLogin,
    engine: &'static dyn ServerEngine,
}

impl ProxyProbe {
    pub(super) fn new(start: &ProxyStart<'_>, endpoint: &Endpoint, password: &Secret) -> Self {
        let address = match endpoint {
            Endpoint::Tcp(address) => Address::Tcp(*address),
            Endpoint::Unix(path) => Address::Unix(path.clone()),
            Endpoint::Host { host, port, .. } => {
                Address::Host { name: host.clone(), port: *port, family: None }
            }
        };
        let engine = start.server.server_engine();
        let login = engine.login(&LoginRequest {
            user: &start.account.user,
            password,
            database: Some(start.server.database()),
            over_unix_socket: matches!(endpoint, Endpoint::Unix(_)),
            with_tls: false,
            startup: &[],
        });
        Self { control: ControlLogin::new(address, login), engine }
    }

    /// Connects through the proxy, and asks the server for the encryption of its connection. Runs on another thread, because
    /// a proxy may accept a connection and then hang.
    pub(super) fn connect(&self, child: &mut Child) -> Result<ConnectionEncryption, Error> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let (control, query) = (self.control.clone(), self.engine.properties().encryption_query);
        thread::spawn(move || {
            // The receiver is gone after a failure.
            let _ = sender.send(ask(&control, query));
        });
        let deadline = Instant::now() + CONNECT_LIMIT;
        loop {
            if let Ok(answer) = receiver.recv_timeout(DEATH_CHECK) {
                return answer.map(|rows| self.engine.parse_encryption(rows));
            }
            child.check()?;
            if Instant::now() >= deadline {
                return Err(child.too_slow(CONNECT_LIMIT, "no client reached the server".to_owned()).into());
            }
        }
    }
}

fn ask(control: &ControlLogin, query: &str) -> Result<Vec<Vec<String>>, Error> {
    let mut client = control.connect()?;
    let rows = control::query(&mut client, "query the server through the proxy", query)?;
    control::close(client)?;
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_sockets_are_distinguished_from_connections() {
        let line = "0000000000000000: 00000002 00000000 00010000 0001 01 123456 /tmp/x/.s.PGSQL.5432";
        assert!(is_listener(line, "/tmp/x/.s.PGSQL.5432") && !is_listener(line, "/tmp/x/.s.PGSQL.543"));
        assert!(!is_listener(&line.replace("00010000", "00000000"), "/tmp/x/.s.PGSQL.5432"));
        assert!(!is_listener("0: 1 0 00010000 0001 01 1", "") && !is_listener("", ""));
    }
}
