use super::*;
use crate::xts::MOST_UNIT_BYTES;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

#[test]
fn ieee_1619_vector_10() {
    let keys = bytes(
        "27182818284590452353602874713526624977572470936999595749669676273141592653589793238462643383279502884197\
         169399375105820974944592",
    );
    let mut tweak = [0; 16];
    tweak[0] = 0xFF;
    let plain: Vec<u8> = (0..512).map(|n| n as u8).collect();
    let sealed = bytes(include_str!("../../tests/ieee-1619-vector-10.hex"));
    let mut cipher = PageCipher::new(CipherKind::Aes256).expect("the cipher is supported");
    cipher.set_key(&keys.try_into().expect("64 bytes")).expect("a key");
    let mut unit = plain.clone();
    // Twice: the first unit must not leave state that changes the second.
    for _ in 0..2 {
        cipher.encrypt(&tweak, &mut unit).expect("encrypts");
        assert_eq!(unit, sealed);
        cipher.decrypt(&tweak, &mut unit).expect("decrypts");
        assert_eq!(unit, plain);
    }
}

#[test]
fn the_null_cipher_changes_nothing() {
    let mut cipher = PageCipher::new(CipherKind::Null).expect("cannot fail");
    let mut unit = [7; 32];
    cipher.set_key(&[1; 64]).expect("cannot fail");
    cipher.encrypt(&[2; 16], &mut unit).expect("cannot fail");
    assert_eq!(unit, [7; 32]);
    cipher.decrypt(&[2; 16], &mut unit).expect("cannot fail");
    assert_eq!(unit, [7; 32]);
    assert!(!CipherKind::Null.encrypts() && CipherKind::Aes256.encrypts());
}

#[test]
fn ciphertext_equals_that_of_openssl() {
    use openssl::symm::{Cipher, Crypter, Mode};
    let key: [u8; 64] = std::array::from_fn(|n| (n * 7 + 1) as u8);
    let mut cipher = PageCipher::new(CipherKind::Aes256).expect("the cipher is supported");
    cipher.set_key(&key).expect("a key");
    for length in [16, 17, 31, 32, 512, 4095, 8176, 8192] {
        let plain: Vec<u8> = (0..length).map(|n| (n * 31) as u8).collect();
        let (mut ours, mut theirs) = (plain.clone(), vec![0; length + 16]);
        let tweak = [length as u8; 16];
        cipher.encrypt(&tweak, &mut ours).expect("encrypts");
        let crypter = Crypter::new(Cipher::aes_256_xts(), Mode::Encrypt, &key, Some(&tweak));
        let written = crypter.expect("a cipher").update(&plain, &mut theirs).expect("encrypts");
        assert_eq!(ours, theirs[..written], "{length}");
        cipher.decrypt(&tweak, &mut ours).expect("decrypts");
        assert_eq!(ours, plain);
    }
}

#[test]
fn units_of_less_than_a_block_or_more_than_a_page_are_refused() {
    let mut cipher = PageCipher::new(CipherKind::Aes256).expect("the cipher is supported");
    cipher.set_key(&std::array::from_fn(|n| n as u8)).expect("a key");
    assert!(cipher.encrypt(&[0; 16], &mut [0; 15]).is_err());
    assert!(cipher.encrypt(&[0; 16], &mut vec![0; MOST_UNIT_BYTES + 1]).is_err());
}
