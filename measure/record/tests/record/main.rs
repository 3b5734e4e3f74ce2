//! What outlives a process, written, damaged and found again.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

mod catalogue;
mod run_directory;
mod scratch_directory;
mod sweep;
