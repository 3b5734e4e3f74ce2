use ciphertoll_vocabulary::ReadPreference;

use crate::{
    mongodb::{
        codec::{compression::Compressor, message::COMMAND_REQUEST_ID, template::CommandTemplate},
        error::Error,
        member_role::MemberRole,
    },
    scram::Digest,
    value::Value,
};

/// What is known of the server once it awaits commands.
#[derive(Debug, Clone)]
pub struct MongoDbServerInfo {
    /// `wire-` and the version of the protocol. The server's own version must be requested (`buildInfo`).
    pub version: String,
    /// The newest supported version of the protocol (`maxWireVersion`).
    pub max_wire_version: i32,
    pub max_bson_bytes: u32,
    pub max_message_bytes: u32,
    /// The replica set of the server.
    pub set_name: Option<String>,
    /// The members of the set that hold data and are visible to clients, by the names in its configuration.
    pub hosts: Vec<String>,
    /// The server's role in its set.
    pub role: MemberRole,
    /// The read preference that commands must have for this server.
    pub read_preference: Option<ReadPreference>,
    /// Whether it accepts writes.
    pub is_writable_primary: bool,
    /// The server's name in the configuration of its set.
    pub me: Option<String>,
    pub primary: Option<String>,
    pub auth: MongoDbAuthMethod,
    /// The negotiated compressor.
    pub compressor: Option<Compressor>,
    /// The database of the login, used by commands.
    pub database: String,
}

/// How the server authenticated the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MongoDbAuthMethod {
    None,
    /// With the TLS client certificate (`MONGODB-X509`).
    Certificate,
    Scram {
        digest: Digest,
        /// Iterations of the key derivation, which the server chose.
        iterations: u32,
    },
}

impl MongoDbAuthMethod {
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

impl MongoDbServerInfo {
    /// Appends a command for the login's database, compressed if that was negotiated and the protocol allows
    /// it. Read the reply with [`COMMAND_REQUEST_ID`]. Allocates only for `out`, unless the command is
    /// compressed.
    #[inline]
    pub fn encode(
        &self,
        out: &mut Vec<u8>,
        template: &CommandTemplate,
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
    fn compress(&self, out: &mut Vec<u8>, start: usize, template: &CommandTemplate) -> Result<(), Error> {
        match self.compressor {
            Some(compressor) if template.may_be_compressed() => compressor.compress(out, start),
            _ => Ok(()),
        }
    }
}
