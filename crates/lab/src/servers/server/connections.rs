//! What a server tells of the connections of others: how many came, how many of them were encrypted, and by what.

use ciphertoll_model::{Engine, Leg, LegCount, ServerKey};
use ciphertoll_net::blocking::Client;

use super::Server;
use crate::error::Error;
use crate::{documents, mysql_family, postgres};

/// What came to a server, as far as it counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrivals {
    /// Connections; what lies [between](Self::since) two readings is without those of the lab itself.
    pub connections: Option<u64>,
    /// How often the lab itself has connected.
    pub own: u64,
    /// TLS handshakes that went well.
    pub encrypted: Option<u64>,
    /// Statements or transactions, the lab's own few among them.
    pub requests: Option<u64>,
}

/// What a connection has agreed on, as the server tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Encryption {
    /// Nothing.
    None,
    /// TLS.
    Tls {
        /// As in a path: `tls1.3`.
        version: String,
        /// As OpenSSL calls it.
        suite: String,
    },
}

/// Somebody who can say what connections have agreed on.
pub struct Watcher {
    client: Client,
    account: String,
    /// Of the certificate that the server had when he came.
    key: ServerKey,
}

impl Arrivals {
    /// What came between `earlier` and this.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        let between = |now: Option<u64>, before: Option<u64>| Some(now?.saturating_sub(before?));
        let own = self.own.saturating_sub(earlier.own);
        let all = between(self.connections, earlier.connections);
        Self {
            connections: all.map(|all| all.saturating_sub(own)),
            own,
            encrypted: between(self.encrypted, earlier.encrypted),
            requests: between(self.requests, earlier.requests),
        }
    }

    /// Connections that were not encrypted, where the server counts both.
    pub fn in_the_clear(self) -> Option<u64> {
        Some(self.connections?.saturating_sub(self.encrypted?))
    }
}

impl Encryption {
    /// Of what OpenSSL calls a version and a suite; empty where there is none.
    pub(crate) fn told(version: &str, suite: &str) -> Self {
        if version.is_empty() {
            return Self::None;
        }
        // The first of them has no dot.
        let number = version.trim_start_matches("TLSv");
        let version = if number == "1" { "tls1.0".to_owned() } else { format!("tls{number}") };
        Self::Tls { version, suite: suite.to_owned() }
    }

    /// Of the answer to [`Server::own_encryption`].
    pub(crate) fn answered(engine: Engine, rows: Vec<Vec<String>>) -> Self {
        match engine {
            Engine::MariaDb | Engine::MySql => {
                let said = mysql_family::pairs(rows);
                let of = |name: &str| said.get(name).map(String::as_str).unwrap_or_default();
                Self::told(of("Ssl_version"), of("Ssl_cipher"))
            }
            Engine::Postgres => {
                let mut values = rows.into_iter().flatten();
                let (version, suite) = (values.next().unwrap_or_default(), values.next().unwrap_or_default());
                Self::told(&version, &suite)
            }
            // They do not tell.
            Engine::MongoDb | Engine::FerretDb => Self::None,
        }
    }
}

impl Server {
    /// What came to it so far. On `PostgreSQL`, connections that were closed just now are awaited, as they hand over
    /// their counts then; it counts from version 15 on.
    pub fn arrivals(&self) -> Result<Arrivals, Error> {
        let all = match self.engine {
            Engine::MariaDb | Engine::MySql => mysql_family::arrivals(&self.control)?,
            Engine::Postgres => postgres::arrivals(&self.control)?,
            Engine::MongoDb | Engine::FerretDb => documents::arrivals(&self.control)?,
        };
        Ok(Arrivals { own: self.control.connects(), ..all })
    }

    /// Somebody who can say what the connections of an account have agreed on, with a connection of his own that stands
    /// until he is dropped; `None` where the server does not tell that of others' connections.
    pub fn watcher(&self, account: &str) -> Result<Option<Watcher>, Error> {
        match self.engine {
            Engine::MariaDb | Engine::MySql | Engine::MongoDb | Engine::FerretDb => Ok(None),
            Engine::Postgres => {
                let (client, account) = (self.control.connect()?, account.to_owned());
                Ok(Some(Watcher { client, account, key: self.installed.key }))
            }
        }
    }

    /// What a connection is asked to say of itself.
    pub(crate) fn own_encryption(&self) -> &'static str {
        match self.engine {
            Engine::MariaDb | Engine::MySql => mysql_family::OWN_ENCRYPTION,
            Engine::Postgres => postgres::OWN_ENCRYPTION,
            Engine::MongoDb | Engine::FerretDb => documents::PING,
        }
    }

    /// The server's end of a connection.
    pub(crate) fn leg_of(&self, encryption: Encryption) -> Leg {
        leg_of(encryption, self.installed.key)
    }
}

impl Watcher {
    /// What the account's connections have agreed on that stand now, and how many have.
    pub fn look(&mut self) -> Result<Vec<LegCount>, Error> {
        let standing = postgres::standing(&mut self.client, &self.account)?;
        let leg = |(encryption, connections)| LegCount { leg: leg_of(encryption, self.key), connections };
        Ok(standing.into_iter().map(leg).collect())
    }
}

fn leg_of(encryption: Encryption, key: ServerKey) -> Leg {
    let end = Leg { to: "server".to_owned(), ..Leg::default() };
    match encryption {
        Encryption::None => end,
        Encryption::Tls { version, suite } => Leg {
            tls_version: Some(version),
            suite: Some(suite),
            // It has no other.
            key: Some(key.label().to_owned()),
            ..end
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_called_as_paths_call_them() {
        let version = |told: &str| match Encryption::told(told, "S") {
            Encryption::None => String::new(),
            Encryption::Tls { version, .. } => version,
        };
        assert_eq!(["TLSv1.3", "TLSv1.2", "TLSv1", ""].map(version), ["tls1.3", "tls1.2", "tls1.0", ""]);
    }

    #[test]
    fn a_connection_says_what_it_has_agreed_on() {
        let text = |rows: &[&[&str]]| -> Vec<Vec<String>> {
            rows.iter().map(|row| row.iter().map(ToString::to_string).collect()).collect()
        };
        let tls = Encryption::Tls { version: "tls1.3".to_owned(), suite: "S".to_owned() };
        let named = text(&[&["Ssl_cipher", "S"], &["Ssl_version", "TLSv1.3"]]);
        assert_eq!(Encryption::answered(Engine::MariaDb, named), tls);
        assert_eq!(Encryption::answered(Engine::Postgres, text(&[&["TLSv1.3", "S"]])), tls);
        assert_eq!(Encryption::answered(Engine::Postgres, text(&[&["", ""]])), Encryption::None);
        assert_eq!(Encryption::answered(Engine::Postgres, Vec::new()), Encryption::None);
    }

    #[test]
    fn what_is_not_counted_is_not_known() {
        let of = |connections, own, encrypted| Arrivals { connections, own, encrypted, requests: Some(7) };
        // The lab's own may have been refused, and then the server has not counted them.
        let between = of(Some(14), 9, Some(9)).since(of(Some(2), 7, Some(1)));
        assert_eq!((between.connections, between.encrypted, between.requests), (Some(10), Some(8), Some(0)));
        assert_eq!(between.in_the_clear(), Some(2));
        assert_eq!(of(Some(12), 0, None).since(of(Some(2), 0, None)).in_the_clear(), None);
    }
}
