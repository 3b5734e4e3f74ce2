//! What connections agreed on, counted.

use ciphertoll_model::{Leg, LegCount};
use ciphertoll_net::{Connected, tls};
use ciphertoll_wire::session::ServerInfo;
use ciphertoll_wire::{mongodb, mysql, postgres};

/// What connections agreed on, and how many of them.
#[derive(Default)]
pub(crate) struct Legs(Vec<(Agreed, u64)>);

/// What client and server agreed on.
#[derive(PartialEq)]
struct Agreed {
    /// `None`: no TLS.
    tls: Option<tls::Negotiated>,
    auth: AuthMethod,
    compressor: Option<mongodb::Compressor>,
}

/// What the server asked for. Compared on every connect, so that it is no text yet.
#[derive(Clone, Copy, PartialEq)]
enum AuthMethod {
    MySql(mysql::MySqlAuthMethod),
    Postgres(postgres::PostgresAuthMethod),
    MongoDb(mongodb::MongoDbAuthMethod),
}

impl Legs {
    /// Counts a connection. All are counted, warm-up included: a gate looks at every one.
    pub(crate) fn count(&mut self, connected: &Connected) {
        let auth = match &connected.server {
            ServerInfo::MySql(server) => AuthMethod::MySql(server.auth),
            ServerInfo::Postgres(server) => AuthMethod::Postgres(server.auth),
            ServerInfo::MongoDb(server) => AuthMethod::MongoDb(server.auth),
        };
        let compressor = match &connected.server {
            ServerInfo::MongoDb(server) => server.compressor,
            ServerInfo::MySql(_) | ServerInfo::Postgres(_) => None,
        };
        self.add(Agreed { tls: connected.channel.negotiated(), auth, compressor }, 1);
    }

    /// Adds what others counted.
    pub(crate) fn merge(&mut self, other: Self) {
        for (agreed, connections) in other.0 {
            self.add(agreed, connections);
        }
    }

    /// The counts, for the result.
    pub(crate) fn counts(&self) -> Vec<LegCount> {
        let count = |(agreed, connections): &(Agreed, u64)| LegCount {
            leg: leg_of(agreed),
            connections: *connections,
        };
        self.0.iter().map(count).collect()
    }

    fn add(&mut self, agreed: Agreed, connections: u64) {
        match self.0.iter_mut().find(|(known, _)| *known == agreed) {
            Some((_, count)) => *count += connections,
            None => self.0.push((agreed, connections)),
        }
    }
}

impl AuthMethod {
    fn label(self) -> String {
        match self {
            Self::MySql(method) => method.label().to_owned(),
            Self::Postgres(method) => method.label(),
            Self::MongoDb(kind) => kind.label(),
        }
    }
}

fn leg_of(agreed: &Agreed) -> Leg {
    let negotiated = agreed.tls.as_ref();
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
        auth: Some(agreed.auth.label()),
        library: negotiated.map(|tls| tls.library.label().to_owned()),
        compressor: agreed.compressor.map(|compressor| compressor.name().to_owned()),
    }
}
