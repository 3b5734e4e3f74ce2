//! Arbitrary bytes as a client's first TLS flight: the key shares are few, lie within the input, and depend only on the
//! first record.

use ciphertoll_wire::tls::key_shares;

const RECORD_HEADER_BYTES: usize = 5;

pub fn run(data: &[u8]) {
    let Some(shares) = key_shares(data) else { return };
    let bytes: usize = shares.iter().map(|share| usize::from(share.bytes)).sum();
    assert!(shares.len() <= 8 && bytes < data.len());
    let record = RECORD_HEADER_BYTES + usize::from(u16::from_be_bytes([data[3], data[4]]));
    assert_eq!(key_shares(&data[..record]), Some(shares));
}
