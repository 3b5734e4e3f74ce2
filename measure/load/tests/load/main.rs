//! The coordinator's end of a load process, and the histograms that come through it.

#![expect(clippy::unwrap_used, reason = "the helpers of tests may fail as tests do")]

mod coordinator;
mod histograms;
