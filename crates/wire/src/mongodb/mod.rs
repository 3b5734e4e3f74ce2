//! The MongoDB wire protocol of today, `OP_MSG`, one message or task per file.
//!
//! - [`Connect`] is the client's login, from the first byte to the server's consent.
//! - [`Template`] is an operation as data, [`command`] has the encoders of what goes with one; [`ResponseReader`] and
//!   [`DocumentsReader`] read answers.
//! - [`compression`] shortens messages, where that is agreed on.
//! - [`Discovery`] finds the member of a replica set that a [`ReadPreference`] wants.
//! - [`bson`] reads and writes documents, [`message`] what they travel in.
//!
//! Names in comments are those of the MongoDB manual, "Wire Protocol", and of its specifications for drivers.

pub mod bson;
pub mod command;
pub mod compression;
pub mod connect;
pub mod error;
pub mod message;
mod read_preference;
pub mod response;
pub mod rows;
pub mod server_info;
pub mod template;
pub mod topology;

mod authenticator;
mod checksum;
mod hello;
mod json;
mod reply;

pub use ciphertoll_vocabulary::ReadPreference;
pub use compression::{Compressor, Inflater};
pub use connect::{Connect, Encryption, Login, MIN_ITERATIONS, Mechanism};
pub use error::Error;
pub use message::COMMAND_REQUEST_ID;
pub use response::{ResponseReader, Summary};
pub use rows::{Cursor, Documents, DocumentsReader, version_of};
pub use server_info::{AuthKind, Role, ServerInfo};
pub use template::{Template, TemplateError};
pub use topology::{Choice, Discovery, DiscoveryError};

pub use crate::mysql::{Fault, Response};
