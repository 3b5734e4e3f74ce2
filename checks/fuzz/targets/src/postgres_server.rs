//! The parsers of client messages. An accepted message can be encoded and parsed again.
//!
//! Input: one byte that says whether a startup message comes first, then the messages.

use ciphertoll_wire::postgres::server::{
    Bind, DescribeTarget, FrontendMessage, Startup, StoredPassword, read_frontend, read_startup,
};
use ciphertoll_wire::postgres::startup::{encode_cancel_request, encode_startup, encode_tls_request};
use ciphertoll_wire::postgres::{CancelKey, Param, ValueFormat, command};

const LIMIT_BYTES: usize = 1 << 16;

pub fn run(data: &[u8]) {
    let Some((first, mut input)) = data.split_first() else { return };
    if first & 1 == 0 {
        let before = input.len();
        match read_startup(&mut input) {
            Ok(Some(startup)) => again_at_first(&startup),
            Ok(None) => assert_eq!(input.len(), before),
            Err(_) => return,
        }
    }
    loop {
        let before = input.len();
        match read_frontend(&mut input, LIMIT_BYTES) {
            Ok(Some(message)) => again(&message),
            Ok(None) => {
                assert_eq!(input.len(), before);
                return;
            }
            Err(_) => return,
        }
    }
}

fn again_at_first(startup: &Startup<'_>) {
    let mut out = Vec::new();
    match startup {
        Startup::TlsRequest => encode_tls_request(&mut out),
        Startup::Cancel { process_id, key } => {
            let key = CancelKey::new(key.to_vec()).expect("keys are bounded");
            encode_cancel_request(&mut out, *process_id, &key);
        }
        Startup::Login(login) => {
            let texts: Option<Vec<_>> = login.parameters().map(texts).collect();
            let Some(texts) = texts.filter(|_| login.version == 3 << 16) else { return };
            encode_startup(&mut out, &texts).expect("there is no NUL");
            for (name, _) in &texts {
                assert!(login.parameter(name).is_some());
            }
        }
        Startup::GssEncRequest | Startup::DirectTls => return,
    }
    assert_eq!(read_startup(&mut out.as_slice()).as_ref(), Ok(&Some(*startup)));
}

fn texts<'a>((name, value): (&'a [u8], &'a [u8])) -> Option<(&'a str, &'a str)> {
    Some((text(name)?, text(value)?))
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

fn again(message: &FrontendMessage<'_>) {
    let mut out = Vec::new();
    // Invalid UTF-8 cannot be encoded here.
    if encode(&mut out, message).is_some() {
        assert_eq!(read_frontend(&mut out.as_slice(), 2 * LIMIT_BYTES).as_ref(), Ok(&Some(message.clone())));
    }
}

fn encode(out: &mut Vec<u8>, message: &FrontendMessage<'_>) -> Option<()> {
    let written = match message {
        FrontendMessage::Auth(response) => {
            let stored = StoredPassword::of(b"correct horse", b"toll").expect("OpenSSL has MD5");
            if let Ok(password) = response.password() {
                assert_eq!(stored.accepts(*b"salt", password), Ok(false));
            }
            let _ = response.sasl_initial();
            return None;
        }
        FrontendMessage::Query(sql) => command::encode_query(out, text(sql)?),
        FrontendMessage::Parse { name, sql, param_types } => {
            command::encode_parse(out, text(name)?, text(sql)?, param_types)
        }
        FrontendMessage::Bind(bind) => return encode_bind(out, bind),
        FrontendMessage::Describe(DescribeTarget::Statement, name) => {
            command::encode_describe_statement(out, text(name)?)
        }
        FrontendMessage::Describe(DescribeTarget::Portal, name) => {
            command::encode_describe_portal(out, text(name)?)
        }
        FrontendMessage::Execute { portal, max_rows } => {
            command::encode_execute(out, text(portal)?, *max_rows)
        }
        FrontendMessage::Close(DescribeTarget::Statement, name) => {
            command::encode_close_statement(out, text(name)?)
        }
        FrontendMessage::CopyData(data) => command::encode_copy_data(out, data),
        FrontendMessage::CopyFail { reason } => command::encode_copy_fail(out, text(reason)?),
        FrontendMessage::Close(DescribeTarget::Portal, _) => return None,
        FrontendMessage::Sync => {
            command::encode_sync(out);
            Ok(())
        }
        FrontendMessage::Flush => {
            command::encode_flush(out);
            Ok(())
        }
        FrontendMessage::CopyDone => {
            command::encode_copy_done(out);
            Ok(())
        }
        FrontendMessage::Terminate => {
            command::encode_terminate(out);
            Ok(())
        }
    };
    written.expect("it was read and has no NUL");
    Some(())
}

fn encode_bind(out: &mut Vec<u8>, bind: &Bind<'_>) -> Option<()> {
    assert!(!bind.params.iter().any(|param| matches!(param, Param::I64(_))));
    let result_format = match bind.result_formats.as_slice() {
        [] => ValueFormat::Text,
        [ValueFormat::Binary] => ValueFormat::Binary,
        _ => return None,
    };
    let (portal, statement) = (text(bind.portal)?, text(bind.statement)?);
    command::encode_bind(out, portal, statement, &bind.params, result_format).expect("it has no NUL");
    Some(())
}
