//! Messages from the preloaded library to `ciphertoll tde exec`, one per packet, over an inherited socket.
//!
//! If the loader cannot load the library, it only prints a warning and runs the program without it. Therefore the library
//! itself reports that it was loaded.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;

/// Environment variable with the number of the socket's file descriptor.
pub const HANDSHAKE_FD: &str = "CIPHERTOLL_TDE_HANDSHAKE_FD";
/// Maximum size of a message; a longer reason is truncated.
pub const MESSAGE_BYTES: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandshakeMessage {
    pub process: u32,
    pub status: HandshakeStatus,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandshakeStatus {
    Loaded,
    /// The program accesses the cluster's files, and has the keys.
    HasKeys,
    /// The program exits before it has written anything.
    Refused {
        /// Device and inode of its standard error, where it prints the same reason.
        stderr: (u64, u64),
        why: String,
    },
}

impl HandshakeMessage {
    pub fn encode(&self) -> Vec<u8> {
        let mut text = match &self.status {
            HandshakeStatus::Loaded => "loaded".to_owned(),
            HandshakeStatus::HasKeys => "keys".to_owned(),
            HandshakeStatus::Refused { stderr: (device, inode), why } => {
                format!("refused {device} {inode} {why}")
            }
        };
        // Writing to a string cannot fail.
        let _ = write!(text, "\n{}", self.process);
        if let Some((why, process)) = text.rsplit_once('\n')
            && text.len() > MESSAGE_BYTES
        {
            let kept = why.floor_char_boundary(MESSAGE_BYTES - process.len() - 1);
            text = format!("{}\n{process}", &why[..kept]);
        }
        text.into_bytes()
    }

    /// Returns `None` for invalid data: any program that inherits the socket can write to it.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let text = OsStr::from_bytes(bytes).to_str()?;
        let (status, process) = text.rsplit_once('\n')?;
        let status = match status {
            "loaded" => HandshakeStatus::Loaded,
            "keys" => HandshakeStatus::HasKeys,
            _ => {
                let mut parts = status.strip_prefix("refused ")?.splitn(3, ' ');
                let (device, inode) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
                HandshakeStatus::Refused { stderr: (device, inode), why: parts.next()?.to_owned() }
            }
        };
        Some(Self { process: process.parse().ok()?, status })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_decode_to_themselves() {
        let refused = |why: &str| HandshakeStatus::Refused { stderr: (7, 8), why: why.to_owned() };
        for status in
            [HandshakeStatus::Loaded, HandshakeStatus::HasKeys, refused("no key\nat all"), refused("")]
        {
            let message = HandshakeMessage { process: 42, status };
            assert_eq!(HandshakeMessage::decode(&message.encode()), Some(message));
        }
        let long = HandshakeMessage { process: 42, status: refused(&"é".repeat(MESSAGE_BYTES)) }.encode();
        assert!(long.len() <= MESSAGE_BYTES);
        assert!(HandshakeMessage::decode(&long).is_some_and(|message| message.process == 42));
        for other in ["", "loaded", "loaded\nx", "refused 1\n2", "refused 1 x y\n2"] {
            assert_eq!(HandshakeMessage::decode(other.as_bytes()), None, "{other:?}");
        }
    }
}
