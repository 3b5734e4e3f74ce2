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
        internal_command::UNUSED_NAME,
        session_follower::{
            FollowedModel,
            notes::{DescribeNote, DescribePurpose, Note},
            statements::ClientStatement,
        },
    },
};

/// Appends a `Describe` of the proxy.
pub(super) fn put_describe(
    statement: Arc<ClientStatement>,
    purpose: DescribePurpose,
    out: &mut Vec<u8>,
    model: &mut FollowedModel,
) -> Result<(), Error> {
    put_of_statement(out, kind::DESCRIBE, statement.name())?;
    let name = statement.name().to_vec();
    let note = DescribeNote { name, statement, parameter_types: None, purpose };
    model.send(SentKind::Describe, Some(Box::new(Note::Describe(note))));
    Ok(())
}

/// Appends a `Close` of the proxy for a statement.
pub(super) fn close(name: &[u8], out: &mut Vec<u8>, model: &mut FollowedModel) -> Result<(), Error> {
    put_of_statement(out, kind::CLOSE, name)?;
    model.send(SentKind::Close, Some(Box::new(Note::InsertedClose { name: name.to_vec() })));
    Ok(())
}

/// Appends a command that sets a setting and returns no row. The portal and the statement without a name stay.
pub(super) fn put_set(sql: &str, out: &mut Vec<u8>, model: &mut FollowedModel) -> Result<(), Error> {
    let mut send = |kind| model.send(kind, Some(Box::new(Note::Inserted)));
    // One that has failed has left its statement.
    encode_close_statement(out, UNUSED_NAME)?;
    send(SentKind::Close);
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

/// A text that the server refuses, and logs.
const REFUSED_TEXT: &str = "cached plan must not change result type";
