//! BSON: documents that are read in place, and a writer ("BSON Specification", version 1.1).
//!
//! A [`Document`] borrows its bytes. Its length and end are checked when it is created, each element when the
//! iterator reaches it, and nested documents when they are read; [`Document::validate`] checks everything at
//! once.

pub(crate) mod decimal;
pub(crate) mod document;
pub(crate) mod json;
pub(crate) mod value;
pub(crate) mod writer;

pub use document::{Document, Element, Elements, MAX_DEPTH};
pub use json::to_json;
pub use value::{BsonValue, kind};
pub use writer::{BsonWriter, write_document};
