//! The words that several crates share: TLS parameters, connect phases, engines, read preferences.
//!
//! Each is a closed set with `ALL` and `label()`. Parsing with suggestions for misspelt names is in `model::factor`.

mod engine;
mod labelled;
mod phase;
mod read_preference;
mod suite;
mod tls;

pub use engine::{Engine, QueryLanguage};
pub use phase::Phase;
pub use read_preference::ReadPreference;
pub use suite::Suite;
pub use tls::{Group, Identity, SecurityLevel, ServerKey, TlsLibrary, TlsVersion, Verification};
