//! What a statement's text says about its effects on the session.

pub(crate) mod data_access;
pub(crate) mod effects;
pub(crate) mod lexer;
mod relative_times;
pub(crate) mod unresettable;

pub use super::codec::text_rules::StringSyntax;
pub use effects::{
    Constants, Deallocation, Discard, Effects, NameUse, NamedStatements, ReadingChange, Remains, SetConfig,
    TextReader,
};
