//! Documents as text ("MongoDB Extended JSON", version 2, relaxed format).

use std::fmt::Write;

use base64::{Engine, prelude::BASE64_STANDARD};

use crate::mongodb::{
    codec::bson::{
        decimal,
        document::{Document, MAX_DEPTH, error},
        value::BsonValue,
    },
    error::Error,
};

const MILLISECONDS_PER_DAY: i64 = 86_400_000;
/// The last millisecond of the year 9999; later times are written as numbers.
const LAST_DATE_TIME: i64 = 253_402_300_799_999;

pub fn to_json(document: Document<'_>) -> Result<String, Error> {
    let mut text = String::with_capacity(document.as_bytes().len() * 2);
    put_nested(&mut text, document, Nested::Document, MAX_DEPTH)?;
    Ok(text)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Nested {
    Document,
    Array,
}

fn put_nested(text: &mut String, document: Document<'_>, nested: Nested, depth: usize) -> Result<(), Error> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(error("it is nested too deeply"));
    };
    let (begin, end) = match nested {
        Nested::Document => ('{', '}'),
        Nested::Array => ('[', ']'),
    };
    text.push(begin);
    for (index, element) in document.elements().enumerate() {
        let element = element?;
        if index > 0 {
            text.push(',');
        }
        if nested == Nested::Document {
            put_text(text, &String::from_utf8_lossy(element.key()));
            text.push(':');
        }
        put_value(text, element.value()?, depth)?;
    }
    text.push(end);
    Ok(())
}

fn put_value(text: &mut String, value: BsonValue<'_>, depth: usize) -> Result<(), Error> {
    match value {
        BsonValue::Double(number) => put_double(text, number),
        BsonValue::String(string) => put_text(text, string),
        BsonValue::Document(document) => put_nested(text, document, Nested::Document, depth)?,
        BsonValue::Array(array) => put_nested(text, array, Nested::Array, depth)?,
        BsonValue::Binary { subtype, bytes } => {
            let base64 = BASE64_STANDARD.encode(bytes);
            put(text, format_args!(r#"{{"$binary":{{"base64":"{base64}","subType":"{subtype:02x}"}}}}"#));
        }
        BsonValue::Undefined => text.push_str(r#"{"$undefined":true}"#),
        BsonValue::ObjectId(id) => put_object_id(text, id),
        BsonValue::Boolean(truth) => put(text, format_args!("{truth}")),
        BsonValue::DateTime(milliseconds) => put_date_time(text, milliseconds),
        BsonValue::Null => text.push_str("null"),
        BsonValue::Regex { pattern, options } => {
            text.push_str(r#"{"$regularExpression":{"pattern":"#);
            put_text(text, pattern);
            text.push_str(r#","options":"#);
            put_text(text, options);
            text.push_str("}}");
        }
        BsonValue::DbPointer { namespace, id } => {
            text.push_str(r#"{"$dbPointer":{"$ref":"#);
            put_text(text, namespace);
            text.push_str(r#","$id":"#);
            put_object_id(text, id);
            text.push_str("}}");
        }
        BsonValue::Code(code) => put_wrapped(text, "$code", code),
        BsonValue::Symbol(symbol) => put_wrapped(text, "$symbol", symbol),
        BsonValue::CodeWithScope { code, scope } => {
            text.push_str(r#"{"$code":"#);
            put_text(text, code);
            text.push_str(r#","$scope":"#);
            put_nested(text, scope, Nested::Document, depth)?;
            text.push('}');
        }
        BsonValue::Int32(number) => put(text, format_args!("{number}")),
        BsonValue::Int64(number) => put(text, format_args!("{number}")),
        BsonValue::Timestamp(time) => {
            let (seconds, ordinal) = (time >> 32, time & u64::from(u32::MAX));
            put(text, format_args!(r#"{{"$timestamp":{{"t":{seconds},"i":{ordinal}}}}}"#));
        }
        BsonValue::Decimal128(bytes) => {
            let number = decimal::to_text(bytes);
            put(text, format_args!(r#"{{"$numberDecimal":"{number}"}}"#));
        }
        BsonValue::MinKey => text.push_str(r#"{"$minKey":1}"#),
        BsonValue::MaxKey => text.push_str(r#"{"$maxKey":1}"#),
    }
    Ok(())
}

/// Writing to a string cannot fail.
fn put(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(arguments);
}

fn put_wrapped(text: &mut String, name: &str, value: &str) {
    put(text, format_args!(r#"{{"{name}":"#));
    put_text(text, value);
    text.push('}');
}

fn put_object_id(text: &mut String, id: [u8; 12]) {
    text.push_str(r#"{"$oid":""#);
    for byte in id {
        put(text, format_args!("{byte:02x}"));
    }
    text.push_str(r#""}"#);
}

fn put_double(text: &mut String, number: f64) {
    if number.is_nan() {
        text.push_str(r#"{"$numberDouble":"NaN"}"#);
    } else if number.is_infinite() {
        let sign = if number < 0.0 { "-" } else { "" };
        put(text, format_args!(r#"{{"$numberDouble":"{sign}Infinity"}}"#));
    } else {
        // The shortest digits that round-trip, with a point or an exponent to distinguish whole numbers from
        // integers.
        put(text, format_args!("{number:?}"));
    }
}

/// An escaped string. Control characters are escaped, too.
fn put_text(text: &mut String, string: &str) {
    text.push('"');
    for character in string.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            character if character.is_control() => {
                put(text, format_args!("\\u{:04x}", u32::from(character)));
            }
            character => text.push(character),
        }
    }
    text.push('"');
}

fn put_date_time(text: &mut String, milliseconds: i64) {
    if !(0..=LAST_DATE_TIME).contains(&milliseconds) {
        put(text, format_args!(r#"{{"$date":{{"$numberLong":"{milliseconds}"}}}}"#));
        return;
    }
    let (year, month, day) = civil(milliseconds / MILLISECONDS_PER_DAY);
    let of_day = milliseconds % MILLISECONDS_PER_DAY;
    let (hour, minute, second) = (of_day / 3_600_000, of_day / 60_000 % 60, of_day / 1000 % 60);
    put(text, format_args!(r#"{{"$date":"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}"#));
    match of_day % 1000 {
        0 => {}
        fraction => put(text, format_args!(".{fraction:03}")),
    }
    text.push_str(r#"Z"}"#);
}

/// Year, month and day of a number of days since 1970-01-01.
fn civil(days: i64) -> (i64, i64, i64) {
    let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    // Every 400 years have the same number of days.
    let (mut year, mut day) = (1970 + days / 146_097 * 400, days % 146_097);
    loop {
        let length = if is_leap(year) { 366 } else { 365 };
        if day < length {
            break;
        }
        day -= length;
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    (year, month, day + 1)
}
