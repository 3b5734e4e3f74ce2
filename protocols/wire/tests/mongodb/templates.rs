//! Command templates.

use ciphertoll_wire::mongodb::bson::{DateTime, RawBsonRef, RawDocument, oid::ObjectId};
use ciphertoll_wire::mongodb::document::{to_json, validate};
use ciphertoll_wire::mongodb::message::{MAX_MESSAGE_BYTES, take};
use ciphertoll_wire::mongodb::{CommandTemplate, Error, TemplateError};
use ciphertoll_wire::session::Value;
use proptest::prelude::*;

fn encoded(text: &str, parameters: &[Value<'_>]) -> Vec<u8> {
    let template = CommandTemplate::parse(text).unwrap();
    assert_eq!(template.parameters(), parameters.len());
    let mut out = Vec::new();
    template.encode(&mut out, 5, "bank", parameters).unwrap();
    out
}

fn body(mut out: &[u8]) -> &RawDocument {
    let message = take(&mut out, MAX_MESSAGE_BYTES).unwrap().unwrap();
    assert_eq!((message.request_id, out), (5, &b""[..]));
    validate(message.body).unwrap();
    message.body
}

fn json(text: &str, parameters: &[Value<'_>]) -> String {
    to_json(body(&encoded(text, parameters))).unwrap()
}

fn error(text: &str) -> TemplateError {
    CommandTemplate::parse(text).unwrap_err()
}

#[test]
fn order_and_types_are_kept() {
    let text = r#"{"zeta": 1, "alpha": 2147483648, "b": 1.0, "c": [true, null, {"x": []}], "a": "é"}"#;
    let expected = r#"{"zeta":1,"alpha":2147483648,"b":1.0,"c":[true,null,{"x":[]}],"a":"é","$db":"bank"}"#;
    assert_eq!(json(text, &[]), expected);
    let bytes = encoded(text, &[]);
    let kinds = [("zeta", RawBsonRef::Int32(1)), ("alpha", RawBsonRef::Int64(1 << 31))];
    for (key, value) in kinds {
        assert_eq!(body(&bytes).get(key).unwrap(), Some(value));
    }
}

#[test]
fn extended_types_are_encoded() {
    let text = r#"{"x": {"$numberLong": "5"}, "y": {"$oid": "0123456789abcdefABCDEF00"}, "z": {"$date": 1}}"#;
    let bytes = encoded(text, &[]);
    let get = |key| body(&bytes).get(key).unwrap().unwrap();
    assert_eq!(get("x"), RawBsonRef::Int64(5));
    let id = [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0xab, 0xcd, 0xef, 0];
    assert_eq!(get("y"), RawBsonRef::ObjectId(ObjectId::from_bytes(id)));
    assert_eq!(get("z"), RawBsonRef::DateTime(DateTime::from_millis(1)));
}

#[test]
fn parameters_may_be_anywhere() {
    let text = r#"{"update": "a", "updates": [{"q": {"_id": {"$param": 1}}, "u": {"$inc": {"n": {"$param": 0}}},
        "c": {"deep": [1, {"$param": 2}, {"x": {"$param": 1}}]}}], "fixed": {"a": {"b": [1, 2]}}, "last": {"$param": 0}}"#;
    let parameters = [Value::I64(-7), Value::Text("k\0ey".as_bytes()), Value::Null];
    let expected = concat!(
        r#"{"update":"a","updates":[{"q":{"_id":"k\u0000ey"},"u":{"$inc":{"n":-7}},"#,
        r#""c":{"deep":[1,null,{"x":"k\u0000ey"}]}}],"fixed":{"a":{"b":[1,2]}},"last":-7,"$db":"bank"}"#
    );
    assert_eq!(json(text, &parameters), expected);
}

#[test]
fn invalid_templates_are_refused() {
    for text in ["[]", "1", "{}", r#"{"": 1}"#, r#"{"$param": 0}"#] {
        assert_eq!(error(text), TemplateError::NotACommand, "{text}");
    }
    assert!(matches!(error("{"), TemplateError::Json { .. }));
    assert!(matches!(error(r#"{"x": 18446744073709551615}"#), TemplateError::Json { .. }));
    assert_eq!(error(r#"{"x": 1, "$db": "other"}"#), TemplateError::DatabaseGiven);
    assert_eq!(error(r#"{"x": {"a\u0000b": 1}}"#), TemplateError::InvalidKey);
    for (form, text) in [
        ("$param", r#"{"x": {"$param": -1}}"#),
        ("$param", r#"{"x": {"$param": 65535}}"#),
        ("$param", r#"{"x": {"$param": "0"}}"#),
        ("$param", r#"{"x": {"$param": 0, "y": 1}}"#),
        ("$numberLong", r#"{"x": {"$numberLong": "5.0"}}"#),
        ("$numberLong", r#"{"x": {"$numberLong": 5}}"#),
        ("$oid", r#"{"x": {"$oid": "012345"}}"#),
        ("$oid", r#"{"x": {"$oid": "+123456789abcdef01234567"}}"#),
        ("$date", r#"{"x": {"$date": "2000-01-01"}}"#),
    ] {
        let TemplateError::InvalidForm { form: found, .. } = error(text) else { panic!("{text}") };
        assert_eq!(found, form);
    }
    let nested = |levels: usize| format!("{{\"x\": {}1{}}}", "[".repeat(levels), "]".repeat(levels));
    assert!(CommandTemplate::parse(&nested(99)).is_ok());
    assert_eq!(error(&nested(100)), TemplateError::TooDeep);
}

#[test]
fn a_failed_encode_appends_nothing() {
    let template = CommandTemplate::parse(r#"{"find": "x", "filter": {"a": {"$param": 0}}}"#).unwrap();
    let mut out = b"before".to_vec();
    let mut encode = |parameters: &[Value<'_>]| template.encode(&mut out, 1, "bank", parameters);
    assert_eq!(encode(&[]), Err(Error::WrongParameters { expected: 1, given: 0 }));
    assert_eq!(encode(&[Value::Null; 2]), Err(Error::WrongParameters { expected: 1, given: 2 }));
    assert_eq!(encode(&[Value::Text(b"\xff")]), Err(Error::InvalidText { field: "parameter" }));
    assert_eq!(out, b"before");
}

/// JSON of a few levels, with parameters 0 to 2 in it.
fn tree() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(|number| number.to_string()),
        "[a-z ]{0,6}".prop_map(|text| format!("{text:?}")),
        (0..3).prop_map(|number| format!(r#"{{"$param":{number}}}"#)),
        Just("null".to_owned()),
    ];
    leaf.prop_recursive(5, 30, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(|all| format!("[{}]", all.join(","))),
            proptest::collection::vec(("[a-z]{1,4}", inner), 0..4).prop_map(|all| {
                let all: Vec<_> = all.iter().map(|(key, value)| format!(r#""{key}":{value}"#)).collect();
                format!("{{{}}}", all.join(","))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn every_length_is_right(trees in proptest::collection::vec(tree(), 1..4)) {
        let elements: Vec<_> = trees.iter().map(|tree| format!(r#""x":{tree}"#)).collect();
        let text = format!("{{{}}}", elements.join(","));
        let template = CommandTemplate::parse(&text).unwrap();
        let values = [Value::I64(11), Value::Text(b"twelve"), Value::Null];
        let mut out = Vec::new();
        template.encode(&mut out, 5, "bank", &values[..template.parameters()]).unwrap();
        let expected = text
            .replace(r#"{"$param":0}"#, "11")
            .replace(r#"{"$param":1}"#, r#""twelve""#)
            .replace(r#"{"$param":2}"#, "null");
        let expected = format!(r#"{},"$db":"bank"}}"#, expected.strip_suffix('}').unwrap());
        prop_assert_eq!(to_json(body(&out)).unwrap(), expected);
    }
}
