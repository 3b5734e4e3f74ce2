//! Password logins, which pymongo supports and the official driver does not.

use bson::doc;
use ciphertoll_model::{Auth, Path, ServerKey, TlsVersion};

use super::oracle::{Failure, Find, Kind};
use super::ours::Ours;
use super::scram;
use crate::fixture::{Fixture, Visit};
use crate::logins::with_each_library;

const PATHS: [Path; 3] = [
    Path::Plain,
    Path::tls(TlsVersion::Tls12, ServerKey::P256),
    Path::tls(TlsVersion::Tls13, ServerKey::P256),
];

pub(super) fn side_by_side(fixture: &mut Fixture) {
    for kind in Kind::all(&fixture.cache) {
        if let Kind::Official = kind {
            continue;
        }
        for auth in [scram(), Auth::ScramSha1] {
            fixture.server.prepare_auth(auth).expect("the server has both");
            for path in PATHS {
                both_log_in(&kind, &fixture.visit(path, auth), &format!("{auth} over {path}"));
            }
        }
    }
}

fn both_log_in(kind: &Kind, visit: &Visit, what: &str) {
    let mut oracle = kind.connect(visit).unwrap_or_else(|failure| panic!("{what}: {failure:?}"));
    let status = doc! { "connectionStatus": 1 };
    let expected = oracle.command(&status);
    assert!(expected.is_ok(), "{what}: {expected:?}");
    for visit in with_each_library(visit) {
        let mut ours = Ours::connect(&visit).unwrap_or_else(|failure| panic!("ours, {what}: {failure:?}"));
        assert_eq!(ours.command(&status), expected, "{what}");
    }
    let wrong = [
        Visit { password: b"wrong".to_vec(), ..visit.clone() },
        Visit { user: "nobody".to_owned(), ..visit.clone() },
    ];
    for wrong in wrong {
        let (ours, oracle) = (refusal(Ours::connect(&wrong)), refusal(kind.connect(&wrong)));
        assert_eq!(ours, oracle, "{}, {what}", wrong.user);
        assert_eq!((ours.0.as_str(), ours.1.as_str()), ("18", "AuthenticationFailed"), "{what}");
    }
}

/// Code, name and words.
fn refusal<T>(outcome: Result<T, Failure>) -> (String, String, String) {
    match outcome {
        Ok(_) => panic!("the login should have failed"),
        Err(Failure::Refused(refusal)) => (refusal.code, refusal.state, refusal.message),
        Err(Failure::Broken(reason)) => panic!("a refusal that is none of the server's: {reason}"),
    }
}

/// `FerretDB` 1.24 ends a login with one more message even for `skipEmptyExchange`. pymongo and our client handle it; the
/// official driver 3.9 fails. If this test fails, the driver has been fixed and should log in like pymongo.
pub(super) fn the_official_drivers_scram(fixture: &mut Fixture) {
    for auth in [scram(), Auth::ScramSha1] {
        fixture.server.prepare_auth(auth).expect("the server has both");
        let visit = fixture.visit(Path::Plain, auth);
        let Err(Failure::Broken(reason)) = Kind::Official.connect(&visit) else {
            panic!("{auth}: the official driver logs in, or the server refuses it");
        };
        assert!(reason.contains("expected SCRAM authentication to have completed"), "{auth}: {reason}");
        let ours = Ours::connect(&visit).unwrap_or_else(|failure| panic!("ours, {auth}: {failure:?}"));
        drop(ours);
    }
    let mut ours = Ours::connect(&fixture.visit(Path::Plain, scram())).expect("ours logs in");
    assert!(ours.find(&Find::all("nothing")).is_ok_and(|found| found.is_empty()));
}
