//! The independent drivers, each on its own async runtime inside its module.

mod mysql;
mod postgres;

use ciphertoll_model::Engine;
use tokio::runtime::{Builder, Runtime};

pub(crate) use self::mysql::MySqlOracle;
pub(crate) use self::postgres::PostgresOracle;
use crate::answer::Answer;
use crate::fixture::Visit;
use crate::samples::Sample;

/// A connection of an independent driver.
pub(crate) enum Oracle {
    MySql(Box<MySqlOracle>),
    Postgres(Box<PostgresOracle>),
}

/// Logs in. Panics on failures other than a refusal by the server.
pub(crate) fn connect(visit: &Visit) -> Answer<Oracle> {
    match visit.engine {
        Engine::MariaDb | Engine::MySql => Ok(Oracle::MySql(Box::new(MySqlOracle::connect(visit)?))),
        Engine::Postgres => Ok(Oracle::Postgres(Box::new(PostgresOracle::connect(visit)?))),
        engine @ (Engine::MongoDb | Engine::FerretDb) => panic!("{engine} is not asked in SQL"),
    }
}

impl Oracle {
    /// The rows of all result sets, as text.
    pub(crate) fn query(&mut self, sql: &str) -> Answer {
        match self {
            Self::MySql(oracle) => oracle.query(sql),
            Self::Postgres(oracle) => oracle.query(sql),
        }
    }

    /// The number of rows that a statement without result set has changed.
    pub(crate) fn affected(&mut self, sql: &str) -> Answer<u64> {
        match self {
            Self::MySql(oracle) => oracle.affected(sql),
            Self::Postgres(oracle) => oracle.affected(sql),
        }
    }

    /// Inserts by a prepared statement, with parameters of the columns' own types.
    pub(crate) fn insert(&mut self, sql: &str, sample: &Sample) -> Answer<u64> {
        match self {
            Self::MySql(oracle) => oracle.insert(sql, sample),
            Self::Postgres(oracle) => oracle.insert(sql, sample),
        }
    }
}

pub(crate) fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}
