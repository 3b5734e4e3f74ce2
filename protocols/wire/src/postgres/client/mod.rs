//! The client side: the login, and the readers of responses.

pub(crate) mod authenticator;
pub(crate) mod connect;
pub(crate) mod copy;
pub(crate) mod exchange;
pub(crate) mod login;
pub mod password_file;
pub(crate) mod prepare;
pub(crate) mod response;
pub(crate) mod rows;

pub use connect::{PostgresConnect, PostgresServerInfo};
pub use copy::CopyInReader;
pub use login::{Bound, ChannelBinding, DIRECT_TLS_ALPN, PostgresAuthMethod, PostgresLogin, PostgresTlsMode};
pub use prepare::{PostgresPrepareReader, StatementDescription};
pub use response::{ExchangeSummary, PostgresResponseReader};
pub use rows::PostgresRowsReader;
