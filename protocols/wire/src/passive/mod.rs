//! What an observer between client and server sees of a connection without taking part in it: how it
//! begins, whether and how it is encrypted, how the client proves who it is, and which queries follow.
//!
//! No text of a statement and no password is kept: of each message, the kind and what names a method. Names of users and
//! databases are read only if [`AccountNames`] says so.

mod account;
mod conversation;
mod event;
mod message_loop;
mod messages;
mod mongodb;
mod mysql;
mod postgres;

pub use account::{Account, AccountNames};
pub use conversation::Conversation;
pub use event::{AuthMethod, Content, DatabaseProtocol, Event, FailureCode, PasswordOnWire};

pub use crate::side::ConnectionSide;
