//! `Protocol::AuthSwitchRequest`: the account uses another plugin than the client guessed.

use super::{
    Error,
    codec::{Reader, put_nul_terminated},
};

const HEADER: u8 = 0xfe;
/// What a server means that sends the header alone ("Old Authentication Method Switch Request Packet").
const OLD_PASSWORD: &[u8] = b"mysql_old_password";

/// The plugin to go on with, and its challenge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuthSwitchRequest<'a> {
    /// The plugin's name.
    pub plugin: &'a [u8],
    /// The plugin's data as sent; a nonce has a NUL after it.
    pub data: &'a [u8],
}

impl<'a> AuthSwitchRequest<'a> {
    /// Whether a payload, as the answer to a login, is one.
    pub fn is(payload: &[u8]) -> bool {
        payload.first() == Some(&HEADER)
    }

    /// Reads a payload.
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

    /// Appends the payload. The plugin must have no NUL.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(HEADER);
        put_nul_terminated(out, self.plugin);
        out.extend_from_slice(self.data);
    }
}
