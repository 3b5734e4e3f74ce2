//! The layers that surround a trial, with the record, the gate and the messages of each.

pub(crate) mod at_rest;
pub(crate) mod driver;
pub(crate) mod link;
pub(crate) mod load_hosts;
pub(crate) mod profile;
pub(crate) mod proxy;
pub(crate) mod remote;
pub(crate) mod server;
pub(crate) mod tunnel;
