//! The same documents for the same queries, in any number of batches.

use bson::{Bson, Document, doc};
use ciphertoll_model::Path;

use super::oracle::{Find, Kind, with_each};
use super::ours::{self, Ours};
use super::samples::{COLLECTION, drop_samples};
use crate::fixture::Fixture;

const DOCUMENTS: i32 = 40;

pub(super) fn side_by_side(fixture: &mut Fixture) {
    with_each(fixture, finds);
}

fn finds(fixture: &mut Fixture, kind: &Kind) {
    let plain = fixture.visit(Path::Plain, kind.auth());
    let mut ours = Ours::connect(&plain).expect("ours logs in");
    let mut oracle = kind.visit(fixture);
    drop_samples(&mut oracle);
    assert_eq!(oracle.insert(COLLECTION, &numbered()), Ok(()));
    for (find, expected) in questions() {
        let what = format!("{}: {}", kind.name(), find.command());
        let before = ours.batches;
        let by_ours = ours.find(&find).unwrap_or_else(|refusal| panic!("ours, {what}: {refusal:?}"));
        let by_oracle = oracle.find(&find).unwrap_or_else(|refusal| panic!("{what}: {refusal:?}"));
        assert_eq!(by_oracle.len(), expected, "{what}");
        let documents: Vec<Document> = by_ours.into_iter().map(|read| read.document).collect();
        assert_eq!(documents, by_oracle, "{what}");
        // A full batch is followed by another, which may be empty.
        assert!(
            ours.batches - before >= expected.saturating_sub(1) / find.batch_documents as usize,
            "{what}"
        );
        let relaxed: Vec<_> =
            by_oracle.into_iter().map(|document| Bson::Document(document).into_relaxed_extjson()).collect();
        assert_eq!(ours::rows(&plain, &text(&find)), Ok(relaxed), "{what}");
    }
}

fn numbered() -> Vec<Document> {
    let of = |number: i32| {
        doc! {
            "_id": number,
            "n": number % 5,
            "word": format!("word {number}"),
            "nested": { "n": i64::from(number) << 33, "list": [number, "two", Bson::Null] },
        }
    };
    (0..DOCUMENTS).map(of).collect()
}

/// A query and its number of results.
fn questions() -> Vec<(Find, usize)> {
    let all = || Find::all(COLLECTION);
    let of = |filter| Find { filter, ..all() };
    vec![
        (all(), 40),
        (of(doc! { "_id": 7 }), 1),
        (of(doc! { "_id": "7" }), 0),
        (of(doc! { "n": 3 }), 8),
        (of(doc! { "_id": { "$gte": 10, "$lt": 15 } }), 5),
        (of(doc! { "_id": { "$in": [1, 2, 99] }, "word": "word 2" }), 1),
        (Find { projection: doc! { "word": 1 }, ..of(doc! { "n": 1 }) }, 8),
        (Find { projection: doc! { "_id": 0, "nested.list": 1 }, ..of(doc! { "n": 2 }) }, 8),
        (Find { projection: doc! { "nested": 0 }, ..all() }, 40),
        (Find { sort: doc! { "n": -1, "_id": 1 }, ..all() }, 40),
        (Find { batch_documents: 1, ..of(doc! { "n": 4 }) }, 8),
        (Find { batch_documents: 3, ..all() }, 40),
        (Find { batch_documents: 40, ..all() }, 40),
        (Find { collection: "nothing", ..all() }, 0),
    ]
}

/// As a person would type it. Its first word must name it, which no map of `serde_json`'s keeps to.
fn text(find: &Find) -> String {
    let json = |document: &Document| Bson::Document(document.clone()).into_relaxed_extjson();
    let projection = if find.projection.is_empty() {
        String::new()
    } else {
        format!(r#""projection":{},"#, json(&find.projection))
    };
    // Their order says which comes first.
    let sort: Vec<String> = find
        .sort
        .iter()
        .map(|(key, way)| format!("{key:?}:{}", way.clone().into_relaxed_extjson()))
        .collect();
    format!(
        r#"{{"find":"{}","filter":{},{projection}"sort":{{{}}},"batchSize":{}}}"#,
        find.collection,
        json(&find.filter),
        sort.join(","),
        find.batch_documents,
    )
}
