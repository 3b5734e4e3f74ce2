use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::labelled::labelled;

/// A TLS protocol version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TlsVersion {
    /// RFC 2246; forbidden since RFC 8996.
    Tls10,
    /// RFC 4346; forbidden since RFC 8996.
    Tls11,
    /// RFC 5246.
    Tls12,
    /// RFC 8446.
    Tls13,
}

/// The key type of a server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServerKey {
    /// ECDSA on NIST P-256.
    P256,
    /// ECDSA on NIST P-384.
    P384,
    /// Ed25519 (RFC 8410).
    Ed25519,
    /// RSA with a 1024-bit modulus: insecure today, offered to repeat old studies.
    Rsa1024,
    /// RSA with a 2048-bit modulus.
    Rsa2048,
    /// RSA with a 3072-bit modulus.
    Rsa3072,
    /// RSA with a 4096-bit modulus.
    Rsa4096,
}

/// A key exchange group that a client can offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// Curve25519: the first choice of OpenSSL's clients.
    X25519,
    /// NIST P-256.
    P256,
    /// NIST P-384.
    P384,
    /// NIST P-521.
    P521,
    /// X25519 combined with ML-KEM-768: post-quantum.
    X25519MlKem768,
}

/// A client's TLS library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TlsLibrary {
    /// The system's OpenSSL, as in libpq and most other drivers.
    #[default]
    OpenSsl,
    /// rustls with ring's cryptography, as in drivers written in Rust.
    Rustls,
}

/// How weak keys and signatures may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecurityLevel {
    /// The library's default.
    #[default]
    Default,
    /// OpenSSL's security level 1: 80 bits, which accepts 1024-bit RSA keys. OpenSSL only.
    Weak,
    /// OpenSSL's security level 0: no minimum. TLS 1.0 and 1.1 need it, as they sign with SHA-1. OpenSSL only.
    Obsolete,
}

/// How far a server's certificate is verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verification {
    /// The chain to a trusted authority, and the name.
    #[default]
    Full,
    /// The chain only: libpq's `verify-ca`, MySQL's `VERIFY_CA`. OpenSSL only.
    Authority,
    /// Nothing, so that a man in the middle can read along: libpq's `require`, MySQL's `REQUIRED`. OpenSSL only.
    Off,
}

/// A certificate and its private key, in PEM files.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// The certificate, followed by any intermediate certificates.
    pub certificate_file: PathBuf,
    /// The private key, not encrypted.
    pub key_file: PathBuf,
}

impl TlsVersion {
    /// Every version, the newest first.
    pub const ALL: [Self; 4] = [Self::Tls13, Self::Tls12, Self::Tls11, Self::Tls10];

    /// As in a path's name and in reports: `tls1.3`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Tls10 => "tls1.0",
            Self::Tls11 => "tls1.1",
            Self::Tls12 => "tls1.2",
            Self::Tls13 => "tls1.3",
        }
    }

    /// Whether RFC 8996 forbids it. OpenSSL accepts its SHA-1 signatures at security level 0 only.
    pub fn is_forbidden(self) -> bool {
        self < Self::Tls12
    }
}

impl ServerKey {
    /// Every key type.
    pub const ALL: [Self; 7] =
        [Self::P256, Self::P384, Self::Ed25519, Self::Rsa1024, Self::Rsa2048, Self::Rsa3072, Self::Rsa4096];

    /// As in a path's name: `p256`.
    pub fn label(self) -> &'static str {
        match self {
            Self::P256 => "p256",
            Self::P384 => "p384",
            Self::Ed25519 => "ed25519",
            Self::Rsa1024 => "rsa1024",
            Self::Rsa2048 => "rsa2048",
            Self::Rsa3072 => "rsa3072",
            Self::Rsa4096 => "rsa4096",
        }
    }

    /// Bits of the modulus of an RSA key.
    pub fn rsa_bits(self) -> Option<u32> {
        match self {
            Self::Rsa1024 => Some(1024),
            Self::Rsa2048 => Some(2048),
            Self::Rsa3072 => Some(3072),
            Self::Rsa4096 => Some(4096),
            Self::P256 | Self::P384 | Self::Ed25519 => None,
        }
    }

    /// Whether OpenSSL accepts it only at a lowered security level (`SSL_CTX_set_security_level(3)`: level 2 requires 112
    /// bits of security).
    pub fn is_weak(self) -> bool {
        self == Self::Rsa1024
    }
}

impl Group {
    /// Every group.
    pub const ALL: [Self; 5] = [Self::X25519, Self::P256, Self::P384, Self::P521, Self::X25519MlKem768];

    /// Its code point (IANA "TLS Supported Groups").
    pub fn number(self) -> u16 {
        match self {
            Self::X25519 => 0x001d,
            Self::P256 => 0x0017,
            Self::P384 => 0x0018,
            Self::P521 => 0x0019,
            Self::X25519MlKem768 => 0x11ec,
        }
    }

    /// As in a path's modifier, and as observed: `x25519`.
    pub fn label(self) -> &'static str {
        match self {
            Self::X25519 => "x25519",
            Self::P256 => "p256",
            Self::P384 => "p384",
            Self::P521 => "p521",
            Self::X25519MlKem768 => "x25519mlkem768",
        }
    }
}

impl TlsLibrary {
    /// Both.
    pub const ALL: [Self; 2] = [Self::OpenSsl, Self::Rustls];

    /// As in a path's modifier and in reports: `rustls`.
    pub fn label(self) -> &'static str {
        match self {
            Self::OpenSsl => "openssl",
            Self::Rustls => "rustls",
        }
    }
}

labelled!(TlsVersion: "TLS version", ServerKey: "key type", Group: "group", TlsLibrary: "TLS library");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_unique_and_lead_back() {
        for version in TlsVersion::ALL {
            assert_eq!(TlsVersion::from_label(version.label()), Some(version));
        }
        for key in ServerKey::ALL {
            assert_eq!(ServerKey::from_label(key.label()), Some(key));
        }
        for group in Group::ALL {
            assert_eq!(Group::from_label(group.label()), Some(group));
        }
        for library in TlsLibrary::ALL {
            assert_eq!(TlsLibrary::from_label(library.label()), Some(library));
        }
        assert_eq!(TlsVersion::from_label("tls1.4"), None);
    }
}
