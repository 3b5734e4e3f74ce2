//! What a connection shows to somebody between client and server, who reads both directions and takes no part: how it
//! begins, whether and how it is encrypted, how the client proves who it is, and which queries follow.
//!
//! No text of a statement, no name and no password is kept: of each message, the kind and what names a method.

mod conversation;
mod event;
mod message_loop;
mod messages;
mod mongodb;
mod mysql;
mod postgres;

pub use conversation::Conversation;
pub use event::{AuthMethod, Content, DatabaseProtocol, Event, FailureCode, PasswordOnWire};

pub use crate::side::ConnectionSide;
