//! The words that several crates share: TLS parameters, connect phases, engines, read preferences, address families.
//!
//! Each is a closed set with `ALL` and `label()`. Parsing with suggestions for misspelt names is in `model::factor`.
//! [`SqlUrl`] splits the URLs that both programs accept.
//!
//! # Where to change what
//!
//! - what a URL may contain: how it is split, for both programs: `vocabulary::sql_url`; its options,
//!   `model::factor::url` and, in the sidecar, `proxy::url`; its TLS files, `net::tls::files`; connecting to it,
//!   `lab::remote`; one of several hosts, `lab::remote::hosts`; passwords, `cli::passwords`;
//!   replica sets, `wire::mongodb::client::topology`
//!
//! - a key exchange group: a variant of [`Group`] with its label, number, name of OpenSSL and the first OpenSSL
//!   that has it (`openssl_since`): a server with an older one is left out, and PostgreSQL 18 starts without it.
//!   `has_ml_kem` makes it need TLS 1.3 (`impossible_for_version` in `model::factor::tls_path`); releases that refuse it
//!   whatever their OpenSSL has, `impossible_for_release` there; FerretDB's list, `known` in its `check_tls` in
//!   `lab::servers::engines`. Client libraries are asked, except a newer OpenSSL in another process:
//!   `check_client` in `lab::tls::support` assumes that 3.5 has every group, so a group that is newer needs a
//!   check there. Servers whose OpenSSL does not accept it by default, `write_openssl` in `lab::servers::directory`:
//!   one list for every OpenSSL from 3.5 on, so a newer name has a `?` in front, or older ones refuse the list. Its
//!   time, or why it has none, `experiment::primitives::agreement` with its test; whether the sidecar offers it by
//!   default, `proxy::upstream`; help and pages, `proxy::config` (comment and help), `docs/measure/paths.md`,
//!   `docs/measure/servers.md`, `docs/sidecar/operations.md`
//!
//! - what no recommendation may name, because it is obsolete or weak: [`Legacy`]; tunnels' ciphers, `model::factor::tunnel`
//!
//! # One level of *path*, from the argument to the server
//!
//! `--path tls1.3-p384+group=x25519`: `cli::arguments` has the flag; `model::factor::path` parses the level into a
//! `TlsPath` (`tls_path`) of the types in `vocabulary::tls`. The plan makes cells of it. `lab::tls::support` says whether server and
//! library support it; if not, the cell is skipped with the reason. `experiment::layers` installs a certificate with
//! this key (`lab::tls::certificates`) and writes the `TlsSpec`. `load::setup` translates it to `net::tls::Settings`,
//! which `net::tls::openssl` or `net::tls::rustls` apply. `experiment::gates` compares what each connection negotiated
//! with the level. The sidecar's connections to its server are made by the same two, with all versions and groups that they
//! may negotiate (`Context::negotiating`), and verified by OpenSSL in any case (`net::tls::rustls::openssl_verifier`).

mod address_family;
mod conninfo;
mod engine;
mod labelled;
mod legacy;
mod phase;
mod read_preference;
mod sql_url;
mod suite;
mod target_session;
mod tls;
mod tls_parameters;
mod unit;

pub use address_family::AddressFamily;
pub use conninfo::{Conninfo, ConninfoError};
pub use engine::{Engine, QueryLanguage};
pub use legacy::{Legacy, NegotiatedNames};
pub use phase::Phase;
pub use read_preference::ReadPreference;
pub use sql_url::{SqlFamily, SqlPlace, SqlUrl, SqlUrlError};
pub use suite::Suite;
pub use target_session::TargetSession;
pub use tls::{Group, Identity, SecurityLevel, ServerKey, TlsLibrary, TlsVersion, Verification};
pub use tls_parameters::TlsParameters;
pub use unit::{parse_with_unit, print_duration};
