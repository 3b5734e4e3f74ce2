//! The server's messages. Strings must have no NUL.

use crate::postgres::{
    codec::{
        authentication::Authentication,
        column::{Field, encode_row_description},
        copy_start::CopyStart,
        kind,
        message::write,
        reader::{put_nul_terminated, put_nullable_bytes, put_u16, put_u32},
        report::Report,
        transaction::TransactionStatus,
    },
    error::Error,
};

/// The reply to an `SSLRequest` or `GSSENCRequest`, one byte. A `GSSENCRequest` can only be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TlsAnswer {
    /// The TLS handshake may start.
    Yes,
    /// The client may continue in plaintext.
    No,
}

pub fn write_tls_answer(out: &mut Vec<u8>, answer: TlsAnswer) {
    out.push(match answer {
        TlsAnswer::Yes => b'S',
        TlsAnswer::No => b'N',
    });
}

/// Appends an authentication request, or the acceptance.
pub fn write_authentication(out: &mut Vec<u8>, request: &Authentication<'_>) -> Result<(), Error> {
    write_with(out, kind::AUTHENTICATION, |out| request.encode(out))
}

/// Appends a `NegotiateProtocolVersion`: the newest supported version, and the unknown options.
pub fn write_negotiate_protocol_version(
    out: &mut Vec<u8>,
    version: u32,
    unknown_options: &[&[u8]],
) -> Result<(), Error> {
    write_with(out, kind::NEGOTIATE_PROTOCOL_VERSION, |out| {
        put_u32(out, version);
        put_u32(out, unknown_options.len() as u32);
        for option in unknown_options {
            put_nul_terminated(out, option);
        }
    })
}

pub fn write_parameter_status(out: &mut Vec<u8>, name: &[u8], value: &[u8]) -> Result<(), Error> {
    write_with(out, kind::PARAMETER_STATUS, |out| {
        put_nul_terminated(out, name);
        put_nul_terminated(out, value);
    })
}

/// Appends a `BackendKeyData` with a key of four bytes, or of up to
/// [`CancelKey::MAX_BYTES`](crate::postgres::CancelKey::MAX_BYTES) in protocol 3.2.
pub fn write_backend_key_data(out: &mut Vec<u8>, process_id: u32, key: &[u8]) -> Result<(), Error> {
    write_with(out, kind::BACKEND_KEY_DATA, |out| {
        put_u32(out, process_id);
        out.extend_from_slice(key);
    })
}

pub fn write_ready_for_query(out: &mut Vec<u8>, status: TransactionStatus) {
    out.extend_from_slice(&[kind::READY_FOR_QUERY, 0, 0, 0, 5, status.byte()]);
}

/// Appends a `RowDescription` with at most 65,535 columns.
pub fn write_row_description(out: &mut Vec<u8>, fields: &[Field<'_>]) -> Result<(), Error> {
    write_with(out, kind::ROW_DESCRIPTION, |out| encode_row_description(out, fields))
}

/// Appends a `DataRow` with at most 65,535 cells; `None` is NULL.
pub fn write_data_row(out: &mut Vec<u8>, cells: &[Option<&[u8]>]) -> Result<(), Error> {
    write_with(out, kind::DATA_ROW, |out| {
        put_u16(out, cells.len() as u16);
        for cell in cells {
            put_nullable_bytes(out, *cell);
        }
    })
}

/// Appends a `CommandComplete` with its tag, such as `INSERT 0 1`.
pub fn write_command_complete(out: &mut Vec<u8>, tag: &[u8]) -> Result<(), Error> {
    write_with(out, kind::COMMAND_COMPLETE, |out| put_nul_terminated(out, tag))
}

pub fn write_error(out: &mut Vec<u8>, report: &Report<'_>) -> Result<(), Error> {
    write_with(out, kind::ERROR_RESPONSE, |out| report.encode(out))
}

pub fn write_notice(out: &mut Vec<u8>, report: &Report<'_>) -> Result<(), Error> {
    write_with(out, kind::NOTICE_RESPONSE, |out| report.encode(out))
}

/// Appends a `CopyInResponse`: the server waits for data.
pub fn write_copy_in_response(out: &mut Vec<u8>, copy: &CopyStart) -> Result<(), Error> {
    write_with(out, kind::COPY_IN_RESPONSE, |out| copy.encode(out))
}

/// Appends a message with this payload.
pub fn write_message(out: &mut Vec<u8>, kind: u8, payload: &[u8]) -> Result<(), Error> {
    write_with(out, kind, |out| out.extend_from_slice(payload))
}

fn write_with(out: &mut Vec<u8>, kind: u8, payload: impl FnOnce(&mut Vec<u8>)) -> Result<(), Error> {
    write(out, kind, |out| {
        payload(out);
        Ok(())
    })
}
