//! Writes documents directly into the bytes to send.

use crate::mongodb::codec::bson::{
    document::{Document, LENGTH_BYTES},
    value::{BsonValue, kind},
};

/// Appends elements to an open document.
#[derive(Debug)]
pub struct BsonWriter<'o>(&'o mut Vec<u8>);

/// Appends a document with the elements that `elements` writes.
pub fn write_document(out: &mut Vec<u8>, elements: impl FnOnce(&mut BsonWriter<'_>)) {
    let start = begin(out);
    elements(&mut BsonWriter(out));
    end(out, start);
}

/// Opens a document and returns its position.
pub(crate) fn begin(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    start
}

/// Closes the document at `start`.
pub(crate) fn end(out: &mut Vec<u8>, start: usize) {
    out.push(0);
    patch_length(out, start);
}

/// Writes the number of bytes from `start` on to `start`. A document too long for its length field is too
/// long for its message, which is refused.
pub(crate) fn patch_length(out: &mut [u8], start: usize) {
    let length = (out.len() - start) as u32;
    if let Some(place) = out.get_mut(start..).and_then(|rest| rest.first_chunk_mut()) {
        *place = length.to_le_bytes();
    }
}

/// Appends a string with its length and a NUL.
pub(crate) fn put_string(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u32 + 1).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

impl<'o> BsonWriter<'o> {
    /// Appends to the open document in `out`.
    pub(crate) fn new(out: &'o mut Vec<u8>) -> Self {
        Self(out)
    }

    /// Appends an element. Keys, expressions and options must have no NUL.
    pub fn put(&mut self, key: &str, value: BsonValue<'_>) {
        let (kind, write) = (kind_of(value), value);
        self.key(kind, key);
        match write {
            BsonValue::Double(number) => self.0.extend_from_slice(&number.to_le_bytes()),
            BsonValue::String(text) | BsonValue::Code(text) | BsonValue::Symbol(text) => {
                put_string(self.0, text)
            }
            BsonValue::Document(document) | BsonValue::Array(document) => {
                self.0.extend_from_slice(document.as_bytes());
            }
            BsonValue::Binary { subtype, bytes } => {
                self.0.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
                self.0.push(subtype);
                self.0.extend_from_slice(bytes);
            }
            BsonValue::Undefined | BsonValue::Null | BsonValue::MinKey | BsonValue::MaxKey => {}
            BsonValue::ObjectId(id) => self.0.extend_from_slice(&id),
            BsonValue::Boolean(truth) => self.0.push(truth.into()),
            BsonValue::Regex { pattern, options } => {
                self.nul_terminated(pattern);
                self.nul_terminated(options);
            }
            BsonValue::DbPointer { namespace, id } => {
                put_string(self.0, namespace);
                self.0.extend_from_slice(&id);
            }
            BsonValue::CodeWithScope { code, scope } => self.code_with_scope(code, scope),
            BsonValue::Int32(number) => self.0.extend_from_slice(&number.to_le_bytes()),
            BsonValue::Timestamp(number) => self.0.extend_from_slice(&number.to_le_bytes()),
            BsonValue::DateTime(number) | BsonValue::Int64(number) => {
                self.0.extend_from_slice(&number.to_le_bytes())
            }
            BsonValue::Decimal128(bytes) => self.0.extend_from_slice(&bytes),
        }
    }

    pub fn string(&mut self, key: &str, text: &str) {
        self.put(key, BsonValue::String(text));
    }

    pub fn int32(&mut self, key: &str, number: i32) {
        self.put(key, BsonValue::Int32(number));
    }

    pub fn int64(&mut self, key: &str, number: i64) {
        self.put(key, BsonValue::Int64(number));
    }

    pub fn boolean(&mut self, key: &str, truth: bool) {
        self.put(key, BsonValue::Boolean(truth));
    }

    /// Appends bytes of generic type.
    pub fn binary(&mut self, key: &str, bytes: &[u8]) {
        self.put(key, BsonValue::Binary { subtype: 0, bytes });
    }

    /// Appends a document with the elements that `elements` writes.
    pub fn document(&mut self, key: &str, elements: impl FnOnce(&mut BsonWriter<'_>)) {
        self.key(kind::DOCUMENT, key);
        write_document(self.0, elements);
    }

    /// Appends an array with the elements that `elements` writes, whose keys must be `0`, `1` and so on.
    pub fn array(&mut self, key: &str, elements: impl FnOnce(&mut BsonWriter<'_>)) {
        self.key(kind::ARRAY, key);
        write_document(self.0, elements);
    }

    /// Appends the type and key of an element.
    pub(crate) fn key(&mut self, kind: u8, key: &str) {
        self.0.push(kind);
        self.nul_terminated(key);
    }

    fn code_with_scope(&mut self, code: &str, scope: Document<'_>) {
        let start = begin(self.0);
        put_string(self.0, code);
        self.0.extend_from_slice(scope.as_bytes());
        patch_length(self.0, start);
    }

    fn nul_terminated(&mut self, text: &str) {
        debug_assert!(!text.contains('\0'), "callers choose or check the keys");
        self.0.extend_from_slice(text.as_bytes());
        self.0.push(0);
    }
}

fn kind_of(value: BsonValue<'_>) -> u8 {
    match value {
        BsonValue::Double(_) => kind::DOUBLE,
        BsonValue::String(_) => kind::STRING,
        BsonValue::Document(_) => kind::DOCUMENT,
        BsonValue::Array(_) => kind::ARRAY,
        BsonValue::Binary { .. } => kind::BINARY,
        BsonValue::Undefined => kind::UNDEFINED,
        BsonValue::ObjectId(_) => kind::OBJECT_ID,
        BsonValue::Boolean(_) => kind::BOOLEAN,
        BsonValue::DateTime(_) => kind::DATE_TIME,
        BsonValue::Null => kind::NULL,
        BsonValue::Regex { .. } => kind::REGEX,
        BsonValue::DbPointer { .. } => kind::DB_POINTER,
        BsonValue::Code(_) => kind::CODE,
        BsonValue::Symbol(_) => kind::SYMBOL,
        BsonValue::CodeWithScope { .. } => kind::CODE_WITH_SCOPE,
        BsonValue::Int32(_) => kind::INT32,
        BsonValue::Timestamp(_) => kind::TIMESTAMP,
        BsonValue::Int64(_) => kind::INT64,
        BsonValue::Decimal128(_) => kind::DECIMAL128,
        BsonValue::MinKey => kind::MIN_KEY,
        BsonValue::MaxKey => kind::MAX_KEY,
    }
}
