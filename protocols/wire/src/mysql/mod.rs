//! The `MySQL` client/server protocol, as `MySQL` and MariaDB implement it.
//!
//! - [`codec`]: packets and the messages in them.
//! - [`auth`]: the authentication plugins, both sides.
//! - [`client`]: the login ([`MySqlConnect`]) and the readers of responses.
//! - [`server`]: the server side of a login.
//! - [`option_file`]: the option files of the clients.
//! - [`relay`]: what a proxy between client and server needs.
//! - [`sql`]: what a statement's text says about its effects on the session.
//!
//! Titles in comments refer to the `MySQL` Source Code Documentation, "Client/Server Protocol", and to the
//! MariaDB Knowledge Base, "Client/Server Protocol".

pub mod auth;
pub mod client;
pub mod codec;
pub mod error;
pub mod option_file;
pub mod relay;
pub mod server;
pub mod sql;

pub use auth::{MySqlAuthMethod, Plugin};
pub use client::{
    MySqlConnect, MySqlLogin, MySqlPrepareReader, MySqlResponseReader, MySqlRowsReader, MySqlServerInfo,
    MySqlTlsMode, Terms, Transport,
};
pub use codec::{
    auth_switch, capabilities, capabilities::Capabilities, change_user, column, command, command::Param,
    command::StatementsPerQuery, err, greeting, handshake_response, ok, packet, prepare_ok::PrepareOk,
    ssl_request,
};
pub use error::Error;
pub use server::greeting_template;

pub use crate::{
    fault::Fault,
    response::{Response, ResponseKind, ResponseSummary, Row},
};
