//! Messages and their encoding.

pub mod authentication;
pub mod cancel_key;
pub mod column;
pub mod command;
pub mod copy_start;
pub mod message;
pub mod parameters;
pub mod report;
pub mod severity;
pub mod startup;
pub mod transaction;

pub(crate) mod kind;
pub(crate) mod reader;
pub(crate) mod tag;
pub(crate) mod text_rules;
