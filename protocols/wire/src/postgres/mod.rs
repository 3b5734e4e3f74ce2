//! The PostgreSQL frontend/backend protocol 3.0.
//!
//! - [`codec`]: messages and their encoding.
//! - [`client`]: the login ([`PostgresConnect`]) and the readers of responses.
//! - [`server`]: the server side of a session.
//! - [`relay`]: what a proxy between client and server needs.
//! - [`sql`]: what a statement's text says about its effects on the session.
//!
//! Titles in comments refer to the PostgreSQL documentation, "Frontend/Backend Protocol".

pub mod client;
pub mod codec;
pub mod error;
pub mod md5;
pub mod relay;
pub mod server;
pub mod sql;

pub use client::{
    Bound, ChannelBinding, CopyInReader, DIRECT_TLS_ALPN, ExchangeSummary, PostgresAuthMethod,
    PostgresConnect, PostgresLogin, PostgresPrepareReader, PostgresResponseReader, PostgresRowsReader,
    PostgresServerInfo, PostgresTlsMode, StatementDescription, password_file,
};
pub use codec::{
    authentication, cancel_key::CancelKey, column, column::Column, column::ValueFormat, command,
    command::Param, copy_start::CopyStart, message, parameters::Parameters, report, report::Notice,
    severity::Severity, startup, text_rules::TextEncoding, transaction::TransactionStatus,
};
pub use error::Error;

pub use crate::{
    fault::Fault,
    response::{Response, Row},
};
