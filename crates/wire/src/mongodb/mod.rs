//! The MongoDB wire protocol with `OP_MSG`, client side.
//!
//! - [`codec`]: messages, BSON, compression, and the encoders of commands ([`CommandTemplate`]).
//! - [`client`]: the login ([`MongoDbConnect`]), the readers of replies ([`MongoDbResponseReader`],
//!   [`DocumentsReader`]), and
//! [`Discovery`], which selects the member of a replica set that matches a [`ReadPreference`].
//!
//! Titles in comments refer to the MongoDB manual, "Wire Protocol", and to the specifications for MongoDB
//! drivers.

pub mod bson;
pub mod command;
pub mod compression;
pub mod connect;
pub mod error;
pub mod message;
pub mod read_preference;
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

pub use compression::{Compressor, Inflater};
pub use connect::{MongoDbConnect, MongoDbTlsMode, MongoDbLogin, MIN_ITERATIONS, Mechanism};
pub use error::Error;
pub use message::COMMAND_REQUEST_ID;
pub use read_preference::ReadPreference;
pub use response::{MongoDbResponseReader, ResponseSummary};
pub use rows::{Cursor, Documents, DocumentsReader, version_of};
pub use server_info::{MongoDbAuthMethod, MemberRole, MongoDbServerInfo};
pub use template::{CommandTemplate, TemplateError};
pub use topology::{SelectedServer, Discovery, DiscoveryError};

pub use crate::mysql::{Fault, Response};
