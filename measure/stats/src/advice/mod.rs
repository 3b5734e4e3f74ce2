//! Which configuration to switch on for a load, and the settings for it. Pure.
//!
//! The rules are documented in [docs/measure/advise.md](../../../../docs/measure/advise.md), one section each; each has a
//! test that flips it.

mod names;
mod need;
mod rank;
mod refused;
mod settings;
mod today;
mod weigh;

pub use need::{Need, insufficient};
pub use rank::{Advice, Choice, Excluded, Rank, advise};
pub use refused::{ConnectionShares, RefusedClients, RefusedKind, refused_clients};
pub use settings::{SettingsFile, settings};
pub use today::{Today, TransportToday};
pub use weigh::{Optimize, Question, Saving, Worth};
