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
    /// The server's first message: its greeting, or its consent to a request for TLS.
    pub(crate) server_first: SeenAt,
    /// The client's first payload.
    pub(crate) request: SeenAt,
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

    fn if_known(self, condition: impl FnOnce(u64) -> bool) -> Self {
        if self.ns().is_some_and(condition) { self } else { Self::default() }
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
            Phase::ServerGreeting => by_server(self.greeting(), self.ack),
            Phase::TlsRequest if !self.greeting().is_known() && self.request != after_request => {
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

    /// The server's message that comes before any of the client.
    fn greeting(&self) -> SeenAt {
        self.server_first.if_known(|first| self.request.ns().is_none_or(|request| first < request))
    }

    /// The server's consent to TLS, if the client waited for it.
    fn awaited_answer(&self) -> SeenAt {
        let is_answer = |first| self.request.ns().is_some_and(|request| request <= first);
        self.server_first.if_known(|first| is_answer(first) && Some(first) < self.client_hello.ns())
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
mod tests;
