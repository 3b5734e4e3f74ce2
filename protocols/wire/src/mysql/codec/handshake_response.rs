//! `Protocol::HandshakeResponse41`: the client's login.

use crate::mysql::{
    codec::{
        capabilities::Capabilities,
        reader::{Reader, put_lenenc_bytes, put_nul_terminated},
        ssl_request::SslRequest,
    },
    error::Error,
};

/// The account, and a proof for the plugin that the client offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandshakeResponse<'a> {
    /// The fields it shares with an `SSLRequest`.
    pub head: SslRequest,
    pub user: &'a [u8],
    /// The proof. Up to 250 bytes all clients encode its length the same way.
    pub auth_response: &'a [u8],
    /// The database, if `CONNECT_WITH_DB`.
    pub database: Option<&'a [u8]>,
    /// The plugin that the proof is for, if `PLUGIN_AUTH`.
    pub plugin: Option<&'a [u8]>,
}

impl<'a> HandshakeResponse<'a> {
    /// Parses a payload. Fields after the plugin (attributes, compression level) are ignored.
    pub fn parse(payload: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload, "login");
        let head = SslRequest::read(&mut reader)?;
        let user = reader.nul_terminated()?;
        let auth_response = if head.capabilities.contains(Capabilities::PLUGIN_AUTH_LENENC) {
            reader.lenenc_bytes()?
        } else if head.capabilities.contains(Capabilities::SECURE_CONNECTION) {
            let length = usize::from(reader.u8()?);
            reader.bytes(length)?
        } else {
            return Err(reader.error("the client is older than 4.1"));
        };
        // Some clients set the flag without a database, and may omit the field.
        let database = (head.capabilities.contains(Capabilities::CONNECT_WITH_DB) && !reader.is_empty())
            .then(|| reader.nul_terminated())
            .transpose()?;
        let plugin = (head.capabilities.contains(Capabilities::PLUGIN_AUTH) && !reader.is_empty())
            .then(|| reader.nul_terminated_or_rest());
        Ok(Self { head, user, auth_response, database, plugin })
    }

    /// Appends the payload. Strings must have no NUL, and must be present exactly if the capabilities say so.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.head.encode(out);
        put_nul_terminated(out, self.user);
        // Up to 250 bytes, a length-encoded length is one byte, as in the older form.
        put_lenenc_bytes(out, self.auth_response);
        if let Some(database) = self.database {
            put_nul_terminated(out, database);
        }
        if let Some(plugin) = self.plugin {
            put_nul_terminated(out, plugin);
        }
    }
}
