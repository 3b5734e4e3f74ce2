//! A server refuses all clients with the same message.

use bson::{Bson, Document, doc};
use ciphertoll_model::{Auth, Path};

use super::oracle::{Failure, Find, Kind, Oracle, with_each};
use super::ours::Ours;
use super::samples::{COLLECTION, drop_samples};
use super::scram;
use crate::answer::{Answer, Refusal, assert_refused_with};
use crate::fixture::Fixture;

pub(super) fn side_by_side(fixture: &mut Fixture) {
    with_each(fixture, |fixture, kind| {
        commands(fixture, kind);
        fixture.server.prepare_auth(scram()).expect("the server has accounts");
        who_has_not_logged_in(fixture, kind);
    });
}

fn commands(fixture: &mut Fixture, kind: &Kind) {
    let mut ours = Ours::connect(&fixture.visit(Path::Plain, kind.auth())).expect("ours logs in");
    let mut oracle = kind.visit(fixture);
    drop_samples(&mut oracle);
    let once = [doc! { "_id": 1, "word": "once" }];
    assert_eq!(oracle.insert(COLLECTION, &once), Ok(()));
    let twice = (ours.insert(COLLECTION, &once), oracle.insert(COLLECTION, &once));
    // The refusal of a part of a command has a number without a name; our client adds this one.
    let twice = (twice.0, twice.1.map_err(|refusal| Refusal { state: "DuplicateKey".to_owned(), ..refusal }));
    assert_refused_with("a key that is there", "11000", twice.0, twice.1);
    let wrong: [(&str, Document, &str); 4] = [
        ("an unknown command", doc! { "nonsense": 1 }, "59"),
        ("an unknown cursor", doc! { "getMore": 5_i64, "collection": COLLECTION }, "43"),
        ("a filter that is none", doc! { "find": COLLECTION, "filter": 5 }, "14"),
        ("an unknown operator", doc! { "find": COLLECTION, "filter": { "n": { "$nonsense": 1 } } }, "2"),
    ];
    for (what, command, code) in wrong {
        assert_refused_with(what, code, ours.command(&command), oracle.command(&command));
    }
    // The connection is usable after each refusal.
    let found = ours.find(&Find::all(COLLECTION)).expect("ours reads");
    assert_eq!(found.into_iter().map(|read| read.document).collect::<Vec<_>>(), once);
    assert_eq!(oracle.find(&Find::all(COLLECTION)), Ok(once.to_vec()));
}

/// On a server with accounts.
fn who_has_not_logged_in(fixture: &Fixture, kind: &Kind) {
    let stranger = fixture.visit(Path::Plain, Auth::Trust);
    let count = doc! { "count": COLLECTION };
    let ours = Ours::connect(&stranger).expect("a hello is free").command(&count);
    let oracle = match kind.connect(&stranger) {
        Ok(mut oracle) => asked(&mut oracle, &count),
        Err(Failure::Refused(refusal)) => Err(refusal),
        Err(failure) => panic!("{}: {failure:?}", kind.name()),
    };
    assert_refused_with("a count by a stranger", "13", ours, oracle);
}

fn asked(oracle: &mut Oracle, command: &Document) -> Answer<Document> {
    let answer = oracle.command(command);
    assert_ne!(answer.as_ref().ok().and_then(|answer| answer.get("ok")), Some(&Bson::Double(1.0)));
    answer
}
