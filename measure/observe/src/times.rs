//! When a connection's steps were seen, and how long its phases took for the client.

use ciphertoll_vocabulary::Phase;

/// Times of an observer's clock, in nanoseconds; `None` for what was not seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StepTimes {
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) syn: Option<u64>,
    pub(crate) syn_ack: Option<u64>,
    /// The third segment, which ends the TCP handshake.
    pub(crate) ack: Option<u64>,
    pub(crate) greeting: Option<u64>,
    /// The client's first payload.
    pub(crate) request: Option<u64>,
    pub(crate) client_hello: Option<u64>,
    pub(crate) client_finished: Option<u64>,
    /// Up to TLS 1.2, where it ends a full handshake.
    pub(crate) server_finished: Option<u64>,
    pub(crate) login_started: Option<u64>,
    /// Inside of TLS: the last answer that may be the login's.
    pub(crate) last_login: Option<u64>,
    pub(crate) logged_in: Option<u64>,
    pub(crate) first_query: Option<u64>,
    pub(crate) first_answer: Option<u64>,
}

impl StepTimes {
    /// The round trip between client and server: from SYN to the ACK of the answer, wherever the observer is between them.
    #[must_use]
    pub(crate) fn round_trip_ns(&self) -> Option<u64> {
        self.ack?.checked_sub(self.syn?)
    }

    /// How long a phase took for the client. What the server sends reaches it later than the observer, by the part of the
    /// round trip that lies between them.
    #[must_use]
    pub(crate) fn phase_ns(&self, phase: Phase) -> Option<u64> {
        let to_client_and_back = self.ack?.checked_sub(self.syn_ack?)?;
        let by_server = |until: Option<u64>, from: Option<u64>| {
            Some(until?.checked_sub(from?)?.saturating_add(to_client_and_back))
        };
        let by_client = |until: Option<u64>, from: Option<u64>| until?.checked_sub(from?);
        match phase {
            Phase::TcpConnect => self.round_trip_ns(),
            Phase::ServerGreeting => by_server(self.greeting, self.ack),
            // TLS from the first byte needs no request.
            Phase::TlsRequest if self.greeting.is_none() && self.request != self.client_hello => {
                by_client(self.client_hello, self.request)
            }
            Phase::TlsHandshake => {
                let full = by_server(self.server_finished, self.client_hello);
                full.max(by_client(self.client_finished, self.client_hello))
            }
            Phase::Auth => by_server(self.logged_in, self.login_started),
            Phase::FirstQuery => by_server(self.first_answer, self.first_query),
            Phase::TlsRequest | Phase::Dns | Phase::TlsContext | Phase::Ready | Phase::Close => None,
        }
    }

    /// From the first segment to the server's answer that ends the login, as the client sees it.
    #[must_use]
    pub(crate) fn connect_ns(&self) -> Option<u64> {
        let to_client_and_back = self.ack?.checked_sub(self.syn_ack?)?;
        Some(self.logged_in?.checked_sub(self.syn?)?.saturating_add(to_client_and_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_are_those_of_the_client_wherever_the_observer_is() {
        // A round trip of 10; the client's steps at 0, 10 (ACK, hello), 20 + 3 (Finished and login), 33 + 3 (ready).
        let at = |to_client: u64| {
            let (client, server) = (|time: u64| Some(time + to_client), |time: u64| Some(time - to_client));
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
        }
    }
}
