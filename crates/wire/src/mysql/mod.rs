//! The `MySQL` client/server protocol, as `MySQL` and MariaDB implement it.
//!
//! - [`codec`]: packets and the messages in them.
//! - [`auth`]: the authentication plugins, both sides.
//! - [`client`]: the login ([`MySqlConnect`]) and the readers of responses.
//! - [`server`]: the server side of a login.
//! - [`relay`]: what a proxy between client and server needs.
//! - [`sql`]: what a statement's text says about its effects on the session.
//!
//! Titles in comments refer to the `MySQL` Source Code Documentation, "Client/Server Protocol", and to the
//! MariaDB Knowledge Base, "Client/Server Protocol".

pub mod adopt;
pub mod auth;
pub mod auth_switch;
pub mod beginning;
pub mod caching_sha2;
pub mod capabilities;
pub mod change_user;
pub mod clear_password;
pub mod column;
pub mod command;
pub mod connect;
pub mod ed25519;
pub mod effects;
pub mod err;
pub mod errand;
pub mod error;
pub mod follow;
pub mod greeting;
pub mod greeting_template;
pub mod handshake_response;
pub mod kill;
pub mod native_password;
pub mod ok;
pub mod packet;
pub mod parsec;
pub mod prepare;
pub mod relay;
pub mod response;
pub mod rows;
pub mod server;
pub mod ssl_request;
pub mod statements;

mod codec;
mod conversation;
mod lexer;
mod result_set;
mod rsa_key;

pub use auth::{MySqlAuthMethod, Plugin};
pub use capabilities::Capabilities;
pub use command::Param;
pub use connect::{MySqlConnect, MySqlTlsMode, MySqlLogin, MySqlServerInfo, StatementsPerQuery, Terms, Transport};
pub use error::{Error, Fault};
pub use prepare::{MySqlPrepareReader, PrepareOk};
pub use response::{Response, ResponseKind, MySqlResponseReader, ResponseSummary};
pub use rows::{Row, MySqlRowsReader};
