//! Private servers: found, started on a copy of a template, prepared for a path, observed and stopped.
//!
//! [`engine::ServerEngine`] declares what the rest of the crate needs to know about a database engine; `engines` has one
//! module per engine.

pub(crate) mod binary;
pub(crate) mod build;
pub(crate) mod config;
pub(crate) mod control;
pub(crate) mod counters;
pub(crate) mod directory;
pub(crate) mod disk_space;
pub(crate) mod encryption;
pub(crate) mod engine;
pub(crate) mod engines;
pub(crate) mod find;
pub(crate) mod launch;
pub(crate) mod process;
pub(crate) mod server;
mod stored_files;
pub(crate) mod template;
pub(crate) mod unused;
