//! What reports say and how they look: snapshots and golden files of hand-made runs.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

mod document;
mod fixture;
mod plan;
mod schema;
mod terminal;
