//! Captures that the tests write themselves, frames, and streams: by example and by properties.

#![expect(clippy::unwrap_used, reason = "the helpers of tests may fail as tests do")]

mod asked;
mod captures;
mod clients;
mod cyclonedx;
mod exchange;
mod failures;
mod files;
mod frames;
mod hostile;
mod memory;
mod names;
mod observations;
mod packets;
mod properties;
mod reordered;
mod screens;
mod streams;
