//! The way in: when a proxy listens, and the first client that goes through it.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_model::{Endpoint, Engine};
use ciphertoll_net::Address;
use ciphertoll_wire::session::Login;
use ciphertoll_wire::{Secret, mongodb, mysql, postgres};

use super::{ProxyStart, Wiring};
use crate::control::{self, Control};
use crate::error::Error;
use crate::server::Encryption;
use crate::spawn::Child;
use crate::tunnel::{Protocol, on_a_free_port, wait_for_listener, wait_until};

/// TLS and a login behind take a dozen round trips, and the longest link has ten seconds.
const THROUGH_LIMIT: Duration = Duration::from_mins(3);
/// How soon it is noticed that a proxy has ended.
const DEATH_CHECK: Duration = Duration::from_millis(10);

/// Waits until the proxy listens on its socket.
pub(super) fn wait_for_socket(child: &mut Child, socket: &Path) -> Result<(), Error> {
    let socket = socket.display().to_string();
    wait_until(child, "nobody listened", |child| {
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

/// Starts the proxy on a port of loopback.
pub(super) fn on_a_port(wiring: &Wiring<'_>, start: &ProxyStart<'_>) -> Result<(Child, Endpoint), Error> {
    on_a_free_port(start.proxy.program.display_name(), Ipv4Addr::LOCALHOST.into(), |address| {
        let endpoint = Endpoint::Tcp(address);
        let mut child = wiring.spawn(start, &endpoint)?;
        wait_for_listener(&mut child, Protocol::Tcp, address.port())?;
        Ok((child, endpoint))
    })
}

/// The way through a proxy to its server.
pub(super) struct Door {
    control: Control,
    engine: Engine,
    /// What a connection is asked to say of itself.
    question: &'static str,
}

impl Door {
    pub(super) fn new(start: &ProxyStart<'_>, endpoint: &Endpoint, password: &Secret) -> Self {
        let address = match endpoint {
            Endpoint::Tcp(address) => Address::Tcp(*address),
            Endpoint::Unix(path) => Address::Unix(path.clone()),
            Endpoint::Host { host, port, .. } => {
                Address::Host { name: host.clone(), port: *port, family: None }
            }
        };
        Self {
            control: Control::to(address, login(start, endpoint, password)),
            engine: start.server.engine(),
            question: start.server.own_encryption(),
        }
    }

    /// Goes through the proxy, and asks the server what the connection behind has agreed on. On a thread of its own, since
    /// a proxy may let one in and then say nothing.
    pub(super) fn go_through(&self, child: &mut Child) -> Result<Encryption, Error> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let (control, question) = (self.control.clone(), self.question);
        thread::spawn(move || {
            // Who does not wait for the answer any more has given up.
            let _ = sender.send(ask(&control, question));
        });
        let deadline = Instant::now() + THROUGH_LIMIT;
        loop {
            if let Ok(answer) = receiver.recv_timeout(DEATH_CHECK) {
                return answer.map(|rows| Encryption::answered(self.engine, rows));
            }
            child.check()?;
            if Instant::now() >= deadline {
                return Err(child.too_slow(THROUGH_LIMIT, "no client got through".to_owned()));
            }
        }
    }
}

fn ask(control: &Control, question: &str) -> Result<Vec<Vec<String>>, Error> {
    let mut client = control.connect()?;
    let rows = control::query(&mut client, "ask the server through the proxy", question)?;
    control::close(client)?;
    Ok(rows)
}

/// As the load's clients log in.
fn login(start: &ProxyStart<'_>, endpoint: &Endpoint, password: &Secret) -> Login {
    let (user, database) = (&start.account.user, Some(start.server.database().to_owned()));
    match start.server.engine() {
        engine @ (Engine::MariaDb | Engine::MySql) => Login::MySql(Arc::new(mysql::MySqlLogin {
            database,
            plugin: match engine {
                Engine::MySql => mysql::Plugin::CachingSha2Password,
                Engine::MariaDb | Engine::Postgres | Engine::MongoDb | Engine::FerretDb => {
                    mysql::Plugin::default()
                }
            },
            transport: match endpoint {
                Endpoint::Unix(_) => mysql::Transport::UnixSocket,
                Endpoint::Tcp(_) | Endpoint::Host { .. } => mysql::Transport::Tcp,
            },
            ..mysql::MySqlLogin::new(user, password.clone())
        })),
        Engine::Postgres => Login::Postgres(Arc::new(postgres::PostgresLogin {
            user: user.clone(),
            password: password.clone(),
            database,
            encryption: postgres::PostgresTlsMode::Plain,
            channel_binding: postgres::ChannelBinding::Disabled,
        })),
        Engine::MongoDb | Engine::FerretDb => Login::MongoDb(Arc::new(mongodb::MongoDbLogin {
            database: start.server.database().to_owned(),
            ..mongodb::MongoDbLogin::new(user, password.clone())
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_listens_is_told_from_who_is_connected() {
        let line = "0000000000000000: 00000002 00000000 00010000 0001 01 123456 /tmp/x/.s.PGSQL.5432";
        assert!(is_listener(line, "/tmp/x/.s.PGSQL.5432") && !is_listener(line, "/tmp/x/.s.PGSQL.543"));
        assert!(!is_listener(&line.replace("00010000", "00000000"), "/tmp/x/.s.PGSQL.5432"));
        assert!(!is_listener("0: 1 0 00010000 0001 01 1", "") && !is_listener("", ""));
    }
}
