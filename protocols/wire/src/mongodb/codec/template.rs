//! A command as JSON that is compiled to BSON once, with placeholders for parameters.

use std::{ops::Range, slice};

use bson::{DateTime, RawBsonRef, RawDocumentBuf, oid::ObjectId, raw::CString, spec::ElementType};

use crate::{
    mongodb::{
        codec::{
            compression::may_be_compressed,
            document::{self, put_key, put_text},
            json::Json,
            message,
        },
        error::{Error, MAX_DEPTH, TemplateError},
        read_preference,
    },
    value::Value,
};

/// The limit of the other protocols.
const MAX_PARAMETERS: usize = 0xffff;
/// Appended to every command.
const DATABASE_KEY: &str = "$db";

/// A command with placeholders for parameters, to be encoded many times.
///
/// The text is a JSON object whose first key is the command's name; the order of keys is preserved. Strings,
/// booleans, null, arrays and objects map to the same BSON types. Integers become 32-bit integers if they
/// fit, else 64-bit ones; numbers with a point or an exponent become doubles. `{"$numberLong": "5"}`,
/// `{"$oid": "…24 digits…"}` and `{"$date": milliseconds}` denote types that JSON lacks, and `{"$param": 0}`
/// the first parameter.
///
/// ```
/// # use ciphertoll_wire::{mongodb::CommandTemplate, session::Value};
/// let find = CommandTemplate::parse(r#"{"find": "accounts", "filter": {"_id": {"$param": 0}}, "limit": 1}"#)?;
/// let mut out = Vec::new();
/// find.encode(&mut out, 1, "bank", &[Value::I64(42)])?;
/// # Ok::<(), ciphertoll_wire::mongodb::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandTemplate {
    /// The parts that do not depend on parameters: runs of elements, and keys.
    bytes: Vec<u8>,
    segments: Vec<Segment>,
    parameters: usize,
    /// Not if it contains credentials.
    may_be_compressed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    /// Literal bytes.
    Bytes(Range<usize>),
    /// A parameter, with its NUL-terminated key.
    Parameter { key: Range<usize>, index: usize },
    /// The start of a document whose length depends on parameters.
    Begin,
    /// The end of such a document.
    End,
}

impl CommandTemplate {
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let json: Json =
            serde_json::from_str(text).map_err(|error| TemplateError::Json { message: error.to_string() })?;
        let Json::Object(elements) = json else {
            return Err(TemplateError::NotACommand);
        };
        let command = elements.first().map(|(name, _)| name).filter(|name| !name.is_empty());
        let Some(command) = command.filter(|name| !name.starts_with('$')) else {
            return Err(TemplateError::NotACommand);
        };
        let may_be_compressed = may_be_compressed(command);
        if elements.iter().any(|(key, _)| key == DATABASE_KEY) {
            return Err(TemplateError::DatabaseGiven);
        }
        let mut compiler = Compiler::default();
        compiler.elements(&elements, MAX_DEPTH)?;
        compiler.end_run();
        let Compiler { bytes, segments, parameters, .. } = compiler;
        Ok(Self { bytes, segments, parameters, may_be_compressed })
    }

    /// The number of parameters: one more than the highest index.
    pub fn parameters(&self) -> usize {
        self.parameters
    }

    /// Whether the protocol allows its compression.
    #[inline]
    pub fn may_be_compressed(&self) -> bool {
        self.may_be_compressed
    }

    /// Appends the command as a whole message for this database. `parameters` must have [`Self::parameters`]
    /// values. Appends nothing on failure, and allocates only for `out`.
    pub fn encode(
        &self,
        out: &mut Vec<u8>,
        request_id: i32,
        database: &str,
        parameters: &[Value<'_>],
    ) -> Result<(), Error> {
        self.encode_preferring(out, request_id, database, None, parameters)
    }

    /// The same with a read preference.
    pub(crate) fn encode_preferring(
        &self,
        out: &mut Vec<u8>,
        request_id: i32,
        database: &str,
        preference: Option<ciphertoll_vocabulary::ReadPreference>,
        parameters: &[Value<'_>],
    ) -> Result<(), Error> {
        if parameters.len() != self.parameters {
            return Err(Error::WrongParameters { expected: self.parameters, given: parameters.len() });
        }
        message::write(out, request_id, |out| {
            document::write(out, |out| {
                self.put(&mut self.segments.iter(), out, parameters)?;
                if let Some(preference) = preference {
                    read_preference::write(preference, out);
                }
                put_key(out, ElementType::String, DATABASE_KEY);
                put_text(out, database);
                Ok(())
            })
        })
    }

    /// Appends segments up to the end of the open document.
    fn put(
        &self,
        segments: &mut slice::Iter<'_, Segment>,
        out: &mut Vec<u8>,
        parameters: &[Value<'_>],
    ) -> Result<(), Error> {
        while let Some(segment) = segments.next() {
            match segment {
                Segment::Bytes(range) => out.extend_from_slice(self.bytes(range)),
                Segment::Parameter { key, index } => {
                    let value = parameters.get(*index).copied().unwrap_or(Value::Null);
                    put_parameter(out, self.bytes(key), value)?;
                }
                Segment::Begin => document::write(out, |out| self.put(segments, out, parameters))?,
                Segment::End => break,
            }
        }
        Ok(())
    }

    fn bytes(&self, range: &Range<usize>) -> &[u8] {
        self.bytes.get(range.clone()).unwrap_or_default()
    }
}

#[inline]
fn put_parameter(out: &mut Vec<u8>, key: &[u8], value: Value<'_>) -> Result<(), Error> {
    let kind = match value {
        Value::Null => ElementType::Null,
        Value::I64(_) => ElementType::Int64,
        Value::Text(_) => ElementType::String,
    };
    out.push(kind as u8);
    out.extend_from_slice(key);
    match value {
        Value::Null => {}
        Value::I64(number) => out.extend_from_slice(&number.to_le_bytes()),
        Value::Text(text) => {
            let text = std::str::from_utf8(text);
            put_text(out, text.map_err(|_| Error::InvalidText { field: "parameter" })?);
        }
    }
    Ok(())
}

/// An object with an extended JSON type.
enum ExtendedType {
    Parameter(usize),
    Constant(RawBsonRef<'static>),
}

#[derive(Default)]
struct Compiler {
    bytes: Vec<u8>,
    /// Where the bytes start that belong to no segment yet.
    run: usize,
    segments: Vec<Segment>,
    parameters: usize,
}

impl Compiler {
    fn elements(&mut self, elements: &[(String, Json)], depth: usize) -> Result<(), TemplateError> {
        let depth = depth.checked_sub(1).ok_or(TemplateError::TooDeep)?;
        elements.iter().try_for_each(|(key, value)| self.element(key, value, depth))
    }

    fn element(&mut self, key: &str, value: &Json, depth: usize) -> Result<(), TemplateError> {
        let name = CString::try_from(key).map_err(|_| TemplateError::InvalidKey)?;
        let constant = match value {
            Json::Null => RawBsonRef::Null,
            Json::Boolean(truth) => RawBsonRef::Boolean(*truth),
            Json::Integer(number) => {
                i32::try_from(*number).map_or(RawBsonRef::Int64(*number), RawBsonRef::Int32)
            }
            Json::Double(number) => RawBsonRef::Double(*number),
            Json::String(text) => RawBsonRef::String(text),
            Json::Array(values) => {
                let start = self.begin(ElementType::Array, key);
                let depth = depth.checked_sub(1).ok_or(TemplateError::TooDeep)?;
                for (index, value) in values.iter().enumerate() {
                    self.element(&index.to_string(), value, depth)?;
                }
                self.end(&start);
                return Ok(());
            }
            Json::Object(elements) => match extended_type(elements)? {
                None => {
                    let start = self.begin(ElementType::EmbeddedDocument, key);
                    self.elements(elements, depth)?;
                    self.end(&start);
                    return Ok(());
                }
                Some(ExtendedType::Constant(constant)) => constant,
                Some(ExtendedType::Parameter(index)) => {
                    self.parameter(key, index);
                    return Ok(());
                }
            },
        };
        let mut element = RawDocumentBuf::new();
        element.append(name, constant);
        // Without the document's length and end.
        let whole = element.as_bytes();
        self.bytes.extend_from_slice(&whole[size_of::<i32>()..whole.len() - 1]);
        Ok(())
    }

    fn parameter(&mut self, key: &str, index: usize) {
        self.end_run();
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key.as_bytes());
        self.bytes.push(0);
        self.run = self.bytes.len();
        self.segments.push(Segment::Parameter { key: start..self.run, index });
        self.parameters = self.parameters.max(index + 1);
    }

    /// Opens a document as if it depended on parameters.
    fn begin(&mut self, kind: ElementType, key: &str) -> OpenDocument {
        put_key(&mut self.bytes, kind, key);
        let (byte, run, segment) = (self.bytes.len(), self.run, self.segments.len());
        self.end_run();
        self.segments.push(Segment::Begin);
        OpenDocument { byte, run, segment, after: self.segments.len() }
    }

    /// Closes it. If it depends on no parameter, it becomes part of the surrounding run.
    fn end(&mut self, open: &OpenDocument) {
        if self.segments.len() > open.after {
            self.end_run();
            self.segments.push(Segment::End);
            return;
        }
        self.segments.truncate(open.segment);
        self.run = open.run;
        let inside = self.bytes.split_off(open.byte);
        let length = inside.len() + size_of::<i32>() + 1;
        self.bytes.extend_from_slice(&(length as u32).to_le_bytes());
        self.bytes.extend_from_slice(&inside);
        self.bytes.push(0);
    }

    fn end_run(&mut self) {
        if self.run < self.bytes.len() {
            self.segments.push(Segment::Bytes(self.run..self.bytes.len()));
        }
        self.run = self.bytes.len();
    }
}

/// An open document: where its content starts, the surrounding run, and the number of segments before and
/// after its start.
struct OpenDocument {
    byte: usize,
    run: usize,
    segment: usize,
    after: usize,
}

/// The extended type of an object. Such an object must have a single key.
fn extended_type(elements: &[(String, Json)]) -> Result<Option<ExtendedType>, TemplateError> {
    let forms = ["$param", "$numberLong", "$oid", "$date"];
    let Some(form) = forms.into_iter().find(|form| elements.iter().any(|(key, _)| key == form)) else {
        return Ok(None);
    };
    let wrong = |reason| Err(TemplateError::InvalidForm { form, reason });
    let [(_, value)] = elements else {
        return wrong("it must be the only key");
    };
    Ok(Some(match (form, value) {
        ("$param", Json::Integer(number)) => {
            match usize::try_from(*number).ok().filter(|number| *number < MAX_PARAMETERS) {
                Some(number) => ExtendedType::Parameter(number),
                None => return wrong("the number is negative or too large"),
            }
        }
        ("$numberLong", Json::String(text)) => match text.parse() {
            Ok(number) => ExtendedType::Constant(RawBsonRef::Int64(number)),
            Err(_) => return wrong("not a 64-bit integer"),
        },
        ("$oid", Json::String(text)) => match ObjectId::parse_str(text) {
            Ok(id) => ExtendedType::Constant(RawBsonRef::ObjectId(id)),
            Err(_) => return wrong("not 24 hexadecimal digits"),
        },
        ("$date", Json::Integer(milliseconds)) => {
            ExtendedType::Constant(RawBsonRef::DateTime(DateTime::from_millis(*milliseconds)))
        }
        ("$numberLong" | "$oid", _) => return wrong("not a string"),
        _ => return wrong("not an integer"),
    }))
}
