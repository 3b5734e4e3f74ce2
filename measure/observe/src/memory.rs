//! What is kept of connections, and how much memory it takes.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use ciphertoll_wire::tls::{ClientOffer, TlsHandshake};

/// Of all shared values. Beyond it, values belong to their connection.
pub(crate) const MAX_SHARED_BYTES: usize = 4 << 20;
/// A chunk of glibc's allocator: a header of 8 bytes, in steps of 16, at least 32.
const CHUNK_HEADER_BYTES: usize = 8;
const CHUNK_STEP_BYTES: usize = 16;
const MIN_CHUNK_BYTES: usize = 32;

/// What an allocation of this size takes.
pub(crate) fn allocated(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        _ => (bytes + CHUNK_HEADER_BYTES).next_multiple_of(CHUNK_STEP_BYTES).max(MIN_CHUNK_BYTES),
    }
}

/// Offers of clients and certificates of servers. Most connections have the same as others.
#[derive(Default)]
pub(crate) struct SharedValues {
    offers: HashSet<Arc<ClientOffer>>,
    certificates: HashSet<Arc<[Vec<u8>]>>,
    bytes: usize,
}

impl SharedValues {
    pub(crate) fn share_offer(&mut self, handshake: &mut TlsHandshake) {
        if let Some(offer) = &mut handshake.offer {
            self.share(offer, |shared| &mut shared.offers, offer_bytes);
        }
    }

    pub(crate) fn share_certificates(&mut self, handshake: &mut TlsHandshake) {
        self.share(&mut handshake.certificates, |shared| &mut shared.certificates, certificates_bytes);
    }

    fn share<T: Hash + Eq + ?Sized>(
        &mut self,
        value: &mut Arc<T>,
        set: impl Fn(&mut Self) -> &mut HashSet<Arc<T>>,
        bytes: impl Fn(&T) -> usize,
    ) {
        if let Some(known) = set(self).get(&*value) {
            *value = Arc::clone(known);
            return;
        }
        let own = bytes(&*value);
        if self.bytes + own > MAX_SHARED_BYTES {
            self.forget_unused();
        }
        if self.bytes + own <= MAX_SHARED_BYTES {
            self.bytes += own;
            set(self).insert(Arc::clone(value));
        }
    }

    fn forget_unused(&mut self) {
        self.offers.retain(|offer| Arc::strong_count(offer) > 1);
        self.certificates.retain(|certificates| Arc::strong_count(certificates) > 1);
        self.bytes = self.offers.iter().map(|offer| offer_bytes(offer)).sum::<usize>()
            + self.certificates.iter().map(|chain| certificates_bytes(chain)).sum::<usize>();
    }
}

/// Memory of a handshake's values that no other connection and not [`SharedValues`] has.
pub(crate) fn own_bytes(handshake: &TlsHandshake) -> usize {
    let offer = handshake.offer.as_ref().filter(|offer| Arc::strong_count(offer) == 1);
    let chain = Some(&handshake.certificates).filter(|chain| Arc::strong_count(chain) == 1);
    offer.map_or(0, |offer| offer_bytes(offer)) + chain.map_or(0, |chain| certificates_bytes(chain))
}

fn offer_bytes(offer: &ClientOffer) -> usize {
    // Four lists.
    allocated(size_of::<ClientOffer>()) + offer.heap_bytes() + 4 * MIN_CHUNK_BYTES
}

fn certificates_bytes(chain: &[Vec<u8>]) -> usize {
    if chain.is_empty() {
        return 0;
    }
    allocated(size_of_val(chain)) + chain.iter().map(|der| allocated(der.capacity())).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handshake(certificate: Vec<u8>) -> TlsHandshake {
        TlsHandshake {
            offer: Some(Arc::new(ClientOffer { suites: vec![0x1301; 30], ..ClientOffer::default() })),
            certificates: vec![certificate].into(),
            ..TlsHandshake::default()
        }
    }

    #[test]
    fn equal_values_are_kept_once_and_unequal_ones_up_to_a_bound() {
        let mut shared = SharedValues::default();
        let mut kept = Vec::new();
        for number in 0..2_000_u32 {
            let mut handshake = handshake(number.to_be_bytes().repeat(2_000));
            shared.share_offer(&mut handshake);
            shared.share_certificates(&mut handshake);
            kept.push(handshake);
        }
        assert_eq!(shared.offers.len(), 1);
        assert!(shared.bytes <= MAX_SHARED_BYTES && shared.certificates.len() > 400);
        assert_eq!(own_bytes(&kept[0]), 0);
        assert!(own_bytes(&kept[1_999]) >= 8_000);
        kept.clear();
        shared.share_certificates(&mut handshake(vec![1; 8_000]));
        assert_eq!((shared.offers.len(), shared.certificates.len()), (0, 1));
    }
}
