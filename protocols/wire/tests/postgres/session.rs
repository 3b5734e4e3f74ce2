//! The interface that the protocols share.

use std::sync::Arc;

use ciphertoll_wire::mysql::greeting::Greeting;
use ciphertoll_wire::mysql::greeting_template::GreetingTemplate;
use ciphertoll_wire::postgres::server::{self, FrontendMessage};
use ciphertoll_wire::postgres::{self, ChannelBinding, Param, ValueFormat};
use ciphertoll_wire::session::{
    Connect, Error, Fault, Login, PrepareReader, PreparedStatement, Response, ResponseKind, ResponseReader,
    ResponseSummary, ServerInfo, Value,
};
use ciphertoll_wire::{Secret, Step, mysql};

use crate::{answers::Answer, fake_server::welcome};

fn postgres_login(encryption: postgres::PostgresTlsMode, channel_binding: ChannelBinding) -> Login {
    Login::Postgres(Arc::new(postgres::PostgresLogin {
        startup: Vec::new(),
        user: "toll".to_owned(),
        password: Secret::new(Vec::new()),
        database: None,
        encryption,
        channel_binding,
    }))
}

fn mysql_login(encryption: mysql::MySqlTlsMode) -> Login {
    let login = mysql::MySqlLogin::new("toll", Secret::new(Vec::new()));
    Login::MySql(Arc::new(mysql::MySqlLogin { encryption, ..login }))
}

fn postgres() -> ServerInfo {
    let mut connect =
        Connect::new(&postgres_login(postgres::PostgresTlsMode::Plain, ChannelBinding::Disabled));
    connect.bind_channel(b"not needed");
    let mut bytes = Vec::new();
    welcome(&mut bytes);
    let mut input = bytes.as_slice();
    while connect.step(&mut input, &mut Vec::new()).unwrap() != Step::Done {}
    connect.server().expect("it is known at the end")
}

fn mysql() -> ServerInfo {
    ServerInfo::MySql(mysql::MySqlServerInfo {
        version: "8.4.0".to_owned(),
        connection_id: 1,
        capabilities: mysql::Capabilities::DEPRECATE_EOF,
        offered: mysql::Capabilities::DEPRECATE_EOF,
        auth: mysql::MySqlAuthMethod::NativePassword,
        greeting: GreetingTemplate::of(&Greeting {
            version: b"8.4.0",
            connection_id: 1,
            nonce: [b'x'; 20],
            capabilities: mysql::Capabilities::DEPRECATE_EOF,
            character_set: 255,
            status: 2,
            plugin: b"caching_sha2_password",
        }),
    })
}

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out
}

#[test]
fn logins_report_their_requirements() {
    use postgres::PostgresTlsMode::{DirectTls, Plain, Tls};
    for (encryption, tls, alpn) in
        [(Plain, false, None), (Tls, true, None), (DirectTls, true, Some(&b"postgresql"[..]))]
    {
        let login = postgres_login(encryption, ChannelBinding::Disabled);
        assert_eq!(
            (login.uses_tls(), login.alpn(), login.channel_binding()),
            (tls, alpn, ChannelBinding::Disabled)
        );
    }
    for binding in [ChannelBinding::Preferred, ChannelBinding::Required] {
        assert_eq!(postgres_login(Tls, binding).channel_binding(), binding);
    }
    let login = mysql_login(mysql::MySqlTlsMode::Tls);
    assert_eq!(
        (login.uses_tls(), login.alpn(), login.channel_binding()),
        (true, None, ChannelBinding::Disabled)
    );
    assert!(!mysql_login(mysql::MySqlTlsMode::Plain).uses_tls());
}

#[test]
fn servers_report_version_and_method() {
    let server = postgres();
    assert_eq!((server.version(), server.auth_label().as_str()), ("17.2", "trust"));
    let server = mysql();
    assert_eq!((server.version(), server.auth_label().as_str()), ("8.4.0", "native"));
    let scram = |channel_binding| postgres::PostgresAuthMethod::Scram { iterations: 4096, channel_binding };
    let labels = [
        scram(postgres::Bound::Nothing),
        scram(postgres::Bound::ServerEndPoint),
        postgres::PostgresAuthMethod::Md5,
        postgres::PostgresAuthMethod::Cleartext,
    ];
    assert_eq!(
        labels.map(postgres::PostgresAuthMethod::label),
        ["scram-4096", "scram-4096+plus", "md5", "cleartext"]
    );
}

#[test]
fn errors_keep_message_and_fault() {
    let mut mysql = Connect::new(&mysql_login(mysql::MySqlTlsMode::Plain));
    let mut postgres =
        Connect::new(&postgres_login(postgres::PostgresTlsMode::Tls, ChannelBinding::Disabled));
    assert_eq!(postgres.step(&mut &b""[..], &mut Vec::new()), Ok(Step::NeedInput), "the client speaks first");
    let error = postgres.step(&mut &b"N"[..], &mut Vec::new()).unwrap_err();
    assert_eq!(error, Error::Postgres(postgres::Error::TlsNotOffered));
    assert_eq!((error.to_string().as_str(), error.fault()), ("the server does not offer TLS", Fault::Server));
    let error = mysql.step(&mut &[255, 255, 255, 0][..], &mut Vec::new()).unwrap_err();
    assert!(matches!(error, Error::MySql(mysql::Error::PacketTooLarge { .. })), "{error}");
    assert!(mysql.server().is_none() && postgres.server().is_none());
}

#[test]
fn commands_are_encoded_per_protocol() {
    let values = [Value::I64(-7), Value::Null, Value::Text(b"x")];
    let bytes = encoded(|out| {
        let server = mysql();
        server.encode_query(out, "SELECT 1").unwrap();
        server.encode_prepare(out, 3, "SELECT ?").unwrap();
        server.encode_execute(out, &PreparedStatement::MySql { statement_id: 9 }, &values).unwrap();
        server
            .encode_execute(out, &PreparedStatement::MySql { statement_id: 9 }, &[Value::Null; 40])
            .unwrap();
        server.encode_goodbye(out);
    });
    let expected = encoded(|out| {
        mysql::command::encode_query(out, "SELECT 1").unwrap();
        mysql::command::encode_prepare(out, "SELECT ?").unwrap();
        let params = [mysql::Param::I64(-7), mysql::Param::Null, mysql::Param::Bytes(b"x")];
        mysql::command::encode_execute(out, 9, &params).unwrap();
        mysql::command::encode_execute(out, 9, &[mysql::Param::Null; 40]).unwrap();
        mysql::command::encode_quit(out);
    });
    assert_eq!(bytes, expected);

    let bytes = encoded(|out| {
        let server = postgres();
        server.encode_query(out, "SELECT 1").unwrap();
        server.encode_prepare(out, 3, "SELECT $1").unwrap();
        server.encode_execute(out, &PreparedStatement::Postgres { number: 3 }, &values).unwrap();
        server.encode_goodbye(out);
    });
    let mut input = bytes.as_slice();
    let read: Vec<_> = std::iter::from_fn(|| server::read_frontend(&mut input, 1000).unwrap()).collect();
    let bind = server::Bind {
        portal: b"",
        statement: b"s3",
        params: vec![Param::Text(b"-7"), Param::Null, Param::Text(b"x")],
        result_formats: Vec::<ValueFormat>::new(),
    };
    let expected = [
        FrontendMessage::Query(b"SELECT 1"),
        FrontendMessage::Parse { name: b"s3", sql: b"SELECT $1", param_types: vec![] },
        FrontendMessage::Sync,
        FrontendMessage::Bind(bind),
        FrontendMessage::Execute { portal: b"", max_rows: 0 },
        FrontendMessage::Sync,
        FrontendMessage::Terminate,
    ];
    assert_eq!(read, expected);
    let error = postgres().encode_query(&mut Vec::new(), "\0").unwrap_err();
    assert_eq!(error.fault(), Fault::Caller);
}

#[test]
fn responses_of_postgresql() {
    let server = postgres();
    let mut reader = server.response_reader(ResponseKind::Binary);
    assert!(matches!(reader, ResponseReader::Postgres(_)));
    let bytes = Answer::default().rows(&[vec![None]]).complete("DELETE 2").ready().bytes;
    for _ in 0..2 {
        let summary = ResponseSummary { rows: 1, affected_rows: 2, row_bytes: 6 };
        assert_eq!(reader.step(&mut bytes.as_slice()), Ok(Response::Done(summary)));
        reader.reset();
    }
    assert_eq!(reader.step(&mut &bytes[..9]), Ok(Response::NeedInput));
    let mut reader = server.rows_reader(1000);
    for _ in 0..2 {
        assert_eq!(reader.step(&mut bytes.as_slice()), Ok(Response::Done(vec![vec![None]])));
        reader.reset();
    }
    let parsed = Answer::default().message(b'1', b"").ready().bytes;
    let response = server.prepare_reader(5).step(&mut parsed.as_slice());
    assert_eq!(response, Ok(Response::Done(PreparedStatement::Postgres { number: 5 })));
}

#[test]
fn responses_of_mysql() {
    let server = mysql();
    let ok = b"\x07\0\0\x01\0\x02\0\x02\0\0\0";
    let mut reader = server.response_reader(ResponseKind::Text);
    let summary = ResponseSummary { rows: 0, affected_rows: 2, row_bytes: 0 };
    for _ in 0..2 {
        assert_eq!(reader.step(&mut &ok[..]), Ok(Response::Done(summary)));
        reader.reset();
    }
    let mut reader = server.rows_reader(1000);
    for _ in 0..2 {
        assert_eq!(reader.step(&mut &ok[..]), Ok(Response::Done(Vec::new())));
        reader.reset();
    }
    let prepared = b"\x0c\0\0\x01\0\x09\0\0\0\0\0\0\0\0\0\0";
    let mut reader = server.prepare_reader(5);
    assert!(matches!(reader, PrepareReader::MySql(_)));
    let response = reader.step(&mut &prepared[..]);
    assert_eq!(response, Ok(Response::Done(PreparedStatement::MySql { statement_id: 9 })));
}
