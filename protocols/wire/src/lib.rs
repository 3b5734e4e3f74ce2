//! Protocol state machines without I/O: bytes in, bytes out, and a [`Step`] that says what the machine needs
//! next.
//!
//! - [`mysql`] and [`postgres`] implement both sides of their protocol, [`mongodb`] the client side.
//!   [`session`] is the interface that their clients share. [`scram`] authenticates in PostgreSQL and
//!   MongoDB.
//! - [`tls`] observes a TLS handshake without taking part in it.
//!
//! A machine owns no socket, no clock and no TLS session. Its driver reads bytes, passes them as a slice,
//! which the machine advances past what it consumed, and sends what the machine appended to `out`:
//!
//! ```
//! # use std::sync::Arc;
//! # use ciphertoll_wire::{Secret, Step, postgres, session::{Connect, Login}};
//! # use postgres::{ChannelBinding, PostgresTlsMode};
//! # fn read_more() -> Option<Vec<u8>> { None }
//! # fn flush(_: &mut Vec<u8>) {}
//! let login = Login::Postgres(Arc::new(postgres::PostgresLogin {
//!     startup: Vec::new(),
//!     user: "toll".to_owned(),
//!     password: Secret::new(b"correct horse".to_vec()),
//!     database: None,
//!     encryption: PostgresTlsMode::Tls,
//!     channel_binding: ChannelBinding::Disabled,
//! }));
//! let mut connect = Connect::new(&login);
//! let (mut received, mut out) = (Vec::new(), Vec::new());
//! loop {
//!     let mut input = received.as_slice();
//!     let step = connect.step(&mut input, &mut out)?;
//!     let unread = input.len();
//!     received.drain(..received.len() - unread);
//!     match step {
//!         Step::NeedInput => {
//!             flush(&mut out);
//!             let Some(bytes) = read_more() else { break };
//!             received.extend(bytes);
//!         }
//!         Step::OfferTls => { /* only where the login offers TLS at once */ }
//!         Step::StartTls => { /* flush, handshake, go on with decrypted bytes */ }
//!         Step::Phase(_phase) => { /* note the time; flush if `out` has bytes */ }
//!         Step::Done => break,
//!     }
//! }
//! # Ok::<(), ciphertoll_wire::session::Error>(())
//! ```
//!
//! # Where to change what
//!
//! - a compressor of MongoDB messages: `wire::mongodb::codec::compression`, `model::factor::compressor`
//! - how the sidecar reads SQL text: `wire::postgres::sql::lexer`, `wire::mysql::sql::lexer`; compared with servers
//!   in `oracles`

pub mod fault;
pub mod mongodb;
pub mod mysql;
pub mod opening;
pub mod passive;
pub mod postgres;
pub mod printable;
pub(crate) mod reader;
pub mod relay;
pub mod response;
pub mod scram;
pub mod secret;
pub mod session;
mod side;
pub mod step;
pub(crate) mod text_search;
pub mod tls;
pub mod value;
mod words;

pub use ciphertoll_vocabulary::Phase;
pub use fault::Fault;
pub use response::Response;
pub use secret::Secret;
pub use side::ConnectionSide;
pub use step::Step;
