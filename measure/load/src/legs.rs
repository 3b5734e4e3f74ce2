//! Counts what connections negotiated.

use ciphertoll_model::{HandshakeSize, KeyShare, Leg, LegCount};
use ciphertoll_net::tls::TlsLibrary;
use ciphertoll_net::{Connected, tls};
use ciphertoll_wire::session::ServerInfo;
use ciphertoll_wire::{mongodb, mysql, postgres};

/// Distinct results of negotiation, and the totals of each.
#[derive(Default)]
pub(crate) struct Legs(Vec<(NegotiatedParameters, LegTotals)>);

#[derive(Default)]
struct LegTotals {
    connections: u64,
    /// Of all handshakes; `None` without TLS. Sizes differ between connections, so they are not part of the leg.
    handshakes: Option<tls::HandshakeSize>,
    /// Of the first connection: a system call for each would be part of what is measured.
    segment_bytes: Option<u32>,
}

#[derive(PartialEq)]
struct NegotiatedParameters {
    tls: Option<tls::Negotiated>,
    auth: ObservedAuthMethod,
    compressor: Option<mongodb::Compressor>,
}

/// The server's authentication method. Compared on every connect, so it is kept as a value instead of text.
#[derive(Clone, Copy, PartialEq)]
enum ObservedAuthMethod {
    MySql(mysql::MySqlAuthMethod),
    Postgres(postgres::PostgresAuthMethod),
    MongoDb(mongodb::MongoDbAuthMethod),
}

impl Legs {
    /// Counts a connection. All count, warm-up included: a gate checks every one.
    pub(crate) fn count(&mut self, connected: &Connected) {
        let (auth, compressor) = match &connected.server {
            ServerInfo::MySql(server) => (ObservedAuthMethod::MySql(server.auth), None),
            ServerInfo::Postgres(server) => (ObservedAuthMethod::Postgres(server.auth), None),
            ServerInfo::MongoDb(server) => (ObservedAuthMethod::MongoDb(server.auth), server.compressor),
        };
        let channel = &connected.channel;
        let totals = self.entry(NegotiatedParameters { tls: channel.negotiated(), auth, compressor });
        if totals.connections == 0 {
            totals.segment_bytes = channel.segment_bytes();
        }
        totals.add(1, channel.handshake_size());
    }

    pub(crate) fn merge(&mut self, other: Self) {
        for (negotiated, others) in other.0 {
            let totals = self.entry(negotiated);
            totals.add(others.connections, others.handshakes);
            totals.segment_bytes = totals.segment_bytes.or(others.segment_bytes);
        }
    }

    pub(crate) fn counts(&self) -> Vec<LegCount> {
        let count = |(negotiated, totals): &(NegotiatedParameters, LegTotals)| LegCount {
            leg: leg_of(negotiated),
            connections: totals.connections,
            handshake: totals.mean(),
        };
        self.0.iter().map(count).collect()
    }

    fn entry(&mut self, negotiated: NegotiatedParameters) -> &mut LegTotals {
        let position = self.0.iter().position(|(known, _)| *known == negotiated);
        let position = position.unwrap_or_else(|| {
            self.0.push((negotiated, LegTotals::default()));
            self.0.len() - 1
        });
        &mut self.0[position].1
    }
}

impl LegTotals {
    fn add(&mut self, connections: u64, handshakes: Option<tls::HandshakeSize>) {
        self.connections += connections;
        self.handshakes = match (self.handshakes, handshakes) {
            (Some(sum), Some(size)) => Some(tls::HandshakeSize {
                read_bytes: sum.read_bytes + size.read_bytes,
                written_bytes: sum.written_bytes + size.written_bytes,
                first_flight_bytes: sum.first_flight_bytes + size.first_flight_bytes,
            }),
            (sum, size) => sum.or(size),
        };
    }

    fn mean(&self) -> Option<HandshakeSize> {
        let sum = self.handshakes?;
        let connections = self.connections.max(1);
        let mean = |bytes: u64| (bytes + connections / 2) / connections;
        let first_flight_bytes = mean(sum.first_flight_bytes);
        Some(HandshakeSize {
            read_bytes: mean(sum.read_bytes),
            written_bytes: mean(sum.written_bytes),
            first_flight_bytes,
            segments: self.segment_bytes.map(|bytes| first_flight_bytes.div_ceil(u64::from(bytes))),
        })
    }
}

impl ObservedAuthMethod {
    fn label(self) -> String {
        match self {
            Self::MySql(method) => method.label().to_owned(),
            Self::Postgres(method) => method.label(),
            Self::MongoDb(kind) => kind.label(),
        }
    }
}

fn leg_of(NegotiatedParameters { tls, auth, compressor }: &NegotiatedParameters) -> Leg {
    let negotiated = tls.as_ref();
    Leg {
        from: "client".to_owned(),
        to: "server".to_owned(),
        tls_version: negotiated.map(|tls| tls.version.to_owned()),
        suite: negotiated.map(|tls| tls.suite.to_owned()),
        group: negotiated.and_then(|tls| tls.group.as_deref().map(ToOwned::to_owned)),
        key: negotiated.map(|tls| tls.key.clone().into_owned()),
        resumed: negotiated.map(|tls| tls.resumed),
        chain: negotiated.and_then(|tls| tls.chain),
        hello_retry: negotiated.map(|tls| tls.hello_retry),
        auth: Some(auth.label()),
        library: negotiated.map(|tls| tls.library.label().to_owned()),
        compressor: compressor.map(|compressor| compressor.name().to_owned()),
        signature: negotiated.and_then(|tls| tls.signature.as_deref().map(ToOwned::to_owned)),
        library_version: negotiated.and_then(|tls| match tls.library {
            TlsLibrary::OpenSsl35 => Some(tls::openssl_version().to_owned()),
            // Of the machine or of this program: in the record's environment.
            TlsLibrary::OpenSsl | TlsLibrary::Rustls => None,
        }),
        unused_shares: negotiated
            .map_or_else(Vec::new, |tls| tls.unused_shares.iter().copied().map(share).collect()),
    }
}

fn share(share: tls::KeyShare) -> KeyShare {
    KeyShare { group: share.group.label().into_owned(), bytes: share.bytes }
}
