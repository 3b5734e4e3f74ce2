//! Logins of a proxy: they set nothing, record the server's settings, and derive keys once.

use std::sync::Arc;

use ciphertoll_wire::postgres::relay::{InternalCommand, PipelinedCommit, TimeLimit};
use ciphertoll_wire::postgres::server::{self, Report, Startup, read_startup};
use ciphertoll_wire::postgres::{
    CancelKey, ChannelBinding, Error, Parameters, PostgresConnect, PostgresLogin, PostgresTlsMode, Response,
    Severity, TransactionStatus,
};
use ciphertoll_wire::scram::KeyCache;
use ciphertoll_wire::{Secret, Step};

use crate::fake_server::{FakeServer, ITERATIONS, PASSWORD, USER, join, scram};

fn login() -> Arc<PostgresLogin> {
    Arc::new(PostgresLogin {
        startup: Vec::new(),
        user: USER.to_owned(),
        password: Secret::new(PASSWORD.as_bytes().to_vec()),
        database: Some("shop".to_owned()),
        encryption: PostgresTlsMode::Plain,
        channel_binding: ChannelBinding::Disabled,
    })
}

#[test]
fn a_pooled_login_sets_nothing_and_records_settings() {
    let (keys, auth) = (Arc::new(KeyCache::new()), scram());
    for _ in 0..2 {
        let mut client = PostgresConnect::pooled(login(), Arc::clone(&keys));
        let mut server = FakeServer::new(auth.clone());
        let (end, _) = join(&mut client, &mut server, usize::MAX);
        assert_eq!(end, Ok(()));
        let expected = [("user", USER), ("database", "shop")];
        assert_eq!(server.startup, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let parameters = &client.server().unwrap().parameters;
        assert_eq!(parameters.get(b"SERVER_VERSION"), Some(client.server().unwrap().version.as_bytes()));
    }
    // Other logins record nothing.
    let mut client = PostgresConnect::new(login());
    assert_eq!(join(&mut client, &mut FakeServer::new(auth), usize::MAX).0, Ok(()));
    assert_eq!(client.server().unwrap().parameters.iter().count(), 0);
}

#[test]
fn a_pooled_login_finds_out_when_a_pipelined_reset_is_committed() {
    for commit in [PipelinedCommit::AtOnce, PipelinedCommit::WithTransaction] {
        let mut client = PostgresConnect::pooled(login(), Arc::new(KeyCache::new()));
        let mut server = FakeServer::new(scram());
        server.commit = commit;
        assert_eq!(join(&mut client, &mut server, 1).0, Ok(()));
        let info = client.server().unwrap();
        assert_eq!((info.commit, info.parameters.get(b"application_name")), (commit, Some(&b""[..])));
    }
}

/// Only a mark that was set and is gone shows that a reset is committed at once.
#[test]
fn a_probe_that_shows_nothing_counts_as_a_reset_that_waits() {
    const MARK: Option<&[u8]> = Some(b"ciphertoll");
    const EMPTY: Option<&[u8]> = Some(b"");
    let probed = |before: &[Option<&[u8]>], after: &[Option<&[u8]>]| {
        let (mut probe, mut answer) = (InternalCommand::probe_commit(&mut Vec::new()).unwrap(), Vec::new());
        for rows in [Some(before), None, Some(after)] {
            for row in rows.into_iter().flatten() {
                server::write_data_row(&mut answer, &[*row]).unwrap();
            }
            if rows.is_some_and(<[_]>::is_empty) {
                let message = b"not supported";
                let report = Report { severity: Severity::Error, sqlstate: *b"0A000", message };
                server::write_error(&mut answer, &report).unwrap();
            }
            server::write_ready_for_query(&mut answer, TransactionStatus::Idle);
        }
        probe.step(&mut answer.as_slice(), &mut Parameters::default()).map(|end| {
            assert_eq!(end, Response::Done(TransactionStatus::Idle));
            probe.commit()
        })
    };
    assert_eq!(probed(&[MARK], &[EMPTY]), Ok(PipelinedCommit::AtOnce));
    assert!(probed(&[MARK, MARK], &[EMPTY]).is_err(), "more rows than queried");
    for (before, after) in [
        (&[MARK][..], &[MARK][..]),
        (&[EMPTY], &[EMPTY]),
        (&[MARK], &[None]),
        (&[MARK], &[]),
        (&[], &[EMPTY]),
        (&[], &[]),
    ] {
        assert_eq!(probed(before, after), Ok(PipelinedCommit::WithTransaction), "{before:?} {after:?}");
    }
}

#[test]
fn a_queried_value_may_be_longer_than_a_login() {
    let (value, name) = (vec![b'x'; 70_000], &b"app.claims"[..]);
    let mut query = InternalCommand::values([name], &mut Vec::new()).unwrap();
    let mut answer = Vec::new();
    server::write_data_row(&mut answer, &[Some(&value)]).unwrap();
    server::write_ready_for_query(&mut answer, TransactionStatus::Idle);
    let end = query.step(&mut answer.as_slice(), &mut Parameters::default());
    assert_eq!(end, Ok(Response::Done(TransactionStatus::Idle)));
    assert_eq!(query.take_values(), [Some(value)]);
}

/// In a transaction that is serializable, read-only and deferrable, a query waits for the transactions of others.
#[test]
fn values_are_queried_in_a_transaction_of_their_own_kind() {
    let mut out = Vec::new();
    InternalCommand::values([&b"work_mem"[..]], &mut out).unwrap();
    let at = |text: &[u8]| out.windows(text.len()).position(|window| window == text);
    let set = at(b"SET transaction_isolation = 'read committed'\0").expect("the level is set");
    assert!(set < at(b"current_setting").expect("a query"));
}

#[test]
fn a_query_for_values_leaves_the_unnamed_statement() {
    let mut out = Vec::new();
    InternalCommand::values([&b"work_mem"[..]], &mut out).unwrap();
    let mut rest = &out[..];
    while let [kind, a, b, c, d, payload @ ..] = rest {
        let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize - 4;
        let is_named = match kind {
            b'P' => payload[0] != 0,
            b'C' => payload[..2] != *b"S\0",
            _ => true,
        };
        assert!(is_named, "{:?}", String::from_utf8_lossy(payload));
        rest = &payload[length..];
    }
}

#[test]
fn a_pooled_login_waits_for_derived_keys() {
    let (keys, auth) = (Arc::new(KeyCache::new()), scram());
    let challenged = || {
        let mut client = PostgresConnect::pooled(login(), Arc::clone(&keys));
        let mut server = FakeServer::new(auth.clone());
        let (mut out, mut answer) = (Vec::new(), Vec::new());
        // The startup and the client's first message.
        for _ in 0..2 {
            assert_eq!(
                client.step(&mut std::mem::take(&mut answer).as_slice(), &mut out),
                Ok(Step::NeedInput)
            );
            server.run(&mut std::mem::take(&mut out).as_slice(), &mut answer);
        }
        (client, answer)
    };
    let (mut first, challenge) = challenged();
    let mut out = Vec::new();
    // Input after the challenge is not consumed before the reply is sent.
    let with_more = [&challenge[..], b"rest"].concat();
    let mut input = &with_more[..];
    assert_eq!(first.step(&mut input, &mut out), Ok(Step::NeedInput));
    assert_eq!((input, out.is_empty(), first.awaits_keys()), (&b"rest"[..], true, true));
    let derivation = first.take_key_derivation().unwrap();
    assert!(first.take_key_derivation().is_none());
    for _ in 0..2 {
        assert_eq!(first.step(&mut input, &mut out), Ok(Step::NeedInput));
        assert_eq!((input, out.is_empty()), (&b"rest"[..], true));
    }
    derivation.run();
    assert_eq!(first.step(&mut &b""[..], &mut out), Ok(Step::NeedInput));
    assert!(!first.awaits_keys() && out.starts_with(b"p"), "the proof is sent: {out:?}");
    // The next login uses the cached keys.
    out.clear();
    let (mut second, challenge) = challenged();
    assert_eq!(second.step(&mut &challenge[..], &mut out), Ok(Step::NeedInput));
    assert!(second.take_key_derivation().is_none() && out.starts_with(b"p"));
}

#[test]
fn a_pooled_login_refuses_more_iterations_than_allowed() {
    let login_with = |most| {
        let mut client = PostgresConnect::pooled(login(), Arc::new(KeyCache::with_max_iterations(most)));
        join(&mut client, &mut FakeServer::new(scram()), usize::MAX).0
    };
    assert_eq!(login_with(ITERATIONS), Ok(()));
    let refused = Error::IterationsTooMany { iterations: ITERATIONS.into(), limit: ITERATIONS - 1 };
    assert_eq!(login_with(ITERATIONS - 1), Err(refused));
}

#[test]
fn a_cancel_request_is_the_only_message() {
    let key = CancelKey::new(vec![9, 8, 7, 6]).unwrap();
    let mut client = PostgresConnect::cancelling(login(), 77, key);
    let mut out = Vec::new();
    assert_eq!(client.step(&mut &b""[..], &mut out), Ok(Step::Done));
    let mut input = &out[..];
    let request = read_startup(&mut input).unwrap();
    assert_eq!(request, Some(Startup::Cancel { process_id: 77, key: &[9, 8, 7, 6] }));
    assert!(input.is_empty());
}

#[test]
fn settings_are_sent_as_parameters() {
    let mut out = Vec::new();
    InternalCommand::settings([("application_name", "'; DROP TABLE t; --")], &mut out).unwrap();
    let text = String::from_utf8_lossy(&out);
    let (parse, bind) = text.split_at(text.find("B\0").unwrap());
    assert!(parse.contains("set_config($1, $2, false)") && !parse.contains("DROP"), "{parse:?}");
    assert!(bind.contains("'; DROP TABLE t; --"));
}

/// The server raises it when it reads the next command, which must not be that of another client.
#[test]
fn a_time_limit_that_ends_within_a_reset_is_an_error_of_the_reset() {
    let (mut out, mut answer) = (Vec::new(), Vec::new());
    InternalCommand::reset(TransactionStatus::Idle, TimeLimit::Long, &mut out).unwrap();
    assert_eq!(std::mem::take(&mut out), b"Q\0\0\0\x10DISCARD ALL\0");
    let mut reset = InternalCommand::reset(TransactionStatus::Idle, TimeLimit::MayBeShort, &mut out).unwrap();
    assert_eq!(out, b"Q\0\0\0\x10DISCARD ALL\0Q\0\0\0\x05\0");
    server::write_command_complete(&mut answer, b"DISCARD ALL").unwrap();
    server::write_ready_for_query(&mut answer, TransactionStatus::Idle);
    let mut parameters = Parameters::default();
    assert_eq!(reset.step(&mut answer.as_slice(), &mut parameters), Ok(Response::NeedInput));
    answer.clear();
    let message = b"canceling statement due to statement timeout";
    let report = Report { severity: Severity::Error, sqlstate: *b"57014", message };
    server::write_error(&mut answer, &report).unwrap();
    server::write_ready_for_query(&mut answer, TransactionStatus::Idle);
    assert!(reset.step(&mut answer.as_slice(), &mut parameters).is_err());
}
