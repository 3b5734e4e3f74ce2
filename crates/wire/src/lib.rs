//! Protocol machines without I/O: bytes in, bytes out, and a [`Step`] that says what is wanted next.
//!
//! A machine owns no socket, no clock and no TLS. Whoever drives it reads bytes, hands them over as a slice that
//! the machine advances past what it understood, and sends what the machine appended to `out`:
//!
//! ```
//! # use std::sync::Arc;
//! # use ciphertoll_wire::{Secret, Step, mysql::{Connect, Encryption, Login}};
//! # fn read_more() -> Option<Vec<u8>> { None }
//! # fn flush(_: &mut Vec<u8>) {}
//! # let login = Arc::new(Login {
//! #     user: "toll".into(), password: Secret::new(Vec::new()), database: None, encryption: Encryption::Plain,
//! # });
//! let mut connect = Connect::new(login);
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
//!         Step::StartTls => { /* flush, handshake, go on with decrypted bytes */ }
//!         Step::Phase(_phase) => { /* note the time; flush if `out` has bytes */ }
//!         Step::Done => break,
//!     }
//! }
//! # Ok::<(), ciphertoll_wire::mysql::Error>(())
//! ```

pub mod mysql;
pub mod secret;
pub mod step;
pub mod tls;

pub use secret::Secret;
pub use step::{Phase, Step};
