//! What a TLS path is made of: versions, keys, suites, groups; each by the name that its field uses.

use std::fmt;
use std::str::FromStr;

use super::{Factor, LevelError, as_text, match_name};

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

/// The key of a server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServerKey {
    /// ECDSA on NIST P-256.
    P256,
    /// ECDSA on NIST P-384.
    P384,
    /// Ed25519 (RFC 8410).
    Ed25519,
    /// RSA with a 1024-bit modulus: too short for anything but comparing with earlier times.
    Rsa1024,
    /// RSA with a 2048-bit modulus.
    Rsa2048,
    /// RSA with a 3072-bit modulus.
    Rsa3072,
    /// RSA with a 4096-bit modulus.
    Rsa4096,
}

/// A cipher suite, the only one that the client offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Suite(&'static SuiteFacts);

/// What a cipher suite is.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct SuiteFacts {
    /// As OpenSSL and the servers' settings have it.
    name: &'static str,
    /// As IANA has it, and so what is observed.
    iana: &'static str,
    /// The first version that has it. TLS 1.3 has none of those before it.
    since: TlsVersion,
    signer: Signer,
}

/// Whose certificates go with a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Signer {
    /// TLS 1.3 settles it apart.
    Any,
    Rsa,
    /// ECDSA, and Ed25519 (RFC 8422, 5.10).
    Ec,
}

/// A group for the key exchange, the only one that the client offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// Curve25519: what OpenSSL's clients try first.
    X25519,
    /// NIST P-256.
    P256,
    /// NIST P-384.
    P384,
    /// NIST P-521.
    P521,
    /// X25519 and ML-KEM-768: safe from quantum computers, too.
    X25519MlKem768,
}

const fn suite(name: &'static str, iana: &'static str, since: TlsVersion, signer: Signer) -> SuiteFacts {
    SuiteFacts { name, iana, since, signer }
}

/// Every suite that can be asked for: the modern ones, and those of the time of the studies.
static SUITES: [SuiteFacts; 17] = {
    use Signer::{Any, Ec, Rsa};
    use TlsVersion::{Tls10, Tls12, Tls13};
    [
        suite("TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256", Tls13, Any),
        suite("TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384", Tls13, Any),
        suite("TLS_CHACHA20_POLY1305_SHA256", "TLS_CHACHA20_POLY1305_SHA256", Tls13, Any),
        suite("ECDHE-ECDSA-AES128-GCM-SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", Tls12, Ec),
        suite("ECDHE-ECDSA-AES256-GCM-SHA384", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", Tls12, Ec),
        suite("ECDHE-ECDSA-CHACHA20-POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", Tls12, Ec),
        suite("ECDHE-ECDSA-AES256-SHA", "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA", Tls10, Ec),
        suite("ECDHE-RSA-AES128-GCM-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", Tls12, Rsa),
        suite("ECDHE-RSA-AES256-GCM-SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", Tls12, Rsa),
        suite("ECDHE-RSA-CHACHA20-POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", Tls12, Rsa),
        suite("ECDHE-RSA-AES256-SHA", "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA", Tls10, Rsa),
        suite("DHE-RSA-AES256-GCM-SHA384", "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", Tls12, Rsa),
        suite("DHE-RSA-AES256-SHA", "TLS_DHE_RSA_WITH_AES_256_CBC_SHA", Tls10, Rsa),
        suite("DHE-RSA-AES128-SHA", "TLS_DHE_RSA_WITH_AES_128_CBC_SHA", Tls10, Rsa),
        suite("AES256-GCM-SHA384", "TLS_RSA_WITH_AES_256_GCM_SHA384", Tls12, Rsa),
        suite("AES256-SHA", "TLS_RSA_WITH_AES_256_CBC_SHA", Tls10, Rsa),
        suite("AES128-SHA", "TLS_RSA_WITH_AES_128_CBC_SHA", Tls10, Rsa),
    ]
};

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

    /// Whether RFC 8996 forbids it. Its signatures are of SHA-1, which OpenSSL takes at security level 0 only.
    pub fn is_forbidden(self) -> bool {
        self < Self::Tls12
    }
}

impl ServerKey {
    /// Every key.
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

    /// Bits of the modulus, where it is an RSA key.
    pub fn rsa_bits(self) -> Option<u32> {
        match self {
            Self::Rsa1024 => Some(1024),
            Self::Rsa2048 => Some(2048),
            Self::Rsa3072 => Some(3072),
            Self::Rsa4096 => Some(4096),
            Self::P256 | Self::P384 | Self::Ed25519 => None,
        }
    }

    /// Whether OpenSSL takes it only at a lowered security level (`SSL_CTX_set_security_level(3)`: level 2 wants 112
    /// bits of security).
    pub fn is_weak(self) -> bool {
        self == Self::Rsa1024
    }
}

impl Suite {
    /// Every suite.
    pub fn all() -> impl Iterator<Item = Self> {
        SUITES.iter().map(Self)
    }

    /// As OpenSSL and the servers' settings have it: `ECDHE-RSA-AES256-GCM-SHA384`.
    pub fn label(self) -> &'static str {
        self.0.name
    }

    /// As IANA has it, and so as it is observed: `TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384`.
    pub fn iana(self) -> &'static str {
        self.0.iana
    }

    /// Why it cannot be had with this version and key, if so.
    pub fn impossible(self, version: TlsVersion, key: Option<ServerKey>) -> Option<String> {
        let SuiteFacts { name, since, signer, .. } = self.0;
        if *since > version || (*since < TlsVersion::Tls13 && version == TlsVersion::Tls13) {
            let and_later = if *since < TlsVersion::Tls12 { " to tls1.2" } else { "" };
            return Some(format!("{name} is a suite of {since}{and_later}"));
        }
        let is_rsa = key?.rsa_bits().is_some();
        match signer {
            Signer::Rsa if !is_rsa => Some(format!("{name} goes with RSA certificates")),
            Signer::Ec if is_rsa => Some(format!("{name} goes with ECDSA certificates")),
            Signer::Any | Signer::Rsa | Signer::Ec => None,
        }
    }
}

impl Group {
    /// Every group.
    pub const ALL: [Self; 5] = [Self::X25519, Self::P256, Self::P384, Self::P521, Self::X25519MlKem768];

    /// Its number on the wire (IANA "TLS Supported Groups").
    pub fn number(self) -> u16 {
        match self {
            Self::X25519 => 0x001d,
            Self::P256 => 0x0017,
            Self::P384 => 0x0018,
            Self::P521 => 0x0019,
            Self::X25519MlKem768 => 0x11ec,
        }
    }

    /// As in a path's modifier, and as it is observed: `x25519`.
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

impl fmt::Display for TlsVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.label())
    }
}

impl FromStr for TlsVersion {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        match_name(Factor::Path, text, &Self::ALL, |version| version.label().to_owned())
    }
}

impl fmt::Display for ServerKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.label())
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.label())
    }
}

impl FromStr for Suite {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        let all: Vec<Self> = Self::all().collect();
        match_name(Factor::Path, text, &all, |suite| suite.label().to_owned())
            .map_err(|error| told_as("suite", error))
    }
}

impl fmt::Display for Group {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.label())
    }
}

impl FromStr for Group {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        match_name(Factor::Path, text, &Self::ALL, |group| group.label().to_owned())
            .map_err(|error| told_as("group", error))
    }
}

/// Certificates that a server sends in a handshake, its own included: 1–10.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChainLength(u8);

impl ChainLength {
    /// The longest.
    pub const MAX: u8 = 10;

    /// The count, if it is in range.
    pub fn new(count: u8) -> Option<Self> {
        (1..=Self::MAX).contains(&count).then_some(Self(count))
    }

    /// The count.
    pub fn count(self) -> u8 {
        self.0
    }
}

impl fmt::Display for ChainLength {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl FromStr for ChainLength {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        text.parse().ok().and_then(Self::new).ok_or_else(|| LevelError::OutOfRange {
            factor: "chain",
            text: text.to_owned(),
            expected: "1 to 10 certificates after chain=",
        })
    }
}

/// What is unknown is no path, but a part of one.
pub(super) fn told_as(part: &'static str, error: LevelError) -> LevelError {
    match error {
        LevelError::UnknownName { text, nearest, known, .. } => {
            LevelError::UnknownName { factor: part, text, nearest, known }
        }
        other => other,
    }
}

as_text!(TlsVersion, Suite, Group);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_are_known_by_both_names_and_differ_in_both() {
        let names: std::collections::BTreeSet<_> = Suite::all().map(Suite::label).collect();
        let iana: std::collections::BTreeSet<_> = Suite::all().map(Suite::iana).collect();
        assert_eq!((names.len(), iana.len()), (SUITES.len(), SUITES.len()));
        for suite in Suite::all() {
            assert_eq!(suite.label().parse(), Ok(suite));
        }
    }

    #[test]
    fn a_suite_has_its_version_and_its_kind_of_certificate() {
        let suite: Suite = "ECDHE-RSA-AES256-GCM-SHA384".parse().unwrap();
        let why = |version, key| suite.impossible(version, key);
        assert_eq!(why(TlsVersion::Tls12, Some(ServerKey::Rsa4096)), None);
        assert_eq!(why(TlsVersion::Tls12, None), None);
        assert!(why(TlsVersion::Tls12, Some(ServerKey::Ed25519)).unwrap().contains("RSA certificates"));
        assert!(why(TlsVersion::Tls13, Some(ServerKey::Rsa4096)).unwrap().contains("of tls1.2"));
        assert!(why(TlsVersion::Tls11, Some(ServerKey::Rsa4096)).unwrap().contains("of tls1.2"));
        let old: Suite = "AES256-SHA".parse().unwrap();
        for version in [TlsVersion::Tls10, TlsVersion::Tls11, TlsVersion::Tls12] {
            assert_eq!(old.impossible(version, Some(ServerKey::Rsa2048)), None);
        }
        let said = old.impossible(TlsVersion::Tls13, Some(ServerKey::Rsa2048)).unwrap();
        assert_eq!(said, "AES256-SHA is a suite of tls1.0 to tls1.2");
        let modern: Suite = "TLS_AES_128_GCM_SHA256".parse().unwrap();
        assert_eq!(modern.impossible(TlsVersion::Tls13, Some(ServerKey::Ed25519)), None);
    }
}
