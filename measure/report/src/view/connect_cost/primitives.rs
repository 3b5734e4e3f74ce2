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
        if tls.parameters.library != TlsLibrary::OpenSsl {
            return None;
        }
        let own = times.signatures.get(tls.key?.label())?;
        let authority = times.signatures.get(AUTHORITY.label())?;
        let encrypted = || cell.legs.iter().filter(|count| count.leg.tls_version.is_some());
        let connections: u64 = encrypted().map(|count| count.connections).sum();
        let mut mean = Self::default();
        for LegCount { leg, connections: of_leg, .. } in encrypted() {
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
mod tests;
