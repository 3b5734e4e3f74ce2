//! What a statement's text says about its effects on the session.

pub(crate) mod data_access;
pub(crate) mod effects;
pub(crate) mod lexer;

pub use effects::{Deallocated, Discard, Effects, Remains, TextReader};
pub use lexer::StringSyntax;
