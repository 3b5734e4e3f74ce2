//! The parts that all replies to commands have in common.

use bson::{RawArray, RawBsonRef, RawDocument};

use crate::{
    mongodb::{
        codec::{
            compression::Inflater,
            document::{as_i64, is_true},
            message::{self, MORE_TO_COME, OpMsg},
        },
        error::Error,
    },
    printable::printable,
};

/// Longer than any server's message; the rest is cut.
const MAX_MESSAGE_CHARACTERS: usize = 1024;
const MAX_NAME_CHARACTERS: usize = 128;
/// The error code of a write with an existing key. Servers omit its name there.
const DUPLICATE_KEY: i32 = 11000;

/// The reply to a successful command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reply<'a> {
    pub(crate) body: &'a RawDocument,
    /// Documents changed (`n`).
    pub(crate) affected: u64,
    /// The first or next batch of a result.
    pub(crate) cursor: Option<&'a RawDocument>,
}

/// A batch of a result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Batch<'a> {
    pub(crate) documents: &'a RawArray,
    /// 0 if the result is complete.
    pub(crate) cursor_id: i64,
    pub(crate) namespace: &'a str,
}

/// The fields that report success or failure.
#[derive(Default)]
struct CommandOutcome<'a> {
    ok: Option<bool>,
    code: i32,
    code_name: &'a str,
    message: &'a str,
    write_errors: Option<&'a RawArray>,
    write_concern_error: Option<&'a RawDocument>,
}

/// Takes the reply to a command, if it has arrived. A refusal is returned as an error; the reply is consumed
/// nevertheless.
pub(crate) fn take<'a>(
    input: &mut &'a [u8],
    request_id: i32,
    limit: usize,
) -> Result<Option<Reply<'a>>, Error> {
    message::take(input, limit)?.map(|message| check(&message, request_id)).transpose()
}

/// The same for a reply that may be compressed.
#[inline]
pub(crate) fn take_inflated<'a, 'i: 'a>(
    input: &mut &'i [u8],
    request_id: i32,
    limit: usize,
    inflater: &'a mut Inflater,
) -> Result<Option<Reply<'a>>, Error> {
    let message = message::take_inflated(input, limit, inflater)?;
    message.map(|message| check(&message, request_id)).transpose()
}

#[inline]
fn check<'a>(message: &OpMsg<'a>, request_id: i32) -> Result<Reply<'a>, Error> {
    if message.response_to != request_id {
        return Err(error("it belongs to another request"));
    }
    if message.flags & MORE_TO_COME != 0 || !message.sequences.is_empty() {
        return Err(error("it has unrequested parts"));
    }
    read(message.body)
}

fn read(body: &RawDocument) -> Result<Reply<'_>, Error> {
    let mut outcome = CommandOutcome::default();
    let mut reply = Reply { body, affected: 0, cursor: None };
    for element in body.iter_elements() {
        let element = element?;
        match element.key().as_str() {
            "ok" => outcome.ok = Some(is_true(element.value()?)),
            "n" => {
                let number = as_i64(element.value()?).and_then(|number| u64::try_from(number).ok());
                reply.affected = number.unwrap_or_default();
            }
            "cursor" => reply.cursor = element.value()?.as_document(),
            "code" => outcome.code = code(element.value()?),
            "codeName" => outcome.code_name = text(element.value()?),
            "errmsg" => outcome.message = text(element.value()?),
            "writeErrors" => outcome.write_errors = element.value()?.as_array(),
            "writeConcernError" => outcome.write_concern_error = element.value()?.as_document(),
            _ => {}
        }
    }
    outcome.judge()?;
    Ok(reply)
}

impl CommandOutcome<'_> {
    #[inline]
    fn judge(self) -> Result<(), Error> {
        match self.ok {
            None => Err(error("no ok field")),
            Some(false) => Err(refusal(self.code, self.code_name, self.message)),
            Some(true) if self.write_errors.is_none() && self.write_concern_error.is_none() => Ok(()),
            Some(true) => self.judge_writes(),
        }
    }

    #[cold]
    fn judge_writes(self) -> Result<(), Error> {
        if let Some(errors) = self.write_errors
            && let Some(first) = errors.into_iter().next()
        {
            return match first? {
                RawBsonRef::Document(first) => Err(nested_refusal(first)?),
                _ => Err(error("an error that is not a document")),
            };
        }
        self.write_concern_error.map_or(Ok(()), |error| Err(nested_refusal(error)?))
    }
}

/// The error of a write, or of its write concern.
fn nested_refusal(document: &RawDocument) -> Result<Error, Error> {
    let (mut number, mut name, mut message) = (0, "", "");
    for element in document {
        let (key, value) = element?;
        match key.as_str() {
            "code" => number = code(value),
            "codeName" => name = text(value),
            "errmsg" => message = text(value),
            _ => {}
        }
    }
    if number == DUPLICATE_KEY && name.is_empty() {
        name = "DuplicateKey";
    }
    Ok(refusal(number, name, message))
}

fn refusal(code: i32, code_name: &str, message: &str) -> Error {
    Error::Server {
        code,
        code_name: printable(code_name.as_bytes(), MAX_NAME_CHARACTERS),
        message: printable(message.as_bytes(), MAX_MESSAGE_CHARACTERS),
    }
}

/// Parses the batch in a `cursor` field.
pub(crate) fn batch(cursor: &RawDocument) -> Result<Batch<'_>, Error> {
    let (mut documents, mut cursor_id, mut namespace) = (None, 0, "");
    for element in cursor {
        let (key, value) = element?;
        match key.as_str() {
            "firstBatch" | "nextBatch" => documents = value.as_array(),
            "id" => cursor_id = as_i64(value).ok_or_else(|| error("a cursor without an ID"))?,
            "ns" => namespace = text(value),
            _ => {}
        }
    }
    let documents = documents.ok_or_else(|| error("a cursor without documents"))?;
    Ok(Batch { documents, cursor_id, namespace })
}

/// The documents of a batch, whose elements are not checked.
#[inline]
pub(crate) fn documents(batch: &RawArray) -> impl Iterator<Item = Result<&RawDocument, Error>> {
    batch.into_iter().map(|value| value?.as_document().ok_or_else(|| error("a row that is not a document")))
}

fn code(value: RawBsonRef<'_>) -> i32 {
    as_i64(value).and_then(|code| i32::try_from(code).ok()).unwrap_or_default()
}

fn text(value: RawBsonRef<'_>) -> &str {
    value.as_str().unwrap_or_default()
}

fn error(reason: &'static str) -> Error {
    Error::protocol("reply", reason)
}
