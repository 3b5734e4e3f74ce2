//! The text of an operation. An accepted text encodes to a message that can be decoded.
//!
//! Input: one byte that selects the parameters, then the text.

use ciphertoll_wire::mongodb::CommandTemplate;
use ciphertoll_wire::mongodb::bson::{RawBsonRef, cstr};
use ciphertoll_wire::mongodb::document::{to_json, validate};
use ciphertoll_wire::mongodb::message::{MAX_MESSAGE_BYTES, take};
use ciphertoll_wire::session::Value;

pub fn run(data: &[u8]) {
    let Some((choice, text)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let Ok(template) = CommandTemplate::parse(text) else { return };
    let value = [Value::Null, Value::I64(i64::MIN), Value::Text(b"a text")][usize::from(choice % 3)];
    let parameters = vec![value; template.parameters()];
    let mut out = b"before".to_vec();
    template.encode(&mut out, 7, "bench", &parameters).expect("it is short, and its parameters are right");
    let mut rest = &out[b"before".len()..];
    let message = take(&mut rest, MAX_MESSAGE_BYTES).expect("it is right").expect("it is whole");
    assert!(rest.is_empty() && message.request_id == 7);
    validate(message.body).expect("it is right to its depth");
    assert!(to_json(message.body).is_ok());
    // A key may occur twice; the database is last.
    let last = message.body.iter().last().expect("the database at least").expect("it is right");
    assert_eq!(last, (cstr!("$db"), RawBsonRef::String("bench")));
    let one_more = vec![value; template.parameters() + 1];
    assert!(template.encode(&mut out, 7, "bench", &one_more).is_err());
}
