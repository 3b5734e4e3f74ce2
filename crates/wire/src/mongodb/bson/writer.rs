//! Writes documents directly into the bytes to send.

use super::{Document, LENGTH_BYTES, Value, kind};

/// Appends elements to an open document.
#[derive(Debug)]
pub struct Writer<'o>(&'o mut Vec<u8>);

/// Appends a document with the elements that `elements` writes.
pub fn write_document(out: &mut Vec<u8>, elements: impl FnOnce(&mut Writer<'_>)) {
    let start = begin(out);
    elements(&mut Writer(out));
    end(out, start);
}

/// Opens a document and returns its position.
pub(in super::super) fn begin(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    start
}

/// Closes the document at `start`.
pub(in super::super) fn end(out: &mut Vec<u8>, start: usize) {
    out.push(0);
    patch_length(out, start);
}

/// Writes the number of bytes from `start` on to `start`. A document too long for its length field is too
/// long for its message, which is refused.
pub(in super::super) fn patch_length(out: &mut [u8], start: usize) {
    let length = (out.len() - start) as u32;
    if let Some(place) = out.get_mut(start..).and_then(|rest| rest.first_chunk_mut()) {
        *place = length.to_le_bytes();
    }
}

/// Appends a string with its length and a NUL.
pub(in super::super) fn put_string(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u32 + 1).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

impl<'o> Writer<'o> {
    /// Appends to the open document in `out`.
    pub(in super::super) fn new(out: &'o mut Vec<u8>) -> Self {
        Self(out)
    }

    /// Appends an element. Keys, expressions and options must have no NUL.
    pub fn put(&mut self, key: &str, value: Value<'_>) {
        let (kind, write) = (kind_of(value), value);
        self.key(kind, key);
        match write {
            Value::Double(number) => self.0.extend_from_slice(&number.to_le_bytes()),
            Value::String(text) | Value::Code(text) | Value::Symbol(text) => put_string(self.0, text),
            Value::Document(document) | Value::Array(document) => {
                self.0.extend_from_slice(document.as_bytes());
            }
            Value::Binary { subtype, bytes } => {
                self.0.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
                self.0.push(subtype);
                self.0.extend_from_slice(bytes);
            }
            Value::Undefined | Value::Null | Value::MinKey | Value::MaxKey => {}
            Value::ObjectId(id) => self.0.extend_from_slice(&id),
            Value::Boolean(truth) => self.0.push(truth.into()),
            Value::Regex { pattern, options } => {
                self.nul_terminated(pattern);
                self.nul_terminated(options);
            }
            Value::DbPointer { namespace, id } => {
                put_string(self.0, namespace);
                self.0.extend_from_slice(&id);
            }
            Value::CodeWithScope { code, scope } => self.code_with_scope(code, scope),
            Value::Int32(number) => self.0.extend_from_slice(&number.to_le_bytes()),
            Value::Timestamp(number) => self.0.extend_from_slice(&number.to_le_bytes()),
            Value::DateTime(number) | Value::Int64(number) => self.0.extend_from_slice(&number.to_le_bytes()),
            Value::Decimal128(bytes) => self.0.extend_from_slice(&bytes),
        }
    }

    pub fn string(&mut self, key: &str, text: &str) {
        self.put(key, Value::String(text));
    }

    pub fn int32(&mut self, key: &str, number: i32) {
        self.put(key, Value::Int32(number));
    }

    pub fn int64(&mut self, key: &str, number: i64) {
        self.put(key, Value::Int64(number));
    }

    pub fn boolean(&mut self, key: &str, truth: bool) {
        self.put(key, Value::Boolean(truth));
    }

    /// Appends bytes of generic type.
    pub fn binary(&mut self, key: &str, bytes: &[u8]) {
        self.put(key, Value::Binary { subtype: 0, bytes });
    }

    /// Appends a document with the elements that `elements` writes.
    pub fn document(&mut self, key: &str, elements: impl FnOnce(&mut Writer<'_>)) {
        self.key(kind::DOCUMENT, key);
        write_document(self.0, elements);
    }

    /// Appends an array with the elements that `elements` writes, whose keys must be `0`, `1` and so on.
    pub fn array(&mut self, key: &str, elements: impl FnOnce(&mut Writer<'_>)) {
        self.key(kind::ARRAY, key);
        write_document(self.0, elements);
    }

    /// Appends the type and key of an element.
    pub(in super::super) fn key(&mut self, kind: u8, key: &str) {
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

fn kind_of(value: Value<'_>) -> u8 {
    match value {
        Value::Double(_) => kind::DOUBLE,
        Value::String(_) => kind::STRING,
        Value::Document(_) => kind::DOCUMENT,
        Value::Array(_) => kind::ARRAY,
        Value::Binary { .. } => kind::BINARY,
        Value::Undefined => kind::UNDEFINED,
        Value::ObjectId(_) => kind::OBJECT_ID,
        Value::Boolean(_) => kind::BOOLEAN,
        Value::DateTime(_) => kind::DATE_TIME,
        Value::Null => kind::NULL,
        Value::Regex { .. } => kind::REGEX,
        Value::DbPointer { .. } => kind::DB_POINTER,
        Value::Code(_) => kind::CODE,
        Value::Symbol(_) => kind::SYMBOL,
        Value::CodeWithScope { .. } => kind::CODE_WITH_SCOPE,
        Value::Int32(_) => kind::INT32,
        Value::Timestamp(_) => kind::TIMESTAMP,
        Value::Int64(_) => kind::INT64,
        Value::Decimal128(_) => kind::DECIMAL128,
        Value::MinKey => kind::MIN_KEY,
        Value::MaxKey => kind::MAX_KEY,
    }
}
