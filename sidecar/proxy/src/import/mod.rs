//! `import`: the settings of PgBouncer as a configuration of this proxy, with a note for each setting that was not taken over.
//!
//! [`ini`] reads the files, [`userlist`] the users, [`known`] says what becomes of each setting, [`translate`] makes the
//! configuration.

mod ini;
mod known;
mod translate;
mod userlist;

use std::fmt;
use std::path::Path;

pub use ini::ImportError;

/// A configuration file, and what could not be taken over.
pub struct Imported {
    pub toml: String,
    pub notes: Vec<ImportNote>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportNote {
    /// The setting, or the entry of a section.
    pub what: String,
    pub reason: String,
    pub kind: NoteKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteKind {
    /// It was not taken over, or not fully.
    Lost,
    /// Something remains to be done by hand.
    ToDo,
    /// It needs no setting here.
    Unneeded,
}

impl fmt::Display for ImportNote {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            NoteKind::Lost => "not translated",
            NoteKind::ToDo => "to do",
            NoteKind::Unneeded => "not needed",
        };
        write!(out, "{kind}: {}: {}", self.what, self.reason)
    }
}

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

    /// Whether a setting was not taken over.
    pub fn has_lost_settings(&self) -> bool {
        self.notes.iter().any(|note| note.kind == NoteKind::Lost)
    }
}

#[cfg(test)]
mod tests;
