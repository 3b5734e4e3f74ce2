//! Counts what connections negotiated.

use ciphertoll_model::{Leg, LegCount};
use ciphertoll_net::{Connected, tls};
use ciphertoll_wire::session::ServerInfo;
use ciphertoll_wire::{mongodb, mysql, postgres};

/// Distinct results of negotiation, and the number of connections with each.
#[derive(Default)]
pub(crate) struct Legs(Vec<(NegotiatedParameters, u64)>);

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
        self.add(NegotiatedParameters { tls: connected.channel.negotiated(), auth, compressor }, 1);
    }

    pub(crate) fn merge(&mut self, other: Self) {
        for (negotiated, connections) in other.0 {
            self.add(negotiated, connections);
        }
    }

    pub(crate) fn counts(&self) -> Vec<LegCount> {
        let count = |(negotiated, connections): &(NegotiatedParameters, u64)| LegCount {
            leg: leg_of(negotiated),
            connections: *connections,
        };
        self.0.iter().map(count).collect()
    }

    fn add(&mut self, negotiated: NegotiatedParameters, connections: u64) {
        match self.0.iter_mut().find(|(known, _)| *known == negotiated) {
            Some((_, count)) => *count += connections,
            None => self.0.push((negotiated, connections)),
        }
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
    }
}
