//! The proxy's own messages about statements, each with its note in the model.

use std::sync::Arc;

use crate::postgres::{
    codec::{
        column::ValueFormat,
        command::{
            encode_bind, encode_close_portal, encode_close_statement, encode_execute, put_of_statement,
            put_parse,
        },
        kind,
    },
    error::Error,
    relay::{
        backend_model::SentKind,
        session_follower::{
            FollowedModel,
            notes::{DescribeNote, DescribePurpose, Note},
            statements::ClientStatement,
        },
    },
};

/// A `Describe` of the proxy was appended.
pub(super) fn describe(
    name: Vec<u8>,
    statement: Arc<ClientStatement>,
    purpose: DescribePurpose,
    model: &mut FollowedModel,
) {
    let note = DescribeNote { name, statement, parameter_types: None, purpose };
    model.send(SentKind::Describe, Some(Box::new(Note::Describe(note))));
}

/// Appends a `Close` of the proxy for a statement.
pub(super) fn close(name: &[u8], out: &mut Vec<u8>, model: &mut FollowedModel) -> Result<(), Error> {
    put_of_statement(out, kind::CLOSE, name)?;
    model.send(SentKind::Close, Some(Box::new(Note::InsertedClose { name: name.to_vec() })));
    Ok(())
}

/// Appends a command that sets a setting. The portal and the statement without a name stay.
pub(super) fn put_set(sql: &str, out: &mut Vec<u8>, model: &mut FollowedModel) -> Result<(), Error> {
    let mut send = |kind| model.send(kind, Some(Box::new(Note::Inserted)));
    put_parse(out, UNUSED_NAME.as_bytes(), sql)?;
    send(SentKind::Parse);
    encode_bind(out, UNUSED_NAME, UNUSED_NAME, &[], ValueFormat::Text)?;
    send(SentKind::Bind);
    encode_execute(out, UNUSED_NAME, 0)?;
    send(SentKind::Execute);
    encode_close_portal(out, UNUSED_NAME)?;
    send(SentKind::Close);
    encode_close_statement(out, UNUSED_NAME)?;
    send(SentKind::Close);
    Ok(())
}

/// A message that the server refuses. The statement without a name stays.
pub(super) fn put_refusal(out: &mut Vec<u8>) -> Result<(), Error> {
    put_parse(out, UNUSED_NAME.as_bytes(), REFUSED_TEXT)
}

/// A name that no client uses.
pub(super) const UNUSED_NAME: &str = "ciphertoll: none";

/// A text that the server refuses, and logs.
const REFUSED_TEXT: &str = "cached plan must not change result type";
