//! Arbitrary bytes through the passive TLS observer, at once and in portions, with the same result.
//!
//! Input: one byte for the portion size, then the bytes.

use ciphertoll_wire::tls::FlightObserver;

pub fn run(data: &[u8]) {
    let Some((&size, bytes)) = data.split_first() else { return };
    let mut whole = FlightObserver::new();
    whole.feed(bytes);
    let mut portions = FlightObserver::new();
    for portion in bytes.chunks(usize::from(size).max(1)) {
        portions.feed(portion);
    }
    assert_eq!(whole.flight(), portions.flight());
    assert_eq!(whole.finished(), portions.finished());
}
