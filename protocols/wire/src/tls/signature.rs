//! Signature schemes (IANA "TLS `SignatureScheme`").

use std::borrow::Cow;

/// A signature scheme as it is on the wire: its code point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SignatureScheme(pub u16);

impl SignatureScheme {
    /// IANA's name in lower case; a scheme without one is shown by its number, as `0x0301`.
    pub fn label(self) -> Cow<'static, str> {
        let name = match self.0 {
            0x0201 => "rsa_pkcs1_sha1",
            0x0203 => "ecdsa_sha1",
            0x0401 => "rsa_pkcs1_sha256",
            0x0403 => "ecdsa_secp256r1_sha256",
            0x0501 => "rsa_pkcs1_sha384",
            0x0503 => "ecdsa_secp384r1_sha384",
            0x0601 => "rsa_pkcs1_sha512",
            0x0603 => "ecdsa_secp521r1_sha512",
            0x0804 => "rsa_pss_rsae_sha256",
            0x0805 => "rsa_pss_rsae_sha384",
            0x0806 => "rsa_pss_rsae_sha512",
            0x0807 => "ed25519",
            0x0808 => "ed448",
            0x0809 => "rsa_pss_pss_sha256",
            0x080a => "rsa_pss_pss_sha384",
            0x080b => "rsa_pss_pss_sha512",
            0x0904 => "mldsa44",
            0x0905 => "mldsa65",
            0x0906 => "mldsa87",
            number => return format!("{number:#06x}").into(),
        };
        name.into()
    }

    /// The only scheme of TLS 1.3 for a certificate's key type, such as `p256`. `None` for RSA, where the two ends
    /// agree on a hash (RFC 8446, 4.2.3).
    pub fn of_key(key: &str) -> Option<Self> {
        Some(Self(match key {
            "p256" => 0x0403,
            "p384" => 0x0503,
            "p521" => 0x0603,
            "ed25519" => 0x0807,
            "mldsa44" => 0x0904,
            "mldsa65" => 0x0905,
            "mldsa87" => 0x0906,
            _ => return None,
        }))
    }
}
