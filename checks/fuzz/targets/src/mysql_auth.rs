//! The authentication response of a hostile client and the salt of a server, for every plugin. No client without the
//! password is accepted.

use std::sync::OnceLock;

use ciphertoll_wire::mysql::auth::caching_sha2::{CachedPassword, RsaKey};
use ciphertoll_wire::mysql::auth::native_password::StoredPassword;
use ciphertoll_wire::mysql::auth::parsec::{self, ExtSalt};
use ciphertoll_wire::mysql::auth::{clear_password, ed25519};
use ciphertoll_wire::mysql::server;

const PASSWORD: &[u8] = b"correct horse";
const NONCE: &[u8; 20] = b"abcdefghijklmnopqrst";
const LONG_NONCE: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz012345";
const SALT: ExtSalt<'static> = ExtSalt { exponent: 0, salt: b"eighteen bytes...." };

struct Stored {
    rsa: RsaKey,
    ed25519: ed25519::StoredKey,
    parsec: parsec::StoredKey,
}

fn stored() -> &'static Stored {
    static STORED: OnceLock<Stored> = OnceLock::new();
    STORED.get_or_init(|| Stored {
        rsa: RsaKey::generate().expect("OpenSSL makes a key"),
        ed25519: ed25519::StoredKey::of(PASSWORD),
        parsec: parsec::StoredKey::of(PASSWORD, &SALT).expect("OpenSSL makes a key"),
    })
}

pub fn run(data: &[u8]) {
    let stored = stored();
    assert!(!StoredPassword::of(PASSWORD).accepts(NONCE, data));
    assert!(!CachedPassword::of(PASSWORD).accepts(NONCE, data));
    assert!(!stored.ed25519.accepts(LONG_NONCE, data));
    assert!(!stored.parsec.accepts(LONG_NONCE, data));
    assert!(stored.rsa.open(NONCE, data).is_none_or(|password| password.expose() != PASSWORD));
    if let Some(password) = clear_password::parse(data) {
        assert_eq!(password.len() + 1, data.len());
    }
    if let Ok(salt) = ExtSalt::parse(data) {
        let mut payload = Vec::new();
        salt.encode(&mut payload);
        assert_eq!(payload, data);
        assert!(salt.iterations() <= 8192);
    }
    let mut input = data;
    match server::read_auth_response(&mut input, 3) {
        Ok(Some(payload)) => assert_eq!(payload.len() + 4 + input.len(), data.len()),
        Ok(None) | Err(_) => assert_eq!(input.len(), data.len()),
    }
}
