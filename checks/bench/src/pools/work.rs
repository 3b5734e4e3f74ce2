//! The workloads of the comparison.

use ciphertoll_lab::proxy::SocketAuth;
use ciphertoll_model::Engine;

/// Number of clients of concurrent workloads.
const MANY: u16 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAction {
    Connect,
    /// Connect, `SELECT 1`, disconnect.
    ConnectQuery,
    /// Read a row by key on an open connection, as text.
    Text,
    /// The same, prepared.
    Prepared,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolWorkload {
    pub engine: Engine,
    pub act: ClientAction,
    /// How clients log in to the proxy.
    pub admission: SocketAuth,
    pub clients: u16,
}

impl ClientAction {
    /// Whether an operation opens a connection.
    pub fn is_connect(self) -> bool {
        match self {
            Self::Connect | Self::ConnectQuery => true,
            Self::Text | Self::Prepared => false,
        }
    }

    /// `--operation` of `pool_client`.
    pub(super) fn argument(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::ConnectQuery => "connect-query",
            Self::Text => "text",
            Self::Prepared => "prepared",
        }
    }
}

const fn postgres(act: ClientAction, admission: SocketAuth, clients: u16) -> PoolWorkload {
    PoolWorkload { engine: Engine::Postgres, act, admission, clients }
}

const fn mysql_family(engine: Engine, act: ClientAction, clients: u16) -> PoolWorkload {
    PoolWorkload { engine, act, admission: SocketAuth::Trusted, clients }
}

impl PoolWorkload {
    /// All workloads, in the order of the output.
    pub const ALL: [Self; 16] = [
        postgres(ClientAction::ConnectQuery, SocketAuth::Trusted, 1),
        postgres(ClientAction::ConnectQuery, SocketAuth::Trusted, MANY),
        postgres(ClientAction::Text, SocketAuth::Trusted, MANY),
        postgres(ClientAction::Prepared, SocketAuth::Trusted, MANY),
        postgres(ClientAction::ConnectQuery, SocketAuth::Password, 1),
        postgres(ClientAction::ConnectQuery, SocketAuth::Password, MANY),
        mysql_family(Engine::MariaDb, ClientAction::Connect, 1),
        mysql_family(Engine::MariaDb, ClientAction::Connect, MANY),
        mysql_family(Engine::MariaDb, ClientAction::ConnectQuery, 1),
        mysql_family(Engine::MariaDb, ClientAction::ConnectQuery, MANY),
        mysql_family(Engine::MariaDb, ClientAction::Text, MANY),
        mysql_family(Engine::MariaDb, ClientAction::Prepared, MANY),
        mysql_family(Engine::MySql, ClientAction::ConnectQuery, 1),
        mysql_family(Engine::MySql, ClientAction::ConnectQuery, MANY),
        mysql_family(Engine::MySql, ClientAction::Text, MANY),
        mysql_family(Engine::MySql, ClientAction::Prepared, MANY),
    ];

    /// Shown, and matched by `--only`.
    pub fn title(self) -> String {
        let act = match self.act {
            ClientAction::Connect => "connect, disconnect",
            ClientAction::ConnectQuery => "connect, SELECT 1, disconnect",
            ClientAction::Text => "query on an open connection, text",
            ClientAction::Prepared => "query on an open connection, prepared",
        };
        let admission = match self.admission {
            SocketAuth::Trusted => "",
            SocketAuth::Password => ", with a password on the unix socket",
        };
        let clients =
            if self.clients == 1 { "1 client".to_owned() } else { format!("{} clients", self.clients) };
        format!("{}: {act}{admission}; {clients}", self.engine.display_name())
    }

    pub(super) fn most_clients() -> u16 {
        Self::ALL.map(|work| work.clients).into_iter().max().unwrap_or(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_unique() {
        let mut titles: Vec<String> = PoolWorkload::ALL.into_iter().map(PoolWorkload::title).collect();
        assert_eq!(
            titles[4],
            "PostgreSQL: connect, SELECT 1, disconnect, with a password on the unix socket; 1 client"
        );
        titles.sort();
        titles.dedup();
        assert_eq!(titles.len(), PoolWorkload::ALL.len());
    }
}
