//! The server's answer to a command: what all answers have in common.

use super::{
    Error,
    bson::{Document, Value},
    compression::Inflater,
    message::{self, MORE_TO_COME, Message},
};

/// More than any server writes in earnest; a longer message is cut.
const MAX_MESSAGE_CHARACTERS: usize = 1024;
const MAX_NAME_CHARACTERS: usize = 128;
/// The number that a write has failed with whose key is there already. Servers do not name it there.
const DUPLICATE_KEY: i32 = 11000;

/// The answer to a command that the server has carried out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reply<'a> {
    pub(super) body: Document<'a>,
    /// Documents changed (`n`).
    pub(super) affected: u64,
    /// The first or next documents of a result.
    pub(super) cursor: Option<Document<'a>>,
}

/// Where a result goes on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batch<'a> {
    pub(super) documents: Document<'a>,
    /// 0: nowhere.
    pub(super) cursor_id: i64,
    pub(super) namespace: &'a str,
}

/// What an answer says of how it went.
#[derive(Default)]
struct Outcome<'a> {
    ok: Option<bool>,
    code: i32,
    code_name: &'a str,
    message: &'a str,
    write_errors: Option<Document<'a>>,
    write_concern_error: Option<Document<'a>>,
}

/// Takes the answer to a command, or none yet. A refusal is an error; the answer is taken all the same.
pub(super) fn take<'a>(
    input: &mut &'a [u8],
    request_id: i32,
    limit: usize,
) -> Result<Option<Reply<'a>>, Error> {
    message::take(input, limit)?.map(|message| answer(&message, request_id)).transpose()
}

/// The same of an answer that may be compressed.
#[inline]
pub(super) fn take_inflated<'a, 'i: 'a>(
    input: &mut &'i [u8],
    request_id: i32,
    limit: usize,
    inflater: &'a mut Inflater,
) -> Result<Option<Reply<'a>>, Error> {
    let message = message::take_inflated(input, limit, inflater)?;
    message.map(|message| answer(&message, request_id)).transpose()
}

#[inline]
fn answer<'a>(message: &Message<'a>, request_id: i32) -> Result<Reply<'a>, Error> {
    if message.response_to != request_id {
        return Err(error("it answers another message"));
    }
    if message.flags & MORE_TO_COME != 0 || !message.sequences.is_empty() {
        return Err(error("it is of more parts than were asked for"));
    }
    read(message.body)
}

fn read(body: Document<'_>) -> Result<Reply<'_>, Error> {
    let mut outcome = Outcome::default();
    let mut reply = Reply { body, affected: 0, cursor: None };
    for element in body.elements() {
        let element = element?;
        match element.key() {
            b"ok" => outcome.ok = Some(element.value()?.is_true()),
            b"n" => {
                let number = element.value()?.as_i64().and_then(|number| u64::try_from(number).ok());
                reply.affected = number.unwrap_or_default();
            }
            b"cursor" => reply.cursor = element.document_bytes().map(Document::new).transpose()?,
            b"code" => outcome.code = code(element.value()?),
            b"codeName" => outcome.code_name = text(element.value()?),
            b"errmsg" => outcome.message = text(element.value()?),
            b"writeErrors" => {
                if let Value::Array(errors) = element.value()? {
                    outcome.write_errors = Some(errors);
                }
            }
            b"writeConcernError" => {
                if let Value::Document(error) = element.value()? {
                    outcome.write_concern_error = Some(error);
                }
            }
            _ => {}
        }
    }
    outcome.judge()?;
    Ok(reply)
}

impl Outcome<'_> {
    #[inline]
    fn judge(self) -> Result<(), Error> {
        match self.ok {
            None => Err(error("it does not say how it went")),
            Some(false) => Err(refusal(self.code, self.code_name, self.message)),
            Some(true) if self.write_errors.is_none() && self.write_concern_error.is_none() => Ok(()),
            Some(true) => self.judge_writes(),
        }
    }

    #[cold]
    fn judge_writes(self) -> Result<(), Error> {
        if let Some(errors) = self.write_errors
            && let Some(first) = errors.elements().next()
        {
            return match first?.value()? {
                Value::Document(first) => Err(nested_refusal(first)?),
                _ => Err(error("an error that is no document")),
            };
        }
        self.write_concern_error.map_or(Ok(()), |error| Err(nested_refusal(error)?))
    }
}

/// The error of one write, or of its confirmation.
fn nested_refusal(document: Document<'_>) -> Result<Error, Error> {
    let (mut number, mut name, mut message) = (0, "", "");
    for element in document.elements() {
        let element = element?;
        match element.key() {
            b"code" => number = code(element.value()?),
            b"codeName" => name = text(element.value()?),
            b"errmsg" => message = text(element.value()?),
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
        code_name: printable(code_name, MAX_NAME_CHARACTERS),
        message: printable(message, MAX_MESSAGE_CHARACTERS),
    }
}

/// Reads what a cursor has brought.
pub(super) fn batch(cursor: Document<'_>) -> Result<Batch<'_>, Error> {
    let (mut documents, mut cursor_id, mut namespace) = (None, 0, "");
    for element in cursor.elements() {
        let element = element?;
        match element.key() {
            b"firstBatch" | b"nextBatch" => {
                if let Value::Array(batch) = element.value()? {
                    documents = Some(batch);
                }
            }
            b"id" => cursor_id = element.value()?.as_i64().ok_or_else(|| error("a cursor without number"))?,
            b"ns" => namespace = text(element.value()?),
            _ => {}
        }
    }
    let documents = documents.ok_or_else(|| error("a cursor without documents"))?;
    Ok(Batch { documents, cursor_id, namespace })
}

/// The bytes of each of a batch's documents, whose insides are not looked at.
#[inline]
pub(super) fn documents(batch: Document<'_>) -> impl Iterator<Item = Result<&[u8], Error>> {
    batch
        .elements()
        .map(|element| element?.document_bytes().ok_or_else(|| error("a row that is no document")))
}

fn code(value: Value<'_>) -> i32 {
    value.as_i64().and_then(|code| i32::try_from(code).ok()).unwrap_or_default()
}

fn text(value: Value<'_>) -> &str {
    value.as_str().unwrap_or_default()
}

/// A peer's text as it may be shown: at most `limit` characters, none of which can steer a terminal.
pub(super) fn printable(text: &str, limit: usize) -> String {
    let shown =
        |character: char| if character.is_control() { char::REPLACEMENT_CHARACTER } else { character };
    text.chars().take(limit).map(shown).collect()
}

fn error(reason: &'static str) -> Error {
    Error::Protocol { message: "answer", reason }
}
