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
        signature: None,
        library_version: None,
        unused_shares: Vec::new(),
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
        .map(|(leg, connections)| LegCount { leg: leg.clone(), connections: *connections, handshake: None })
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
