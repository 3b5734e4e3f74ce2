//! What a statement's text says about its effects on the session.

pub(crate) mod effects;
pub(crate) mod lexer;
pub(crate) mod plain_words;
pub(crate) mod remains;
pub(crate) mod unresettable;

pub use effects::{
    Assignments, CHARACTER_SETS, DefaultDatabase, Effects, InsertId, NextTransaction, ReadsDiagnostics,
    Savepoints, StatementCount, TextReader,
};
pub use lexer::Escapes;
pub use remains::{Remains, RemainsReader};
