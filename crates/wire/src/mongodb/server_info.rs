//! What is known of a server once the login is done.

use crate::scram::Digest;

use super::{COMMAND_REQUEST_ID, Error, Template};
use crate::session::Value;

/// What is known of the server once it awaits commands.
#[derive(Debug, Clone)]
pub struct ServerInfo {
    /// What it said of its age: `wire-` and the version of the protocol, as it tells its own version only to who asks
    /// ([`command::encode_build_info`](super::command::encode_build_info)).
    pub version: String,
    /// The newest version of the protocol that it speaks (`maxWireVersion`).
    pub max_wire_version: i32,
    /// The longest document that it takes.
    pub max_bson_bytes: u32,
    /// The longest message that it takes.
    pub max_message_bytes: u32,
    /// The replica set that it belongs to.
    pub set_name: Option<String>,
    /// The members of the set, as they call themselves.
    pub hosts: Vec<String>,
    /// Whether it takes writes.
    pub is_writable_primary: bool,
    /// What the set calls it.
    pub me: Option<String>,
    /// The member that takes writes.
    pub primary: Option<String>,
    /// What it asked for to believe who the client is.
    pub auth: AuthKind,
    /// The login's database, which commands are for.
    pub database: String,
}

/// How the client has authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AuthKind {
    /// Not at all.
    None,
    /// By the certificate that TLS has seen (`MONGODB-X509`).
    Certificate,
    /// SCRAM.
    Scram {
        /// SHA-256 or SHA-1.
        digest: Digest,
        /// The rounds of key derivation that the server asked for.
        iterations: u32,
    },
}

impl AuthKind {
    /// A short, stable name, such as `scram-15000`.
    pub fn label(self) -> String {
        match self {
            Self::None => "trust".to_owned(),
            Self::Certificate => "cert".to_owned(),
            Self::Scram { digest: Digest::Sha256, iterations } => format!("scram-{iterations}"),
            Self::Scram { digest: Digest::Sha1, iterations } => format!("scram-sha1-{iterations}"),
        }
    }
}

impl ServerInfo {
    /// Appends an operation on the login's database; its answer is for a reader of [`COMMAND_REQUEST_ID`]. Allocates
    /// nothing but `out`.
    #[inline]
    pub fn encode(
        &self,
        out: &mut Vec<u8>,
        template: &Template,
        parameters: &[Value<'_>],
    ) -> Result<(), Error> {
        template.encode(out, COMMAND_REQUEST_ID, &self.database, parameters)
    }
}
