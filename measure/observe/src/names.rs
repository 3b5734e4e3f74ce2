//! Names of what TLS has numbers for.

use ciphertoll_wire::tls::KeyExchangeGroup;
use openssl::ssl::{Ssl, SslCipherRef, SslContext, SslMethod, SslVersion};

/// As in reports: `tls1.3`.
pub(crate) fn version(number: u16) -> String {
    match number {
        0x0301 => "tls1.0".to_owned(),
        0x0302 => "tls1.1".to_owned(),
        0x0303 => "tls1.2".to_owned(),
        0x0304 => "tls1.3".to_owned(),
        other => format!("{other:#06x}"),
    }
}

pub(crate) fn group(group: KeyExchangeGroup) -> String {
    group.label().into_owned()
}

/// Names of cipher suites, as IANA has them; a suite that OpenSSL does not know is shown by its number.
pub(crate) struct Suites(Option<Ssl>);

impl Suites {
    pub(crate) fn new() -> Self {
        let context = || {
            let mut builder = SslContext::builder(SslMethod::tls_client()).ok()?;
            builder.set_min_proto_version(Some(SslVersion::TLS1)).ok()?;
            builder.set_cipher_list("ALL:COMPLEMENTOFALL:@SECLEVEL=0").ok()?;
            Ssl::new(&builder.build()).ok()
        };
        Self(context())
    }

    pub(crate) fn name(&self, number: u16) -> String {
        let list =
            self.0.as_ref().and_then(|ssl| ssl.bytes_to_cipher_list(&number.to_be_bytes(), false).ok());
        let known = list.as_ref().and_then(|list| list.suites.get(0)?.standard_name());
        known.map_or_else(|| format!("{number:#06x}"), ToOwned::to_owned)
    }
}

/// The number of a suite by IANA's name, or by the number in its place; `None` if OpenSSL does not know it.
pub(crate) fn suite_number(name: &str) -> Option<[u8; 2]> {
    /// The high bytes of the numbers that OpenSSL has suites for.
    const HIGH: [u8; 6] = [0x00, 0x13, 0xc0, 0xc1, 0xcc, 0xd0];
    if let Some(number) = name.strip_prefix("0x") {
        return u16::from_str_radix(number, 16).ok().map(u16::to_be_bytes);
    }
    let all: Vec<u8> = HIGH.iter().flat_map(|high| (0..=u8::MAX).flat_map(|low| [*high, low])).collect();
    let known = Suites::new().0?.bytes_to_cipher_list(&all, false).ok()?;
    known.suites.iter().find(|suite| suite.standard_name() == Some(name)).map(SslCipherRef::protocol_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_have_ianas_names() {
        let suites = Suites::new();
        assert_eq!(suites.name(0x1301), "TLS_AES_128_GCM_SHA256");
        assert_eq!(suites.name(0xc02f), "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256");
        assert_eq!(suites.name(0x002f), "TLS_RSA_WITH_AES_128_CBC_SHA");
        assert_eq!(suites.name(0x0039), "TLS_DHE_RSA_WITH_AES_256_CBC_SHA");
        assert_eq!(suites.name(0xabcd), "0xabcd");
        for number in [0x1301, 0xc02f, 0x002f, 0x0039, 0xcca8, 0xabcd_u16] {
            assert_eq!(suite_number(&suites.name(number)), Some(number.to_be_bytes()), "{number:#06x}");
        }
        assert_eq!(suite_number("TLS_OF_MY_OWN"), None);
    }
}
