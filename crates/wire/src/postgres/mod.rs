//! The PostgreSQL frontend/backend protocol 3.0.
//!
//! - [`codec`]: messages and their encoding.
//! - [`client`]: the login ([`PostgresConnect`]) and the readers of responses.
//! - [`server`]: the server side of a session.
//! - [`relay`]: what a proxy between client and server needs.
//! - [`sql`]: what a statement's text says about its effects on the session.
//!
//! Titles in comments refer to the PostgreSQL documentation, "Frontend/Backend Protocol".

pub mod authentication;
pub mod cancel_key;
pub mod column;
pub mod command;
pub mod connect;
pub mod copy;
pub mod databases;
pub mod effects;
pub mod errand;
pub mod error;
pub mod follow;
pub mod md5;
pub mod message;
pub mod parameters;
pub mod password_file;
pub mod prepare;
pub mod relay;
pub mod report;
pub mod response;
pub mod rows;
pub mod server;
pub mod startup;
pub mod transaction;

mod authenticator;
mod codec;
mod exchange;
mod kind;
mod lexer;
mod tag;

pub use cancel_key::CancelKey;
pub use column::{Column, ValueFormat};
pub use command::Param;
pub use connect::{
    PostgresAuthMethod, Bound, ChannelBinding, PostgresConnect, DIRECT_TLS_ALPN, PostgresTlsMode, PostgresLogin, PostgresServerInfo,
};
pub use copy::{CopyInReader, CopyOutReader, CopyStart};
pub use error::Error;
pub use parameters::Parameters;
pub use prepare::{PostgresPrepareReader, StatementDescription};
pub use report::{Notice, Severity};
pub use response::{PostgresResponseReader, ExchangeSummary};
pub use rows::{Row, PostgresRowsReader};
pub use transaction::TransactionStatus;

pub use crate::mysql::{Fault, Response};
