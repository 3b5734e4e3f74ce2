//! Logins that are made outside of the pool, by threads that may block, for what the handshakes of clients need: on a host that
//! has the role.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_net::blocking::{Client, OpenedConnection};
use ciphertoll_net::tls::Context;
use ciphertoll_net::{Address, ContextSource, Dialer, Error, Fault, Transport};
use ciphertoll_wire::session::Login;

use crate::hosts::SharedHosts;
use crate::refusal::Refusal;
use crate::settings::Limits;

/// Of a connect, of a login, and of each call.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// Between two looks at the hosts while none can be used.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a connection is used. A name may have got another address meanwhile.
const MAX_AGE: Duration = Duration::from_secs(10);
/// SQL states of a server that starts, shuts down or has crashed.
const PASSING: [&[u8; 5]; 3] = [b"57P01", b"57P02", b"57P03"];
/// The same for MySQL: `ER_SERVER_SHUTDOWN`, and a member without a cluster.
const PASSING_NUMBERS: [u16; 2] = [1053, 1047];

/// The hosts of one server, and what is known of them.
#[derive(Clone)]
pub struct LoginHosts {
    /// The server as the log names it.
    label: String,
    hosts: Vec<LoginHost>,
    /// `None` if there is one host, and no role is needed.
    known: Option<Arc<SharedHosts>>,
    connect_time: Duration,
    queue_time: Duration,
}

#[derive(Clone)]
pub(crate) struct LoginHost {
    pub(crate) address: Address,
    pub(crate) context: Option<Context>,
}

/// An open connection, and its host.
pub(crate) struct HostLogin {
    pub(crate) client: Client,
    host: usize,
    opened: Instant,
}

impl LoginHosts {
    pub(crate) fn new(
        label: String,
        hosts: Vec<LoginHost>,
        known: Option<&Arc<SharedHosts>>,
        limits: &Limits,
    ) -> Self {
        let known = known.filter(|known| !known.is_plain()).cloned();
        // A host that does not answer is left within `health-time`.
        let is_watched = known.is_some() && !limits.health.is_zero();
        let connect_time = if is_watched { TIME_LIMIT.min(limits.health) } else { TIME_LIMIT };
        Self { label, hosts, known, connect_time, queue_time: limits.queue }
    }

    /// Whether logins wait for a host, and each of them for itself.
    pub(crate) fn can_wait(&self) -> bool {
        self.known.is_some()
    }

    /// Whether a connection may still be used: another host may have the role since.
    pub(crate) fn may_use(&self, login: &HostLogin) -> bool {
        login.opened.elapsed() < MAX_AGE && self.candidates().contains(&login.host)
    }

    fn candidates(&self) -> Vec<usize> {
        self.known.as_ref().map_or_else(|| vec![0], |known| known.with(|hosts| hosts.login_candidates()))
    }

    /// A login to a host that has the role. While there is none, it waits, as the clients of the pool do: up to `queue-time`
    /// after `since`. A login that a server does not accept, or does not answer, is not tried again.
    pub(crate) fn log_in(&self, login: &Login, since: Instant) -> Result<HostLogin, Error> {
        let Some(known) = &self.known else { return self.open(0, login, self.connect_time)?.log_in(0) };
        let _waiting = known.look_up();
        let mut last = None;
        loop {
            for host in self.candidates() {
                let left = self.queue_time.saturating_sub(since.elapsed());
                if left.is_zero() {
                    break;
                }
                let opened = self.open(host, login, self.connect_time.min(left));
                match opened.and_then(|opened| opened.log_in(host)) {
                    Err(error) if may_succeed_elsewhere(&error) => {
                        let (reason, now) = (Refusal::reason(&error), Instant::now());
                        known.with(|hosts| hosts.failed(host, reason, now));
                        last = Some(error);
                    }
                    done => return done,
                }
            }
            if since.elapsed() >= self.queue_time {
                return Err(last.unwrap_or_else(|| self.none_known()));
            }
            thread::sleep(PAUSE);
        }
    }

    fn none_known(&self) -> Error {
        let reason = self.known.as_ref().map_or_else(String::new, |known| known.describe());
        Error::Unresolved { name: self.label.clone(), reason }
    }

    fn open(&self, at: usize, login: &Login, limit: Duration) -> Result<Opened, Error> {
        let host = self.hosts.get(at).ok_or(Error::Closed)?;
        let opened = Client::open(&Dialer {
            address: host.address.clone(),
            login: login.clone(),
            tls: host.context.clone().map(ContextSource::Shared),
            transport: Transport::Blocking(limit),
        });
        opened.map(Opened).map_err(|error| match error {
            // Nothing was sent, unlike at the limit of a login.
            Error::TimedOut { .. } => {
                Error::Socket { doing: "cannot connect", source: io::ErrorKind::TimedOut.into() }
            }
            error => error,
        })
    }
}

/// A connection before the login.
struct Opened(OpenedConnection);

impl Opened {
    fn log_in(self, host: usize) -> Result<HostLogin, Error> {
        let mut client = self.0.log_in(TIME_LIMIT)?;
        client.limit_calls(TIME_LIMIT)?;
        Ok(HostLogin { client, host, opened: Instant::now() })
    }
}

/// Whether a login that has failed may be tried on another host, or later: the server has not answered it.
fn may_succeed_elsewhere(error: &Error) -> bool {
    match error {
        // Only what a server says of itself. An account that needs a plugin which the proxy does not have needs it always.
        Error::Protocol(said) => Refusal::from_server(said).is_some() && !is_final(error),
        // The password was sent: each further attempt may count as a wrong one.
        Error::TimedOut { .. } => false,
        error => !is_final(error),
    }
}

/// Whether another host would not help or must not be asked: like libpq, do not send a refused password to
/// other hosts.
pub(crate) fn is_final(error: &Error) -> bool {
    // MySQL counts these among the connection failures. The host works.
    if error.is_too_many_connections() {
        return true;
    }
    if let Error::Protocol(said) = error
        && let Some(refusal) = Refusal::from_server(said)
    {
        let is_passing = PASSING.contains(&&refusal.sqlstate)
            || refusal.sqlstate.starts_with(b"08")
            || refusal.number.is_some_and(|number| PASSING_NUMBERS.contains(&number));
        return !is_passing;
    }
    matches!(error.fault(), Fault::Host | Fault::Caller)
}

#[cfg(test)]
mod tests {
    use ciphertoll_wire::{mysql, postgres};

    use super::*;

    fn said(code: u16, sql_state: &str) -> Error {
        mysql::Error::Server { code, sql_state: sql_state.to_owned(), message: String::new() }.into()
    }

    #[test]
    fn only_a_login_that_was_not_answered_is_tried_elsewhere() {
        let refused =
            Error::Socket { doing: "cannot connect", source: io::ErrorKind::ConnectionRefused.into() };
        for error in [Error::Closed, refused, said(1053, "08S01")] {
            assert!(may_succeed_elsewhere(&error), "{error}");
        }
        let unsupported = mysql::Error::UnsupportedAuth { plugin: "sha256_password".to_owned() };
        let broken = postgres::Error::Protocol { message: "login", reason: "nonsense" };
        for error in [
            Error::TimedOut { seconds: 5 },
            unsupported.into(),
            broken.into(),
            said(1045, "28000"),
            said(1040, "08004"),
            said(1226, "42000"),
        ] {
            assert!(!may_succeed_elsewhere(&error), "{error}");
        }
    }
}
