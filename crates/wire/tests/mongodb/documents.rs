//! BSON: round trips, the JSON form, and malformed documents.

use ciphertoll_wire::mongodb::Error;
use ciphertoll_wire::mongodb::bson::{BsonValue, BsonWriter, Document, MAX_DEPTH, to_json, write_document};
use proptest::prelude::*;

/// A value that owns its data.
#[derive(Debug, Clone)]
enum Owned {
    Plain(BsonValue<'static>),
    String(String),
    Code(String, Option<Vec<(String, Self)>>),
    Symbol(String),
    Binary(u8, Vec<u8>),
    Regex(String, String),
    DbPointer(String, [u8; 12]),
    Document(Vec<(String, Self)>),
    Array(Vec<Self>),
}

fn put(writer: &mut BsonWriter<'_>, key: &str, value: &Owned) {
    match value {
        Owned::Plain(value) => writer.put(key, *value),
        Owned::String(text) => writer.string(key, text),
        Owned::Code(code, None) => writer.put(key, BsonValue::Code(code)),
        Owned::Code(code, Some(scope)) => {
            let scope = document(scope);
            writer.put(key, BsonValue::CodeWithScope { code, scope: Document::new(&scope).unwrap() });
        }
        Owned::Symbol(text) => writer.put(key, BsonValue::Symbol(text)),
        Owned::Binary(subtype, bytes) => writer.put(key, BsonValue::Binary { subtype: *subtype, bytes }),
        Owned::Regex(pattern, options) => writer.put(key, BsonValue::Regex { pattern, options }),
        Owned::DbPointer(namespace, id) => writer.put(key, BsonValue::DbPointer { namespace, id: *id }),
        Owned::Document(elements) => writer.document(key, |inner| {
            put_all(inner, elements);
        }),
        Owned::Array(values) => writer.array(key, |inner| {
            for (index, value) in values.iter().enumerate() {
                put(inner, &index.to_string(), value);
            }
        }),
    }
}

fn put_all(writer: &mut BsonWriter<'_>, elements: &[(String, Owned)]) {
    for (key, value) in elements {
        put(writer, key, value);
    }
}

fn document(elements: &[(String, Owned)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_document(&mut bytes, |writer| put_all(writer, elements));
    bytes
}

fn matches(value: BsonValue<'_>, owned: &Owned) -> bool {
    match (value, owned) {
        (BsonValue::Double(one), Owned::Plain(BsonValue::Double(other))) => one.to_bits() == other.to_bits(),
        (value, Owned::Plain(plain)) => value == *plain,
        (BsonValue::String(text), Owned::String(other)) | (BsonValue::Symbol(text), Owned::Symbol(other)) => {
            text == other
        }
        (BsonValue::Code(text), Owned::Code(other, None)) => text == other,
        (BsonValue::CodeWithScope { code, scope }, Owned::Code(other, Some(elements))) => {
            code == other && holds(scope, elements)
        }
        (BsonValue::Binary { subtype, bytes }, Owned::Binary(other, owned)) => {
            (subtype, bytes) == (*other, owned)
        }
        (BsonValue::Regex { pattern, options }, Owned::Regex(one, other)) => {
            (pattern, options) == (one, other)
        }
        (BsonValue::DbPointer { namespace, id }, Owned::DbPointer(one, other)) => {
            (namespace, &id) == (one, other)
        }
        (BsonValue::Document(document), Owned::Document(elements)) => holds(document, elements),
        (BsonValue::Array(array), Owned::Array(values)) => {
            let keyed = values.iter().enumerate().map(|(index, value)| (index.to_string(), value.clone()));
            holds(array, &keyed.collect::<Vec<_>>())
        }
        _ => false,
    }
}

fn holds(document: Document<'_>, elements: &[(String, Owned)]) -> bool {
    let read: Vec<_> = document.elements().map(Result::unwrap).collect();
    read.len() == elements.len()
        && read.iter().zip(elements).all(|(element, (key, value))| {
            element.key() == key.as_bytes() && matches(element.value().unwrap(), value)
        })
}

fn text() -> impl Strategy<Value = String> + Clone {
    "[^\\x00]{0,12}"
}

fn value() -> impl Strategy<Value = Owned> {
    let plain = prop_oneof![
        any::<f64>().prop_map(BsonValue::Double),
        any::<bool>().prop_map(BsonValue::Boolean),
        any::<i32>().prop_map(BsonValue::Int32),
        any::<i64>().prop_map(BsonValue::Int64),
        any::<i64>().prop_map(BsonValue::DateTime),
        any::<u64>().prop_map(BsonValue::Timestamp),
        any::<[u8; 12]>().prop_map(BsonValue::ObjectId),
        any::<[u8; 16]>().prop_map(BsonValue::Decimal128),
        Just(BsonValue::Null),
        Just(BsonValue::Undefined),
        Just(BsonValue::MinKey),
        Just(BsonValue::MaxKey),
    ];
    let leaf = prop_oneof![
        plain.prop_map(Owned::Plain),
        any::<String>().prop_map(Owned::String),
        text().prop_map(|code| Owned::Code(code, None)),
        text().prop_map(Owned::Symbol),
        (any::<u8>(), any::<Vec<u8>>()).prop_map(|(subtype, bytes)| Owned::Binary(subtype, bytes)),
        (text(), text()).prop_map(|(pattern, options)| Owned::Regex(pattern, options)),
        (text(), any::<[u8; 12]>()).prop_map(|(namespace, id)| Owned::DbPointer(namespace, id)),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        let elements = proptest::collection::vec((text(), inner.clone()), 0..5);
        prop_oneof![
            elements.clone().prop_map(Owned::Document),
            (text(), elements).prop_map(|(code, scope)| Owned::Code(code, Some(scope))),
            proptest::collection::vec(inner, 0..5).prop_map(Owned::Array),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(elements in proptest::collection::vec((text(), value()), 0..6)) {
        let bytes = document(&elements);
        let read = Document::new(&bytes).unwrap();
        read.validate().unwrap();
        prop_assert!(holds(read, &elements));
        let json = to_json(read).unwrap();
        prop_assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok(), "{}", json);
        // A truncated document is invalid.
        prop_assert!(Document::new(&bytes[..bytes.len() - 1]).is_err());
    }

    #[test]
    fn a_changed_byte_is_read_or_refused(
        elements in proptest::collection::vec((text(), value()), 0..6),
        at: prop::sample::Index,
        byte: u8,
    ) {
        let mut bytes = document(&elements);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(document) = Document::new(&bytes) {
            prop_assert_eq!(document.validate().is_ok() && to_json(document).is_err(), false);
        }
    }
}

#[test]
fn json_matches_the_specification() {
    let mut bytes = Vec::new();
    write_document(&mut bytes, |all| {
        all.put("double", BsonValue::Double(1.0));
        all.put("nan", BsonValue::Double(f64::NAN));
        all.put("infinite", BsonValue::Double(f64::NEG_INFINITY));
        all.string("text", "a \"b\"\n\u{7f}");
        all.document("document", |inner| inner.int32("x", -1));
        all.array("array", |inner| inner.int64("0", i64::MAX));
        all.put("binary", BsonValue::Binary { subtype: 4, bytes: b"\xff\x00" });
        all.put("id", BsonValue::ObjectId([0xab; 12]));
        all.boolean("truth", true);
        all.put("date", BsonValue::DateTime(951_782_400_001));
        all.put("epoch", BsonValue::DateTime(0));
        all.put("old", BsonValue::DateTime(-1));
        all.put("last", BsonValue::DateTime(253_402_300_799_999));
        all.put("null", BsonValue::Null);
        all.put("regex", BsonValue::Regex { pattern: "^a", options: "i" });
        all.put("time", BsonValue::Timestamp(5 << 32 | 6));
        all.put("min", BsonValue::MinKey);
        all.put("max", BsonValue::MaxKey);
    });
    let json = to_json(Document::new(&bytes).unwrap()).unwrap();
    let expected = [
        r#"{"double":1.0,"nan":{"$numberDouble":"NaN"},"infinite":{"$numberDouble":"-Infinity"},"#,
        r#""text":"a \"b\"\n\u007f","document":{"x":-1},"array":[9223372036854775807],"#,
        r#""binary":{"$binary":{"base64":"/wA=","subType":"04"}},"id":{"$oid":"abababababababababababab"},"#,
        r#""truth":true,"date":{"$date":"2000-02-29T00:00:00.001Z"},"epoch":{"$date":"1970-01-01T00:00:00Z"},"#,
        r#""old":{"$date":{"$numberLong":"-1"}},"last":{"$date":"9999-12-31T23:59:59.999Z"},"null":null,"#,
        r#""regex":{"$regularExpression":{"pattern":"^a","options":"i"}},"#,
        r#""time":{"$timestamp":{"t":5,"i":6}},"min":{"$minKey":1},"max":{"$maxKey":1}}"#,
    ];
    assert_eq!(json, expected.concat());
}

#[test]
fn deep_nesting_is_refused() {
    let nested = |levels: usize| {
        let mut bytes = b"\x05\0\0\0\0".to_vec();
        for _ in 1..levels {
            let mut outer = Vec::new();
            write_document(&mut outer, |writer| {
                writer.put("", BsonValue::Document(Document::new(&bytes).unwrap()));
            });
            bytes = outer;
        }
        bytes
    };
    let (most, more) = (nested(MAX_DEPTH), nested(MAX_DEPTH + 1));
    let (most, more) = (Document::new(&most).unwrap(), Document::new(&more).unwrap());
    assert_eq!((most.validate(), to_json(most).is_ok()), (Ok(()), true));
    let error = Error::Protocol { message: "BSON document", reason: "it is nested too deeply" };
    assert_eq!((more.validate(), to_json(more)), (Err(error.clone()), Err(error)));
}

#[test]
fn broken_documents_are_refused() {
    for (bytes, reason) in [
        (&b""[..], "it is truncated"),
        (b"\x04\0\0\0", "an impossible length"),
        (b"\xff\xff\xff\xff\0", "an impossible length"),
        (b"\x05\0\0\0\x01", "a document has no final NUL"),
        (b"\x05\0\0\0\0\0", "unexpected bytes at its end"),
        (b"\x08\0\0\0\x0ax\0\0"[..7].as_ref(), "it is truncated"),
        (b"\x08\0\0\0\x20x\0\0", "an element of an unknown type"),
        (b"\x09\0\0\0\x08x\0\x02\0", "a boolean that is neither 0 nor 1"),
        (b"\x0c\0\0\0\x02x\0\xff\xff\xff\xff\0", "a negative length"),
        (b"\x0c\0\0\0\x02x\0\0\0\0\0\0", "a string is not NUL-terminated"),
        (b"\x0d\0\0\0\x02x\0\x01\0\0\0x\0", "a string is not NUL-terminated"),
        (b"\x0e\0\0\0\x02x\0\x02\0\0\0\xff\0\0", "a text that is not UTF-8"),
        (b"\x08\0\0\0\x0a\xff\0\0", "a key that is not UTF-8"),
        (b"\x07\0\0\0\x0ax\0"[..7].as_ref(), "a string is not NUL-terminated"),
    ] {
        let outcome = Document::new(bytes).and_then(Document::validate);
        assert_eq!(outcome, Err(Error::Protocol { message: "BSON document", reason }), "{bytes:?}");
    }
}

#[test]
fn numeric_types_are_interchangeable() {
    for value in [BsonValue::Int32(3), BsonValue::Int64(3), BsonValue::Double(3.0)] {
        assert_eq!((value.as_i64(), value.is_true()), (Some(3), true));
    }
    for value in
        [BsonValue::Double(0.5), BsonValue::Double(f64::NAN), BsonValue::Double(1e300), BsonValue::Null]
    {
        assert_eq!(value.as_i64(), None);
    }
    assert!(
        !BsonValue::Double(0.0).is_true()
            && !BsonValue::Boolean(false).is_true()
            && !BsonValue::Null.is_true()
    );
}
