//! Names of what TLS has numbers for.

use ciphertoll_wire::tls::KeyExchangeGroup;
use rustls::CipherSuite;

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

/// IANA's name of a cipher suite, from rustls's table of all that were ever registered; one that is not there is shown by its
/// number.
pub(crate) fn suite(number: u16) -> String {
    match CipherSuite::from(number).as_str() {
        // rustls marks those of TLS 1.3.
        Some(name) => name.replacen("TLS13_", "TLS_", 1),
        None => format!("{number:#06x}"),
    }
}

/// Why a suite does not protect what it encrypts; `None` if it does.
pub(crate) fn weakness(suite: &str) -> Option<&'static str> {
    const WEAK: [(&str, &str); 8] = [
        ("EXPORT", "keys that were made weak for export"),
        ("_NULL_", "no encryption"),
        ("_anon_", "no authentication of the server"),
        ("_RC4_", "RC4, which RFC 7465 forbids"),
        ("_RC2_", "RC2"),
        ("_3DES_", "3DES, whose blocks are too short (Sweet32)"),
        ("_DES_", "DES"),
        ("_DES40_", "DES"),
    ];
    WEAK.into_iter().find(|(part, _)| suite.contains(part)).map(|(_, words)| words)
}

/// Whether the key exchange of a suite up to TLS 1.2 protects recorded connections if the server's key gets known; suites of TLS
/// 1.3 have no part in it.
pub(crate) fn has_forward_secrecy(suite: &str) -> bool {
    let exchange =
        suite.strip_prefix("TLS_").and_then(|name| name.split_once("_WITH_")).map(|(exchange, _)| exchange);
    exchange.is_none_or(|exchange| {
        ["DHE_", "ECDHE_", "SRP_", "ECCPWD"].iter().any(|ephemeral| exchange.starts_with(ephemeral))
            || exchange.contains("_anon")
    })
}

/// The number of a suite by IANA's name, or by the number in its place; `None` if it is neither.
pub(crate) fn suite_number(name: &str) -> Option<[u8; 2]> {
    if let Some(number) = name.strip_prefix("0x") {
        return u16::from_str_radix(number, 16).ok().map(u16::to_be_bytes);
    }
    let rustls_name = |number: u16| CipherSuite::from(number).as_str();
    let is_named = |known: &str| known == name || known.replacen("TLS13_", "TLS_", 1) == name;
    (0..=u16::MAX).find(|number| rustls_name(*number).is_some_and(is_named)).map(u16::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_have_ianas_names() {
        for (number, name) in [
            (0x1301, "TLS_AES_128_GCM_SHA256"),
            (0x1305, "TLS_AES_128_CCM_8_SHA256"),
            (0xc02f, "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
            (0x002f, "TLS_RSA_WITH_AES_128_CBC_SHA"),
            (0x0039, "TLS_DHE_RSA_WITH_AES_256_CBC_SHA"),
            (0x0005, "TLS_RSA_WITH_RC4_128_SHA"),
            (0xc012, "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA"),
            (0x0084, "TLS_RSA_WITH_CAMELLIA_256_CBC_SHA"),
            (0xcca8, "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
            (0xabcd, "0xabcd"),
        ] {
            assert_eq!(suite(number), name);
            assert_eq!(suite_number(name), Some(number.to_be_bytes()));
        }
        assert_eq!(suite_number("TLS_OF_MY_OWN"), None);
    }

    #[test]
    fn weak_suites_are_known_by_their_parts() {
        for number in
            [0x0001, 0x0003, 0x0005, 0x0006, 0x0008, 0x0009, 0x000a, 0x0018, 0x0034, 0xc007, 0xc012, 0xc019]
        {
            assert!(weakness(&suite(number)).is_some(), "{}", suite(number));
        }
        for number in [0x1301, 0xc02f, 0xc013, 0x0035, 0x0084, 0x009e, 0xccaa] {
            assert_eq!(weakness(&suite(number)), None, "{}", suite(number));
        }
    }

    #[test]
    fn only_ephemeral_keys_have_forward_secrecy() {
        for number in [0x1301, 0xc02f, 0x0039, 0xc019, 0x009e] {
            assert!(has_forward_secrecy(&suite(number)), "{}", suite(number));
        }
        for number in [0x002f, 0x0003, 0xc004, 0x0031, 0x008c] {
            assert!(!has_forward_secrecy(&suite(number)), "{}", suite(number));
        }
    }
}
