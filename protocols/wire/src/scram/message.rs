//! SCRAM messages, which are lists of attributes (RFC 5802, section 5.1).

use base64::{DecodeSliceError, Engine, prelude::BASE64_STANDARD};

use crate::scram::{
    digest::Digest,
    error::Error,
    keys::{MAX_KEY_BYTES, ScramKey},
};

/// The decoder writes whole groups of three bytes.
const MAX_DECODED_BYTES: usize = MAX_KEY_BYTES.next_multiple_of(3);

/// Parses a message's attributes from its front.
pub(crate) struct Attributes<'a> {
    rest: Option<&'a str>,
    message: &'static str,
}

impl<'a> Attributes<'a> {
    pub(crate) fn new(bytes: &'a [u8], message: &'static str) -> Result<Self, Error> {
        let text =
            std::str::from_utf8(bytes).map_err(|_| Error::Protocol { message, reason: "not UTF-8" })?;
        Ok(Self { rest: Some(text), message })
    }

    pub(crate) fn error(&self, reason: &'static str) -> Error {
        Error::Protocol { message: self.message, reason }
    }

    /// The unread rest.
    pub(crate) fn rest(&self) -> &'a str {
        self.rest.unwrap_or_default()
    }

    /// Everything up to the next comma, which is consumed.
    pub(crate) fn field(&mut self) -> Result<&'a str, Error> {
        let rest = self.rest.ok_or_else(|| self.error("it is truncated"))?;
        let (field, rest) = rest.split_once(',').map_or((rest, None), |(field, rest)| (field, Some(rest)));
        self.rest = rest;
        Ok(field)
    }

    /// The value of the next attribute, which must have this name.
    pub(crate) fn value(&mut self, name: char) -> Result<&'a str, Error> {
        let field = self.field()?;
        let value = field.strip_prefix(name).and_then(|value| value.strip_prefix('='));
        // "m" announces a mandatory extension; none is supported.
        value.ok_or_else(|| self.error("an unexpected or missing attribute"))
    }

    pub(crate) fn base64(&mut self, name: char) -> Result<Vec<u8>, Error> {
        let value = self.value(name)?;
        BASE64_STANDARD.decode(value).map_err(|_| self.error("not base64"))
    }

    /// A proof or a signature.
    pub(crate) fn key(&mut self, name: char, digest: Digest) -> Result<ScramKey, Error> {
        let mut bytes = [0; MAX_DECODED_BYTES];
        let key = match BASE64_STANDARD.decode_slice(self.value(name)?, &mut bytes) {
            Ok(length) => ScramKey::from_slice(digest, &bytes[..length]),
            Err(DecodeSliceError::OutputSliceTooSmall) => None,
            Err(DecodeSliceError::DecodeError(_)) => return Err(self.error("not base64")),
        };
        key.ok_or_else(|| self.error("a proof or signature of a wrong length"))
    }

    pub(crate) fn nonce(&mut self) -> Result<&'a str, Error> {
        let nonce = self.value('r')?;
        if nonce.is_empty() || !nonce.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(self.error("a nonce that is empty or not printable"));
        }
        Ok(nonce)
    }
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

pub(crate) fn push_base64(text: &mut String, bytes: &[u8]) {
    BASE64_STANDARD.encode_string(bytes, text);
}

/// A key from its base64 form, for verifiers.
pub(crate) fn key_from_base64(digest: Digest, text: &str) -> Option<ScramKey> {
    ScramKey::from_slice(digest, &BASE64_STANDARD.decode(text).ok()?)
}

/// Bytes from their base64 form, for verifiers.
pub(crate) fn from_base64(text: &str) -> Option<Vec<u8>> {
    BASE64_STANDARD.decode(text).ok()
}

/// A user name, escaped for an attribute.
pub(crate) fn escape(user: &str) -> String {
    user.replace('=', "=3D").replace(',', "=2C")
}
