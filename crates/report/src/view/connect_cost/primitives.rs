//! The times of the primitives of a handshake, multiplied by the number of times that the handshake uses them.

use ciphertoll_model::{
    ClientCertificate, Leg, LegCount, ServerKey, SignatureTime, TlsLibrary, TlsPath, TlsVersion,
};
use ciphertoll_stats::{CellAnalysis, PrimitiveTimes};

/// The key of the authority that signs the certificates of private servers and of clients.
const AUTHORITY: ServerKey = ServerKey::P256;
/// Each side generates a key and derives the secret.
const SIDES: f64 = 2.0;
/// Suites without a signature: the client encrypts a secret for the certificate's key (RFC 5246, 7.4.7.1).
const KEY_TRANSPORT: &str = "TLS_RSA_WITH_";

/// Observed groups and timed groups have the same labels except for case.
fn agree_ns(times: &PrimitiveTimes<'_>, group: &str) -> Option<f64> {
    let time = times.key_exchanges.iter().find(|(label, _)| label.eq_ignore_ascii_case(group));
    time.map(|(_, time)| time.agree_ns as f64)
}

/// A caveat of one bar.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Remark {
    /// The primitives take longer than the whole handshake if timed alone.
    Shrunk { timed_ns: f64, handshake_ns: f64 },
    /// Its key exchange was not timed.
    NotTimed { group: Option<String> },
    /// A decryption replaces the signature.
    KeyTransport,
}

/// The times of the primitives of one mean connection.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Primitives {
    pub(super) signature_ns: f64,
    pub(super) chain_ns: f64,
    pub(super) key_exchange_ns: f64,
    pub(super) remarks: Vec<Remark>,
}

impl Primitives {
    /// `None` for another TLS library and for a key that was not timed.
    pub(super) fn of(cell: &CellAnalysis, tls: TlsPath, times: &PrimitiveTimes<'_>) -> Option<Self> {
        if tls.library != TlsLibrary::OpenSsl {
            return None;
        }
        let own = times.signatures.get(tls.key?.label())?;
        let authority = times.signatures.get(AUTHORITY.label())?;
        let encrypted = || cell.legs.iter().filter(|count| count.leg.tls_version.is_some());
        let connections: u64 = encrypted().map(|count| count.connections).sum();
        let mut mean = Self::default();
        for LegCount { leg, connections: of_leg } in encrypted() {
            let share = *of_leg as f64 / connections as f64;
            if leg.resumed != Some(true) {
                mean.prove(leg, tls, share, [own, authority]);
            }
            mean.exchange(leg, share, times);
        }
        (connections > 0).then_some(mean)
    }

    pub(super) fn sum_ns(&self) -> f64 {
        self.signature_ns + self.chain_ns + self.key_exchange_ns
    }

    /// Signatures of the handshake and of the certificates that the peer verifies: the root's own, and below it those by keys
    /// of the certificate's kind, except for Ed25519.
    fn prove(&mut self, leg: &Leg, tls: TlsPath, share: f64, times: [&SignatureTime; 2]) {
        let [own, authority] = times;
        let between = if tls.key == Some(ServerKey::Ed25519) { authority } else { own };
        let further = f64::from(leg.chain.unwrap_or(1).saturating_sub(1));
        self.signature_ns += share * (own.sign_ns + own.verify_ns) as f64;
        self.chain_ns += share * (authority.verify_ns as f64 + further * between.verify_ns as f64);
        if tls.client_certificate == ClientCertificate::Demanded {
            self.signature_ns += share * (authority.sign_ns + authority.verify_ns) as f64;
            self.chain_ns += share * authority.verify_ns as f64;
        }
    }

    fn exchange(&mut self, leg: &Leg, share: f64, times: &PrimitiveTimes<'_>) {
        let is_tls13 = leg.tls_version.as_deref() == Some(TlsVersion::Tls13.label());
        if leg.resumed == Some(true) && !is_tls13 {
            return;
        }
        if leg.suite.as_deref().is_some_and(|suite| suite.starts_with(KEY_TRANSPORT)) {
            return self.remark(Remark::KeyTransport);
        }
        match leg.group.as_deref().and_then(|group| agree_ns(times, group)) {
            Some(agree_ns) => self.key_exchange_ns += share * SIDES * agree_ns,
            None => self.remark(Remark::NotTimed { group: leg.group.clone() }),
        }
    }

    fn remark(&mut self, remark: Remark) {
        if !self.remarks.contains(&remark) {
            self.remarks.push(remark);
        }
    }
}

#[cfg(test)]
mod tests {
    use ciphertoll_model::{KeyExchangeTime, Plan, Spec};
    use ciphertoll_stats::analyse;

    use super::*;

    const P256: SignatureTime = SignatureTime { sign_ns: 20_000, verify_ns: 60_000 };
    const RSA: SignatureTime = SignatureTime { sign_ns: 1_000_000, verify_ns: 30_000 };

    fn leg(version: &str, group: Option<&str>, resumed: bool) -> Leg {
        Leg {
            from: "client".to_owned(),
            to: "server".to_owned(),
            tls_version: Some(version.to_owned()),
            suite: Some("TLS_AES_256_GCM_SHA384".to_owned()),
            group: group.map(str::to_owned),
            key: Some("rsa2048".to_owned()),
            resumed: Some(resumed),
            chain: (!resumed).then_some(1),
            hello_retry: Some(false),
            auth: None,
            library: Some("openssl".to_owned()),
            compressor: None,
        }
    }

    /// The primitives of a connect over `path` with these legs.
    fn primitives(path: &str, legs: &[(Leg, u64)]) -> Option<Primitives> {
        let spec = format!("[[grid]]\npath = [\"plain\", \"{path}\"]\nworkload = [\"connect\"]\n");
        let plan = Plan::new(&Spec::from_toml(&spec).unwrap(), 1).unwrap();
        let analysis = analyse(&plan, &[]);
        let mut cells = analysis.cells().into_iter();
        let mut cell = cells.find(|cell| cell.cell.treatment.path.as_tls().is_some()).unwrap().clone();
        cell.legs = legs
            .iter()
            .map(|(leg, connections)| LegCount { leg: leg.clone(), connections: *connections })
            .collect();
        let signatures = [("p256".to_owned(), P256), ("rsa2048".to_owned(), RSA)].into();
        let key_exchanges = [("x25519".to_owned(), KeyExchangeTime { agree_ns: 50_000 })].into();
        let times = PrimitiveTimes { signatures: &signatures, key_exchanges: &key_exchanges };
        Primitives::of(&cell, cell.cell.treatment.path.as_tls().unwrap(), &times)
    }

    /// Signature, chain and key exchange, if there are no remarks.
    fn times(found: Option<Primitives>) -> Option<[f64; 3]> {
        let Primitives { signature_ns, chain_ns, key_exchange_ns, remarks } = found?;
        assert_eq!(remarks, []);
        Some([signature_ns, chain_ns, key_exchange_ns])
    }

    #[test]
    fn a_full_handshake_has_one_of_each() {
        let full = primitives("tls1.3-rsa2048", &[(leg("tls1.3", Some("X25519"), false), 9)]);
        assert_eq!(times(full), Some([1_030_000.0, 60_000.0, 100_000.0]));
    }

    #[test]
    fn chains_and_client_certificates_are_verified_too() {
        let mut three = leg("tls1.3", Some("x25519"), false);
        three.chain = Some(3);
        let chain = primitives("tls1.3-rsa2048+chain=3", &[(three, 9)]);
        assert_eq!(times(chain), Some([1_030_000.0, 60_000.0 + 2.0 * 30_000.0, 100_000.0]));
        let mutual = primitives("tls1.3-rsa2048+mtls", &[(leg("tls1.3", Some("x25519"), false), 9)]);
        assert_eq!(times(mutual), Some([1_030_000.0 + 80_000.0, 2.0 * 60_000.0, 100_000.0]));
    }

    #[test]
    fn a_resumed_one_has_a_key_exchange_at_most() {
        let new = primitives("tls1.3-rsa2048", &[(leg("tls1.3", Some("x25519"), true), 9)]);
        assert_eq!(times(new), Some([0.0, 0.0, 100_000.0]));
        assert_eq!(times(primitives("tls1.2-rsa2048", &[(leg("tls1.2", None, true), 9)])), Some([0.0; 3]));
    }

    #[test]
    fn connections_that_differ_count_by_their_number() {
        let (full, resumed) = (leg("tls1.3", Some("x25519"), false), leg("tls1.3", Some("x25519"), true));
        let mixed = primitives("tls1.3-p256", &[(full, 1), (resumed, 3)]);
        assert_eq!(times(mixed), Some([20_000.0, 15_000.0, 100_000.0]));
    }

    #[test]
    fn untimed_key_exchanges_are_remarked() {
        let dhe = primitives("tls1.2-rsa2048", &[(leg("tls1.2", None, false), 9)]).unwrap();
        assert_eq!((dhe.key_exchange_ns, dhe.remarks), (0.0, vec![Remark::NotTimed { group: None }]));
        let mut transport = leg("tls1.2", None, false);
        transport.suite = Some("TLS_RSA_WITH_AES_256_CBC_SHA".to_owned());
        let transport = primitives("tls1.2-rsa2048", &[(transport, 9)]).unwrap();
        assert_eq!(
            (transport.signature_ns, transport.key_exchange_ns, transport.remarks),
            (1_030_000.0, 0.0, vec![Remark::KeyTransport])
        );
    }

    #[test]
    fn without_timed_primitives_there_is_no_breakdown() {
        let encrypted = leg("tls1.3", Some("x25519"), false);
        assert_eq!(primitives("tls1.3-rsa4096", &[(encrypted.clone(), 9)]), None, "a key that was not timed");
        assert_eq!(primitives("tls1.3-p256+client=rustls", &[(encrypted, 9)]), None);
        assert_eq!(primitives("tls1.3-p256", &[]), None, "nothing was observed");
    }
}
