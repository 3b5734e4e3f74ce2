//! The authentication response of a hostile client and the salt of a server, for every plugin. No client without the
//! password is accepted.

use ciphertoll_wire::mysql::auth::caching_sha2::CachedPassword;
use ciphertoll_wire::mysql::auth::clear_password;
use ciphertoll_wire::mysql::auth::native_password::StoredPassword;
use ciphertoll_wire::mysql::auth::parsec::ExtSalt;
use ciphertoll_wire::mysql::server;

const PASSWORD: &[u8] = b"correct horse";
const NONCE: &[u8; 20] = b"abcdefghijklmnopqrst";

pub fn run(data: &[u8]) {
    assert!(!StoredPassword::of(PASSWORD).accepts(NONCE, data));
    assert!(!CachedPassword::of(PASSWORD).accepts(NONCE, data));
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
