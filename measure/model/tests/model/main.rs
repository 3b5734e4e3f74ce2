//! The vocabulary: what is printed is read back, what is planned is what was asked, what is written stays readable.

#![expect(clippy::unwrap_used, reason = "the helpers of tests may fail as tests do")]

mod at_rest;
mod baselines;
mod events;
mod golden;
mod grammar;
mod levels;
mod messages;
mod plans;
mod scales;
mod specs;
mod urls;
mod words;
