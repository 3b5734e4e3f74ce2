//! `OP_COMPRESSED`: compressed messages ("Wire Compression in Drivers").

use std::fmt;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use crate::mongodb::{
    codec::{
        document::patch_length,
        header::{HEADER_BYTES, MAX_MESSAGE_BYTES, OP_COMPRESSED, OP_MSG, error},
    },
    error::Error,
};

/// After the header: the original operation, its length, and the compressor.
const EXTRA_BYTES: usize = 9;

/// Commands that are never compressed, in lower case. They contain credentials, of which the compressed
/// length would reveal something.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compressor {
    /// The zlib format (RFC 1950), at zlib's default level, as in drivers.
    Zlib,
}

impl Compressor {
    pub const ALL: [Self; 1] = [Self::Zlib];

    /// The name in `hello`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Zlib => "zlib",
        }
    }

    /// The identifier in messages.
    pub fn number(self) -> u8 {
        match self {
            Self::Zlib => 2,
        }
    }

    /// Compresses the message from `start` to the end of `out`. On failure the message is removed. Each
    /// message is a separate zlib stream, as in drivers.
    pub fn compress(self, out: &mut Vec<u8>, start: usize) -> Result<(), Error> {
        let message = out.split_off(start);
        let Some((header, content)) = message.split_first_chunk::<HEADER_BYTES>() else {
            return Err(error("the message to compress has no header"));
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
            // Incompressible data grow.
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
    // Usually enough at once: incompressible data grow by five bytes per 16 KB and a few more.
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

pub fn may_be_compressed(command: &str) -> bool {
    !NEVER_COMPRESSED.iter().any(|never| never.eq_ignore_ascii_case(command))
}

/// Decompresses messages. Readers keep it, so that its buffer is allocated once.
#[derive(Default)]
pub struct Inflater {
    /// The negotiated compressor. Messages compressed with another one are refused.
    agreed: Option<Compressor>,
    stream: Option<Box<Decompress>>,
    message: Vec<u8>,
}

impl Inflater {
    /// For a connection with this negotiated compressor.
    pub fn of(agreed: Option<Compressor>) -> Self {
        Self { agreed, ..Self::default() }
    }

    /// Decompresses a message that was compressed by compressor `number`. `header` is the header of the
    /// compressed message, `code` the original operation, `length` the length of its content. The result has
    /// at most `limit` bytes.
    pub(crate) fn inflate(
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
        // Other operations are not read, least of all a nested compressed message.
        if code != OP_MSG {
            return Err(error("a compressed operation other than OP_MSG"));
        }
        let length = usize::try_from(length).ok().and_then(|length| length.checked_add(HEADER_BYTES));
        let length = length.ok_or_else(|| error("an impossible uncompressed length"))?;
        // Checked before the buffer is allocated.
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
            Ok(_) => Err(error("its uncompressed length is wrong")),
            Err(_) => Err(error("it cannot be decompressed")),
        }
    }
}

/// Writes the message's length into its header. The content follows later.
fn patch(message: &mut [u8], length: usize) {
    if let Some(place) = message.first_chunk_mut() {
        *place = (length as u32).to_le_bytes();
    }
}

/// A copy is for another connection and needs no buffered data.
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
