//! `import`: the settings of PgBouncer as a configuration of this proxy, with a note for each setting that was not taken over.
//!
//! [`ini`] reads the files, [`userlist`] the users, [`known`] says how each setting is handled, [`translate`]
//! makes the configuration.

mod ini;
mod known;
mod outcome;
mod translate;
mod userlist;

use std::path::Path;

pub use ini::ImportError;
pub use outcome::{ImportNote, Imported, NoteKind};

impl Imported {
    /// Reads `pgbouncer.ini` and the files that it includes. `userlist` replaces the file that it names. The proxy has one
    /// server: that of `database`, or else of the first entry.
    pub fn from_pgbouncer(
        file: &Path,
        userlist: Option<&Path>,
        database: Option<&str>,
    ) -> Result<Self, ImportError> {
        let source = ini::read(file)?;
        let named = userlist.map(Path::to_owned).or_else(|| source.get("auth_file").map(Into::into));
        let users = match &named {
            Some(path) => userlist::read(path).map_err(|error| (path.clone(), error)),
            None => Ok(Vec::new()),
        };
        translate::translate(&source, users, database)
    }
}

#[cfg(test)]
mod tests;
