//! The interface that the protocols share.

use std::sync::Arc;

use ciphertoll_wire::Secret;
use ciphertoll_wire::mongodb::{self, MongoDbAuthMethod, MongoDbTlsMode, message};
use ciphertoll_wire::scram::Digest;
use ciphertoll_wire::session::{
    Connect, Error, Login, PreparedStatement, Response, ResponseKind, ServerInfo, Value,
};

use crate::answers::found;

fn login(tls: MongoDbTlsMode) -> Login {
    Login::MongoDb(Arc::new(mongodb::MongoDbLogin {
        tls,
        ..mongodb::MongoDbLogin::new("toll", Secret::new(Vec::new()))
    }))
}

fn server() -> ServerInfo {
    ServerInfo::MongoDb(mongodb::MongoDbServerInfo {
        version: "wire-21".to_owned(),
        max_wire_version: 21,
        max_bson_bytes: 1 << 24,
        max_message_bytes: 48_000_000,
        set_name: None,
        hosts: Vec::new(),
        role: mongodb::MemberRole::Standalone,
        read_preference: None,
        is_writable_primary: true,
        me: None,
        primary: None,
        auth: MongoDbAuthMethod::Scram { digest: Digest::Sha256, iterations: 15_000 },
        compressor: None,
        database: "bank".to_owned(),
    })
}

#[test]
fn logins_and_servers_report_their_properties() {
    assert!(login(MongoDbTlsMode::Tls).uses_tls() && !login(MongoDbTlsMode::Plain).uses_tls());
    assert_eq!(login(MongoDbTlsMode::Tls).alpn(), None);
    assert!(matches!(Connect::new(&login(MongoDbTlsMode::Plain)), Connect::MongoDb(_)));
    let server = server();
    assert_eq!((server.version(), server.auth_label().as_str()), ("wire-21", "scram-15000"));
    let mut out = Vec::new();
    server.encode_goodbye(&mut out);
    assert!(out.is_empty());
}

#[test]
fn a_query_is_json() {
    let server = server();
    let mut out = Vec::new();
    server.encode_query(&mut out, r#"{"find": "accounts"}"#).unwrap();
    let message = message::take(&mut out.as_slice(), 1 << 16).unwrap().unwrap();
    assert_eq!(message.request_id, mongodb::COMMAND_REQUEST_ID);
    assert_eq!(mongodb::document::to_json(message.body).unwrap(), r#"{"find":"accounts","$db":"bank"}"#);
    let Err(Error::MongoDb(error)) = server.encode_query(&mut Vec::new(), "SELECT 1") else { panic!() };
    assert!(matches!(error, mongodb::Error::Template(_)));
    let answer = found("firstBatch", 2, 0);
    let Ok(Response::Done(rows)) = server.rows_reader(1 << 16).step(&mut answer.as_slice()) else { panic!() };
    assert_eq!(rows, [r#"{"_id":0}"#, r#"{"_id":1}"#].map(|json| vec![Some(json.as_bytes().to_vec())]));
    let summary = server.response_reader(ResponseKind::Text).step(&mut answer.as_slice());
    let Ok(Response::Done(summary)) = summary else { panic!() };
    assert_eq!((summary.rows, summary.row_bytes), (2, 28));
    let goes_on = server.rows_reader(1 << 16).step(&mut found("firstBatch", 2, 9).as_slice());
    assert_eq!(goes_on, Err(Error::MongoDb(mongodb::Error::ResultContinues)));
}

#[test]
fn prepared_statements_are_not_supported() {
    let (server, mut out) = (server(), Vec::new());
    let no = || Error::MongoDb(mongodb::Error::NoPreparedStatements);
    assert_eq!(server.encode_prepare(&mut out, 1, "{}"), Err(no()));
    let prepared = PreparedStatement::Postgres { number: 1 };
    assert_eq!(server.encode_execute(&mut out, &prepared, &[Value::Null]), Err(no()));
    assert_eq!(server.prepare_reader(1).step(&mut &b"x"[..]), Err(no()));
    assert!(out.is_empty());
}

#[test]
fn refusals_are_identified_by_number_or_name() {
    let refusal: Error = mongodb::Error::Server {
        code: 112,
        code_name: "WriteConflict".to_owned(),
        message: "try again".to_owned(),
    }
    .into();
    assert!(refusal.is_refusal("112") && refusal.is_refusal("WriteConflict"));
    assert!(!refusal.is_refusal("11") && !refusal.is_refusal("") && !refusal.is_refusal("writeconflict"));
    assert!(!Error::from(mongodb::Error::ServerSignature).is_refusal("112"));
}
