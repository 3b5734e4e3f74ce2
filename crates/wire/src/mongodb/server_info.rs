//! What is known of a server once the login is done.

use crate::scram::Digest;

use super::{COMMAND_REQUEST_ID, Compressor, Error, ReadPreference, Template};
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
    /// The members of the set that have data and may be read from, as they call themselves.
    pub hosts: Vec<String>,
    /// What it is in its set.
    pub role: Role,
    /// What commands say of the members that may be read from, where it wants to hear that.
    pub read_preference: Option<ReadPreference>,
    /// Whether it takes writes.
    pub is_writable_primary: bool,
    /// What the set calls it.
    pub me: Option<String>,
    /// The member that takes writes.
    pub primary: Option<String>,
    /// What it asked for to believe who the client is.
    pub auth: AuthKind,
    /// What messages are compressed with, on which both have agreed.
    pub compressor: Option<Compressor>,
    /// The login's database, which commands are for.
    pub database: String,
}

/// What a server is in its replica set. In the order in which one word of `hello` outdoes another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// In no set.
    Standalone,
    /// Neither primary nor secondary at the moment: it starts, recovers or is removed.
    Unready,
    /// It takes writes.
    Primary,
    /// It has the same data, a moment later.
    Secondary,
    /// It votes and has no data.
    Arbiter,
    /// It has data and is not for clients.
    Hidden,
    /// A router before sets of servers (`mongos`).
    Router,
}

impl Role {
    /// With its article.
    pub fn described(self) -> &'static str {
        match self {
            Self::Standalone => "a server of its own",
            Self::Unready => "neither primary nor secondary now",
            Self::Primary => "the primary",
            Self::Secondary => "a secondary",
            Self::Arbiter => "an arbiter",
            Self::Hidden => "a hidden member",
            Self::Router => "a router",
        }
    }
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
    /// Appends an operation on the login's database, compressed where that was agreed on and the protocol lets it; its
    /// answer is for a reader of [`COMMAND_REQUEST_ID`]. Allocates nothing but `out`, unless it is compressed.
    #[inline]
    pub fn encode(
        &self,
        out: &mut Vec<u8>,
        template: &Template,
        parameters: &[Value<'_>],
    ) -> Result<(), Error> {
        let start = out.len();
        template.encode_preferring(
            out,
            COMMAND_REQUEST_ID,
            &self.database,
            self.read_preference,
            parameters,
        )?;
        self.compress(out, start, template)
    }

    #[inline]
    fn compress(&self, out: &mut Vec<u8>, start: usize, template: &Template) -> Result<(), Error> {
        match self.compressor {
            Some(compressor) if template.may_be_compressed() => compressor.compress(out, start),
            _ => Ok(()),
        }
    }
}
