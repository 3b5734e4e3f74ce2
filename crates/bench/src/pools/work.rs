//! The workloads of the comparison, with their performance goals.

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

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PoolWorkload {
    pub engine: Engine,
    pub act: ClientAction,
    /// How clients log in to the proxy.
    pub admission: SocketAuth,
    pub clients: u16,
    /// The goal for ciphertoll-proxy compared with another proxy in the same mode.
    pub goal: PoolGoal,
}

/// Ratios, ciphertoll-proxy ÷ the other proxy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PoolGoal {
    pub rate: f64,
    /// Maximum CPU time per operation of the proxy.
    pub cpu: f64,
}

const fn postgres(
    act: ClientAction,
    admission: SocketAuth,
    clients: u16,
    rate: f64,
    cpu: f64,
) -> PoolWorkload {
    PoolWorkload { engine: Engine::Postgres, act, admission, clients, goal: PoolGoal { rate, cpu } }
}

const fn mariadb(act: ClientAction, clients: u16, rate: f64, cpu: f64) -> PoolWorkload {
    let goal = PoolGoal { rate, cpu };
    PoolWorkload { engine: Engine::MariaDb, act, admission: SocketAuth::Trusted, clients, goal }
}

impl PoolWorkload {
    /// All workloads, in the order of the output.
    ///
    /// The goals are ratios to PgBouncer 1.25 and ProxySQL 2.7, derived from absolute goals on one machine, so that they
    /// apply to every machine.
    pub const ALL: [Self; 10] = [
        postgres(ClientAction::ConnectQuery, SocketAuth::Trusted, 1, 1.30, 0.58),
        postgres(ClientAction::ConnectQuery, SocketAuth::Trusted, MANY, 1.16, 0.83),
        postgres(ClientAction::Text, SocketAuth::Trusted, MANY, 1.0, 0.69),
        postgres(ClientAction::Prepared, SocketAuth::Trusted, MANY, 1.0, 0.56),
        postgres(ClientAction::ConnectQuery, SocketAuth::Password, 1, 37.0, 0.58),
        mariadb(ClientAction::Connect, 1, 1.59, 0.52),
        mariadb(ClientAction::ConnectQuery, 1, 1.61, 0.47),
        mariadb(ClientAction::ConnectQuery, MANY, 1.0, 0.47),
        mariadb(ClientAction::Text, MANY, 1.0, 0.50),
        mariadb(ClientAction::Prepared, MANY, 1.0, 0.59),
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
