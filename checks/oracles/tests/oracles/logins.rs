//! Every authentication method over every path: both clients log in, and neither with a wrong password.

use ciphertoll_lab::Error;
use ciphertoll_model::{Auth, ChannelBinding, Engine, Iterations, Path, ServerKey, TlsVersion};
use ciphertoll_net::tls;
use ciphertoll_testing::not_for_all;

use crate::answer::{Refusal, assert_same};
use crate::fixture::{Fixture, TlsVisit, Visit};
use crate::{oracle, ours};

const PATHS: [Path; 4] = [
    Path::Plain,
    Path::Unix,
    Path::tls(TlsVersion::Tls12, ServerKey::P256),
    Path::tls(TlsVersion::Tls13, ServerKey::P256),
];
const BOUND: Auth =
    Auth::Scram { iterations: Iterations::POSTGRES_DEFAULT, binding: ChannelBinding::ServerEndPoint };

pub(crate) fn every_auth_over_every_path(fixture: &mut Fixture) {
    let engine = fixture.server.engine();
    let mut visits = 0;
    for auth in Auth::ALL.into_iter().chain([BOUND]) {
        match fixture.server.prepare_auth(auth) {
            Ok(()) => {}
            Err(error @ Error::AuthUnavailable { .. }) => {
                not_for_all(&error);
                continue;
            }
            Err(error) => panic!("{auth}: {error}"),
        }
        for path in PATHS {
            match auth.impossible(engine, path) {
                None => {
                    for visit in with_each_library(&fixture.visit(path, auth)) {
                        both_log_in(&visit, auth, path);
                    }
                    visits += 1;
                }
                Some(reason) => not_for_all(&format!("{auth} over {path}: {reason}")),
            }
        }
    }
    assert!(visits >= PATHS.len(), "the default authentication goes over every path");
}

/// The visit with each of our TLS libraries, or unchanged if it has no TLS.
pub(crate) fn with_each_library(visit: &Visit) -> Vec<Visit> {
    let Some(tls) = &visit.tls else { return vec![visit.clone()] };
    let with = |library| Visit { tls: Some(TlsVisit { library, ..tls.clone() }), ..visit.clone() };
    [tls::TlsLibrary::OpenSsl, tls::TlsLibrary::Rustls].into_iter().map(with).collect()
}

/// A login by certificate has no password that could be wrong.
fn shows_nothing_and_stays_out(visit: &Visit, what: &str) {
    let tls = visit.tls.clone().map(|tls| TlsVisit { identity: None, ..tls });
    let without = Visit { tls, ..visit.clone() };
    let (ours, oracle) = (ours::client(&without).map(|_| ()), oracle::connect(&without).map(|_| ()));
    assert!(ours.is_err(), "no certificate, {what}");
    assert_eq!(ours, oracle, "no certificate, {what}");
}

fn both_log_in(visit: &Visit, auth: Auth, path: Path) {
    let what = format!("{auth} over {path}");
    let mut client = ours::client(visit).unwrap_or_else(|refusal| panic!("ours, {what}: {refusal:?}"));
    let mut oracle = oracle::connect(visit).unwrap_or_else(|refusal| panic!("oracle, {what}: {refusal:?}"));
    for sql in ["SELECT 1", "SELECT current_user"] {
        assert_same(&what, &ours::query(&mut client, sql), &oracle.query(sql));
    }
    assert_eq!(oracle.query("SELECT 1"), Ok(vec![vec![Some(b"1".to_vec())]]), "{what}");
    // Our client reports the method, which must be the requested one.
    let wanted = visit.tls.as_ref().map(|tls| tls.version.label());
    assert_eq!(client.negotiated().map(|negotiated| negotiated.version), wanted, "{what}");
    if visit.engine == Engine::Postgres {
        // After a client certificate in the handshake the server requests nothing more.
        let asked_for = if auth == Auth::Cert { Auth::Trust } else { auth };
        assert_eq!(client.server().auth_label(), asked_for.to_string());
    }
    if auth == Auth::Cert {
        return shows_nothing_and_stays_out(visit, &what);
    }
    let wrong = Visit { password: b"wrong".to_vec(), ..visit.clone() };
    let (ours, oracle) = (ours::client(&wrong).map(|_| ()), oracle::connect(&wrong).map(|_| ()));
    assert_eq!(ours, oracle, "a wrong password, {what}");
    // PostgreSQL's `trust` checks no password.
    let asked = visit.engine != Engine::Postgres || auth != Auth::Trust;
    assert_eq!(
        ours.as_ref().map_err(Refusal::is_about_the_password),
        if asked { Err(true) } else { Ok(&()) }
    );
}
