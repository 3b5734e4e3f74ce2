//! A proxy between clients and a server: logins with the client's capabilities, and resets.

use std::sync::Arc;

use ciphertoll_wire::Secret;
use ciphertoll_wire::mysql::err::ErrPacket;
use ciphertoll_wire::mysql::ok::OkPacket;
use ciphertoll_wire::mysql::relay::{
    InitialState, InitialStateQuery, InternalCommand, MultiStatements, OpenState, ResetOutcome, StateTracking,
};
use ciphertoll_wire::mysql::{
    Capabilities, Error, MySqlConnect, MySqlLogin, MySqlRowsReader, Response, Terms, server,
};

use crate::{
    chunks::feed,
    fake_server::{Answer, FakeServer, OFFERED, join},
};

const SETTINGS: [&str; 7] = ["utf8mb4", "utf8mb4_general_ci", "utf8mb4", "ANSI", "28800", "1", "SYSTEM"];

fn terms(capabilities: Capabilities) -> Terms {
    Terms { capabilities, character_set: 33 }
}

fn connect(offered: Capabilities, terms: Terms) -> Result<(MySqlConnect, FakeServer, Vec<u8>), Error> {
    let login = MySqlLogin {
        database: Some("shop".to_owned()),
        ..MySqlLogin::new("toll", Secret::new(b"pw".to_vec()))
    };
    let mut client = MySqlConnect::pooled(Arc::new(login), terms);
    let mut server = FakeServer::native(b"pw");
    server.offered = offered;
    let (_, sent) = join(&mut client, &mut server)?;
    Ok((client, server, sent))
}

#[test]
fn a_pooled_login_negotiates_the_clients_capabilities() {
    let wanted = Capabilities::FOUND_ROWS | Capabilities::TRANSACTIONS | Capabilities::PROGRESS;
    // Capabilities that concern the login only are not negotiated for a session.
    let asked = wanted | Capabilities::COMPRESS | Capabilities::SSL;
    let offered = (OFFERED | wanted | Capabilities::COMPRESS).without(Capabilities::LONG_PASSWORD);
    let (client, server, sent) = connect(offered, terms(asked)).unwrap();
    let of_login = Capabilities::PROTOCOL_41
        | Capabilities::SECURE_CONNECTION
        | Capabilities::PLUGIN_AUTH
        | Capabilities::PLUGIN_AUTH_LENENC
        | Capabilities::CONNECT_WITH_DB;
    assert_eq!(server.agreed, of_login | wanted);
    let info = client.server().unwrap();
    assert_eq!((info.capabilities, info.offered), (server.agreed, offered));
    // The character set follows the header, the capabilities and the longest packet.
    assert_eq!(sent[12], 33);
    // Without MariaDB's extended flags this flag is set.
    let (_, server, _) = connect(OFFERED, terms(Capabilities::TRANSACTIONS)).unwrap();
    assert_eq!(server.agreed, of_login | Capabilities::TRANSACTIONS | Capabilities::LONG_PASSWORD);
}

#[test]
fn a_server_that_offers_less_than_before_is_refused() {
    let end = connect(OFFERED, terms(Capabilities::SESSION_TRACK)).map(drop);
    assert!(matches!(end, Err(Error::Protocol { message: "greeting", .. })), "{end:?}");
}

fn settings(values: [&str; 7]) -> Vec<u8> {
    let mut answer = Answer::new(OFFERED);
    let row = values.map(|value| Some(value.as_bytes().to_vec())).to_vec();
    answer.result_set(&[row], 7, 2);
    answer.bytes
}

fn ok() -> Vec<u8> {
    let mut bytes = Vec::new();
    server::write_ok(&mut bytes, 1, &OkPacket { status: 2, ..OkPacket::default() }).unwrap();
    bytes
}

/// An empty result set.
fn nothing() -> Vec<u8> {
    let mut answer = Answer::new(OFFERED);
    answer.result_set(&[], 1, 2);
    answer.bytes
}

fn learn(database: Option<&str>) -> InitialState {
    let mut out = Vec::new();
    let database = database.map(ToOwned::to_owned);
    let mut learning = InitialStateQuery::begin(OFFERED, database, StateTracking::Off, &mut out).unwrap();
    assert!(String::from_utf8_lossy(&out).contains("SELECT @@character_set_client,"));
    let (beginning, rest) = feed(&settings(SETTINGS), &[1], |input| match learning.step(input).unwrap() {
        Response::Done(beginning) => Some(beginning),
        Response::NeedInput => None,
    });
    assert!(rest.is_empty());
    beginning.expect("the response is complete")
}

/// What a connection learns that is to report changes of its state.
fn learn_tracked(answers: &[Vec<u8>]) -> Option<Result<InitialState, Error>> {
    let mut out = Vec::new();
    let mut learning = InitialStateQuery::begin(OFFERED, None, StateTracking::On, &mut out).unwrap();
    assert!(String::from_utf8_lossy(&out).contains("SET session_track_state_change=ON"));
    let (end, rest) = feed(&answers.concat(), &[1], |input| match learning.step(input) {
        Ok(Response::NeedInput) => None,
        Ok(Response::Done(beginning)) => Some(Ok(beginning)),
        Err(error) => Some(Err(error)),
    });
    assert!(rest.is_empty());
    end
}

fn err(code: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    let err = ErrPacket { code, sql_state: *b"HY000", message: b"no" };
    server::write_err(&mut bytes, 1, &err).unwrap();
    bytes
}

/// The server reports a change of the state.
fn changed() -> Vec<u8> {
    let mut bytes = Vec::new();
    server::write_ok(&mut bytes, 1, &OkPacket { status: 0x4002, ..OkPacket::default() }).unwrap();
    bytes
}

#[test]
fn changes_are_tracked_only_if_the_server_confirms_it() {
    let tracking = |answer| learn_tracked(&[settings(SETTINGS), answer]).unwrap().unwrap().tracking();
    assert_eq!(tracking(changed()), StateTracking::On);
    // The server does not report this change, or does not have the setting.
    assert_eq!((tracking(ok()), tracking(err(1193))), (StateTracking::Off, StateTracking::Off));
    assert!(learn_tracked(&[settings(SETTINGS)]).is_none());
    // Both responses are read before a refusal is returned.
    assert!(matches!(learn_tracked(&[err(1820), err(1820)]), Some(Err(Error::Server { code: 1820, .. }))));
    let mut beginning = learn_tracked(&[settings(SETTINGS), changed()]).unwrap().ok();
    let first = [ok(), ok(), ok(), settings(SETTINGS), ok(), nothing()];
    // Every reset ends it, and begins it again.
    let (sent, end) = reset(&mut beginning, OpenState::default(), &[&first[..], &[changed()]].concat());
    assert!(sent.contains("SET session_track_state_change=ON"), "{sent}");
    assert_eq!(end, Some(Ok(ResetOutcome::Restored)));
    assert_eq!(beginning.as_ref().unwrap().tracking(), StateTracking::On);
    let (_, end) = reset(&mut beginning, OpenState::default(), &[ok(), nothing(), err(1193)]);
    assert_eq!(end, Some(Ok(ResetOutcome::Restored)));
    assert_eq!(beginning.as_ref().unwrap().tracking(), StateTracking::Off);
}

/// The commands of a reset, and its outcome with these responses.
fn reset(
    beginning: &mut Option<InitialState>,
    remains: OpenState,
    answers: &[Vec<u8>],
) -> (String, Option<Result<ResetOutcome, Error>>) {
    let mut out = Vec::new();
    let mut errand = InternalCommand::reset(
        OFFERED,
        beginning.as_ref().expect("the initial state was read"),
        remains,
        &mut out,
    )
    .unwrap();
    let sent = String::from_utf8_lossy(&out).into_owned();
    let (end, _) = feed(&answers.concat(), &[3, 1], |input| match errand.step(input, beginning) {
        Ok(Response::NeedInput) => None,
        Ok(Response::Done(condition)) => Some(Ok(condition)),
        Err(error) => Some(Err(error)),
    });
    (sent, end)
}

#[test]
fn the_first_reset_finds_the_settings_to_restore() {
    let mut beginning = Some(learn(Some("shop")));
    let mut changed = SETTINGS;
    changed[1] = "utf8mb4_0900_ai_ci";
    let answers = [ok(), ok(), ok(), settings(changed), ok(), ok(), nothing()];
    let (sent, end) = reset(&mut beginning, OpenState::default(), &answers);
    assert!(sent.contains("sql_mode='ANSI'") && sent.contains("autocommit=1"), "{sent}");
    assert_eq!(end, Some(Ok(ResetOutcome::Restored)));
    let (sent, end) = reset(&mut beginning, OpenState::default(), &[ok(), ok(), ok(), nothing()]);
    assert!(
        sent.contains("SET NAMES 'utf8mb4' COLLATE 'utf8mb4_general_ci'") && !sent.contains("sql_mode"),
        "{sent}"
    );
    assert!(sent.contains("\x02shop"), "{sent:?}");
    assert_eq!(end, Some(Ok(ResetOutcome::Restored)));
    // Every command needs a response.
    assert_eq!(reset(&mut beginning, OpenState::default(), &[ok(), ok()]).1, None);
}

#[test]
fn unchanged_settings_are_not_restored() {
    let mut beginning = Some(learn(Some("shop")));
    let answers = [ok(), ok(), ok(), settings(SETTINGS), ok(), ok(), nothing()];
    assert_eq!(reset(&mut beginning, OpenState::default(), &answers).1, Some(Ok(ResetOutcome::Restored)));
    let (sent, end) = reset(&mut beginning, OpenState::default(), &[ok(), ok(), nothing()]);
    assert_eq!(sent, "\x01\0\0\0\x1f\x05\0\0\0\x02shop\x1b\0\0\0\x03SELECT 1 FROM DUAL WHERE 0");
    assert_eq!(end, Some(Ok(ResetOutcome::Restored)));
    let remains = OpenState { statements: MultiStatements::Changed, ..OpenState::default() };
    // The response is an EOF.
    let eof = b"\x05\0\0\x01\xfe\0\0\x02\0".to_vec();
    let (sent, end) = reset(&mut beginning, remains, &[ok(), eof, ok(), nothing()]);
    assert_eq!(
        sent,
        "\x01\0\0\0\x1f\x03\0\0\0\x1b\0\0\x05\0\0\0\x02shop\x1b\0\0\0\x03SELECT 1 FROM DUAL WHERE 0"
    );
    assert_eq!(end, Some(Ok(ResetOutcome::Restored)));
}

#[test]
fn a_default_database_cannot_be_unset() {
    let mut beginning = Some(learn(None));
    let mut one = Answer::new(OFFERED);
    one.result_set(&[vec![Some(b"1".to_vec())]], 1, 2);
    let answers = [ok(), ok(), ok(), settings(SETTINGS), ok(), nothing()];
    assert_eq!(reset(&mut beginning, OpenState::default(), &answers).1, Some(Ok(ResetOutcome::Restored)));
    let answers = [ok(), one.bytes];
    assert_eq!(
        reset(&mut beginning, OpenState::default(), &answers).1,
        Some(Ok(ResetOutcome::OtherDatabase))
    );
}

#[test]
fn a_refusal_is_returned_after_all_responses() {
    let mut beginning = Some(learn(Some("gone")));
    let mut no = Vec::new();
    let err = ErrPacket { code: 1049, sql_state: *b"42000", message: b"Unknown" };
    server::write_err(&mut no, 1, &err).unwrap();
    let answers = [ok(), ok(), ok(), settings(SETTINGS), no, ok(), nothing()];
    let end = reset(&mut beginning, OpenState::default(), &answers).1;
    assert!(matches!(end, Some(Err(Error::Server { code: 1049, .. }))), "{end:?}");
}

#[test]
fn column_definitions_may_be_omitted() {
    for agreed in [OFFERED, OFFERED.without(Capabilities::DEPRECATE_EOF)] {
        let agreed = agreed | Capabilities::CACHE_METADATA;
        for definitions in [0, 1] {
            let mut answer = Answer::new(agreed);
            answer.payload(&[1, definitions]);
            if definitions == 1 {
                answer.definitions(1);
            } else if !agreed.contains(Capabilities::DEPRECATE_EOF) {
                answer.end_of_rows(0);
            }
            answer.payload(b"\x01x").end_of_rows(2);
            let rows = MySqlRowsReader::new(agreed, 1000).step(&mut answer.bytes.as_slice());
            assert_eq!(rows, Ok(Response::Done(vec![vec![Some(b"x".to_vec())]])));
        }
    }
}

#[test]
fn an_idle_server_sends_nothing() {
    let mut errand = InternalCommand::nothing();
    assert_eq!(errand.step(&mut &b""[..], &mut None), Ok(Response::NeedInput));
    assert!(matches!(errand.step(&mut ok().as_slice(), &mut None), Err(Error::Protocol { .. })));
    let words = b"\x19\0\0\0\xff\x1d\x04#08S01Server shutdown ";
    let end = InternalCommand::nothing().step(&mut &words[..], &mut None);
    assert!(matches!(end, Err(Error::Server { code: 1053, .. })), "{end:?}");
    let mut out = Vec::new();
    let mut ping = InternalCommand::ping(OFFERED, &mut out);
    assert_eq!(ping.step(&mut ok().as_slice(), &mut None), Ok(Response::Done(ResetOutcome::Restored)));
}
