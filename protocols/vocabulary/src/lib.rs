//! The words that several crates share: TLS parameters, connect phases, engines, read preferences, address families.
//!
//! Each is a closed set with `ALL` and `label()`. Parsing with suggestions for misspelt names is in `model::factor`.
//! [`SqlUrl`] splits the URLs that both programs accept.

mod address_family;
mod engine;
mod labelled;
mod phase;
mod read_preference;
mod sql_url;
mod suite;
mod tls;

pub use address_family::AddressFamily;
pub use engine::{Engine, QueryLanguage};
pub use phase::Phase;
pub use read_preference::ReadPreference;
pub use sql_url::{SqlFamily, SqlPlace, SqlUrl, SqlUrlError};
pub use suite::Suite;
pub use tls::{Group, Identity, SecurityLevel, ServerKey, TlsLibrary, TlsVersion, Verification};
