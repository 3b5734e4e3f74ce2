//! BSON documents, by the `bson` crate: reading them in place, and writing elements into the bytes to send.
//!
//! A [`RawDocument`] borrows its bytes. Its length and end are checked when it is created, each element when the
//! iterator reaches it, and nested documents when they are read. [`validate`] checks everything at once.

use bson::{Bson, RawBsonRef, RawDocument, spec::ElementType};
use serde::{
    Serialize, Serializer,
    ser::{Error as _, SerializeMap},
};

pub use crate::mongodb::error::MAX_DEPTH;
use crate::{mongodb::error::Error, printable::printable};

/// Longer than any reason that the library gives; the rest is cut.
const MAX_REASON_CHARACTERS: usize = 256;

/// Takes a document from the front of `input`.
pub fn take<'a>(input: &mut &'a [u8]) -> Result<&'a RawDocument, Error> {
    let length = input.first_chunk().map(|length| i32::from_le_bytes(*length));
    let length = length.and_then(|length| usize::try_from(length).ok());
    let parts = length.and_then(|length| input.split_at_checked(length));
    let (document, rest) = parts.ok_or_else(|| invalid("it is truncated"))?;
    *input = rest;
    Ok(RawDocument::from_bytes(document)?)
}

/// Checks all elements, nested ones down to [`MAX_DEPTH`].
pub fn validate(document: &RawDocument) -> Result<(), Error> {
    validate_within(document, MAX_DEPTH)
}

fn validate_within(document: &RawDocument, depth: usize) -> Result<(), Error> {
    let depth = depth.checked_sub(1).ok_or_else(|| invalid("it is nested too deeply"))?;
    for element in document {
        match element?.1 {
            RawBsonRef::Document(nested) => validate_within(nested, depth)?,
            RawBsonRef::Array(nested) => validate_within(RawDocument::from_bytes(nested.as_bytes())?, depth)?,
            RawBsonRef::JavaScriptCodeWithScope(code) => validate_within(code.scope, depth)?,
            _ => {}
        }
    }
    Ok(())
}

/// The value as an integer, whatever numeric type the server chose.
pub fn as_i64(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Int32(number) => Some(number.into()),
        RawBsonRef::Int64(number) => Some(number),
        // Up to this limit doubles represent all integers exactly.
        RawBsonRef::Double(number) if number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_992.0 => {
            Some(number as i64)
        }
        _ => None,
    }
}

/// Whether servers treat the value as true, such as the 1.0 in `ok`.
pub fn is_true(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Boolean(truth) => truth,
        RawBsonRef::Double(number) => number != 0.0,
        RawBsonRef::Int32(number) => number != 0,
        RawBsonRef::Int64(number) => number != 0,
        _ => false,
    }
}

/// The document as text ("MongoDB Extended JSON", version 2, relaxed format). All control characters are escaped, not
/// only those for which JSON requires it.
pub fn to_json(document: &RawDocument) -> Result<String, Error> {
    validate(document)?;
    let json = serde_json::to_string(&Relaxed(RawBsonRef::Document(document)));
    let json = json.map_err(|error| invalid(&error.to_string()))?;
    if !json.contains(char::is_control) {
        return Ok(json);
    }
    let escaped = |character: char| match character {
        control if control.is_control() => format!("\\u{:04x}", u32::from(control)),
        other => other.to_string(),
    };
    Ok(json.chars().map(escaped).collect())
}

/// A value in the relaxed format. The library writes a part of the types in the canonical one, and its own relaxed
/// format does not keep the order of keys.
struct Relaxed<'a>(RawBsonRef<'a>);

impl Serialize for Relaxed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            RawBsonRef::Document(document) => {
                let mut map = serializer.serialize_map(None)?;
                for element in document {
                    let (key, value) = element.map_err(S::Error::custom)?;
                    map.serialize_entry(key.as_str(), &Relaxed(value))?;
                }
                map.end()
            }
            RawBsonRef::Array(array) => {
                let values: Result<Vec<_>, _> = array.into_iter().map(|value| value.map(Relaxed)).collect();
                values.map_err(S::Error::custom)?.serialize(serializer)
            }
            RawBsonRef::JavaScriptCodeWithScope(code) => {
                let mut map = serializer.serialize_map(None)?;
                map.serialize_entry("$code", code.code)?;
                map.serialize_entry("$scope", &Relaxed(RawBsonRef::Document(code.scope)))?;
                map.end()
            }
            RawBsonRef::Double(number) if !number.is_finite() => {
                Bson::Double(number).into_relaxed_extjson().serialize(serializer)
            }
            RawBsonRef::DateTime(time) => Bson::DateTime(time).into_relaxed_extjson().serialize(serializer),
            RawBsonRef::Binary(binary) => {
                Bson::Binary(binary.to_binary()).into_relaxed_extjson().serialize(serializer)
            }
            other => other.serialize(serializer),
        }
    }
}

/// Appends a document with the elements that `elements` appends.
pub(crate) fn write<E>(
    out: &mut Vec<u8>,
    elements: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    let start = out.len();
    out.extend_from_slice(&[0; size_of::<i32>()]);
    elements(out)?;
    out.push(0);
    patch_length(out, start);
    Ok(())
}

/// Writes the number of bytes from `start` on to `start`. A document too long for its length field is too
/// long for its message, which is refused.
pub(crate) fn patch_length(out: &mut [u8], start: usize) {
    let length = (out.len() - start) as u32;
    if let Some(place) = out.get_mut(start..).and_then(|rest| rest.first_chunk_mut()) {
        *place = length.to_le_bytes();
    }
}

/// Appends the type and key of an element. The key must have no NUL.
pub(crate) fn put_key(out: &mut Vec<u8>, kind: ElementType, key: &str) {
    out.push(kind as u8);
    out.extend_from_slice(key.as_bytes());
    out.push(0);
}

/// Appends the value of a string element.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u32 + 1).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

fn invalid(reason: &str) -> Error {
    Error::InvalidDocument { reason: reason.to_owned() }
}

impl From<bson::error::Error> for Error {
    fn from(error: bson::error::Error) -> Self {
        invalid(&printable(error.to_string().as_bytes(), MAX_REASON_CHARACTERS))
    }
}
