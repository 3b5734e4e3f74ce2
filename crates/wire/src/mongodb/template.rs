//! An operation as data: JSON that is made into BSON once, with places for parameters.

use std::{ops::Range, slice};

use super::{
    Error, ReadPreference,
    bson::{self, MAX_DEPTH, Value, Writer, kind},
    compression::may_be_compressed,
    json::Json,
    message, read_preference,
};
use crate::session;

/// As many parameters as the other protocols can count.
const MAX_PARAMETERS: usize = 0xffff;
/// Added to every operation, last.
const DATABASE_KEY: &str = "$db";

/// A command with places for parameters, ready to be encoded many times.
///
/// The text is a JSON object whose first key names the command. Its order is kept. Strings, truths, null, arrays and
/// objects are what they are in BSON; whole numbers are 32-bit integers where they fit, else 64-bit ones; numbers with
/// a point or an exponent are doubles. `{"$numberLong": "5"}`, `{"$oid": "…24 digits…"}` and `{"$date": milliseconds}`
/// are the types that JSON lacks, and `{"$param": 0}` stands for the first parameter.
///
/// ```
/// # use ciphertoll_wire::{mongodb::Template, session::Value};
/// let find = Template::parse(r#"{"find": "accounts", "filter": {"_id": {"$param": 0}}, "limit": 1}"#)?;
/// let mut out = Vec::new();
/// find.encode(&mut out, 1, "bank", &[Value::I64(42)])?;
/// # Ok::<(), ciphertoll_wire::mongodb::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// What does not depend on parameters: runs of elements, and keys.
    bytes: Vec<u8>,
    parts: Vec<Part>,
    parameters: usize,
    secrecy: Secrecy,
}

/// Whether a command speaks of passwords.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Secrecy {
    /// It does, and so is never compressed.
    Secret,
    Open,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// Bytes as they are.
    Bytes(Range<usize>),
    /// A parameter, with its key and the NUL behind it.
    Parameter { key: Range<usize>, index: usize },
    /// A document begins whose length depends on parameters.
    Begin,
    /// It ends.
    End,
}

/// Why a text is no template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// It is no JSON.
    #[error("{message}")]
    Json {
        /// What is wrong and where.
        message: String,
    },
    /// It is JSON, but no object that names a command.
    #[error("it must be an object whose first key is a command's name")]
    NotACommand,
    /// The database is the login's.
    #[error("$db is added to each command and must not be in it")]
    DatabaseGiven,
    /// A key cannot be written in BSON.
    #[error("a key has a NUL")]
    InvalidKey,
    /// An object looks like a type that JSON lacks, and is not.
    #[error("{form} is wrong: {reason}")]
    InvalidForm {
        /// Its key.
        form: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// It nests deeper than any operation does.
    #[error("it nests deeper than {MAX_DEPTH} levels")]
    TooDeep,
}

impl Template {
    /// Reads an operation.
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
        let secrecy = if may_be_compressed(command) { Secrecy::Open } else { Secrecy::Secret };
        if elements.iter().any(|(key, _)| key == DATABASE_KEY) {
            return Err(TemplateError::DatabaseGiven);
        }
        let mut compiler = Compiler::default();
        compiler.elements(&elements, MAX_DEPTH)?;
        compiler.end_run();
        let Compiler { bytes, parts, parameters, .. } = compiler;
        Ok(Self { bytes, parts, parameters, secrecy })
    }

    /// How many parameters it has: one more than the highest number.
    pub fn parameters(&self) -> usize {
        self.parameters
    }

    /// Whether the protocol lets it be compressed.
    #[inline]
    pub fn may_be_compressed(&self) -> bool {
        self.secrecy == Secrecy::Open
    }

    /// Appends the command as a whole message, for this database, with as many parameters as it has. Appends nothing if
    /// that fails, and allocates nothing but `out`.
    pub fn encode(
        &self,
        out: &mut Vec<u8>,
        request_id: i32,
        database: &str,
        parameters: &[session::Value<'_>],
    ) -> Result<(), Error> {
        self.encode_preferring(out, request_id, database, None, parameters)
    }

    /// The same with what it says of the members that may be read from.
    pub(super) fn encode_preferring(
        &self,
        out: &mut Vec<u8>,
        request_id: i32,
        database: &str,
        preference: Option<ReadPreference>,
        parameters: &[session::Value<'_>],
    ) -> Result<(), Error> {
        if parameters.len() != self.parameters {
            return Err(Error::WrongParameters { expected: self.parameters, given: parameters.len() });
        }
        message::write(out, request_id, 0, |out| {
            let start = bson::begin(out);
            self.put(&mut self.parts.iter(), out, parameters)?;
            let mut command = Writer::new(out);
            if let Some(preference) = preference {
                read_preference::write(preference, &mut command);
            }
            command.string(DATABASE_KEY, database);
            bson::end(out, start);
            Ok(())
        })
    }

    /// Appends parts up to the end of the document that is open.
    fn put(
        &self,
        parts: &mut slice::Iter<'_, Part>,
        out: &mut Vec<u8>,
        parameters: &[session::Value<'_>],
    ) -> Result<(), Error> {
        while let Some(part) = parts.next() {
            match part {
                Part::Bytes(range) => out.extend_from_slice(self.bytes(range)),
                Part::Parameter { key, index } => {
                    let value = parameters.get(*index).copied().unwrap_or(session::Value::Null);
                    put_parameter(out, self.bytes(key), value)?;
                }
                Part::Begin => {
                    let start = bson::begin(out);
                    self.put(parts, out, parameters)?;
                    bson::end(out, start);
                }
                Part::End => break,
            }
        }
        Ok(())
    }

    fn bytes(&self, range: &Range<usize>) -> &[u8] {
        self.bytes.get(range.clone()).unwrap_or_default()
    }
}

#[inline]
fn put_parameter(out: &mut Vec<u8>, key: &[u8], value: session::Value<'_>) -> Result<(), Error> {
    let kind = match value {
        session::Value::Null => kind::NULL,
        session::Value::I64(_) => kind::INT64,
        session::Value::Text(_) => kind::STRING,
    };
    out.push(kind);
    out.extend_from_slice(key);
    match value {
        session::Value::Null => {}
        session::Value::I64(number) => out.extend_from_slice(&number.to_le_bytes()),
        session::Value::Text(text) => {
            let text = std::str::from_utf8(text);
            bson::put_string(out, text.map_err(|_| Error::InvalidText { field: "parameter" })?);
        }
    }
    Ok(())
}

/// What JSON lacks.
enum Form {
    Parameter(usize),
    Constant(Value<'static>),
}

#[derive(Default)]
struct Compiler {
    bytes: Vec<u8>,
    /// Where the bytes begin that are in no part yet.
    run: usize,
    parts: Vec<Part>,
    parameters: usize,
}

impl Compiler {
    fn elements(&mut self, elements: &[(String, Json)], depth: usize) -> Result<(), TemplateError> {
        let depth = depth.checked_sub(1).ok_or(TemplateError::TooDeep)?;
        elements.iter().try_for_each(|(key, value)| self.element(key, value, depth))
    }

    fn element(&mut self, key: &str, value: &Json, depth: usize) -> Result<(), TemplateError> {
        if key.contains('\0') {
            return Err(TemplateError::InvalidKey);
        }
        let constant = match value {
            Json::Null => Value::Null,
            Json::Boolean(truth) => Value::Boolean(*truth),
            Json::Integer(number) => i32::try_from(*number).map_or(Value::Int64(*number), Value::Int32),
            Json::Double(number) => Value::Double(*number),
            Json::String(text) => Value::String(text),
            Json::Array(values) => {
                let start = self.begin(kind::ARRAY, key);
                let depth = depth.checked_sub(1).ok_or(TemplateError::TooDeep)?;
                for (index, value) in values.iter().enumerate() {
                    self.element(&index.to_string(), value, depth)?;
                }
                self.end(&start);
                return Ok(());
            }
            Json::Object(elements) => match form(elements)? {
                None => {
                    let start = self.begin(kind::DOCUMENT, key);
                    self.elements(elements, depth)?;
                    self.end(&start);
                    return Ok(());
                }
                Some(Form::Constant(constant)) => constant,
                Some(Form::Parameter(index)) => {
                    self.parameter(key, index);
                    return Ok(());
                }
            },
        };
        Writer::new(&mut self.bytes).put(key, constant);
        Ok(())
    }

    fn parameter(&mut self, key: &str, index: usize) {
        self.end_run();
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key.as_bytes());
        self.bytes.push(0);
        self.run = self.bytes.len();
        self.parts.push(Part::Parameter { key: start..self.run, index });
        self.parameters = self.parameters.max(index + 1);
    }

    /// Opens a document as if it depended on parameters.
    fn begin(&mut self, kind: u8, key: &str) -> Begun {
        Writer::new(&mut self.bytes).key(kind, key);
        let (byte, run, part) = (self.bytes.len(), self.run, self.parts.len());
        self.end_run();
        self.parts.push(Part::Begin);
        Begun { byte, run, part, after: self.parts.len() }
    }

    /// Closes it, and makes it part of the run that it stands in where it turned out to depend on none.
    fn end(&mut self, begun: &Begun) {
        if self.parts.len() > begun.after {
            self.end_run();
            self.parts.push(Part::End);
            return;
        }
        self.parts.truncate(begun.part);
        self.run = begun.run;
        let inside = self.bytes.split_off(begun.byte);
        let start = bson::begin(&mut self.bytes);
        self.bytes.extend_from_slice(&inside);
        bson::end(&mut self.bytes, start);
    }

    fn end_run(&mut self) {
        if self.run < self.bytes.len() {
            self.parts.push(Part::Bytes(self.run..self.bytes.len()));
        }
        self.run = self.bytes.len();
    }
}

/// A document that is open: where its inside begins, the run that it stands in, and the parts before and after its
/// begin.
struct Begun {
    byte: usize,
    run: usize,
    part: usize,
    after: usize,
}

/// The type that JSON lacks and an object of one key stands for; an object that is one has no other keys.
fn form(elements: &[(String, Json)]) -> Result<Option<Form>, TemplateError> {
    let forms = ["$param", "$numberLong", "$oid", "$date"];
    let Some(form) = forms.into_iter().find(|form| elements.iter().any(|(key, _)| key == form)) else {
        return Ok(None);
    };
    let wrong = |reason| Err(TemplateError::InvalidForm { form, reason });
    let [(_, value)] = elements else {
        return wrong("it does not stand alone");
    };
    Ok(Some(match (form, value) {
        ("$param", Json::Integer(number)) => {
            match usize::try_from(*number).ok().filter(|number| *number < MAX_PARAMETERS) {
                Some(number) => Form::Parameter(number),
                None => return wrong("a number that is negative or too large"),
            }
        }
        ("$numberLong", Json::String(text)) => match text.parse() {
            Ok(number) => Form::Constant(Value::Int64(number)),
            Err(_) => return wrong("not a whole number of 64 bits"),
        },
        ("$oid", Json::String(text)) => match object_id(text) {
            Some(id) => Form::Constant(Value::ObjectId(id)),
            None => return wrong("not 24 hexadecimal digits"),
        },
        ("$date", Json::Integer(milliseconds)) => Form::Constant(Value::DateTime(*milliseconds)),
        ("$numberLong" | "$oid", _) => return wrong("not a string"),
        _ => return wrong("not a whole number"),
    }))
}

fn object_id(text: &str) -> Option<[u8; 12]> {
    let mut id = [0; 12];
    if text.len() != id.len() * 2 {
        return None;
    }
    for (byte, pair) in id.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        let &[high, low] = pair else { return None };
        *byte = (digit(high)? << 4 | digit(low)?) as u8;
    }
    Some(id)
}
