//! `Protocol::AuthSwitchRequest`: the account uses another plugin than the client offered.

use crate::mysql::{
    codec::reader::{Reader, put_nul_terminated},
    error::Error,
};

const HEADER: u8 = 0xfe;
/// `AuthMoreData`: data for the plugin follows. MariaDB omits this byte if the data cannot be mistaken for
/// another message; MySQL never does.
pub(crate) const MORE_DATA: u8 = 0x01;
/// The plugin meant by a request that consists of the header alone ("Old Authentication Method Switch Request
/// Packet").
const OLD_PASSWORD: &[u8] = b"mysql_old_password";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuthSwitchRequest<'a> {
    pub plugin: &'a [u8],
    /// The plugin's data as sent. A nonce is followed by a NUL.
    pub data: &'a [u8],
}

impl<'a> AuthSwitchRequest<'a> {
    /// Whether a payload, in reply to a login, is an `AuthSwitchRequest`.
    pub fn is(payload: &[u8]) -> bool {
        payload.first() == Some(&HEADER)
    }

    pub fn parse(payload: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload, "request to switch authentication");
        if reader.u8()? != HEADER {
            return Err(reader.error("wrong first byte"));
        }
        if reader.is_empty() {
            return Ok(Self { plugin: OLD_PASSWORD, data: &[] });
        }
        Ok(Self { plugin: reader.nul_terminated()?, data: reader.rest() })
    }

    /// Appends the payload. The plugin's name must have no NUL.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(HEADER);
        put_nul_terminated(out, self.plugin);
        out.extend_from_slice(self.data);
    }
}
