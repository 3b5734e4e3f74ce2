//! What is fuzzed: each target takes any bytes and panics if a decoder breaks its promises.
//!
//! libFuzzer runs the targets from `checks/fuzz/`, a workspace of its own. `tests/replay.rs` runs them on the committed inputs in
//! `checks/fuzz/seeds` and on changed copies, in every `make test`.

pub mod mongodb_connect;
pub mod mongodb_reply;
pub mod mongodb_template;
pub mod mysql_auth;
pub mod mysql_connect;
pub mod mysql_follow;
pub mod mysql_front;
pub mod mysql_internal_command;
pub mod mysql_relay;
pub mod mysql_response;
pub mod mysql_server;
pub mod observe_capture;
pub mod passive_conversation;
pub mod postgres_connect;
pub mod postgres_follow;
pub mod postgres_internal_command;
pub mod postgres_relay;
pub mod postgres_response;
pub mod postgres_server;
pub mod scram;
pub mod tde_file_class;
pub mod tde_key_file;
pub mod tls_client_hello;
pub mod tls_flight;
pub mod tls_handshake;

/// A fuzz target; its name is also that of its directory in `checks/fuzz/seeds`.
pub struct FuzzTarget {
    pub name: &'static str,
    pub run: fn(&[u8]),
}

pub const ALL: [FuzzTarget; 25] = [
    FuzzTarget { name: "mongodb_connect", run: mongodb_connect::run },
    FuzzTarget { name: "mongodb_reply", run: mongodb_reply::run },
    FuzzTarget { name: "mongodb_template", run: mongodb_template::run },
    FuzzTarget { name: "mysql_auth", run: mysql_auth::run },
    FuzzTarget { name: "mysql_connect", run: mysql_connect::run },
    FuzzTarget { name: "mysql_follow", run: mysql_follow::run },
    FuzzTarget { name: "mysql_front", run: mysql_front::run },
    FuzzTarget { name: "mysql_internal_command", run: mysql_internal_command::run },
    FuzzTarget { name: "mysql_relay", run: mysql_relay::run },
    FuzzTarget { name: "mysql_response", run: mysql_response::run },
    FuzzTarget { name: "mysql_server", run: mysql_server::run },
    FuzzTarget { name: "observe_capture", run: observe_capture::run },
    FuzzTarget { name: "passive_conversation", run: passive_conversation::run },
    FuzzTarget { name: "postgres_connect", run: postgres_connect::run },
    FuzzTarget { name: "postgres_follow", run: postgres_follow::run },
    FuzzTarget { name: "postgres_internal_command", run: postgres_internal_command::run },
    FuzzTarget { name: "postgres_relay", run: postgres_relay::run },
    FuzzTarget { name: "postgres_response", run: postgres_response::run },
    FuzzTarget { name: "postgres_server", run: postgres_server::run },
    FuzzTarget { name: "scram", run: scram::run },
    FuzzTarget { name: "tde_file_class", run: tde_file_class::run },
    FuzzTarget { name: "tde_key_file", run: tde_key_file::run },
    FuzzTarget { name: "tls_client_hello", run: tls_client_hello::run },
    FuzzTarget { name: "tls_flight", run: tls_flight::run },
    FuzzTarget { name: "tls_handshake", run: tls_handshake::run },
];

/// Data of one direction that a relay has not forwarded yet, and how much it has.
#[derive(Default)]
struct HeldBytes {
    held: Vec<u8>,
    passed: usize,
}
