//! What a statement's text says about its effects on the session.

pub(crate) mod effects;
pub(crate) mod lexer;

pub use effects::{DefaultDatabase, Effects, NextTransaction, StatementCount, TextReader};
pub use lexer::Escapes;
