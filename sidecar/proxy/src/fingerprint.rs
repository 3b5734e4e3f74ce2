//! Fingerprints of what connections are opened with, so that changes are noticed without keeping secrets.

use openssl::sha::Sha256;

/// Equal credentials, certificates and verification settings have equal fingerprints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

#[derive(Clone, Default)]
pub(crate) struct FingerprintBuilder(Sha256);

impl FingerprintBuilder {
    pub(crate) fn add(&mut self, part: &[u8]) {
        self.0.update(&part.len().to_be_bytes());
        self.0.update(part);
    }

    pub(crate) fn finish(self) -> Fingerprint {
        Fingerprint(self.0.finish())
    }
}
