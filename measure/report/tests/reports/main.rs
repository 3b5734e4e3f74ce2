//! What reports say and how they look: snapshots and golden files of hand-made runs.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

mod advice;
mod advised;
mod at_rest;
mod browser;
mod csv;
mod document;
mod documents;
mod fixture;
mod geometry;
#[path = "../../../observe/tests/observe/hostile.rs"]
mod hostile;
mod hosts;
mod html;
mod key_exchange;
mod linked;
mod markdown;
mod observed;
mod plan;
mod profile;
mod proxied;
mod schema;
mod simulated;
mod studies;
mod summary;
mod terminal;
mod what_if;
