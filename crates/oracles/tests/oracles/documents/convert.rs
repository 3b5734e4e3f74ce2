//! Converts documents between the two BSON libraries: ours, and `bson`, in which the cases are written.

use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, Regex, Timestamp};
use ciphertoll_wire::mongodb::bson::{BsonValue, BsonWriter, Document as OurDocument};
use serde_json::Value as Json;

/// What stands for a double in canonical extended JSON.
const DOUBLE: &str = "$numberDouble";
/// And for a time.
const TIME: &str = "$date";

/// Appends all elements of `document` by our writer.
pub(super) fn put(out: &mut BsonWriter<'_>, document: &Document) {
    for (key, value) in document {
        put_value(out, key, value);
    }
}

fn put_value(out: &mut BsonWriter<'_>, key: &str, value: &Bson) {
    let leaf = match value {
        Bson::Document(nested) => return out.document(key, |out| put(out, nested)),
        Bson::Array(items) => {
            return out.array(key, |out| {
                for (index, item) in items.iter().enumerate() {
                    put_value(out, &index.to_string(), item);
                }
            });
        }
        Bson::Double(number) => BsonValue::Double(*number),
        Bson::String(text) => BsonValue::String(text),
        Bson::Boolean(truth) => BsonValue::Boolean(*truth),
        Bson::Null => BsonValue::Null,
        Bson::RegularExpression(regex) => {
            BsonValue::Regex { pattern: regex.pattern.as_str(), options: regex.options.as_str() }
        }
        Bson::Int32(number) => BsonValue::Int32(*number),
        Bson::Int64(number) => BsonValue::Int64(*number),
        Bson::Timestamp(Timestamp { time, increment }) => {
            BsonValue::Timestamp(u64::from(*time) << 32 | u64::from(*increment))
        }
        Bson::Binary(Binary { subtype, bytes }) => BsonValue::Binary { subtype: u8::from(*subtype), bytes },
        Bson::ObjectId(id) => BsonValue::ObjectId(id.bytes()),
        Bson::DateTime(time) => BsonValue::DateTime(time.timestamp_millis()),
        other => panic!("no sample has a {other:?}"),
    };
    out.put(key, leaf);
}

/// A document as our reader parses it.
pub(super) fn document(ours: OurDocument<'_>) -> Document {
    let element = |element: Result<ciphertoll_wire::mongodb::bson::Element<'_>, _>| {
        let element = element.expect("it was checked");
        let key = String::from_utf8(element.key().to_vec()).expect("it was checked");
        (key, value(element.value().expect("it was checked")))
    };
    ours.elements().map(element).collect()
}

fn value(ours: BsonValue<'_>) -> Bson {
    match ours {
        BsonValue::Document(nested) => Bson::Document(document(nested)),
        BsonValue::Array(items) => Bson::Array(document(items).into_iter().map(|(_, item)| item).collect()),
        BsonValue::Double(number) => Bson::Double(number),
        BsonValue::String(text) => Bson::String(text.to_owned()),
        BsonValue::Boolean(truth) => Bson::Boolean(truth),
        BsonValue::Null => Bson::Null,
        BsonValue::Regex { pattern, options } => regex(pattern, options),
        BsonValue::Int32(number) => Bson::Int32(number),
        BsonValue::Int64(number) => Bson::Int64(number),
        BsonValue::Timestamp(number) => {
            Bson::Timestamp(Timestamp { time: (number >> 32) as u32, increment: number as u32 })
        }
        BsonValue::Binary { subtype, bytes } => {
            Bson::Binary(Binary { subtype: BinarySubtype::from(subtype), bytes: bytes.to_vec() })
        }
        BsonValue::ObjectId(id) => Bson::ObjectId(id.into()),
        BsonValue::DateTime(milliseconds) => Bson::DateTime(bson::DateTime::from_millis(milliseconds)),
        other => panic!("no sample has a {other:?}"),
    }
}

/// A regular expression without a NUL.
pub(super) fn regex(pattern: &str, options: &str) -> Bson {
    let text = |text: &str| text.try_into().expect("no NUL");
    Bson::RegularExpression(Regex { pattern: text(pattern), options: text(options) })
}

/// Whether two are equal except for the form of doubles and fractions of a second: the libraries choose different
/// shortest digits, and `bson` has no canonical form for subnormal doubles and omits trailing zeros of a time.
pub(super) fn is_same_json(one: &Json, other: &Json) -> bool {
    if let (Some(one), Some(other)) = (double(one), double(other)) {
        return one.to_bits() == other.to_bits();
    }
    match (one, other) {
        (Json::Object(one), Json::Object(other)) => {
            let times = [one, other].map(|object| object.get(TIME).and_then(Json::as_str));
            if let [Some(one), Some(other)] = times {
                return without_zeros(one) == without_zeros(other);
            }
            one.len() == other.len()
                && one.iter().all(|(key, one)| other.get(key).is_some_and(|other| is_same_json(one, other)))
        }
        (Json::Array(one), Json::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same_json(one, other))
        }
        (one, other) => one == other,
    }
}

fn double(json: &Json) -> Option<f64> {
    match json {
        Json::Object(object) => object.get(DOUBLE)?.as_str()?.parse().ok(),
        number => number.as_f64().filter(|_| number.is_f64()),
    }
}

/// A time to the millisecond, without zeros at its end.
fn without_zeros(time: &str) -> &str {
    let time = time.trim_end_matches('Z');
    if time.contains('.') { time.trim_end_matches('0').trim_end_matches('.') } else { time }
}
