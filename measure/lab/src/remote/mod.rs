//! Servers at URLs: probed, and loaded with tables only on request. Nothing else on them is changed.

mod connection;
mod hosts;
pub(crate) mod login;
pub(crate) mod member;
pub(crate) mod probe;
pub(crate) mod server;

pub use self::hosts::{ChosenHost, choose_host};
pub use self::login::check_files;
pub use self::member::ChosenMember;
pub use self::probe::{ProbedServer, probe};
pub use self::server::DATABASE;
