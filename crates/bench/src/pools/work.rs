//! What is done through each pool, and what is wanted of ours.

use ciphertoll_lab::proxy::SocketAuth;
use ciphertoll_model::Engine;

/// Clients where there is more than one.
const MANY: u16 = 8;

/// What one operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Connect, disconnect.
    Connect,
    /// Connect, `SELECT 1`, disconnect.
    ConnectQuery,
    /// A row read by its key on a standing connection, as text.
    Text,
    /// The same, prepared.
    Prepared,
}

/// Something that is done through every pool, in turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// In which protocol.
    pub engine: Engine,
    /// What.
    pub act: Act,
    /// How clients come in.
    pub admission: SocketAuth,
    /// How many come at once.
    pub clients: u16,
    /// Ours against the peer of the same mode, where there is one: what is wanted.
    pub wanted: Wanted,
}

/// Ours ÷ the peer's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wanted {
    /// The rate, at least.
    pub rate: f64,
    /// The proxy's CPU for an operation, at most.
    pub cpu: f64,
}

const fn postgres(act: Act, admission: SocketAuth, clients: u16, rate: f64, cpu: f64) -> Work {
    Work { engine: Engine::Postgres, act, admission, clients, wanted: Wanted { rate, cpu } }
}

const fn mariadb(act: Act, clients: u16, rate: f64, cpu: f64) -> Work {
    let wanted = Wanted { rate, cpu };
    Work { engine: Engine::MariaDb, act, admission: SocketAuth::Trusted, clients, wanted }
}

impl Work {
    /// All of them, in the order in which they are printed.
    ///
    /// What is wanted is a rate and a cost that were set for another machine, over what `PgBouncer` 1.25 and `ProxySQL` 2.7
    /// did on that one: a ratio, so that it can be asked for on every machine.
    pub const ALL: [Self; 10] = [
        postgres(Act::ConnectQuery, SocketAuth::Trusted, 1, 1.30, 0.58),
        postgres(Act::ConnectQuery, SocketAuth::Trusted, MANY, 1.16, 0.83),
        postgres(Act::Text, SocketAuth::Trusted, MANY, 1.0, 0.69),
        postgres(Act::Prepared, SocketAuth::Trusted, MANY, 1.0, 0.56),
        postgres(Act::ConnectQuery, SocketAuth::Password, 1, 37.0, 0.58),
        mariadb(Act::Connect, 1, 1.59, 0.52),
        mariadb(Act::ConnectQuery, 1, 1.61, 0.47),
        mariadb(Act::ConnectQuery, MANY, 1.0, 0.47),
        mariadb(Act::Text, MANY, 1.0, 0.50),
        mariadb(Act::Prepared, MANY, 1.0, 0.59),
    ];

    /// For people, and for `--only`.
    pub fn title(self) -> String {
        let act = match self.act {
            Act::Connect => "connect, disconnect",
            Act::ConnectQuery => "connect, SELECT 1, disconnect",
            Act::Text => "query on a standing connection, text",
            Act::Prepared => "query on a standing connection, prepared",
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
    fn titles_tell_works_apart() {
        let mut titles: Vec<String> = Work::ALL.into_iter().map(Work::title).collect();
        assert_eq!(
            titles[4],
            "PostgreSQL: connect, SELECT 1, disconnect, with a password on the unix socket; 1 client"
        );
        titles.sort();
        titles.dedup();
        assert_eq!(titles.len(), Work::ALL.len());
    }
}
