//! The protocol's basic types: integers in network byte order, and strings ("Message Data Types").

use crate::postgres::error::Error;

pub(crate) use crate::reader::put_nul_terminated;

pub(crate) type Reader<'a> = crate::reader::Reader<'a, Error>;

impl<'a> Reader<'a> {
    pub(crate) fn u16(&mut self) -> Result<u16, Error> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Error> {
        self.array().map(u32::from_be_bytes)
    }

    /// A cell or parameter: its length, or -1 for NULL, and its bytes.
    pub(crate) fn nullable_bytes(&mut self) -> Result<Option<&'a [u8]>, Error> {
        match self.array().map(i32::from_be_bytes)? {
            -1 => Ok(None),
            length => match usize::try_from(length) {
                Ok(length) => self.bytes(length).map(Some),
                Err(_) => Err(self.error("a negative length")),
            },
        }
    }
}

pub(crate) fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_be_bytes());
}

pub(crate) fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// Appends a cell or parameter. A value too long for its length field is too long for its message, which is
/// refused.
pub(crate) fn put_nullable_bytes(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => out.extend_from_slice(&(-1_i32).to_be_bytes()),
        Some(bytes) => {
            put_u32(out, bytes.len() as u32);
            out.extend_from_slice(bytes);
        }
    }
}
