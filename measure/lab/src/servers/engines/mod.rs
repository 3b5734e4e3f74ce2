//! The database engines.

pub(crate) mod document_family;
pub(crate) mod ferretdb;
pub(crate) mod mariadb;
pub(crate) mod mongodb;
pub(crate) mod mysql;
pub(crate) mod mysql_family;
pub(crate) mod postgres;
mod sha_crypt;
mod sql;
#[cfg(test)]
mod tests;

use ciphertoll_model::{AtRest, Engine};

use self::ferretdb::FerretDb;
use self::mariadb::MariaDb;
use self::mongodb::MongoDb;
use self::mysql::MySql;
use self::mysql_family::MySqlFamily;
use self::postgres::Postgres;
use crate::at_rest::native::NativeEncryption;
use crate::error::Error;
use crate::servers::engine::ServerEngine;

pub(crate) fn of(engine: Engine) -> &'static dyn ServerEngine {
    match engine {
        Engine::MariaDb => &MySqlFamily(MariaDb),
        Engine::MySql => &MySqlFamily(MySql),
        Engine::Postgres => &Postgres,
        Engine::MongoDb => &MongoDb,
        Engine::FerretDb => &FerretDb,
    }
}

/// The engine's own encryption at rest; an error if it has none.
pub(crate) fn native_encryption(engine: Engine) -> Result<&'static dyn NativeEncryption, Error> {
    of(engine).properties().native_encryption.ok_or_else(|| {
        let reason = AtRest::Native.impossible(engine);
        Error::AtRestUnavailable(reason.unwrap_or_else(|| format!("{engine} cannot encrypt its own files")))
    })
}

/// Whether the log of a server of any engine reports that its port is in use.
pub(crate) fn is_port_taken(log_end: &str) -> bool {
    let mut messages = Engine::ALL.into_iter().flat_map(|engine| of(engine).properties().port_taken_messages);
    messages.any(|message| log_end.contains(message))
}
