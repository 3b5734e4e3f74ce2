//! Encoding and parsing a message are inverse.

use ciphertoll_wire::postgres::column::{
    Field, encode_parameter_description, encode_row_description, parse_parameter_description,
    parse_row_description,
};
use ciphertoll_wire::postgres::md5::StoredPassword;
use ciphertoll_wire::postgres::report::Report;
use ciphertoll_wire::postgres::server::{
    Authentication, Bind, DescribeTarget, FrontendMessage, Startup, read_frontend, read_startup,
};
use ciphertoll_wire::postgres::startup::{encode_cancel_request, encode_startup, encode_tls_request};
use ciphertoll_wire::postgres::{
    CancelKey, CopyStart, Error, Param, Severity, TransactionStatus, ValueFormat, command,
};
use proptest::prelude::*;

const LIMIT_BYTES: usize = 1 << 20;

/// Text without NUL.
fn text() -> impl Strategy<Value = String> {
    "[^\0]{0,20}"
}

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out
}

/// Reads messages until there are no more.
fn read_all(mut bytes: &[u8]) -> Vec<FrontendMessage<'_>> {
    let messages = std::iter::from_fn(|| read_frontend(&mut bytes, LIMIT_BYTES).unwrap()).collect();
    assert!(bytes.is_empty());
    messages
}

fn format() -> impl Strategy<Value = ValueFormat> {
    prop_oneof![Just(ValueFormat::Text), Just(ValueFormat::Binary)]
}

proptest! {
    #[test]
    fn startup(parameters in prop::collection::vec(("[^\0]{1,9}", text()), 0..5)) {
        let parameters: Vec<_> = parameters.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let bytes = encoded(|out| encode_startup(out, &parameters).unwrap());
        let mut input = bytes.as_slice();
        let Ok(Some(Startup::Login(login))) = read_startup(&mut input) else { panic!("it is a login") };
        prop_assert!(input.is_empty());
        prop_assert_eq!(login.version, 3 << 16);
        let read: Vec<_> = login.parameters().collect();
        let written: Vec<_> =
            parameters.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
        prop_assert_eq!(read, written);
        for cut in 0..bytes.len() {
            prop_assert_eq!(read_startup(&mut &bytes[..cut]), Ok(None));
        }
    }

    #[test]
    fn cancel(process_id: u32, key in prop::collection::vec(any::<u8>(), 0..=256)) {
        let cancel_key = CancelKey::new(key.clone()).unwrap();
        let bytes = encoded(|out| encode_cancel_request(out, process_id, &cancel_key));
        let expected = Startup::Cancel { process_id, key: &key };
        prop_assert_eq!(read_startup(&mut bytes.as_slice()), Ok(Some(expected)));
    }

    #[test]
    fn text_commands(sql in text(), name in text(), types in prop::collection::vec(any::<u32>(), 0..5)) {
        let bytes = encoded(|out| {
            command::encode_query(out, &sql).unwrap();
            command::encode_parse(out, &name, &sql, &types).unwrap();
            command::encode_copy_fail(out, &sql).unwrap();
        });
        let (sql, name) = (sql.as_bytes(), name.as_bytes());
        let expected = vec![
            FrontendMessage::Query(sql),
            FrontendMessage::Parse { name, sql, param_types: types },
            FrontendMessage::CopyFail { reason: sql },
        ];
        prop_assert_eq!(read_all(&bytes), expected);
    }

    #[test]
    fn named_commands(name in text(), max_rows: u32, data: Vec<u8>) {
        let bytes = encoded(|out| {
            command::encode_describe_statement(out, &name).unwrap();
            command::encode_describe_portal(out, &name).unwrap();
            command::encode_execute(out, &name, max_rows).unwrap();
            command::encode_close_statement(out, &name).unwrap();
            command::encode_sync(out);
            command::encode_flush(out);
            command::encode_copy_data(out, &data).unwrap();
            command::encode_copy_done(out);
            command::encode_terminate(out);
        });
        let name = name.as_bytes();
        let expected = vec![
            FrontendMessage::Describe(DescribeTarget::Statement, name),
            FrontendMessage::Describe(DescribeTarget::Portal, name),
            FrontendMessage::Execute { portal: name, max_rows },
            FrontendMessage::Close(DescribeTarget::Statement, name),
            FrontendMessage::Sync,
            FrontendMessage::Flush,
            FrontendMessage::CopyData(&data),
            FrontendMessage::CopyDone,
            FrontendMessage::Terminate,
        ];
        prop_assert_eq!(read_all(&bytes), expected);
    }

    #[test]
    fn bind(
        portal in text(), statement in text(), result_format in format(),
        values in prop::collection::vec(prop::option::of((any::<Vec<u8>>(), format())), 0..6),
        numbers in prop::collection::vec(any::<i64>(), 0..3),
    ) {
        let mut params: Vec<Param<'_>> = values.iter().map(|value| match value {
            None => Param::Null,
            Some((bytes, ValueFormat::Text)) => Param::Text(bytes),
            Some((bytes, ValueFormat::Binary)) => Param::Binary(bytes),
        }).collect();
        let mut written = params.clone();
        written.extend(numbers.iter().map(|number| Param::I64(*number)));
        let texts: Vec<String> = numbers.iter().map(i64::to_string).collect();
        params.extend(texts.iter().map(|text| Param::Text(text.as_bytes())));
        let bytes = encoded(|out| {
            command::encode_bind(out, &portal, &statement, &written, result_format).unwrap();
        });
        let result_formats = if result_format == ValueFormat::Text { vec![] } else { vec![result_format] };
        let (portal, statement) = (portal.as_bytes(), statement.as_bytes());
        let expected = FrontendMessage::Bind(Bind { portal, statement, params, result_formats });
        prop_assert_eq!(read_all(&bytes), vec![expected]);
    }

    #[test]
    fn what_a_nul_would_end_is_refused(before in text(), after in text()) {
        let text = format!("{before}\0{after}");
        let mut out = Vec::new();
        for result in [
            command::encode_query(&mut out, &text),
            command::encode_parse(&mut out, &text, "", &[]),
            command::encode_parse(&mut out, "", &text, &[]),
            command::encode_bind(&mut out, &text, "", &[], ValueFormat::Text),
            command::encode_bind(&mut out, "", &text, &[], ValueFormat::Text),
            command::encode_execute(&mut out, &text, 0),
            command::encode_describe_portal(&mut out, &text),
            command::encode_close_statement(&mut out, &text),
            command::encode_copy_fail(&mut out, &text),
        ] {
            let refused = matches!(result, Err(Error::InvalidText { .. }));
            prop_assert!(refused);
        }
        prop_assert!(out.is_empty());
    }

    #[test]
    fn authentication(salt: [u8; 4], data: Vec<u8>, names in prop::collection::vec("[^\0]{1,20}", 0..4), code in 13..u32::MAX) {
        let mechanisms = names.iter().map(String::as_bytes).collect();
        for request in [
            Authentication::Ok,
            Authentication::Cleartext,
            Authentication::Md5 { salt },
            Authentication::Sasl { mechanisms },
            Authentication::SaslContinue(&data),
            Authentication::SaslFinal(&data),
            Authentication::Other(code),
        ] {
            let payload = encoded(|out| request.encode(out));
            prop_assert_eq!(Authentication::parse(&payload), Ok(request));
        }
    }

    #[test]
    fn descriptions(
        names in prop::collection::vec(text(), 0..4), types in prop::collection::vec(any::<u32>(), 0..4),
        table_oid: u32, attribute: u16, type_oid: u32, type_bytes: i16, type_modifier: i32, format in format(),
    ) {
        let fields: Vec<Field<'_>> = names.iter().map(|name| Field {
            name: name.as_bytes(), table_oid, attribute, type_oid, type_bytes, type_modifier, format,
        }).collect();
        let payload = encoded(|out| encode_row_description(out, &fields));
        prop_assert_eq!(parse_row_description(&payload), Ok(fields));
        let payload = encoded(|out| encode_parameter_description(out, &types));
        prop_assert_eq!(parse_parameter_description(&payload), Ok(types));
        let copy = CopyStart { format, columns: attribute };
        prop_assert_eq!(CopyStart::parse(&encoded(|out| copy.encode(out))), Ok(copy));
    }

    #[test]
    fn report(severity in prop::sample::select(&Severity::ALL[..]), sqlstate in "[0-9A-Z]{5}", message in text()) {
        let sqlstate = sqlstate.as_bytes().try_into().unwrap();
        let report = Report { severity, sqlstate, message: message.as_bytes() };
        let payload = encoded(|out| report.encode(out));
        prop_assert_eq!(Report::parse(&payload), Ok(report));
    }

    #[test]
    fn md5(password: Vec<u8>, user: Vec<u8>, salt: [u8; 4], guess: Vec<u8>) {
        let stored = StoredPassword::of(&password, &user).unwrap();
        let response = stored.response(salt).unwrap();
        prop_assert_eq!(stored.accepts(salt, &response), Ok(true));
        prop_assert_eq!(stored.accepts(salt, &guess), Ok(false));
    }
}

#[test]
fn other_first_messages() {
    let bytes = encoded(encode_tls_request);
    assert_eq!(read_startup(&mut bytes.as_slice()), Ok(Some(Startup::TlsRequest)));
    let gssenc = [0, 0, 0, 8, 4, 210, 22, 48];
    assert_eq!(read_startup(&mut &gssenc[..]), Ok(Some(Startup::GssEncRequest)));
    let mut client_hello = &b"\x16\x03\x01\x02\x00"[..];
    assert_eq!(read_startup(&mut client_hello), Ok(Some(Startup::DirectTls)));
    assert_eq!(client_hello.len(), 5, "it is left to TLS");
}

#[test]
fn impossible_first_messages() {
    for bytes in [
        &b"\0\0\0\x08\0\x02\0\0"[..],      // protocol 2
        b"\0\0\0\x08\0\x03\0\0",           // no end
        b"\0\0\0\x0a\0\x03\0\0a\0",        // a name alone
        b"\0\0\0\x0d\0\x03\0\0a\0b\0x",    // no end after a pair
        b"\0\0\0\x0a\0\x03\0\0\0x",        // bytes after the end
        b"\0\0\0\x09\x04\xd2\x16\x2fx",    // an SSLRequest and more
        b"\0\0\0\x0a\x04\xd2\x16\x2e\0\0", // half a process id
    ] {
        let error = read_startup(&mut &*bytes);
        assert!(matches!(error, Err(Error::Protocol { .. })), "{bytes:?}: {error:?}");
    }
    for length in [0, 3, 7, 10_005, u32::from_be_bytes(*b"GET "), u32::from_be_bytes(*b"X\0\0\0")] {
        let error = Error::StartupLength { length: length as usize };
        assert_eq!(read_startup(&mut &length.to_be_bytes()[..]), Err(error));
    }
    let mut long_key = encoded(|out| encode_cancel_request(out, 1, &CancelKey::none()));
    long_key.extend_from_slice(&[0; 257]);
    long_key[..4].copy_from_slice(&(12_u32 + 257).to_be_bytes());
    assert!(matches!(read_startup(&mut long_key.as_slice()), Err(Error::StartupLength { .. })));
    assert!(CancelKey::new(vec![0; 257]).is_none());
}

#[test]
fn impossible_commands() {
    for (kind, payload) in [
        (b'Q', &b"no end"[..]),
        (b'Q', b"a\0b"),
        (b'P', b"\0\0\0\x01"),
        (b'B', b"\0\0\0\x02\0\0\0\0\0\x03"),
        (b'B', b"\0\0\0\x01\0\x02\0\0\0\0"),
        (b'B', b"\0\0\0\0\0\x01\x80\0\0\0\0\0"),
        (b'D', b"X\0"),
        (b'E', b"\0\0"),
        (b'S', b"x"),
        (b'F', b"a function call"),
        (b'?', b""),
    ] {
        let mut bytes = vec![kind];
        bytes.extend_from_slice(&(payload.len() as u32 + 4).to_be_bytes());
        bytes.extend_from_slice(payload);
        let error = read_frontend(&mut bytes.as_slice(), LIMIT_BYTES);
        assert!(matches!(error, Err(Error::Protocol { .. })), "{payload:?}: {error:?}");
    }
    let error = read_frontend(&mut &b"Q\0\x10\0\x05"[..], LIMIT_BYTES);
    assert_eq!(error, Err(Error::MessageTooLarge { length: LIMIT_BYTES + 1, limit: LIMIT_BYTES }));
}

#[test]
fn one_format_applies_to_all_parameters() {
    let bytes = b"B\0\0\0\x17\0\0\0\x01\0\x01\0\x02\0\0\0\x01a\xff\xff\xff\xff\0\0";
    let FrontendMessage::Bind(bind) = &read_all(bytes)[0] else { panic!("it is a Bind") };
    assert_eq!(bind.params, [Param::Binary(b"a"), Param::Null]);
}

#[test]
fn authentication_replies() {
    let auth = |payload: &[u8]| {
        let mut bytes = vec![b'p'];
        bytes.extend_from_slice(&(payload.len() as u32 + 4).to_be_bytes());
        bytes.extend_from_slice(payload);
        bytes
    };
    let with = |bytes: &[u8], check: fn(ciphertoll_wire::postgres::server::AuthResponse<'_>) -> bool| {
        let FrontendMessage::Auth(response) = read_all(bytes)[0] else { panic!("it is an answer") };
        assert_eq!(format!("{response:?}"), "AuthResponse(..)");
        assert!(check(response));
    };
    with(&auth(b"secret\0"), |response| response.password() == Ok(b"secret"));
    with(&auth(b"secret"), |response| response.password().is_err());
    with(&auth(b"a\0b\0"), |response| response.password().is_err());
    with(&auth(b"X\0\xff\xff\xff\xff"), |response| response.sasl_initial() == Ok((b"X", None)));
    with(&auth(b"X\0\0\0\0\x01a"), |response| response.sasl_initial() == Ok((b"X", Some(b"a"))));
    with(&auth(b"X\0\0\0\0\x02a"), |response| response.sasl_initial().is_err());
    with(&auth(b"data"), |response| response.sasl() == b"data");
}

#[test]
fn transaction_status() {
    for status in [TransactionStatus::Idle, TransactionStatus::InTransaction, TransactionStatus::Failed] {
        assert_eq!(TransactionStatus::parse(&[status.byte()]), Ok(status));
    }
}
