//! The client side: the login, and the readers of responses.

pub(crate) mod auth_exchange;
pub(crate) mod connect;
pub(crate) mod login;
pub(crate) mod prepare;
pub(crate) mod response;
pub(crate) mod result_sets;
pub(crate) mod rows;

pub use connect::{MySqlConnect, MySqlServerInfo, Terms};
pub use login::{MySqlLogin, MySqlTlsMode, Transport};
pub use prepare::MySqlPrepareReader;
pub use response::MySqlResponseReader;
pub use rows::MySqlRowsReader;
