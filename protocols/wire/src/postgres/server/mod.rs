//! The server side: reads a client's messages and writes replies.

mod frontend;
mod write;

pub use super::{
    codec::{
        authentication::Authentication,
        column::Field,
        report::Report,
        startup::{Startup, StartupMessage, read_startup},
    },
    md5::StoredPassword,
};
pub use frontend::{AuthResponse, Bind, DescribeTarget, FrontendMessage, read_frontend};
pub use write::{
    TlsAnswer, write_authentication, write_backend_key_data, write_command_complete, write_copy_in_response,
    write_data_row, write_error, write_message, write_negotiate_protocol_version, write_notice,
    write_parameter_status, write_ready_for_query, write_row_description, write_tls_answer,
};
