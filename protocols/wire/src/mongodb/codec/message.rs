//! Messages: a header of four numbers, flags, and sections with documents (`OP_MSG`, `OP_COMPRESSED`).

use bson::{RawDocument, RawDocumentBuf, cstr};

use crate::mongodb::{
    codec::{
        checksum::crc32c,
        compression::Inflater,
        document::{self, patch_length},
        header::{HEADER_BYTES, OP_COMPRESSED, OP_MSG, error},
    },
    error::Error,
};

pub use crate::mongodb::codec::header::MAX_MESSAGE_BYTES;

/// The longest message accepted before the login is done. No reply of a login is nearly as long.
pub const MAX_LOGIN_MESSAGE_BYTES: usize = 0x1_0000;
/// The request ID of every command after the login, which its reply must name. A connection awaits one reply
/// at a time. Commands of the login count from 1.
pub const COMMAND_REQUEST_ID: i32 = 0x100;

/// The last four bytes are a checksum of everything before them.
pub const CHECKSUM_PRESENT: u32 = 1;
/// Another message follows without a request.
pub const MORE_TO_COME: u32 = 1 << 1;
/// Flags that a receiver must understand.
const REQUIRED_FLAGS: u32 = 0xffff;

/// The compressor that does not compress.
const NOOP: u8 = 0;
const CHECKSUM_BYTES: usize = 4;
const BODY: u8 = 0;
const SEQUENCE: u8 = 1;

/// A whole message, whose documents have not been checked yet.
#[derive(Debug, Clone, PartialEq)]
pub struct OpMsg<'a> {
    pub request_id: i32,
    pub response_to: i32,
    pub flags: u32,
    /// The command or the reply.
    pub body: &'a RawDocument,
    /// Document sequences that belong to the body; replies have none.
    pub sequences: Vec<DocumentSequence<'a>>,
}

/// Documents of an array field, sent outside the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DocumentSequence<'a> {
    /// The name of the field; not necessarily UTF-8.
    pub identifier: &'a [u8],
    documents: &'a [u8],
}

impl<'a> DocumentSequence<'a> {
    /// The documents. After an error the iterator ends.
    pub fn documents(self) -> impl Iterator<Item = Result<&'a RawDocument, Error>> {
        let mut rest = self.documents;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let document = document::take(&mut rest);
            if document.is_err() {
                rest = &[];
            }
            Some(document)
        })
    }
}

/// Takes the next complete message, if it has arrived, on a connection without compression.
pub fn take<'a>(input: &mut &'a [u8], limit: usize) -> Result<Option<OpMsg<'a>>, Error> {
    match take_whole(input, limit)? {
        Some(whole) => parse(whole).map(Some),
        None => Ok(None),
    }
}

/// Takes the next complete message, if it has arrived. A compressed one is decompressed in `inflater`;
/// `limit` applies to the result, too.
pub fn take_inflated<'a, 'i: 'a>(
    input: &mut &'i [u8],
    limit: usize,
    inflater: &'a mut Inflater,
) -> Result<Option<OpMsg<'a>>, Error> {
    let Some(whole) = take_whole(input, limit)? else {
        return Ok(None);
    };
    match compressed(whole)? {
        Some(Compressed { header, code, length, compressor, content }) if compressor != NOOP => {
            parse(inflater.inflate(compressor, header, code, length, content, limit)?).map(Some)
        }
        _ => parse(whole).map(Some),
    }
}

/// The fields of an `OP_COMPRESSED`.
struct Compressed<'a> {
    header: &'a [u8; HEADER_BYTES],
    /// The original operation.
    code: i32,
    /// The uncompressed length without the header.
    length: i32,
    compressor: u8,
    content: &'a [u8],
}

/// Parses an `OP_COMPRESSED`; `None` for another operation.
fn compressed(whole: &[u8]) -> Result<Option<Compressed<'_>>, Error> {
    let (header, mut content) = whole.split_first_chunk().ok_or_else(|| error("it is truncated"))?;
    if header.last_chunk() != Some(&OP_COMPRESSED.to_le_bytes()) {
        return Ok(None);
    }
    let (code, length) = (number(&mut content)?, number(&mut content)?);
    let compressor = byte(&mut content)?;
    Ok(Some(Compressed { header, code, length, compressor, content }))
}

/// Takes the bytes of the next complete message, if it has arrived.
fn take_whole<'a>(input: &mut &'a [u8], limit: usize) -> Result<Option<&'a [u8]>, Error> {
    let Some(length) = input.first_chunk() else {
        return Ok(None);
    };
    let length = usize::try_from(i32::from_le_bytes(*length)).unwrap_or_default();
    if length < HEADER_BYTES {
        return Err(error("an impossible length"));
    }
    // Checked before the message arrives, so that a message that will be refused is not buffered.
    if length > limit {
        return Err(Error::MessageTooLarge { length, limit });
    }
    let Some((whole, rest)) = input.split_at_checked(length) else {
        return Ok(None);
    };
    *input = rest;
    Ok(Some(whole))
}

fn parse(whole: &[u8]) -> Result<OpMsg<'_>, Error> {
    let mut rest = whole;
    number(&mut rest)?;
    let (request_id, response_to, mut code) = (number(&mut rest)?, number(&mut rest)?, number(&mut rest)?);
    if let Some(Compressed { code: inner, length, compressor, content, .. }) = compressed(whole)? {
        match compressor {
            NOOP if usize::try_from(length) == Ok(content.len()) => (code, rest) = (inner, content),
            NOOP => return Err(error("a compressed message whose lengths disagree")),
            compressor => return Err(Error::UnsupportedCompressor { compressor }),
        }
    }
    if code != OP_MSG {
        return Err(error("neither OP_MSG nor OP_COMPRESSED"));
    }
    let flags = number(&mut rest)? as u32;
    if flags & REQUIRED_FLAGS & !(CHECKSUM_PRESENT | MORE_TO_COME) != 0 {
        return Err(error("an unknown flag that must be understood"));
    }
    if flags & CHECKSUM_PRESENT != 0 {
        rest = check(whole, rest)?;
    }
    let (body, sequences) = sections(rest)?;
    Ok(OpMsg { request_id, response_to, flags, body, sequences })
}

/// The bytes before the checksum, which must be correct.
fn check<'a>(whole: &[u8], rest: &'a [u8]) -> Result<&'a [u8], Error> {
    let short = || error("no room for its checksum");
    let (rest, _) = rest.split_last_chunk::<CHECKSUM_BYTES>().ok_or_else(short)?;
    let (covered, checksum) = whole.split_last_chunk().ok_or_else(short)?;
    if crc32c(covered) == u32::from_le_bytes(*checksum) { Ok(rest) } else { Err(error("a wrong checksum")) }
}

fn sections(mut rest: &[u8]) -> Result<(&RawDocument, Vec<DocumentSequence<'_>>), Error> {
    let (mut body, mut sequences) = (None, Vec::new());
    while !rest.is_empty() {
        match byte(&mut rest)? {
            BODY if body.is_none() => body = Some(document::take(&mut rest)?),
            BODY => return Err(error("two bodies")),
            SEQUENCE => sequences.push(sequence(&mut rest)?),
            _ => return Err(error("a section of an unknown kind")),
        }
    }
    body.map(|body| (body, sequences)).ok_or_else(|| error("no body"))
}

fn sequence<'a>(rest: &mut &'a [u8]) -> Result<DocumentSequence<'a>, Error> {
    let before = *rest;
    // The size includes itself.
    let size = usize::try_from(number(rest)?).ok();
    let (section, behind) = size
        .and_then(|size| before.split_at_checked(size))
        .ok_or_else(|| error("a section with an impossible length"))?;
    *rest = behind;
    let inside = section.get(size_of::<i32>()..).unwrap_or_default();
    let end = inside.iter().position(|&byte| byte == 0);
    let (identifier, documents) = end
        .and_then(|end| Some((inside.get(..end)?, inside.get(end + 1..)?)))
        .ok_or_else(|| error("a section without a name"))?;
    Ok(DocumentSequence { identifier, documents })
}

/// Appends a message whose body `body` appends. Appends nothing if that fails or exceeds the limit.
#[inline]
pub(crate) fn write(
    out: &mut Vec<u8>,
    request_id: i32,
    body: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>,
) -> Result<(), Error> {
    let start = out.len();
    for number in [0, request_id, 0, OP_MSG, 0] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.push(BODY);
    let written = body(out);
    let length = out.len() - start;
    let written = match written {
        Ok(()) if length > MAX_MESSAGE_BYTES => {
            Err(Error::MessageTooLarge { length, limit: MAX_MESSAGE_BYTES })
        }
        written => written,
    };
    match written {
        Ok(()) => patch_length(out, start),
        Err(_) => out.truncate(start),
    }
    written
}

/// Appends a document sequence that belongs to the preceding body. `documents` are concatenated documents.
pub(crate) fn put_sequence(out: &mut Vec<u8>, identifier: &str, documents: &[u8]) {
    out.push(SEQUENCE);
    let start = out.len();
    out.extend_from_slice(&[0; size_of::<i32>()]);
    out.extend_from_slice(identifier.as_bytes());
    out.push(0);
    out.extend_from_slice(documents);
    patch_length(out, start);
}

/// Appends a command for this database.
pub fn write_command(
    out: &mut Vec<u8>,
    request_id: i32,
    mut command: RawDocumentBuf,
    database: &str,
) -> Result<(), Error> {
    command.append(cstr!("$db"), database);
    write(out, request_id, |out| {
        out.extend_from_slice(command.as_bytes());
        Ok(())
    })
}

fn number(rest: &mut &[u8]) -> Result<i32, Error> {
    let (number, behind) = rest.split_first_chunk().ok_or_else(|| error("it is truncated"))?;
    *rest = behind;
    Ok(i32::from_le_bytes(*number))
}

fn byte(rest: &mut &[u8]) -> Result<u8, Error> {
    let (&byte, behind) = rest.split_first().ok_or_else(|| error("it is truncated"))?;
    *rest = behind;
    Ok(byte)
}
