//! What a program that the library was loaded into tells `ciphertoll tde exec`: one message a packet, over a socket that
//! it inherits. The library is loaded by environment variable, and a loader that cannot load it says so in a line that
//! nobody reads and goes on without: only the program itself can prove that it has the library.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;

/// The environment variable that holds the socket's descriptor number.
pub const HANDSHAKE_FD: &str = "CIPHERTOLL_TDE_HANDSHAKE_FD";
/// No message is longer; what is longer is cut off.
pub const MESSAGE_BYTES: usize = 4096;

/// A message of one program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its process ID.
    pub process: u32,
    /// What it says.
    pub said: Said,
}

/// What a program says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// The library is loaded.
    Loaded,
    /// It works on the cluster's files, and has the keys.
    HasKeys,
    /// It ends before it has written anything.
    Refused {
        /// Device and inode of its standard error, where it says the same.
        stderr: (u64, u64),
        /// Why.
        why: String,
    },
}

impl Message {
    /// As it is sent.
    pub fn encode(&self) -> Vec<u8> {
        let mut text = match &self.said {
            Said::Loaded => "loaded".to_owned(),
            Said::HasKeys => "keys".to_owned(),
            Said::Refused { stderr: (device, inode), why } => format!("refused {device} {inode} {why}"),
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

    /// From what was received. `None` for anything else: who has inherited the socket may write to it.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let text = OsStr::from_bytes(bytes).to_str()?;
        let (said, process) = text.rsplit_once('\n')?;
        let said = match said {
            "loaded" => Said::Loaded,
            "keys" => Said::HasKeys,
            _ => {
                let mut parts = said.strip_prefix("refused ")?.splitn(3, ' ');
                let (device, inode) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
                Said::Refused { stderr: (device, inode), why: parts.next()?.to_owned() }
            }
        };
        Some(Self { process: process.parse().ok()?, said })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive() {
        let refused = |why: &str| Said::Refused { stderr: (7, 8), why: why.to_owned() };
        for said in [Said::Loaded, Said::HasKeys, refused("no key\nat all"), refused("")] {
            let message = Message { process: 42, said };
            assert_eq!(Message::decode(&message.encode()), Some(message));
        }
        let long = Message { process: 42, said: refused(&"é".repeat(MESSAGE_BYTES)) }.encode();
        assert!(long.len() <= MESSAGE_BYTES);
        assert!(Message::decode(&long).is_some_and(|message| message.process == 42));
        for other in ["", "loaded", "loaded\nx", "refused 1\n2", "refused 1 x y\n2"] {
            assert_eq!(Message::decode(other.as_bytes()), None, "{other:?}");
        }
    }
}
