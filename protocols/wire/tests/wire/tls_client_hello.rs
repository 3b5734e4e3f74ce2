//! The key shares of real clients' first flights, which are also the inputs of the fuzz target.

use ciphertoll_vocabulary::Group;
use ciphertoll_wire::tls::{KeyShare, NamedGroup, key_shares};

/// `openssl s_client` 3.6 with its default groups: two shares.
const HYBRID: &[u8] = include_bytes!("../../../../checks/fuzz/seeds/tls_client_hello/tls13_hybrid");
const X25519: &[u8] = include_bytes!("../../../../checks/fuzz/seeds/tls_client_hello/tls13_x25519");
const TLS_1_2: &[u8] = include_bytes!("../../../../checks/fuzz/seeds/tls_client_hello/tls12");

fn share(group: Group, bytes: u16) -> KeyShare {
    KeyShare { group: group.into(), bytes }
}

#[test]
fn shares_are_in_the_order_of_the_client() {
    let hybrid = [share(Group::X25519MlKem768, 1184 + 32), share(Group::X25519, 32)];
    assert_eq!(key_shares(HYBRID).unwrap(), hybrid);
    assert_eq!(key_shares(X25519).unwrap(), [share(Group::X25519, 32)]);
}

#[test]
fn a_client_of_tls_1_2_has_none() {
    assert_eq!(key_shares(TLS_1_2), Some(Vec::new()));
}

#[test]
fn a_part_of_a_hello_has_no_shares_and_what_follows_it_is_ignored() {
    for end in 0..HYBRID.len() {
        assert_eq!(key_shares(&HYBRID[..end]), None, "{end}");
    }
    assert_eq!(key_shares(&[HYBRID, b"more"].concat()), key_shares(HYBRID));
}

#[test]
fn other_messages_are_no_hello() {
    for (at, value) in [(0, 23), (5, 2)] {
        let mut bytes = X25519.to_vec();
        bytes[at] = value;
        assert_eq!(key_shares(&bytes), None, "{at}");
    }
    assert_eq!(key_shares(b"GET / HTTP/1.1\r\n"), None);
}

#[test]
fn at_most_eight_shares_are_read() {
    let list: Vec<u8> = [0x0a, 0x0a, 0, 1, 0].repeat(100);
    let field = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat();
    let extension = [&[0, 51][..], &field(&field(&list))].concat();
    let body = [&[3, 3][..], &[0; 32], &[0], &field(&[0x13, 1]), &[1, 0], &field(&extension)].concat();
    let message = [&[1, 0][..], &field(&body)].concat();
    let shares = key_shares(&[&[22, 3, 1][..], &field(&message)].concat()).unwrap();
    assert_eq!(shares, [KeyShare { group: NamedGroup(0x0a0a), bytes: 1 }; 8]);
}
