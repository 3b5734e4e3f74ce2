use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::labelled::{labelled, labelled_enum};

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

labelled_enum! {
    /// The key type of a server's certificate.
    ServerKey: "key type" {
        /// ECDSA on NIST P-256.
        P256 = "p256",
        /// ECDSA on NIST P-384.
        P384 = "p384",
        /// Ed25519 (RFC 8410).
        Ed25519 = "ed25519",
        /// RSA with a 1024-bit modulus: insecure today, offered to repeat old studies.
        Rsa1024 = "rsa1024",
        Rsa2048 = "rsa2048",
        Rsa3072 = "rsa3072",
        Rsa4096 = "rsa4096",
        /// ML-DSA-44 (FIPS 204): post-quantum.
        MlDsa44 = "mldsa44",
        /// ML-DSA-65 (FIPS 204): post-quantum.
        MlDsa65 = "mldsa65",
    }
}

labelled_enum! {
    /// A key exchange group that a client can offer.
    Group: "group" {
        /// Curve25519: the first choice of OpenSSL's clients.
        X25519 = "x25519",
        /// NIST P-256.
        P256 = "p256",
        /// NIST P-384.
        P384 = "p384",
        /// NIST P-521.
        P521 = "p521",
        /// X25519 combined with ML-KEM-768: post-quantum.
        X25519MlKem768 = "x25519mlkem768",
        /// NIST P-256 combined with ML-KEM-768: post-quantum.
        SecP256r1MlKem768 = "secp256r1mlkem768",
        /// ML-KEM-768 alone: post-quantum.
        MlKem768 = "mlkem768",
        /// NIST P-384 combined with ML-KEM-1024: post-quantum, at the strength of CNSA 2.0.
        SecP384r1MlKem1024 = "secp384r1mlkem1024",
        /// ML-KEM-1024 alone: post-quantum, as CNSA 2.0 requires.
        MlKem1024 = "mlkem1024",
    }
}

labelled_enum! {
    /// A client's TLS library.
    #[derive(Default)]
    TlsLibrary: "TLS library" {
        /// The system's OpenSSL, as in libpq and most other drivers.
        #[default]
        OpenSsl = "openssl",
        /// OpenSSL 3.5 or newer, which has post-quantum algorithms, where the system's is older.
        OpenSsl35 = "openssl-3.5",
        /// rustls with the cryptography of aws-lc-rs, as in drivers written in Rust.
        Rustls = "rustls",
    }
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
    /// Bits of the modulus of an RSA key.
    pub fn rsa_bits(self) -> Option<u32> {
        match self {
            Self::Rsa1024 => Some(1024),
            Self::Rsa2048 => Some(2048),
            Self::Rsa3072 => Some(3072),
            Self::Rsa4096 => Some(4096),
            Self::P256 | Self::P384 | Self::Ed25519 | Self::MlDsa44 | Self::MlDsa65 => None,
        }
    }

    /// Whether OpenSSL accepts it only at a lowered security level (`SSL_CTX_set_security_level(3)`: level 2 requires 112
    /// bits of security).
    pub fn is_weak(self) -> bool {
        self == Self::Rsa1024
    }

    /// Whether it signs with ML-DSA.
    pub fn is_ml_dsa(self) -> bool {
        matches!(self, Self::MlDsa44 | Self::MlDsa65)
    }
}

impl Group {
    /// Its code point (IANA "TLS Supported Groups").
    pub fn number(self) -> u16 {
        match self {
            Self::X25519 => 0x001d,
            Self::P256 => 0x0017,
            Self::P384 => 0x0018,
            Self::P521 => 0x0019,
            Self::X25519MlKem768 => 0x11ec,
            Self::SecP256r1MlKem768 => 0x11eb,
            Self::MlKem768 => 0x0201,
            Self::SecP384r1MlKem1024 => 0x11ed,
            Self::MlKem1024 => 0x0202,
        }
    }

    /// OpenSSL's name, for lists of groups.
    pub fn openssl_name(self) -> &'static str {
        match self {
            Self::X25519 => "X25519",
            Self::P256 => "P-256",
            Self::P384 => "P-384",
            Self::P521 => "P-521",
            Self::X25519MlKem768 => "X25519MLKEM768",
            Self::SecP256r1MlKem768 => "SecP256r1MLKEM768",
            Self::MlKem768 => "MLKEM768",
            Self::SecP384r1MlKem1024 => "SecP384r1MLKEM1024",
            Self::MlKem1024 => "MLKEM1024",
        }
    }

    /// Whether no recommendation may name it: none of these yet.
    pub fn is_legacy(self) -> bool {
        match self {
            Self::X25519
            | Self::P256
            | Self::P384
            | Self::P521
            | Self::X25519MlKem768
            | Self::SecP256r1MlKem768
            | Self::MlKem768
            | Self::SecP384r1MlKem1024
            | Self::MlKem1024 => false,
        }
    }

    /// The first version of OpenSSL that has it; `None` if all that servers here use have it.
    pub fn openssl_since(self) -> Option<[u32; 2]> {
        match self {
            Self::X25519 | Self::P256 | Self::P384 | Self::P521 => None,
            Self::X25519MlKem768
            | Self::SecP256r1MlKem768
            | Self::MlKem768
            | Self::SecP384r1MlKem1024
            | Self::MlKem1024 => Some([3, 5]),
        }
    }

    /// Whether it contains ML-KEM, alone or combined with a curve.
    pub fn has_ml_kem(self) -> bool {
        match self {
            Self::X25519 | Self::P256 | Self::P384 | Self::P521 => false,
            Self::X25519MlKem768
            | Self::SecP256r1MlKem768
            | Self::MlKem768
            | Self::SecP384r1MlKem1024
            | Self::MlKem1024 => true,
        }
    }
}

labelled!(TlsVersion: "TLS version");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_unique_and_lead_back() {
        assert!(
            TlsVersion::ALL.iter().all(|version| TlsVersion::from_label(version.label()) == Some(*version))
        );
        assert!(ServerKey::ALL.iter().all(|key| ServerKey::from_label(key.label()) == Some(*key)));
        assert!(Group::ALL.iter().all(|group| Group::from_label(group.label()) == Some(*group)));
        assert!(
            TlsLibrary::ALL.iter().all(|library| TlsLibrary::from_label(library.label()) == Some(*library))
        );
        assert_eq!(TlsVersion::from_label("tls1.4"), None);
    }
}
