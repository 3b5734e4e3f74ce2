//! What goes with a client from one connection to the next.

use ciphertoll_wire::mysql::relay::{ClientStatements, SessionRestore, setting};
use ciphertoll_wire::mysql::sql::Escapes;
use ciphertoll_wire::mysql::{Capabilities, Error};

use super::numbers::Listed;

/// Settings that a session may have made; more are state that is kept where it is.
const MAX_SETTINGS: usize = 64;
/// Settings that say how texts are read, once and for all of a statement that is prepared.
const OF_TEXTS: [&str; 3] = ["sql_mode", "character_set_client", "collation_connection"];

/// What a session has made, and shall find wherever it goes on.
#[derive(Debug)]
pub(super) struct Carried {
    /// The number that other clients name it by.
    pub(super) listed: Listed,
    /// Whether it has been told that it may begin.
    pub(super) told: Told,
    /// What it has prepared.
    pub(super) statements: ClientStatements,
    /// Another default database than the login's.
    pub(super) database: Option<String>,
    /// Settings and their values; none is NULL.
    settings: Vec<(String, Option<String>)>,
    /// Its last `COM_SET_OPTION`.
    pub(super) option: Option<u16>,
    /// What `LAST_INSERT_ID()` says.
    pub(super) insert_id: Option<u64>,
    /// How it takes backslashes.
    pub(super) escapes: Escapes,
}

/// Whether a client has been told that it may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    NotYet,
    Begun,
}

/// How much of what a client carries a server might refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Risk {
    /// Nothing is carried.
    Nothing,
    /// It cannot be refused.
    None,
    /// It can.
    Some,
}

/// What cannot be made elsewhere as it is here, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unportable(pub(super) &'static str);

impl Carried {
    pub(super) fn new(listed: Listed, escapes: Escapes, told: Told) -> Self {
        Self {
            listed,
            told,
            statements: ClientStatements::default(),
            database: None,
            settings: Vec::new(),
            option: None,
            insert_id: None,
            escapes,
        }
    }

    /// The session has set something. What says how texts are read must not change behind statements that were prepared:
    /// they mean what they meant then.
    pub(super) fn acquire(&mut self, name: &str, value: Option<String>) -> Result<(), Unportable> {
        let known = self.settings.iter_mut().find(|(known, _)| known == name);
        let is_new = known.as_ref().is_none_or(|(_, known)| *known != value);
        match known {
            Some((_, known)) => *known = value,
            None => self.settings.push((name.to_owned(), value)),
        }
        if is_new && OF_TEXTS.contains(&name) && !self.statements.is_empty() {
            Err(Unportable("another way of writing behind prepared statements"))
        } else if self.settings.len() > MAX_SETTINGS {
            Err(Unportable("many settings"))
        } else {
            Ok(())
        }
    }

    /// The session has perhaps chosen a database; none is the login's.
    pub(super) fn choose(&mut self, database: Option<String>) -> Result<(), Unportable> {
        let is_new = self.database != database;
        self.database = database;
        if is_new && !self.statements.is_empty() {
            return Err(Unportable("another database behind prepared statements"));
        }
        Ok(())
    }

    /// The session has given up what it had. The database and the number of statements in a query stay, as servers leave
    /// them.
    pub(super) fn give_up(&mut self) {
        self.settings.clear();
        self.insert_id = None;
    }

    /// Whether there is anything that another connection must be told.
    pub(super) fn risk(&self) -> Risk {
        if self.database.is_some() || !self.settings.is_empty() || self.option.is_some() {
            Risk::Some
        } else if self.insert_id.is_some() {
            Risk::None
        } else {
            Risk::Nothing
        }
    }

    /// Appends what gives a connection that was reset all that is carried.
    pub(super) fn make(
        &self,
        capabilities: Capabilities,
        to_server: &mut Vec<u8>,
    ) -> Result<SessionRestore, Error> {
        let mut adopt = SessionRestore::new(capabilities);
        if let Some(database) = &self.database {
            adopt.database(database, to_server)?;
        }
        let insert_id = self.insert_id.map(|id| id.to_string());
        let settings = self.settings.iter().map(|(name, value)| (name.as_str(), value.as_deref()));
        let all = settings.chain(insert_id.as_deref().map(|id| ("last_insert_id", Some(id))));
        if let Some(statement) = setting(all) {
            adopt.statement(&statement, to_server)?;
        }
        if let Some(option) = self.option {
            adopt.option(option, to_server);
        }
        Ok(adopt)
    }
}
