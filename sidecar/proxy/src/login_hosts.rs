//! Logins that are made outside of the pool, by threads that may block, for what the handshakes of clients need: on a host that
//! has the role.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_net::blocking::Client;
use ciphertoll_net::tls::Context;
use ciphertoll_net::{Address, ContextSource, Dialer, Error, Fault, Transport};
use ciphertoll_wire::session::Login;

use crate::hosts::SharedHosts;
use crate::refusal::Refusal;
use crate::settings::Limits;

/// Of a connect, and of each call, if the settings do not limit them further.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// Between two looks at the hosts while none can be used.
const PAUSE: Duration = Duration::from_millis(50);
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
    time_limit: Duration,
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
        let time_limit = if is_watched { TIME_LIMIT.min(limits.health) } else { TIME_LIMIT };
        Self { label, hosts, known, time_limit, queue_time: limits.queue }
    }

    /// Whether a connection may still be used: another host may have the role since.
    pub(crate) fn may_use(&self, login: &HostLogin) -> bool {
        self.candidates().contains(&login.host)
    }

    fn candidates(&self) -> Vec<usize> {
        self.known.as_ref().map_or_else(|| vec![0], |known| known.with(|hosts| hosts.login_candidates()))
    }

    /// A login to a host that has the role. While there is none, it waits, as the clients of the pool do: up to `queue-time`
    /// after `since`. A login that a server refuses is not tried on another host.
    pub(crate) fn log_in(&self, login: &Login, since: Instant) -> Result<HostLogin, Error> {
        let mut last = None;
        loop {
            for host in self.candidates() {
                match self.dial(host, login) {
                    Err(error) if self.known.is_some() && !is_final(&error) => last = Some(error),
                    opened => return opened,
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

    fn dial(&self, at: usize, login: &Login) -> Result<HostLogin, Error> {
        let host = self.hosts.get(at).ok_or(Error::Closed)?;
        let mut client = Client::dial(&Dialer {
            address: host.address.clone(),
            login: login.clone(),
            tls: host.context.clone().map(ContextSource::Shared),
            transport: Transport::Blocking(self.time_limit),
        })?;
        client.limit_calls(self.time_limit)?;
        Ok(HostLogin { client, host: at })
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
