//! What an import yields.

use std::fmt;

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
    /// Whether a setting was not taken over.
    pub fn has_lost_settings(&self) -> bool {
        self.notes.iter().any(|note| note.kind == NoteKind::Lost)
    }
}
