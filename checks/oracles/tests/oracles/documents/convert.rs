//! Compares the JSON forms of documents.

use bson::{Bson, Regex};
use serde_json::Value as Json;

/// What stands for a double in canonical extended JSON.
const DOUBLE: &str = "$numberDouble";
/// And for a time.
const TIME: &str = "$date";

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
