//! `OP_COMPRESSED`: messages as a server and a client have agreed to shorten them ("Wire Compression in Drivers").

use std::fmt;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::{
    Error,
    bson::patch_length,
    message::{HEADER_BYTES, MAX_MESSAGE_BYTES, OP_COMPRESSED, OP_MSG, error},
};

/// Behind the header: the operation that is compressed, its length, and by what.
const EXTRA_BYTES: usize = 9;

/// Commands that are never compressed, in small letters: with what they say of passwords, lengths would tell of it.
const NEVER_COMPRESSED: [&str; 12] = [
    "authenticate",
    "copydb",
    "copydbgetnonce",
    "copydbsaslstart",
    "createuser",
    "getnonce",
    "hello",
    "ismaster",
    "logout",
    "saslcontinue",
    "saslstart",
    "updateuser",
];

/// What messages are compressed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compressor {
    /// zlib's format (RFC 1950), at zlib's own default level, as drivers have it.
    Zlib,
}

impl Compressor {
    /// All.
    pub const ALL: [Self; 1] = [Self::Zlib];

    /// Its name in `hello`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Zlib => "zlib",
        }
    }

    /// Its number in messages.
    pub fn number(self) -> u8 {
        match self {
            Self::Zlib => 2,
        }
    }

    /// Compresses the message that begins at `start` and ends with `out`. On failure the message is taken away. Every
    /// message begins afresh, as drivers have it.
    pub fn compress(self, out: &mut Vec<u8>, start: usize) -> Result<(), Error> {
        let message = out.split_off(start);
        let Some((header, content)) = message.split_first_chunk::<HEADER_BYTES>() else {
            return Err(error("no header to be compressed"));
        };
        let (numbers, code) = header.split_at(HEADER_BYTES - size_of::<i32>());
        out.extend_from_slice(numbers);
        out.extend_from_slice(&OP_COMPRESSED.to_le_bytes());
        out.extend_from_slice(code);
        out.extend_from_slice(&(content.len() as u32).to_le_bytes());
        out.push(self.number());
        let deflated = deflate(out, content);
        let length = out.len() - start;
        match deflated {
            // Noise grows.
            Ok(()) if length > MAX_MESSAGE_BYTES => {
                out.truncate(start);
                Err(Error::MessageTooLarge { length, limit: MAX_MESSAGE_BYTES })
            }
            Ok(()) => {
                patch_length(out, start);
                Ok(())
            }
            Err(error) => {
                out.truncate(start);
                Err(error)
            }
        }
    }
}

fn deflate(out: &mut Vec<u8>, content: &[u8]) -> Result<(), Error> {
    let failed = || Error::Compression { operation: "deflate" };
    let mut stream = Compress::new(Compression::default(), true);
    // Most often enough at once: noise grows by five bytes for each 16 KB and a few more.
    out.reserve(content.len() + content.len() / 1024 + 64);
    loop {
        let consumed = usize::try_from(stream.total_in()).map_err(|_| failed())?;
        let rest = content.get(consumed..).unwrap_or_default();
        match stream.compress_vec(rest, out, FlushCompress::Finish).map_err(|_| failed())? {
            Status::StreamEnd => return Ok(()),
            Status::Ok | Status::BufError => out.reserve(content.len().max(EXTRA_BYTES * 8)),
        }
    }
}

/// Whether a command of this name may be compressed.
pub fn may_be_compressed(command: &str) -> bool {
    !NEVER_COMPRESSED.iter().any(|never| never.eq_ignore_ascii_case(command))
}

/// Makes messages whole again that a peer has compressed. Kept by readers, so that its room is made once.
#[derive(Default)]
pub struct Inflater {
    /// What was agreed on; messages that are compressed with anything else are refused.
    agreed: Option<Compressor>,
    stream: Option<Box<Decompress>>,
    message: Vec<u8>,
}

impl Inflater {
    /// For a connection on which this was agreed on.
    pub fn of(agreed: Option<Compressor>) -> Self {
        Self { agreed, ..Self::default() }
    }

    /// The whole message, as it was before it was compressed by compressor `number`: `header` is the message's own,
    /// `code` the operation that it had, `length` that of what followed its header. At most `limit` bytes come of it.
    pub(super) fn inflate(
        &mut self,
        number: u8,
        header: &[u8; HEADER_BYTES],
        code: i32,
        length: i32,
        compressed: &[u8],
        limit: usize,
    ) -> Result<&[u8], Error> {
        if self.agreed.map(Compressor::number) != Some(number) {
            return Err(Error::UnsupportedCompressor { compressor: number });
        }
        // Nothing else is read, and least of all a compressed message within another.
        if code != OP_MSG {
            return Err(error("not OP_MSG that was compressed"));
        }
        let length = usize::try_from(length).ok().and_then(|length| length.checked_add(HEADER_BYTES));
        let length = length.ok_or_else(|| error("an impossible length before it was compressed"))?;
        // Checked before there is room made for it.
        if length > limit {
            return Err(Error::MessageTooLarge { length, limit });
        }
        let Self { stream, message, .. } = self;
        message.clear();
        let (numbers, _) = header.split_at(HEADER_BYTES - size_of::<i32>());
        message.extend_from_slice(numbers);
        message.extend_from_slice(&code.to_le_bytes());
        patch(message, length);
        message.resize(length, 0);
        let stream = stream.get_or_insert_with(|| Box::new(Decompress::new(true)));
        stream.reset(true);
        let content = message.get_mut(HEADER_BYTES..).unwrap_or_default();
        let wanted = content.len() as u64;
        match stream.decompress(compressed, content, FlushDecompress::Finish) {
            Ok(Status::StreamEnd)
                if stream.total_out() == wanted && stream.total_in() == compressed.len() as u64 =>
            {
                Ok(message)
            }
            Ok(_) => Err(error("compressed to another length than it says")),
            Err(_) => Err(error("it cannot be decompressed")),
        }
    }
}

/// Writes the length of the whole, which is not there yet.
fn patch(message: &mut [u8], length: usize) {
    if let Some(place) = message.first_chunk_mut() {
        *place = (length as u32).to_le_bytes();
    }
}

/// A copy is for another connection's messages, and needs nothing of what came on this one.
impl Clone for Inflater {
    fn clone(&self) -> Self {
        Self::of(self.agreed)
    }
}

impl fmt::Debug for Inflater {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Inflater").field("agreed", &self.agreed).finish_non_exhaustive()
    }
}
