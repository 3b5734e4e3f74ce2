//! What a statement's text says about its effects on the session and on other connections.

pub(crate) mod database_commands;
pub(crate) mod effects;
pub(crate) mod lexer;

pub use database_commands::DatabaseCommandScanner;
pub use effects::{Deallocated, Discard, Effects, TextReader};
pub use lexer::StringSyntax;
