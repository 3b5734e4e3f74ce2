//! Which configuration to switch on for a load, and the settings for it. Pure.
//!
//! The rules are documented in [docs/measure/advise.md](../../../../docs/measure/advise.md), one section each; each has a
//! test that flips it.

mod need;
mod rank;
mod settings;

pub use need::{Need, insufficient};
pub use rank::{Advice, Choice, Excluded, Rank, advise};
pub use settings::{SettingsFile, settings};
