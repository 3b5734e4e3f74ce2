//! What a statement's text says about its effects on the session.

pub(crate) mod effects;
pub(crate) mod lexer;
pub(crate) mod plain_words;
pub(crate) mod remains;

pub use effects::{DefaultDatabase, Effects, NextTransaction, StatementCount, TextReader};
pub use lexer::Escapes;
pub use remains::{Remains, RemainsReader};
