//! An account of a server with any of the plugins, which judges a client's proof.

use std::sync::OnceLock;

use ciphertoll_wire::mysql::Plugin;
use ciphertoll_wire::mysql::auth::caching_sha2::{CachedPassword, FULL, KEY_WANTED};
use ciphertoll_wire::mysql::auth::clear_password;
use ciphertoll_wire::mysql::auth::native_password::StoredPassword;
use ciphertoll_wire::mysql::auth::parsec::ExtSalt;
use ed25519_dalek::hazmat::ExpandedSecretKey;
use ed25519_dalek::{Signature, SigningKey, Verifier, VerifyingKey};
use openssl::hash::MessageDigest;
use openssl::pkcs5::pbkdf2_hmac;
use openssl::pkey::Private;
use openssl::rsa::{Padding, Rsa};
use openssl::sha::sha512;

/// The greeting's nonce, and the one of a plugin switch, so that proofs differ.
pub(crate) const NONCE: [u8; 20] = *b"abcdefghijklmnopqrst";
const SWITCH_NONCE: &[u8; 20] = b"ABCDEFGHIJKLMNOPQRST";
/// For MariaDB's plugins. It ends in a NUL, which belongs to it.
const LONG_NONCE: &[u8; 32] = b"0123456789abcdefghijklmnopqrstu\0";
const SALT: &[u8] = b"eighteen bytes....";

/// How an account authenticates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Native,
    CachingSha2(Cache),
    Ed25519,
    Parsec { exponent: u8 },
    Clear,
}

/// Whether the server has cached the account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cache {
    Hit,
    Miss,
}

pub(crate) struct Account {
    way: Way,
    password: Vec<u8>,
    nonce: [u8; 20],
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Proof,
    /// The salt has been sent.
    Signature,
    /// The password is expected, in cleartext or encrypted.
    Password,
}

/// The server's next message.
pub(crate) enum Say {
    Ok,
    Deny,
    /// `caching_sha2_password` accepts, which is followed by an OK.
    FastOk,
    /// With the `0x01` of `AuthMoreData`.
    More(Vec<u8>),
    /// Without it, as MariaDB does.
    Bare(Vec<u8>),
}

/// Generated once, because it is slow.
fn rsa_key() -> &'static Rsa<Private> {
    static KEY: OnceLock<Rsa<Private>> = OnceLock::new();
    KEY.get_or_init(|| Rsa::generate(2048).expect("OpenSSL generates a key"))
}

/// The message that was encrypted with the RSA key and masked with the nonce.
fn opened(nonce: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
    let mut opened = vec![0; rsa_key().size() as usize];
    let length = rsa_key().private_decrypt(sealed, &mut opened, Padding::PKCS1_OAEP).ok()?;
    opened.truncate(length);
    opened.iter_mut().zip(nonce.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
    Some(opened)
}

fn is_signed(key: &VerifyingKey, message: &[u8], signature: &[u8]) -> bool {
    Signature::from_slice(signature).is_ok_and(|signature| key.verify(message, &signature).is_ok())
}

impl Account {
    pub(crate) fn new(way: Way, password: &[u8]) -> Self {
        Self { way, password: password.to_vec(), nonce: NONCE, stage: Stage::Proof }
    }

    pub(crate) fn plugin(&self) -> &'static [u8] {
        match self.way {
            Way::Native => Plugin::NativePassword.name(),
            Way::CachingSha2(_) => Plugin::CachingSha2Password.name(),
            Way::Ed25519 => Plugin::Ed25519.name(),
            Way::Parsec { .. } => Plugin::Parsec.name(),
            Way::Clear => clear_password::NAME,
        }
    }

    /// The data of a switch request, which the client must answer.
    pub(crate) fn challenge(&mut self) -> &'static [u8] {
        match self.way {
            Way::Native | Way::CachingSha2(_) => {
                self.nonce = *SWITCH_NONCE;
                b"ABCDEFGHIJKLMNOPQRST\0"
            }
            Way::Ed25519 | Way::Parsec { .. } => LONG_NONCE,
            Way::Clear => b"",
        }
    }

    pub(crate) fn hear(&mut self, message: &[u8]) -> Say {
        match (self.way, self.stage) {
            (Way::Native | Way::CachingSha2(_), Stage::Proof) if self.password.is_empty() => {
                verdict(message.is_empty())
            }
            (Way::Native, _) => verdict(StoredPassword::of(&self.password).accepts(&self.nonce, message)),
            (Way::CachingSha2(cache), Stage::Proof) => self.hear_sha2(cache, message),
            (Way::CachingSha2(_), _) if message == [KEY_WANTED] => {
                Say::More(rsa_key().public_key_to_pem().expect("OpenSSL writes a key"))
            }
            (Way::CachingSha2(_), _) => {
                let opened = opened(&self.nonce, message);
                let password = clear_password::parse(opened.as_deref().unwrap_or(message));
                verdict(password == Some(&self.password))
            }
            (Way::Ed25519, _) => {
                let secret = ExpandedSecretKey::from_bytes(&sha512(&self.password));
                verdict(is_signed(&VerifyingKey::from(&secret), LONG_NONCE, message))
            }
            (Way::Parsec { exponent }, Stage::Proof) => {
                assert!(message.is_empty(), "the client asks for the salt");
                self.stage = Stage::Signature;
                let mut payload = Vec::new();
                ExtSalt { exponent, salt: SALT }.encode(&mut payload);
                Say::Bare(payload)
            }
            (Way::Parsec { exponent }, _) => {
                let (mut seed, digest) = ([0; 32], MessageDigest::sha512());
                pbkdf2_hmac(&self.password, SALT, 1024 << exponent, digest, &mut seed).expect("derived");
                let (client_nonce, signature) = message.split_at(LONG_NONCE.len());
                let signed = [LONG_NONCE, client_nonce].concat();
                verdict(is_signed(&SigningKey::from_bytes(&seed).verifying_key(), &signed, signature))
            }
            (Way::Clear, _) => verdict(clear_password::parse(message) == Some(&self.password)),
        }
    }

    fn hear_sha2(&mut self, cache: Cache, message: &[u8]) -> Say {
        let accepted = CachedPassword::of(&self.password).accepts(&self.nonce, message);
        if cache == Cache::Hit && accepted {
            return Say::FastOk;
        }
        // A wrong proof does not mean a wrong password: the cache may be stale.
        self.stage = Stage::Password;
        Say::More(vec![FULL])
    }
}

fn verdict(accepted: bool) -> Say {
    if accepted { Say::Ok } else { Say::Deny }
}
