//! The list of what no recommendation may name: TLS versions, suites, keys and groups that RFC 8996, RFC 9325 and NIST SP
//! 800-131A retire. Levels are judged by their types; what a connection negotiated with a server that is not ours may have
//! no type, and is judged by its name.

use crate::{Group, ServerKey, Suite, TlsParameters, TlsVersion};

/// Why TLS parameters are legacy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Legacy {
    /// TLS 1.0 or 1.1.
    Version,
    /// An RSA key of less than 2048 bits, or a DSA key.
    Key,
    /// A suite without forward secrecy by elliptic curves, or without an AEAD cipher.
    Suite,
    /// A finite field, or a curve of less than 224 bits.
    Group,
    /// A tunnel's cipher that its programs no longer offer by default.
    TunnelCipher,
}

/// TLS parameters as a connection negotiated them, by the names of reports and records.
#[derive(Clone, Copy, Debug, Default)]
pub struct NegotiatedNames<'a> {
    pub version: Option<&'a str>,
    pub key: Option<&'a str>,
    /// IANA's name or OpenSSL's.
    pub suite: Option<&'a str>,
    pub group: Option<&'a str>,
}

impl Legacy {
    /// Every kind.
    pub const ALL: [Self; 5] = [Self::Version, Self::Key, Self::Suite, Self::Group, Self::TunnelCipher];

    /// As in a sentence.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Version => "an obsolete protocol: RFC 8996 forbids TLS before 1.2",
            Self::Key => "a weak key: RSA of less than 2048 bits, or DSA",
            Self::Suite => "a legacy cipher suite: not ECDHE with an AEAD cipher",
            Self::Group => "a legacy key exchange group",
            Self::TunnelCipher => "a legacy cipher: no AEAD or counter mode",
        }
    }

    /// Whether a level with these parameters is legacy; what is absent is negotiated.
    pub fn of(parameters: TlsParameters, key: Option<ServerKey>) -> Option<Self> {
        let TlsParameters { version, suite, group, .. } = parameters;
        if version.is_forbidden() {
            Some(Self::Version)
        } else if key.is_some_and(ServerKey::is_weak) {
            Some(Self::Key)
        } else if suite.is_some_and(Suite::is_legacy) {
            Some(Self::Suite)
        } else {
            group.is_some_and(Group::is_legacy).then_some(Self::Group)
        }
    }

    /// Whether negotiated parameters are legacy.
    pub fn observed(names: NegotiatedNames<'_>) -> Option<Self> {
        let NegotiatedNames { version, key, suite, group } = names;
        if version.and_then(TlsVersion::from_label).is_some_and(TlsVersion::is_forbidden) {
            Some(Self::Version)
        } else if key.is_some_and(is_weak_key) {
            Some(Self::Key)
        } else if suite.is_some_and(is_legacy_suite) {
            Some(Self::Suite)
        } else {
            group.is_some_and(is_legacy_group).then_some(Self::Group)
        }
    }
}

fn is_weak_key(label: &str) -> bool {
    const FEWEST_BITS: u32 = 2048;
    if let Some(known) = ServerKey::from_label(label) {
        return known.is_weak();
    }
    let bits = label.strip_prefix("rsa").and_then(|bits| bits.parse::<u32>().ok());
    bits.is_some_and(|bits| bits < FEWEST_BITS) || label.starts_with("dsa")
}

/// Names of both registries say key exchange and cipher: only ECDHE with an AEAD cipher, and TLS 1.3's suites, are not legacy.
fn is_legacy_suite(name: &str) -> bool {
    const AEAD: [&str; 3] = ["GCM", "CCM", "CHACHA20"];
    if let Some(known) = Suite::ALL.into_iter().find(|suite| [suite.iana(), suite.label()].contains(&name)) {
        return known.is_legacy();
    }
    let has_aead = AEAD.iter().any(|cipher| name.contains(cipher));
    let is_ephemeral = ["TLS_ECDHE_", "ECDHE-", "TLS_AES_", "TLS_CHACHA20_", "TLS_SM4_"]
        .iter()
        .any(|prefix| name.starts_with(prefix));
    !(has_aead && is_ephemeral)
}

/// Groups without a type are named by their number (IANA "TLS Supported Groups").
fn is_legacy_group(label: &str) -> bool {
    if let Some(known) = Group::from_label(label) {
        return known.is_legacy();
    }
    let number = label.strip_prefix("0x").and_then(|digits| u16::from_str_radix(digits, 16).ok());
    // Binary and short curves, the finite fields of RFC 7919, and explicit curves.
    number.is_some_and(|number| matches!(number, 0x0001..=0x0016 | 0x0100..=0x01ff | 0xff00..))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_names_agree() {
        for suite in Suite::ALL {
            let typed = Legacy::of(
                TlsParameters { suite: Some(suite), ..TlsParameters::new(TlsVersion::Tls12) },
                None,
            );
            for name in [suite.label(), suite.iana()] {
                let names = NegotiatedNames { suite: Some(name), ..NegotiatedNames::default() };
                assert_eq!(Legacy::observed(names), typed, "{name}");
            }
        }
        for key in ServerKey::ALL {
            let names = NegotiatedNames { key: Some(key.label()), ..NegotiatedNames::default() };
            assert_eq!(
                Legacy::observed(names),
                Legacy::of(TlsParameters::new(TlsVersion::Tls13), Some(key)),
                "{key}"
            );
        }
        for version in TlsVersion::ALL {
            let names = NegotiatedNames { version: Some(version.label()), ..NegotiatedNames::default() };
            assert_eq!(Legacy::observed(names), Legacy::of(TlsParameters::new(version), None), "{version}");
        }
    }

    #[test]
    fn suites_of_the_last_century_are_legacy_and_those_of_today_are_not() {
        for name in [
            "DHE-RSA-AES256-SHA",
            "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384",
            "AES256-GCM-SHA384",
            "TLS_RSA_WITH_RC4_128_SHA",
            "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
            "DES-CBC3-SHA",
            "RC4-MD5",
            "ECDHE-RSA-RC4-SHA",
            "ECDHE-RSA-AES256-SHA384",
            "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
            "TLS_DH_anon_WITH_AES_128_GCM_SHA256",
            "TLS_RSA_WITH_NULL_SHA",
            "TLS_SHA256_SHA256",
        ] {
            assert!(is_legacy_suite(name), "{name}");
        }
        for name in [
            "TLS_AES_128_CCM_8_SHA256",
            "TLS_ECDHE_ECDSA_WITH_AES_128_CCM",
            "ECDHE-RSA-CHACHA20-POLY1305",
            "TLS_CHACHA20_POLY1305_SHA256",
        ] {
            assert!(!is_legacy_suite(name), "{name}");
        }
    }

    #[test]
    fn keys_and_groups_of_other_servers_are_judged() {
        for (label, legacy) in [("rsa512", true), ("rsa1536", true), ("rsa8192", false), ("dsa", true)] {
            assert_eq!(is_weak_key(label), legacy, "{label}");
        }
        for (label, legacy) in [("0x0013", true), ("0x0100", true), ("x448", false), ("0x001a", false)] {
            assert_eq!(is_legacy_group(label), legacy, "{label}");
        }
    }
}
