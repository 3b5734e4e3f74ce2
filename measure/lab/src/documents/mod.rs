//! YCSB's records in document databases: loaded in batches, continued after an interruption, removed after a trial.

mod batches;
pub(crate) mod commands;
pub(crate) mod loading;
mod record;
pub(crate) mod removal;
