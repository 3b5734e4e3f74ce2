use crate::labelled::labelled;
use crate::{ServerKey, TlsVersion};

/// A cipher suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Suite(&'static SuiteEntry);

/// A row of the table of suites.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct SuiteEntry {
    /// OpenSSL's name, which servers' settings use, too.
    name: &'static str,
    /// IANA's name, by which the negotiated suite is reported.
    iana: &'static str,
    /// The first version with this suite. TLS 1.3 has none of the older suites.
    since: TlsVersion,
    signer: Signer,
    strength: Strength,
}

/// The certificates that a suite works with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Signer {
    /// TLS 1.3 negotiates the signature separately.
    Any,
    Rsa,
    /// ECDSA, and Ed25519 (RFC 8422, 5.10).
    Ec,
}

/// Whether a recommendation may name a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Strength {
    /// Forward secrecy by elliptic curves, and an AEAD cipher (RFC 9325, 4.2).
    Modern,
    /// Key exchange by RSA or in a finite field, or CBC with a MAC of SHA-1.
    Legacy,
}

const fn suite(
    name: &'static str,
    iana: &'static str,
    since: TlsVersion,
    signer: Signer,
    strength: Strength,
) -> SuiteEntry {
    SuiteEntry { name, iana, since, signer, strength }
}

/// The suites of today and those of the published studies.
static SUITES: [SuiteEntry; 17] = {
    use Signer::{Any, Ec, Rsa};
    use Strength::{Legacy, Modern};
    use TlsVersion::{Tls10, Tls12, Tls13};
    [
        suite("TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256", Tls13, Any, Modern),
        suite("TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384", Tls13, Any, Modern),
        suite("TLS_CHACHA20_POLY1305_SHA256", "TLS_CHACHA20_POLY1305_SHA256", Tls13, Any, Modern),
        suite("ECDHE-ECDSA-AES128-GCM-SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", Tls12, Ec, Modern),
        suite("ECDHE-ECDSA-AES256-GCM-SHA384", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", Tls12, Ec, Modern),
        suite(
            "ECDHE-ECDSA-CHACHA20-POLY1305",
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
            Tls12,
            Ec,
            Modern,
        ),
        suite("ECDHE-ECDSA-AES256-SHA", "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA", Tls10, Ec, Legacy),
        suite("ECDHE-RSA-AES128-GCM-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", Tls12, Rsa, Modern),
        suite("ECDHE-RSA-AES256-GCM-SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", Tls12, Rsa, Modern),
        suite(
            "ECDHE-RSA-CHACHA20-POLY1305",
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
            Tls12,
            Rsa,
            Modern,
        ),
        suite("ECDHE-RSA-AES256-SHA", "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA", Tls10, Rsa, Legacy),
        suite("DHE-RSA-AES256-GCM-SHA384", "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", Tls12, Rsa, Legacy),
        suite("DHE-RSA-AES256-SHA", "TLS_DHE_RSA_WITH_AES_256_CBC_SHA", Tls10, Rsa, Legacy),
        suite("DHE-RSA-AES128-SHA", "TLS_DHE_RSA_WITH_AES_128_CBC_SHA", Tls10, Rsa, Legacy),
        suite("AES256-GCM-SHA384", "TLS_RSA_WITH_AES_256_GCM_SHA384", Tls12, Rsa, Legacy),
        suite("AES256-SHA", "TLS_RSA_WITH_AES_256_CBC_SHA", Tls10, Rsa, Legacy),
        suite("AES128-SHA", "TLS_RSA_WITH_AES_128_CBC_SHA", Tls10, Rsa, Legacy),
    ]
};

impl Suite {
    /// Every suite.
    pub const ALL: [Self; SUITES.len()] = {
        let mut all = [Self(&SUITES[0]); SUITES.len()];
        let mut next = 1;
        while next < SUITES.len() {
            all[next] = Self(&SUITES[next]);
            next += 1;
        }
        all
    };

    /// OpenSSL's name: `ECDHE-RSA-AES256-GCM-SHA384`.
    pub fn label(self) -> &'static str {
        self.0.name
    }

    /// IANA's name: `TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384`.
    pub fn iana(self) -> &'static str {
        self.0.iana
    }

    /// Whether no recommendation may name it.
    pub fn is_legacy(self) -> bool {
        self.0.strength == Strength::Legacy
    }

    /// Why it cannot be used with this version and key, if so.
    pub fn impossible(self, version: TlsVersion, key: Option<ServerKey>) -> Option<String> {
        let SuiteEntry { name, since, signer, .. } = self.0;
        if *since > version || (*since < TlsVersion::Tls13 && version == TlsVersion::Tls13) {
            let and_later = if *since < TlsVersion::Tls12 { " to tls1.2" } else { "" };
            return Some(format!("{name} is a suite of {since}{and_later}"));
        }
        let is_rsa = key?.rsa_bits().is_some();
        match signer {
            Signer::Rsa if !is_rsa => Some(format!("{name} needs an RSA certificate")),
            Signer::Ec if is_rsa => Some(format!("{name} needs an ECDSA certificate")),
            Signer::Any | Signer::Rsa | Signer::Ec => None,
        }
    }
}

labelled!(Suite: "cipher suite");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_are_known_by_both_names_and_differ_in_both() {
        let names: std::collections::BTreeSet<_> = Suite::ALL.into_iter().map(Suite::label).collect();
        let iana: std::collections::BTreeSet<_> = Suite::ALL.into_iter().map(Suite::iana).collect();
        assert_eq!((names.len(), iana.len()), (SUITES.len(), SUITES.len()));
        for suite in Suite::ALL {
            assert_eq!(Suite::from_label(suite.label()), Some(suite));
        }
    }

    #[test]
    fn a_suite_has_its_version_and_its_kind_of_certificate() {
        let suite = Suite::from_label("ECDHE-RSA-AES256-GCM-SHA384").unwrap();
        let why = |version, key| suite.impossible(version, key);
        assert_eq!(why(TlsVersion::Tls12, Some(ServerKey::Rsa4096)), None);
        assert_eq!(why(TlsVersion::Tls12, None), None);
        assert!(why(TlsVersion::Tls12, Some(ServerKey::Ed25519)).unwrap().contains("RSA certificate"));
        assert!(why(TlsVersion::Tls13, Some(ServerKey::Rsa4096)).unwrap().contains("of tls1.2"));
        assert!(why(TlsVersion::Tls11, Some(ServerKey::Rsa4096)).unwrap().contains("of tls1.2"));
        let old = Suite::from_label("AES256-SHA").unwrap();
        for version in [TlsVersion::Tls10, TlsVersion::Tls11, TlsVersion::Tls12] {
            assert_eq!(old.impossible(version, Some(ServerKey::Rsa2048)), None);
        }
        let said = old.impossible(TlsVersion::Tls13, Some(ServerKey::Rsa2048)).unwrap();
        assert_eq!(said, "AES256-SHA is a suite of tls1.0 to tls1.2");
        let modern = Suite::from_label("TLS_AES_128_GCM_SHA256").unwrap();
        assert_eq!(modern.impossible(TlsVersion::Tls13, Some(ServerKey::Ed25519)), None);
    }
}
