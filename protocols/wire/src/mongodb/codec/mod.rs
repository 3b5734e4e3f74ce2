//! Messages, BSON, compression, and the encoders of commands.

pub mod command;
pub mod compression;
pub mod document;
pub mod message;
pub mod template;

pub(crate) mod checksum;
pub(crate) mod header;
pub(crate) mod json;
