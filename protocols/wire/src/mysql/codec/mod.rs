//! Packets and the messages in them.

pub mod auth_switch;
pub mod capabilities;
pub mod change_user;
pub mod column;
pub mod command;
pub mod err;
pub mod greeting;
pub mod handshake_response;
pub mod ok;
pub mod packet;
pub mod prepare_ok;
pub mod ssl_request;

pub(crate) mod reader;
pub(crate) mod result_head;
