//! When a connection's steps were seen, and how long its phases took for the client.

use std::num::NonZeroU64;

use ciphertoll_vocabulary::Phase;

/// The phases of a connect, which do not overlap.
pub(crate) const CONNECT_PHASES: [Phase; 5] =
    [Phase::TcpConnect, Phase::ServerGreeting, Phase::TlsRequest, Phase::TlsHandshake, Phase::Auth];

/// When something was seen, in nanoseconds of the observer's clock, if it was. Takes 8 bytes: there are many of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SeenAt(Option<NonZeroU64>);

/// When each step was seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StepTimes {
    /// The last segment.
    pub(crate) last: u64,
    pub(crate) syn: SeenAt,
    pub(crate) syn_ack: SeenAt,
    /// The third segment, which ends the TCP handshake.
    pub(crate) ack: SeenAt,
    pub(crate) greeting: SeenAt,
    /// The client's first payload.
    pub(crate) request: SeenAt,
    /// The server's consent to TLS, in protocols where the client waits for it.
    pub(crate) tls_answer: SeenAt,
    pub(crate) client_hello: SeenAt,
    pub(crate) client_finished: SeenAt,
    /// Up to TLS 1.2, where it ends a full handshake.
    pub(crate) server_finished: SeenAt,
    pub(crate) login_started: SeenAt,
    /// The last answer that may be the login's, where only what follows tells.
    pub(crate) last_login: SeenAt,
    pub(crate) logged_in: SeenAt,
    pub(crate) first_query: SeenAt,
    pub(crate) first_answer: SeenAt,
}

impl SeenAt {
    pub(crate) fn new(ns: u64) -> Self {
        // No clock reaches the number that is taken for none.
        Self(NonZeroU64::new(!ns))
    }

    pub(crate) fn ns(self) -> Option<u64> {
        self.0.map(|inverted| !inverted.get())
    }

    pub(crate) fn is_known(self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn or(self, other: Self) -> Self {
        Self(self.0.or(other.0))
    }

    /// Keeps the first time.
    pub(crate) fn set_first(&mut self, ns: u64) {
        *self = self.or(Self::new(ns));
    }
}

impl StepTimes {
    /// The round trip between client and server: from SYN to the ACK of the answer, wherever the observer is between them.
    #[must_use]
    pub(crate) fn round_trip_ns(&self) -> Option<u64> {
        self.ack.ns()?.checked_sub(self.syn.ns()?)
    }

    /// How long a phase took for the client. What the server sends reaches it later than the observer, by the part of the
    /// round trip that lies between them.
    #[must_use]
    pub(crate) fn phase_ns(&self, phase: Phase) -> Option<u64> {
        let to_client_and_back = self.client_way_ns()?;
        let by_client = |until: SeenAt, from: SeenAt| until.ns()?.checked_sub(from.ns()?);
        let by_server =
            |until: SeenAt, from: SeenAt| Some(by_client(until, from)?.saturating_add(to_client_and_back));
        // TLS from the first byte needs no request. The client goes on without TLS if the server refuses it.
        let after_request = self.client_hello.or(self.login_started);
        match phase {
            Phase::TcpConnect => self.round_trip_ns(),
            Phase::ServerGreeting => by_server(self.greeting, self.ack),
            Phase::TlsRequest if !self.greeting.is_known() && self.request != after_request => {
                match self.awaited_answer() {
                    answer if answer.is_known() => by_server(answer, self.request),
                    _ => by_client(after_request, self.request),
                }
            }
            Phase::TlsHandshake => {
                // It begins when the server's consent reaches the client, whose first message takes time to be made.
                let (from, shift) = match self.awaited_answer() {
                    answer if answer.is_known() => (answer, to_client_and_back),
                    _ => (self.client_hello, 0),
                };
                let full = by_server(self.server_finished, from);
                full.max(by_client(self.client_finished, from)).map(|time| time.saturating_sub(shift))
            }
            Phase::Auth => by_server(self.logged_in, self.login_started),
            Phase::FirstQuery => by_server(self.first_answer, self.first_query),
            Phase::TlsRequest | Phase::Dns | Phase::TlsContext | Phase::Ready | Phase::Close => None,
        }
    }

    /// The server's consent to TLS, if the client waited for it.
    fn awaited_answer(&self) -> SeenAt {
        let is_awaited = self.tls_answer.ns().is_some_and(|answer| Some(answer) < self.client_hello.ns());
        if is_awaited { self.tls_answer } else { SeenAt::default() }
    }

    /// From the first segment to the server's answer that ends the login, as the client sees it.
    #[must_use]
    pub(crate) fn connect_ns(&self) -> Option<u64> {
        let to_client_and_back = self.client_way_ns()?;
        Some(self.logged_in.ns()?.checked_sub(self.syn.ns()?)?.saturating_add(to_client_and_back))
    }

    /// The rest of the connect: what the client does between the phases.
    #[must_use]
    pub(crate) fn client_ns(&self) -> Option<u64> {
        let of_phases: u64 = CONNECT_PHASES.into_iter().filter_map(|phase| self.phase_ns(phase)).sum();
        Some(self.connect_ns()?.saturating_sub(of_phases))
    }

    /// From the observer to the client and back.
    fn client_way_ns(&self) -> Option<u64> {
        self.ack.ns()?.checked_sub(self.syn_ack.ns()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_are_those_of_the_client_wherever_the_observer_is() {
        // A round trip of 10; the client's steps at 0, 10 (ACK, hello), 20 + 3 (Finished and login), 33 + 3 (ready).
        let at = |to_client: u64| {
            let client = |time: u64| SeenAt::new(time + to_client);
            let server = |time: u64| SeenAt::new(time - to_client);
            StepTimes {
                syn: client(0),
                syn_ack: server(10),
                ack: client(10),
                request: client(10),
                client_hello: client(10),
                client_finished: client(23),
                login_started: client(23),
                logged_in: server(36),
                ..StepTimes::default()
            }
        };
        for to_client in [0, 2, 5] {
            let times = at(to_client);
            assert_eq!(times.round_trip_ns(), Some(10));
            assert_eq!(times.phase_ns(Phase::TlsHandshake), Some(13));
            assert_eq!(times.phase_ns(Phase::Auth), Some(13));
            assert_eq!(times.connect_ns(), Some(36));
            assert_eq!(times.client_ns(), Some(0));
        }
    }

    #[test]
    fn the_phases_and_the_clients_own_time_are_the_whole_connect() {
        let times = StepTimes {
            syn: SeenAt::new(0),
            syn_ack: SeenAt::new(10),
            ack: SeenAt::new(11),
            // A request for TLS that is refused; the client thinks for 4, and begins its login.
            request: SeenAt::new(15),
            login_started: SeenAt::new(26),
            logged_in: SeenAt::new(40),
            ..StepTimes::default()
        };
        assert_eq!(times.phase_ns(Phase::TlsRequest), Some(11));
        let phases: u64 = CONNECT_PHASES.into_iter().filter_map(|phase| times.phase_ns(phase)).sum();
        assert_eq!((times.client_ns(), times.connect_ns()), (Some(4), Some(41)));
        assert_eq!(phases + 4, 41);
    }

    #[test]
    fn any_time_is_kept_and_none_is_none() {
        assert_eq!(SeenAt::default().ns(), None);
        assert_eq!(
            [0, 7, u64::MAX - 1].map(|ns| SeenAt::new(ns).ns()),
            [Some(0), Some(7), Some(u64::MAX - 1)]
        );
    }

    #[test]
    fn what_a_client_does_between_the_consent_to_tls_and_its_hello_is_the_handshakes() {
        // A round trip of 10: the request at 10, the consent at 20, the hello after 4, Finished at 40.
        for to_client in [0, 2, 5] {
            let client = |time: u64| SeenAt::new(time + to_client);
            let server = |time: u64| SeenAt::new(time - to_client);
            let times = StepTimes {
                syn: client(0),
                syn_ack: server(10),
                ack: client(10),
                request: client(10),
                tls_answer: server(20),
                client_hello: client(24),
                client_finished: client(40),
                ..StepTimes::default()
            };
            assert_eq!(times.phase_ns(Phase::TlsRequest), Some(10));
            assert_eq!(times.phase_ns(Phase::TlsHandshake), Some(20));
            // In TLS 1.2 the server ends it.
            let times = StepTimes { server_finished: server(45), ..times };
            assert_eq!(times.phase_ns(Phase::TlsHandshake), Some(25));
        }
    }
}
