//! The server's RSA key, which protects a `caching_sha2_password` password on an unencrypted path.

use openssl::{
    base64,
    pkey::Public,
    rsa::{Padding, Rsa},
};

use crate::mysql::{
    auth::{clear_password, native_password::NONCE_BYTES},
    error::Error,
};

const PEM_BEGIN: &str = "-----BEGIN PUBLIC KEY-----";
const PEM_END: &str = "-----END PUBLIC KEY-----";
/// Servers generate keys of 2048 bits. A shorter one could be an attempt to read the password.
const MIN_KEY_BITS: i32 = 2048;
/// A longer one could be an attempt to exhaust the client's CPU.
const MAX_KEY_BITS: i32 = 8192;
/// The overhead of OAEP with SHA-1 (RFC 8017, section 7.1.1).
const OAEP_BYTES: usize = 42;
const MESSAGE: &str = "public key";

/// The password with its NUL, `XORed` with the nonce and encrypted with the key in `pem`.
pub(crate) fn seal(pem: &[u8], nonce: &[u8; NONCE_BYTES], password: &[u8]) -> Result<Vec<u8>, Error> {
    let key = parse_pem(pem).ok_or(Error::protocol(MESSAGE, "it is not an RSA key"))?;
    if !(MIN_KEY_BITS..=MAX_KEY_BITS).contains(&key.n().num_bits()) {
        return Err(Error::protocol(MESSAGE, "it does not have 2048 to 8192 bits"));
    }
    let mut masked = clear_password::response(password)?;
    let limit = key.size() as usize - OAEP_BYTES;
    if masked.len() > limit {
        return Err(Error::PasswordTooLong { limit: limit - 1 });
    }
    mask(&mut masked, nonce);
    let mut sealed = vec![0; key.size() as usize];
    let length = key
        .public_encrypt(&masked, &mut sealed, Padding::PKCS1_OAEP)
        .map_err(|_| Error::protocol(MESSAGE, "it cannot encrypt"))?;
    sealed.truncate(length);
    Ok(sealed)
}

/// OpenSSL's PEM parser prompts at the terminal for an encrypted file, so only its DER parser is used.
fn parse_pem(pem: &[u8]) -> Option<Rsa<Public>> {
    let text = std::str::from_utf8(pem).ok()?.trim_end_matches('\0').trim();
    let body = text.strip_prefix(PEM_BEGIN)?.strip_suffix(PEM_END)?;
    let encoded: String = body.split_ascii_whitespace().collect();
    let der = base64::decode_block(&encoded).ok()?;
    Rsa::public_key_from_der(&der).ok()
}

fn mask(bytes: &mut [u8], nonce: &[u8; NONCE_BYTES]) {
    for (byte, mask) in bytes.iter_mut().zip(nonce.iter().cycle()) {
        *byte ^= mask;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: &[u8; NONCE_BYTES] = b"abcdefghijklmnopqrst";

    fn pem(bits: u32) -> Vec<u8> {
        Rsa::generate(bits).unwrap().public_key_to_pem().unwrap()
    }

    #[test]
    fn the_server_opens_what_was_sealed() {
        let key = Rsa::generate(2048).unwrap();
        let pem = key.public_key_to_pem().unwrap();
        // As MySQL sends it, and with a NUL appended, as some servers do.
        for pem in [pem.clone(), [pem.as_slice(), b"\0"].concat()] {
            for password in [&b"correct horse"[..], b"", &[b'x'; 213]] {
                let sealed = seal(&pem, NONCE, password).unwrap();
                let mut opened = vec![0; key.size() as usize];
                let length = key.private_decrypt(&sealed, &mut opened, Padding::PKCS1_OAEP).unwrap();
                opened.truncate(length);
                mask(&mut opened, NONCE);
                assert_eq!(opened, [password, b"\0"].concat());
            }
        }
    }

    #[test]
    fn passwords_that_do_not_fit_are_refused() {
        assert_eq!(seal(&pem(2048), NONCE, &[b'x'; 214]), Err(Error::PasswordTooLong { limit: 213 }));
        assert_eq!(seal(&pem(2048), NONCE, b"a\0b"), Err(Error::InvalidLogin { field: "password" }));
    }

    #[test]
    fn unsuitable_keys_are_refused() {
        let whole = String::from_utf8(pem(2048)).unwrap();
        let encrypted = whole.replacen('\n', "\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\n", 1);
        let curve = openssl::ec::EcGroup::from_curve_name(openssl::nid::Nid::X9_62_PRIME256V1).unwrap();
        let elliptic = openssl::ec::EcKey::generate(&curve).unwrap().public_key_to_pem().unwrap();
        let cases = [
            Vec::new(),
            b"-----BEGIN PUBLIC KEY-----".to_vec(),
            b"-----BEGIN PUBLIC KEY----------END PUBLIC KEY-----".to_vec(),
            b"-----BEGIN PUBLIC KEY-----\n\xff\n-----END PUBLIC KEY-----".to_vec(),
            whole[..whole.len() / 2].into(),
            encrypted.into(),
            elliptic,
            pem(1024),
        ];
        for case in cases {
            let error = seal(&case, NONCE, b"correct horse").unwrap_err();
            assert!(matches!(error, Error::Protocol { message: MESSAGE, .. }), "{error}");
        }
    }
}
