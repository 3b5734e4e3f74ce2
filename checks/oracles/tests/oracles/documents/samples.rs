//! Documents with every type that a server stores, written by one client and read by the others.
//!
//! What `FerretDB` 1 does not store is left out: it hangs up on NaN, undefined, code, symbols, 128-bit decimals and
//! the least and the largest key, refuses infinities and arrays within arrays, and makes 0.0 of −0.0.

use bson::oid::ObjectId;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, DateTime, Document, Timestamp, doc};
use ciphertoll_model::Path;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::convert::{is_same_json, regex};
use super::oracle::{Find, Kind, Oracle, with_each};
use super::ours::Ours;
use crate::fixture::Fixture;

/// A fixed seed, so that failures can be reproduced.
const SEED: u64 = 0x0_7ac1e;
const RANDOM_DOCUMENTS: i32 = 300;
const DEEPEST: usize = 4;
const MOST_ELEMENTS: usize = 6;
const LONGEST_TEXT: usize = 40;
const LONGEST_KEY: usize = 8;
const LONGEST_BYTES: usize = 20_000;
/// Documents of one `insert`.
const INSERTED_AT_ONCE: usize = 50;
/// Milliseconds of the years 1 to 9999, which every library supports.
const DATES: (i64, i64) = (-62_135_596_800_000, 253_402_300_799_999);

pub(super) fn each_type(fixture: &mut Fixture) {
    with_each(fixture, |fixture, kind| written_by_each(fixture, kind, &types()));
}

pub(super) fn random_ones(fixture: &mut Fixture) {
    let mut random = StdRng::seed_from_u64(SEED);
    let documents: Vec<Document> = (0..RANDOM_DOCUMENTS).map(|id| random_document(&mut random, id)).collect();
    with_each(fixture, |fixture, kind| written_by_each(fixture, kind, &documents));
}

/// Our client writes the documents with an even number, the oracle the others; both read all.
fn written_by_each(fixture: &Fixture, kind: &Kind, documents: &[Document]) {
    let plain = fixture.visit(Path::Plain, kind.auth());
    let mut ours = Ours::connect(&plain).expect("ours logs in");
    let mut oracle = kind.visit(fixture);
    drop_samples(&mut oracle);
    let (even, odd): (Vec<_>, Vec<_>) = documents.iter().cloned().enumerate().partition(|(n, _)| n % 2 == 0);
    for part in even.chunks(INSERTED_AT_ONCE) {
        let part: Vec<Document> = part.iter().map(|(_, document)| document.clone()).collect();
        assert_eq!(ours.insert(COLLECTION, &part), Ok(()), "ours writes");
    }
    for part in odd.chunks(INSERTED_AT_ONCE) {
        let part: Vec<Document> = part.iter().map(|(_, document)| document.clone()).collect();
        assert_eq!(oracle.insert(COLLECTION, &part), Ok(()), "the oracle writes");
    }
    let find = Find { batch_documents: 7, ..Find::all(COLLECTION) };
    let read_by_ours = ours.find(&find).expect("ours reads");
    let read_by_oracle = oracle.find(&find).expect("the oracle reads");
    assert_eq!((read_by_ours.len(), read_by_oracle.len()), (documents.len(), documents.len()));
    for ((expected, ours), oracle) in documents.iter().zip(read_by_ours).zip(read_by_oracle) {
        assert_eq!(bytes(&oracle), bytes(expected), "as the oracle reads it: {oracle} for {expected}");
        assert_eq!(ours.bytes, bytes(expected), "as it came to ours: {expected}");
        assert_eq!(
            bytes(&ours.document),
            bytes(expected),
            "as ours reads it: {} for {expected}",
            ours.document
        );
        let relaxed = Bson::Document(expected.clone()).into_relaxed_extjson();
        assert!(is_same_json(&ours.json, &relaxed), "as ours shows it: {} for {relaxed}", ours.json);
    }
}

pub(super) const COLLECTION: &str = "samples";

/// Ignores a missing collection.
pub(super) fn drop_samples(oracle: &mut Oracle) {
    let answer = oracle.command(&doc! { "drop": COLLECTION });
    assert!(answer.is_ok() || answer.is_err_and(|refusal| refusal.code == "26"));
}

fn bytes(document: &Document) -> Vec<u8> {
    document.to_vec().expect("it can be written")
}

/// Each type, with values at its edges.
fn types() -> Vec<Document> {
    let texts = ["", "word", "\u{0}", "a\u{0}b", "Übermaß €", "𝄞\u{10ffff}", "\"\\\n\t\u{1}"];
    let doubles = [0.0, 1.0, -1.5, 0.1, f64::MIN_POSITIVE, f64::MAX, f64::MIN, 1e16, 5e-324, 1.0 / 3.0];
    let dates = [0, 1, -1, 1_700_000_000_123, DATES.0, DATES.1];
    let stamps = [(0, 1), (1, 0), (0x7fff_ffff, 1), (u32::MAX, u32::MAX), (5, 7)];
    let regexes = [("", ""), ("^a.*b$", "i"), ("[/\"]", "imsx")];
    let subtypes = [0x00, 0x01, 0x03, 0x04, 0x05, 0x80, 0xff];
    let id = ObjectId::from_bytes([0, 1, 2, 3, 0x7f, 0x80, 0xff, 7, 8, 9, 10, 11]);
    let binary = |subtype: u8| {
        let (subtype, bytes) = (BinarySubtype::from(subtype), (0..16).collect());
        Bson::Binary(Binary { subtype, bytes })
    };
    let lists: Vec<Vec<Bson>> = vec![
        texts.into_iter().map(Bson::from).collect(),
        doubles.into_iter().map(Bson::Double).collect(),
        [0, 1, -1, i32::MIN, i32::MAX].into_iter().map(Bson::Int32).collect(),
        [0, 1, -1, 1 << 53, i64::MIN, i64::MAX].into_iter().map(Bson::Int64).collect(),
        vec![Bson::Boolean(true), Bson::Boolean(false), Bson::Null],
        vec![Bson::ObjectId(ObjectId::from_bytes([0; 12])), Bson::ObjectId(id)],
        dates.into_iter().map(|time| Bson::DateTime(DateTime::from_millis(time))).collect(),
        stamps.into_iter().map(|(time, increment)| Bson::Timestamp(Timestamp { time, increment })).collect(),
        regexes.into_iter().map(|(pattern, options)| regex(pattern, options)).collect(),
        subtypes.into_iter().map(binary).collect(),
        vec![Bson::Document(Document::new()), doc! { "a": { "b": { "c": [1, { "d": [] }] } } }.into()],
        vec![Bson::Array(Vec::new()), Bson::Array(vec![1.into(), "two".into(), Bson::Null])],
    ];
    // Nested arrays are refused, so the last two have separate keys.
    let (scalar, nested) = lists.split_at(lists.len() - 1);
    let mut documents: Vec<Document> = scalar.iter().map(|list| doc! { "list": list.clone() }).collect();
    documents.extend(lists.iter().flatten().map(|value| doc! { "value": value.clone() }));
    documents.extend(nested.iter().flatten().map(|value| doc! { "": 1, "separate key": value.clone() }));
    let number = |(id, document): (i32, Document)| {
        let mut numbered = doc! { "_id": id };
        numbered.extend(document);
        numbered
    };
    (0..).zip(documents).map(number).collect()
}

fn random_document(random: &mut StdRng, id: i32) -> Document {
    let mut document = doc! { "_id": id };
    document.extend(elements(random, DEEPEST));
    document
}

fn elements(random: &mut StdRng, depth: usize) -> Document {
    let count = random.random_range(0..=MOST_ELEMENTS);
    // Duplicate keys occur once.
    (0..count).map(|_| (key(random), value(random, depth, Within::Document))).collect()
}

/// The container of a value: an array must not contain another.
#[derive(Clone, Copy, PartialEq)]
enum Within {
    Document,
    Array,
}

fn value(random: &mut StdRng, depth: usize, within: Within) -> Bson {
    let kinds = if depth == 0 { 11 } else { 13 };
    match random.random_range(0..kinds) {
        0 => Bson::Double(double(random)),
        1 => Bson::String(text(random, LONGEST_TEXT, '\u{0}')),
        2 => Bson::Boolean(random.random()),
        3 => Bson::Null,
        4 => Bson::Int32(random.random::<i32>() >> random.random_range(0..32)),
        5 => Bson::Int64(random.random::<i64>() >> random.random_range(0..64)),
        6 => Bson::Timestamp(Timestamp { time: random.random(), increment: random.random() }),
        7 => Bson::ObjectId(ObjectId::from_bytes(random.random())),
        8 => Bson::DateTime(DateTime::from_millis(random.random_range(DATES.0..=DATES.1))),
        9 => {
            let options = ["", "i", "im", "imsx"][random.random_range(0..4)];
            regex(&text(random, LONGEST_TEXT, '\u{1}'), options)
        }
        10 => {
            let longest = LONGEST_BYTES >> random.random_range(0..15);
            let bytes = (0..random.random_range(0..=longest)).map(|_| random.random()).collect();
            // Subtype 2 has another layout; values below 128 are reserved.
            let subtype = [0x00, 0x01, 0x05, 0x80][random.random_range(0..4)];
            Bson::Binary(Binary { subtype: BinarySubtype::from(subtype), bytes })
        }
        11 if within == Within::Document => {
            let count = random.random_range(0..=MOST_ELEMENTS);
            Bson::Array((0..count).map(|_| value(random, depth - 1, Within::Array)).collect())
        }
        _ => Bson::Document(elements(random, depth - 1)),
    }
}

/// Any but NaN, an infinity and −0.0.
fn double(random: &mut StdRng) -> f64 {
    loop {
        let number = f64::from_bits(random.random());
        if number.is_finite() && number.to_bits() != (-0.0_f64).to_bits() {
            return number;
        }
    }
}

fn text(random: &mut StdRng, longest: usize, least: char) -> String {
    let length = random.random_range(0..=longest);
    (0..length).map(|_| random.random_range(least..=char::MAX)).collect()
}

/// Servers give a meaning to dots and to `$`.
fn key(random: &mut StdRng) -> String {
    text(random, LONGEST_KEY, '\u{1}').replace(['.', '$'], "_")
}
