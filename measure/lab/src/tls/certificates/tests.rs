use openssl::stack::Stack;
use openssl::x509::store::X509StoreBuilder;
use openssl::x509::verify::X509VerifyParam;
use openssl::x509::{X509StoreContext, X509StoreContextRef};

use super::*;

fn verifies(authority: &Authority, leaf: &Certificate, address: &str) -> bool {
    let mut sent = X509::stack_from_pem(&leaf.certificate_pem).unwrap().into_iter();
    let leaf = sent.next().unwrap();
    let mut between = Stack::new().unwrap();
    sent.for_each(|certificate| between.push(certificate).unwrap());
    let mut parameters = X509VerifyParam::new().unwrap();
    parameters.set_ip(address.parse().unwrap()).unwrap();
    let mut store = X509StoreBuilder::new().unwrap();
    store.add_cert(X509::from_pem(&authority.certificate_pem().unwrap()).unwrap()).unwrap();
    store.set_param(&parameters).unwrap();
    let mut context = X509StoreContext::new().unwrap();
    context.init(&store.build(), &leaf, &between, X509StoreContextRef::verify_cert).unwrap()
}

#[test]
fn certificates_verify_for_loopback_and_nothing_else() {
    let authority = Authority::generate().unwrap();
    for key in ServerKey::ALL.into_iter().filter(|key| !key.is_ml_dsa()) {
        let leaf = authority.issue(key).unwrap();
        assert!(verifies(&authority, &leaf, "127.0.0.1"));
        assert!(verifies(&authority, &leaf, "::1"));
        assert!(!verifies(&authority, &leaf, "127.0.0.2"));
        assert!(!verifies(&Authority::generate().unwrap(), &leaf, "127.0.0.1"));
    }
}

#[test]
fn a_chain_ends_below_the_authority() {
    let authority = Authority::generate().unwrap();
    for key in [ServerKey::P384, ServerKey::Ed25519, ServerKey::Rsa2048] {
        for length in [1, 2, 4] {
            let chain = ChainLength::new(length);
            let leaf = authority.issue(ServerCertificate { key, chain }).unwrap();
            let sent = X509::stack_from_pem(&leaf.certificate_pem).unwrap();
            assert_eq!(sent.len(), usize::from(length));
            let above = sent.iter().skip(1).chain([&authority.certificate]);
            for (below, above) in sent.iter().zip(above) {
                assert_eq!(above.issued(below), openssl::x509::X509VerifyResult::OK, "{key} {length}");
                assert!(below.verify(&above.public_key().unwrap()).unwrap());
            }
            assert!(verifies(&authority, &leaf, "127.0.0.1"), "{key} {length}");
        }
    }
}

#[test]
fn a_client_certificate_has_the_user_name_and_is_not_valid_for_a_server() {
    let authority = Authority::generate().unwrap();
    let certificate = authority.issue_to_client("alice").unwrap();
    let leaf = X509::from_pem(&certificate.certificate_pem).unwrap();
    let names: Vec<_> = leaf.subject_name().entries().map(|entry| entry.data().as_slice().to_vec()).collect();
    assert_eq!(names, [b"alice"]);
    assert!(leaf.verify(&authority.certificate.public_key().unwrap()).unwrap());
    assert!(!verifies(&authority, &certificate, "127.0.0.1"));
}

#[test]
fn certificates_have_the_requested_key() {
    let authority = Authority::generate().unwrap();
    let key_of =
        |key| X509::from_pem(&authority.issue(key).unwrap().certificate_pem).unwrap().public_key().unwrap();
    let p256 = key_of(ServerKey::P256).ec_key().unwrap();
    assert_eq!(p256.group().curve_name(), Some(Nid::X9_62_PRIME256V1));
    assert_eq!(key_of(ServerKey::P384).ec_key().unwrap().group().curve_name(), Some(Nid::SECP384R1));
    assert_eq!(key_of(ServerKey::Ed25519).id(), openssl::pkey::Id::ED25519);
    for key in [ServerKey::Rsa1024, ServerKey::Rsa2048, ServerKey::Rsa3072, ServerKey::Rsa4096] {
        assert_eq!(Some(key_of(key).rsa().unwrap().size() * 8), key.rsa_bits());
    }
}
