//! Everything real that a run uses: servers, tunnels, proxies and certificates.
//!
//! A [`Lab`] has a scratch directory, certificate authorities and a server user. [`find`] finds the [`Build`] of a server,
//! [`Lab::template`] creates a data directory once and caches it, and [`Lab::start`] starts a [`Server`] on a copy of it.
//!
//! `lab` is the top of the crate, `error` and `workspace` are the bottom. `servers::engine` declares what a database engine must
//! implement.
//!
//! # Where to change what
//!
//! - server counters and the sync probe: `lab::servers::counters`, `lab::servers::server::syncs`, and each engine;
//!   shown by `report::view::crossings`; pairs that they void, `stats::assemble`
//! - templates: `lab::servers::template`, `lab::servers::unused`
//! - an authentication: `model::factor::auth`; its account, `create_account` in `lab::servers::engine`; its exchange,
//!   `wire`
//! - the load that a server at a URL counts: `lab::server_load`: readings by engine, the load between two of them,
//!   the sentence
//! - a check of `doctor`: `lab::doctor`

mod at_rest;
mod datasets;
pub mod doctor;
mod documents;
pub mod error;
mod lab;
mod middle;
mod profiler;
pub mod remote;
pub mod server_load;
mod servers;
mod tls;
mod workspace;

pub use at_rest::proof::Proof;
pub use datasets::tables::Tables;
pub use documents::loading::LoadCounts;
pub use error::Error;
pub use lab::Lab;
pub use middle::{proxy, tunnel};
pub use profiler::{PerfUnusable, Profiler, SAMPLES_PER_S, check_perf, family_of};
pub use remote::login::Passwords;
pub use remote::server::Remote;
pub use servers::build::Build;
pub use servers::counters::{ConnectionCounts, Counters};
pub use servers::disk_space::PlannedServer;
pub use servers::find::{FetchedProgram, Origin, fetch, find, how_to_install, installed};
pub use servers::launch::ServerStart;
pub use servers::server::Server;
pub use servers::server::connections::ConnectionMonitor;
pub use servers::server::syncs::SyncTimes;
pub use servers::template::DataTemplate;
pub use tls::certificates::{Authority, Certificate};
pub use tls::credentials::ClientAccount;
pub use tls::credentials::{Credentials, ServerCertificate};
pub use tls::newer_openssl::{ClientOpenSsl, openssl_with_post_quantum};
pub use tls::support::check_client;
