//! BSON: validation, the JSON form, and malformed documents.

use ciphertoll_wire::mongodb::Error;
use ciphertoll_wire::mongodb::bson::{
    Binary, Bson, DateTime, Decimal128, Document, JavaScriptCodeWithScope, RawBsonRef, RawDocument,
    RawDocumentBuf, Regex, Timestamp, cstr, doc, oid::ObjectId, raw::CString, rawdoc, spec::BinarySubtype,
};
use ciphertoll_wire::mongodb::document::{MAX_DEPTH, as_i64, is_true, take, to_json, validate};
use proptest::prelude::*;

fn text() -> impl Strategy<Value = String> + Clone {
    "[^\\x00]{0,12}"
}

fn c_string() -> impl Strategy<Value = CString> + Clone {
    text().prop_map(|text| CString::try_from(text).unwrap())
}

fn document(value: impl Strategy<Value = Bson> + Clone) -> impl Strategy<Value = Document> + Clone {
    proptest::collection::vec((text(), value), 0..6).prop_map(|elements| elements.into_iter().collect())
}

fn value() -> impl Strategy<Value = Bson> + Clone {
    let leaf = prop_oneof![
        any::<f64>().prop_map(Bson::Double),
        any::<bool>().prop_map(Bson::Boolean),
        any::<i32>().prop_map(Bson::Int32),
        any::<i64>().prop_map(Bson::Int64),
        any::<i64>().prop_map(|time| Bson::DateTime(DateTime::from_millis(time))),
        any::<(u32, u32)>().prop_map(|(time, increment)| Bson::Timestamp(Timestamp { time, increment })),
        any::<[u8; 12]>().prop_map(|id| Bson::ObjectId(ObjectId::from_bytes(id))),
        any::<[u8; 16]>().prop_map(|bytes| Bson::Decimal128(Decimal128::from_bytes(bytes))),
        prop::sample::select(vec![Bson::Null, Bson::Undefined, Bson::MinKey, Bson::MaxKey]),
        any::<String>().prop_map(Bson::String),
        text().prop_map(Bson::JavaScriptCode),
        text().prop_map(Bson::Symbol),
        (3..=u8::MAX, any::<Vec<u8>>()).prop_map(|(subtype, bytes)| Bson::Binary(Binary {
            subtype: BinarySubtype::from(subtype),
            bytes
        })),
        // The library sorts them.
        (c_string(), "i?m?s?x?".prop_map(|options| CString::try_from(options).unwrap()))
            .prop_map(|(pattern, options)| Bson::RegularExpression(Regex { pattern, options })),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            document(inner.clone()).prop_map(Bson::Document),
            (text(), document(inner.clone())).prop_map(|(code, scope)| {
                Bson::JavaScriptCodeWithScope(JavaScriptCodeWithScope { code, scope })
            }),
            proptest::collection::vec(inner, 0..5).prop_map(Bson::Array),
        ]
    })
    .boxed()
}

proptest! {
    /// The library's own relaxed form has the same values, in another order.
    #[test]
    fn the_json_form_has_all_values(document in document(value())) {
        let bytes = document.to_vec().unwrap();
        let mut input = bytes.as_slice();
        let read = take(&mut input).unwrap();
        prop_assert_eq!((validate(read), input), (Ok(()), &b""[..]));
        let json: serde_json::Value = serde_json::from_str(&to_json(read).unwrap()).unwrap();
        prop_assert_eq!(json, Bson::Document(document).into_relaxed_extjson());
        prop_assert!(take(&mut &bytes[..bytes.len() - 1]).is_err(), "a truncated document is invalid");
    }

    #[test]
    fn a_changed_byte_is_read_or_refused(document in document(value()), at: prop::sample::Index, byte: u8) {
        let mut bytes = document.to_vec().unwrap();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(document) = RawDocument::from_bytes(&bytes) {
            prop_assert_eq!(validate(document).is_ok(), to_json(document).is_ok());
        }
    }
}

#[test]
fn json_matches_the_specification() {
    let time = DateTime::from_millis;
    let all = doc! {
        "double": 1.0,
        "nan": f64::NAN,
        "infinite": f64::NEG_INFINITY,
        "text": "a \"b\"\n\u{7f}",
        "document": { "x": -1, "at": time(0) },
        "array": [i64::MAX],
        "binary": Binary { subtype: BinarySubtype::Uuid, bytes: b"\xff\x00".to_vec() },
        "bytes": Binary { subtype: BinarySubtype::Generic, bytes: b"\xff\x00".to_vec() },
        "id": ObjectId::from_bytes([0xab; 12]),
        "truth": true,
        "date": time(951_782_400_001),
        "old": time(-1),
        "last": time(253_402_300_799_999),
        "null": null,
        "regex": Regex { pattern: cstr!("^a").into(), options: cstr!("i").into() },
        "time": Timestamp { time: 5, increment: 6 },
        "decimal": "0.10".parse::<Decimal128>().unwrap(),
        "code": JavaScriptCodeWithScope { code: "f".to_owned(), scope: doc! { "at": time(0) } },
        "min": Bson::MinKey,
        "max": Bson::MaxKey,
    };
    let json = to_json(&RawDocumentBuf::try_from(&all).unwrap()).unwrap();
    let expected = [
        r#"{"double":1.0,"nan":{"$numberDouble":"NaN"},"infinite":{"$numberDouble":"-Infinity"},"#,
        r#""text":"a \"b\"\n\u007f","document":{"x":-1,"at":{"$date":"1970-01-01T00:00:00Z"}},"#,
        r#""array":[9223372036854775807],"binary":{"$binary":{"base64":"/wA=","subType":"04"}},"#,
        r#""bytes":{"$binary":{"base64":"/wA=","subType":"00"}},"id":{"$oid":"abababababababababababab"},"#,
        r#""truth":true,"date":{"$date":"2000-02-29T00:00:00.001Z"},"#,
        r#""old":{"$date":{"$numberLong":"-1"}},"last":{"$date":"9999-12-31T23:59:59.999Z"},"null":null,"#,
        r#""regex":{"$regularExpression":{"pattern":"^a","options":"i"}},"#,
        r#""time":{"$timestamp":{"t":5,"i":6}},"decimal":{"$numberDecimal":"0.10"},"#,
        r#""code":{"$code":"f","$scope":{"at":{"$date":"1970-01-01T00:00:00Z"}}},"#,
        r#""min":{"$minKey":1},"max":{"$maxKey":1}}"#,
    ];
    assert_eq!(json, expected.concat());
}

#[test]
fn deep_nesting_is_refused() {
    let nested = |levels: usize| (1..levels).fold(rawdoc! {}, |inner, _| rawdoc! { "": inner });
    let (most, more) = (nested(MAX_DEPTH), nested(MAX_DEPTH + 1));
    assert_eq!((validate(&most), to_json(&most).is_ok()), (Ok(()), true));
    let error = Error::InvalidDocument { reason: "it is nested too deeply".to_owned() };
    assert_eq!((validate(&more), to_json(&more)), (Err(error.clone()), Err(error)));
}

#[test]
fn broken_documents_are_refused() {
    for (bytes, what) in [
        (&b""[..], "empty"),
        (b"\x04\0\0\0", "an impossible length"),
        (b"\xff\xff\xff\xff\0", "an impossible length"),
        (b"\x05\0\0\0\x01", "a document has no final NUL"),
        (b"\x06\0\0\0\0", "it is truncated"),
        (b"\x08\0\0\0\x20x\0\0", "an element of an unknown type"),
        (b"\x09\0\0\0\x08x\0\x02\0", "a boolean that is neither 0 nor 1"),
        (b"\x0c\0\0\0\x02x\0\xff\xff\xff\xff\0", "a negative length"),
        (b"\x0c\0\0\0\x02x\0\0\0\0\0\0", "a string is not NUL-terminated"),
        (b"\x0d\0\0\0\x02x\0\x01\0\0\0x\0", "a string is not NUL-terminated"),
        (b"\x0e\0\0\0\x02x\0\x02\0\0\0\xff\0\0", "a text that is not UTF-8"),
        (b"\x08\0\0\0\x0a\xff\0\0", "a key that is not UTF-8"),
        (b"\x0d\0\0\0\x03x\0\x04\0\0\0\0\0", "an inner document that is too short"),
        (b"\x0e\0\0\0\x03x\0\x07\0\0\0\0\0\0", "an inner document that is too long"),
        (b"\x16\0\0\0\x0fx\0\x0e\0\0\0\x01\0\0\0\0\x04\0\0\0\0\0", "code with a scope that is too short"),
        (b"\x11\0\0\0\x05x\0\x04\0\0\0\x02\xff\xff\xff\xff\0", "a binary whose lengths disagree"),
    ] {
        let outcome = take(&mut &*bytes).and_then(validate);
        assert!(matches!(outcome, Err(Error::InvalidDocument { .. })), "{what}: {outcome:?}");
    }
}

#[test]
fn numeric_types_are_interchangeable() {
    for value in [RawBsonRef::Int32(3), RawBsonRef::Int64(3), RawBsonRef::Double(3.0)] {
        assert_eq!((as_i64(value), is_true(value)), (Some(3), true));
    }
    for value in
        [RawBsonRef::Double(0.5), RawBsonRef::Double(f64::NAN), RawBsonRef::Double(1e300), RawBsonRef::Null]
    {
        assert_eq!(as_i64(value), None);
    }
    for value in [RawBsonRef::Double(0.0), RawBsonRef::Boolean(false), RawBsonRef::Null] {
        assert!(!is_true(value), "{value:?}");
    }
}
