//! Key exchange groups (IANA "TLS Supported Groups").

use std::borrow::Cow;

use ciphertoll_vocabulary::Group;

/// A group as it is on the wire: its code point, which may be of a group that our clients never offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamedGroup(pub u16);

impl NamedGroup {
    /// The name that options and reports use; a group without one is shown by its number, as `0x4242`.
    pub fn label(self) -> Cow<'static, str> {
        if let Some(group) = Group::ALL.into_iter().find(|group| Self::from(*group) == self) {
            return group.label().into();
        }
        match self.name() {
            Some(name) => name.into(),
            None => format!("{:#06x}", self.0).into(),
        }
    }

    /// Whether a group with this label resists quantum computers: ML-KEM, or Kyber in a draft of it, alone or together with a
    /// curve.
    #[must_use]
    pub fn is_post_quantum(label: &str) -> bool {
        ["mlkem", "kyber", "cecpq2"].iter().any(|part| label.contains(part))
    }

    /// IANA's names in lower case, of groups that are not those of options; and those of experiments that were deployed.
    fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            0x0001 => "sect163k1",
            0x0003 => "sect163r2",
            0x0006 => "sect233k1",
            0x0007 => "sect233r1",
            0x0009 => "sect283k1",
            0x000a => "sect283r1",
            0x000b => "sect409k1",
            0x000c => "sect409r1",
            0x000d => "sect571k1",
            0x000e => "sect571r1",
            0x0010 => "secp160r1",
            0x0012 => "secp192k1",
            0x0013 => "secp192r1",
            0x0014 => "secp224k1",
            0x0015 => "secp224r1",
            0x0016 => "secp256k1",
            0x001a => "brainpoolp256r1",
            0x001b => "brainpoolp384r1",
            0x001c => "brainpoolp512r1",
            0x001e => "x448",
            0x001f => "brainpoolp256r1tls13",
            0x0020 => "brainpoolp384r1tls13",
            0x0021 => "brainpoolp512r1tls13",
            0x0029 => "curvesm2",
            0x0100 => "ffdhe2048",
            0x0101 => "ffdhe3072",
            0x0102 => "ffdhe4096",
            0x0103 => "ffdhe6144",
            0x0104 => "ffdhe8192",
            0x0200 => "mlkem512",
            0x0201 => "mlkem768",
            0x11ee => "curvesm2mlkem768",
            0x6399 => "x25519kyber768draft00",
            0x639a => "secp256r1kyber768draft00",
            // Cloudflare's and Google's experiments, before IANA had a number.
            0xfe30 => "x25519kyber512draft00",
            0xfe31 => "x25519kyber768draft00-old",
            0xfe32 => "p256kyber768draft00",
            0x4138 => "cecpq2",
            // Open Quantum Safe, for OpenSSL before 3.5.
            0x023a => "kyber512",
            0x023c => "kyber768",
            0x023d => "kyber1024",
            0x2f3a => "p256_kyber512",
            0x2f3c => "p384_kyber768",
            0x2f3d => "p521_kyber1024",
            0x2f39 => "x25519_kyber512",
            _ => return None,
        })
    }
}

impl From<Group> for NamedGroup {
    fn from(group: Group) -> Self {
        Self(group.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drafts_of_kyber_have_names_and_are_post_quantum() {
        for (number, name) in [
            (0x6399, "x25519kyber768draft00"),
            (0x639a, "secp256r1kyber768draft00"),
            (0xfe30, "x25519kyber512draft00"),
            (0xfe31, "x25519kyber768draft00-old"),
            (0x11ec, "x25519mlkem768"),
            (0x11ed, "secp384r1mlkem1024"),
            (0x0202, "mlkem1024"),
        ] {
            assert_eq!(NamedGroup(number).label(), name);
            assert!(NamedGroup::is_post_quantum(name), "{name}");
        }
        for number in [0x001d, 0x0017, 0x001e, 0x0100, 0x001a, 0x4242] {
            assert!(!NamedGroup::is_post_quantum(&NamedGroup(number).label()), "{number:#06x}");
        }
        assert_eq!(NamedGroup(0x4242).label(), "0x4242");
    }
}
