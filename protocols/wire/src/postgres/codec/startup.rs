//! The messages that a connection may start with. They have no type byte ("Start-up").

use crate::postgres::{
    codec::{
        cancel_key::CancelKey,
        message::{LENGTH_BYTES, write_with_length},
        reader::{Reader, put_nul_terminated, put_u32},
    },
    error::Error,
};

pub const PROTOCOL_3_0: u32 = 3 << 16;
/// The longest payload of the first message: the limit of servers.
pub const MAX_STARTUP_BYTES: usize = 10_000;

const VERSION_BYTES: usize = size_of::<u32>();
/// Request codes, which take the place of the protocol version under a reserved major version.
const CANCEL_REQUEST: u32 = request(5678);
const SSL_REQUEST: u32 = request(5679);
const GSSENC_REQUEST: u32 = request(5680);
/// The content type of a TLS handshake record.
const TLS_HANDSHAKE: u8 = 22;

const fn request(number: u32) -> u32 {
    (1234 << 16) + number
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Startup<'a> {
    /// The client requests TLS.
    TlsRequest,
    /// The client requests GSSAPI encryption.
    GssEncRequest,
    /// The client starts TLS at once; none of its bytes have been consumed.
    DirectTls,
    /// The client requests to cancel a command of another connection.
    Cancel {
        /// The server process of that connection.
        process_id: u32,
        /// Authorizes the request; see [`CancelKey`].
        key: &'a [u8],
    },
    Login(StartupMessage<'a>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartupMessage<'a> {
    /// The major version in the upper half, the minor one in the lower half.
    pub version: u32,
    /// All of its bytes.
    pub bytes: &'a [u8],
    /// Names and values, each followed by a NUL. Checked to be complete pairs.
    parameters: &'a [u8],
}

impl<'a> StartupMessage<'a> {
    pub fn parameters(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let mut texts = self.parameters.split(|&byte| byte == 0);
        std::iter::from_fn(move || Some((texts.next()?, texts.next()?)))
    }

    pub fn parameter(&self, name: &str) -> Option<&'a [u8]> {
        self.parameters().find(|(candidate, _)| *candidate == name.as_bytes()).map(|(_, value)| value)
    }

    fn parse(version: u32, bytes: &'a [u8], mut reader: Reader<'a>) -> Result<Self, Error> {
        if version >> 16 != PROTOCOL_3_0 >> 16 {
            return Err(reader.error("another major version"));
        }
        let parameters = reader.clone().rest();
        while !reader.nul_terminated()?.is_empty() {
            reader.nul_terminated()?;
        }
        reader.end()?;
        Ok(Self { version, bytes, parameters: &parameters[..parameters.len() - 1] })
    }
}

/// Takes a client's first message, or its next one after a reply; `None` if it is incomplete.
pub fn read_startup<'a>(input: &mut &'a [u8]) -> Result<Option<Startup<'a>>, Error> {
    if input.first() == Some(&TLS_HANDSHAKE) {
        return Ok(Some(Startup::DirectTls));
    }
    let Some((length, rest)) = input.split_first_chunk::<LENGTH_BYTES>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes(*length) as usize;
    let is_possible = |payload: &usize| (VERSION_BYTES..=MAX_STARTUP_BYTES).contains(payload);
    let payload_bytes = length.checked_sub(LENGTH_BYTES).filter(is_possible);
    let payload_bytes = payload_bytes.ok_or(Error::StartupLength { length })?;
    let Some((payload, rest)) = rest.split_at_checked(payload_bytes) else {
        return Ok(None);
    };
    let mut reader = Reader::new(payload, "startup message");
    let startup = match reader.u32()? {
        SSL_REQUEST => Startup::TlsRequest,
        GSSENC_REQUEST => Startup::GssEncRequest,
        CANCEL_REQUEST => cancel(&mut reader)?,
        version => {
            let bytes = &input[..LENGTH_BYTES + payload_bytes];
            *input = rest;
            return StartupMessage::parse(version, bytes, reader).map(Startup::Login).map(Some);
        }
    };
    reader.end()?;
    *input = rest;
    Ok(Some(startup))
}

/// Appends a `StartupMessage` for protocol 3.0. Names and values must have no NUL, and names must not be
/// empty.
pub fn encode_startup(out: &mut Vec<u8>, parameters: &[(&str, &str)]) -> Result<(), Error> {
    write_with_length(out, |out| {
        put_u32(out, PROTOCOL_3_0);
        for (name, value) in parameters {
            put_nul_terminated(out, name.as_bytes());
            put_nul_terminated(out, value.as_bytes());
        }
        out.push(0);
        Ok(())
    })
}

/// Appends an `SSLRequest`. The reply is one byte.
pub fn encode_tls_request(out: &mut Vec<u8>) {
    put_u32(out, 8);
    put_u32(out, SSL_REQUEST);
}

/// Appends a `CancelRequest`, the only message of its connection. The server does not reply.
pub fn encode_cancel_request(out: &mut Vec<u8>, process_id: u32, key: &CancelKey) {
    put_u32(out, 12 + key.expose().len() as u32);
    put_u32(out, CANCEL_REQUEST);
    put_u32(out, process_id);
    out.extend_from_slice(key.expose());
}

fn cancel<'a>(reader: &mut Reader<'a>) -> Result<Startup<'a>, Error> {
    let process_id = reader.u32()?;
    let key = reader.rest();
    if key.len() > CancelKey::MAX_BYTES {
        return Err(Error::StartupLength { length: LENGTH_BYTES + 2 * VERSION_BYTES + key.len() });
    }
    Ok(Startup::Cancel { process_id, key })
}
