//! `COM_CHANGE_USER`: a client logs in again on the same connection.

use crate::mysql::{
    codec::{
        packet::{self, MAX_LOGIN_PAYLOAD_BYTES, PacketReader},
        reader::{Reader, put_nul_terminated},
    },
    error::Error,
};

pub const HEADER: u8 = 0x11;

/// The new account, and a proof for the plugin that the client offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeUser<'a> {
    pub user: &'a [u8],
    pub auth_response: &'a [u8],
    /// Empty for none.
    pub database: &'a [u8],
    /// The client's collation; `None` leaves it to the server.
    pub character_set: Option<u16>,
    /// The plugin that the proof is for.
    pub plugin: Option<&'a [u8]>,
}

impl<'a> ChangeUser<'a> {
    /// Takes the command from the front of `input`; `None` if it is incomplete.
    pub fn read(input: &mut &'a [u8]) -> Result<Option<Self>, Error> {
        let payload = PacketReader::new(0, MAX_LOGIN_PAYLOAD_BYTES).take(input, "change of the user")?;
        payload.map(Self::parse).transpose()
    }

    /// Parses a payload. The attributes after the plugin are ignored.
    pub fn parse(payload: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload, "change of the user");
        if reader.u8()? != HEADER {
            return Err(reader.error("another command"));
        }
        let user = reader.nul_terminated()?;
        let length = usize::from(reader.u8()?);
        let auth_response = reader.bytes(length)?;
        let database = reader.nul_terminated()?;
        // Older clients end the packet here or after the collation.
        let character_set = (!reader.is_empty()).then(|| reader.u16()).transpose()?;
        let plugin = (!reader.is_empty()).then(|| reader.nul_terminated_or_rest());
        Ok(Self { user, auth_response, database, character_set, plugin })
    }

    /// Appends the command. Strings must have no NUL; the proof has at most 255 bytes.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        packet::write(out, 0, |out| {
            out.push(HEADER);
            put_nul_terminated(out, self.user);
            out.push(self.auth_response.len() as u8);
            out.extend_from_slice(self.auth_response);
            put_nul_terminated(out, self.database);
            if let Some(character_set) = self.character_set {
                out.extend_from_slice(&character_set.to_le_bytes());
                if let Some(plugin) = self.plugin {
                    put_nul_terminated(out, plugin);
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_with_optional_fields_missing() {
        let whole = ChangeUser {
            user: b"app",
            auth_response: b"proof",
            database: b"shop",
            character_set: Some(45),
            plugin: Some(b"mysql_native_password"),
        };
        let unnamed = ChangeUser { plugin: None, ..whole };
        let shortest = ChangeUser { character_set: None, database: b"", auth_response: b"", ..unnamed };
        for change in [whole, unnamed, shortest] {
            let mut bytes = Vec::new();
            change.encode(&mut bytes).unwrap();
            for cut in 0..bytes.len() {
                assert_eq!(ChangeUser::read(&mut &bytes[..cut]), Ok(None));
                if cut > packet::HEADER_BYTES {
                    // A truncated payload may parse as another one, but must not panic.
                    let _ = ChangeUser::parse(&bytes[packet::HEADER_BYTES..cut]);
                }
            }
            let mut input = bytes.as_slice();
            assert_eq!(ChangeUser::read(&mut input), Ok(Some(change)));
            assert!(input.is_empty());
        }
        assert!(ChangeUser::parse(b"\x03SELECT 1").is_err());
        assert!(ChangeUser::parse(b"\x11app\0\x20short").is_err());
    }
}
