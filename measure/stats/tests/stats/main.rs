//! From a plan and its events to verdicts, and whether the intervals hold the truth.

mod assembling;
mod checkpoints;
mod comparing;
mod costs;
mod coverage;
mod fixture;
mod properties;
mod verdicts;
