//! The MongoDB wire protocol with `OP_MSG`, client side.
//!
//! - [`codec`]: messages, BSON, compression, and the encoders of commands ([`CommandTemplate`]).
//! - [`client`]: the login ([`MongoDbConnect`]), the readers of replies ([`MongoDbResponseReader`],
//!   [`DocumentsReader`]), and
//!   [`Discovery`], which selects the member of a replica set that matches a [`ReadPreference`].
//!
//! Titles in comments refer to the MongoDB manual, "Wire Protocol", and to the specifications for MongoDB
//! drivers.

pub mod client;
pub mod codec;
pub mod error;
pub mod member_role;
mod read_preference;

pub use bson;
pub use ciphertoll_vocabulary::ReadPreference;
pub use client::{
    Discovery, DiscoveryError, Documents, DocumentsReader, HostFindings, MIN_ITERATIONS, Mechanism,
    MongoDbAuthMethod, MongoDbConnect, MongoDbLogin, MongoDbResponseReader, MongoDbServerInfo,
    MongoDbTlsMode, SelectedServer, version_of,
};
pub use codec::{
    command, command::Cursor, compression, compression::Compressor, compression::Inflater, document, message,
    message::COMMAND_REQUEST_ID, template::CommandTemplate,
};
pub use error::{Error, TemplateError};
pub use member_role::MemberRole;

pub use crate::{
    fault::Fault,
    response::{Response, ResponseSummary},
};
