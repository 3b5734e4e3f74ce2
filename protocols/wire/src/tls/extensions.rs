//! Extensions of a hello (RFC 8446, 4.2).

use crate::tls::fields::{number, vector};

/// `ExtensionType` (IANA "TLS `ExtensionType` Values").
pub(crate) const SERVER_NAME: u16 = 0;
pub(crate) const SUPPORTED_GROUPS: u16 = 10;
pub(crate) const SIGNATURE_ALGORITHMS: u16 = 13;
pub(crate) const SESSION_TICKET: u16 = 35;
pub(crate) const PRE_SHARED_KEY: u16 = 41;
pub(crate) const SUPPORTED_VERSIONS: u16 = 43;
pub(crate) const KEY_SHARE: u16 = 51;

/// The type and the content of each extension of a list; `None` for what is malformed, which ends the list.
#[derive(Debug, Clone)]
pub(crate) struct Extensions<'a>(&'a [u8]);

impl<'a> Extensions<'a> {
    /// The extensions at the end of a hello, which omits even their length if it has none.
    pub(crate) fn at_end_of(mut hello: &'a [u8]) -> Option<Self> {
        if hello.is_empty() { Some(Self(&[])) } else { vector(&mut hello).map(Self) }
    }
}

impl<'a> Iterator for Extensions<'a> {
    type Item = Option<(u16, &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut list = std::mem::take(&mut self.0);
        if list.is_empty() {
            return None;
        }
        let extension = number(&mut list).and_then(|kind| Some((kind, vector(&mut list)?)));
        if extension.is_some() {
            self.0 = list;
        }
        Some(extension)
    }
}
