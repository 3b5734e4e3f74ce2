//! Documents that are read in place.

use crate::mongodb::{
    codec::bson::value::{BsonValue, kind},
    error::Error,
};

/// The deepest nesting accepted; servers accept about twice as much.
pub const MAX_DEPTH: usize = 100;
/// A length and a final NUL.
pub(crate) const MIN_DOCUMENT_BYTES: usize = LENGTH_BYTES + 1;
pub(crate) const LENGTH_BYTES: usize = 4;
pub(crate) const OBJECT_ID_BYTES: usize = 12;

/// A document, or an array, whose keys are numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Document<'a>(&'a [u8]);

/// The elements of a document, in order. After an error the iterator ends.
#[derive(Debug, Clone)]
pub struct Elements<'a>(&'a [u8]);

/// A key and a value. Only the value's length has been checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Element<'a> {
    kind: u8,
    key: &'a [u8],
    value: &'a [u8],
}

impl<'a> Document<'a> {
    /// The document in `bytes`. Further bytes are an error.
    pub fn new(mut bytes: &'a [u8]) -> Result<Self, Error> {
        let document = Self::take(&mut bytes)?;
        if bytes.is_empty() { Ok(document) } else { Err(error("unexpected bytes at its end")) }
    }

    /// Takes a document from the front of `input`.
    pub fn take(input: &mut &'a [u8]) -> Result<Self, Error> {
        let Some(length) = input.first_chunk() else {
            return Err(error("it is truncated"));
        };
        let length = usize::try_from(i32::from_le_bytes(*length)).unwrap_or_default();
        if length < MIN_DOCUMENT_BYTES {
            return Err(error("an impossible length"));
        }
        let bytes = bytes(input, length)?;
        if bytes.last() != Some(&0) {
            return Err(error("a document has no final NUL"));
        }
        Ok(Self(bytes))
    }

    /// The document's bytes, including its length.
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    pub fn elements(self) -> Elements<'a> {
        let inside = self.0.get(LENGTH_BYTES..self.0.len().saturating_sub(1));
        Elements(inside.unwrap_or_default())
    }

    /// The first value with this key. The elements before it are checked.
    pub fn get(self, key: &str) -> Result<Option<BsonValue<'a>>, Error> {
        for element in self.elements() {
            let element = element?;
            if element.key == key.as_bytes() {
                return element.value().map(Some);
            }
        }
        Ok(None)
    }

    /// Checks all elements, nested ones down to [`MAX_DEPTH`].
    pub fn validate(self) -> Result<(), Error> {
        self.validate_within(MAX_DEPTH)
    }

    fn validate_within(self, depth: usize) -> Result<(), Error> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(error("it is nested too deeply"));
        };
        for element in self.elements() {
            let element = element?;
            std::str::from_utf8(element.key).map_err(|_| error("a key that is not UTF-8"))?;
            match element.value()? {
                BsonValue::Document(nested)
                | BsonValue::Array(nested)
                | BsonValue::CodeWithScope { scope: nested, .. } => nested.validate_within(depth)?,
                _ => {}
            }
        }
        Ok(())
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Element<'a>, Error>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let element = take_element(&mut self.0);
        if element.is_err() {
            self.0 = &[];
        }
        Some(element)
    }
}

impl<'a> Element<'a> {
    /// The key; not necessarily UTF-8.
    pub fn key(self) -> &'a [u8] {
        self.key
    }

    pub fn value(self) -> Result<BsonValue<'a>, Error> {
        BsonValue::read(self.kind, self.value)
    }

    /// The bytes of a value that is a document, not an array. The document is not checked.
    pub(crate) fn document_bytes(self) -> Option<&'a [u8]> {
        (self.kind == kind::DOCUMENT).then_some(self.value)
    }
}

#[inline]
pub(crate) fn take_element<'a>(input: &mut &'a [u8]) -> Result<Element<'a>, Error> {
    let &[kind] = array::<1>(input)?;
    let key = nul_terminated(input)?;
    let length = value_bytes(kind, input)?;
    Ok(Element { kind, key, value: bytes(input, length)? })
}

/// The length of the value at the front of `input`.
pub(crate) fn value_bytes(kind: u8, input: &[u8]) -> Result<usize, Error> {
    Ok(match kind {
        kind::UNDEFINED | kind::NULL | kind::MIN_KEY | kind::MAX_KEY => 0,
        kind::BOOLEAN => 1,
        kind::INT32 => 4,
        kind::DOUBLE | kind::DATE_TIME | kind::TIMESTAMP | kind::INT64 => 8,
        kind::OBJECT_ID => OBJECT_ID_BYTES,
        kind::DECIMAL128 => 16,
        kind::STRING | kind::CODE | kind::SYMBOL => LENGTH_BYTES + length(input)?,
        kind::BINARY => LENGTH_BYTES + 1 + length(input)?,
        kind::DB_POINTER => LENGTH_BYTES + length(input)? + OBJECT_ID_BYTES,
        // The length includes itself.
        kind::DOCUMENT | kind::ARRAY | kind::CODE_WITH_SCOPE => length(input)?.max(LENGTH_BYTES),
        kind::REGEX => {
            let mut rest = input;
            nul_terminated(&mut rest)?;
            nul_terminated(&mut rest)?;
            input.len() - rest.len()
        }
        _ => return Err(error("an element of an unknown type")),
    })
}

pub(crate) fn length(input: &[u8]) -> Result<usize, Error> {
    let length = input.first_chunk().ok_or_else(|| error("it is truncated"))?;
    usize::try_from(i32::from_le_bytes(*length)).map_err(|_| error("a negative length"))
}

pub(crate) fn bytes<'a>(input: &mut &'a [u8], length: usize) -> Result<&'a [u8], Error> {
    let (taken, rest) = input.split_at_checked(length).ok_or_else(|| error("it is truncated"))?;
    *input = rest;
    Ok(taken)
}

pub(crate) fn array<'a, const N: usize>(input: &mut &'a [u8]) -> Result<&'a [u8; N], Error> {
    let (taken, rest) = input.split_first_chunk().ok_or_else(|| error("it is truncated"))?;
    *input = rest;
    Ok(taken)
}

/// The bytes up to a NUL, which is consumed.
pub(crate) fn nul_terminated<'a>(input: &mut &'a [u8]) -> Result<&'a [u8], Error> {
    let length =
        input.iter().position(|&byte| byte == 0).ok_or_else(|| error("a string is not NUL-terminated"))?;
    let text = bytes(input, length)?;
    array::<1>(input)?;
    Ok(text)
}

pub(crate) fn error(reason: &'static str) -> Error {
    Error::Protocol { message: "BSON document", reason }
}
