use super::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

#[track_caller]
fn assert_vector(cipher_kind: CipherKind, keys: &str, tweak: &str, plain: &[u8], sealed: &str) {
    let mut cipher = PageCipher::new(cipher_kind).expect("the cipher is supported");
    let (mut key, mut start) = ([0; 64], [0; 16]);
    key[..cipher_kind.key_bytes()].copy_from_slice(&bytes(keys));
    let given = bytes(tweak);
    start[..given.len()].copy_from_slice(&given);
    cipher.set_key(&key).expect("a key");
    let mut unit = plain.to_vec();
    // Twice: the first unit must not leave state that changes the second.
    for _ in 0..2 {
        cipher.encrypt(&start, &mut unit).expect("encrypts");
        assert_eq!(unit, bytes(sealed));
        cipher.decrypt(&start, &mut unit).expect("decrypts");
        assert_eq!(unit, plain);
    }
}

#[test]
fn ieee_1619_vector_2() {
    assert_vector(
        CipherKind::Aes128,
        &("11".repeat(16) + &"22".repeat(16)),
        "3333333333",
        &[0x44; 32],
        "c454185e6a16936e39334038acef838bfb186fff7480adc4289382ecd6d394f0",
    );
}

#[test]
fn ieee_1619_vector_10() {
    let plain: Vec<u8> = (0..512).map(|n| n as u8).collect();
    assert_vector(
        CipherKind::Aes256,
        "27182818284590452353602874713526624977572470936999595749669676273141592653589793238462643383279502884197\
         169399375105820974944592",
        "ff",
        &plain,
        include_str!("../../tests/ieee-1619-vector-10.hex"),
    );
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
    assert!(!CipherKind::Null.encrypts() && CipherKind::ALL.into_iter().all(CipherKind::encrypts));
}

#[test]
fn ciphertext_equals_that_of_openssl() {
    use openssl::symm::{Cipher, Crypter, Mode};
    let key: [u8; 64] = std::array::from_fn(|n| (n * 7 + 1) as u8);
    for (cipher_kind, other) in
        [(CipherKind::Aes128, Cipher::aes_128_xts()), (CipherKind::Aes256, Cipher::aes_256_xts())]
    {
        let mut cipher = PageCipher::new(cipher_kind).expect("the cipher is supported");
        cipher.set_key(&key).expect("a key");
        for length in [16, 17, 31, 32, 512, 4095, 8176, 8192] {
            let plain: Vec<u8> = (0..length).map(|n| (n * 31) as u8).collect();
            let (mut ours, mut theirs) = (plain.clone(), vec![0; length + 16]);
            let tweak = [length as u8; 16];
            cipher.encrypt(&tweak, &mut ours).expect("encrypts");
            let key = &key[..cipher_kind.key_bytes()];
            let mut crypter =
                Crypter::new(other, Mode::Encrypt, key, Some(&tweak)).expect("OpenSSL supports the cipher");
            let written = crypter.update(&plain, &mut theirs).expect("encrypts");
            assert_eq!(ours, theirs[..written], "{} {length}", cipher_kind.label());
            cipher.decrypt(&tweak, &mut ours).expect("decrypts");
            assert_eq!(ours, plain);
        }
    }
}

#[test]
fn units_of_less_than_a_block_or_more_than_a_page_are_refused() {
    let mut cipher = PageCipher::new(CipherKind::Aes256).expect("the cipher is supported");
    cipher.set_key(&std::array::from_fn(|n| n as u8)).expect("a key");
    assert!(cipher.encrypt(&[0; 16], &mut [0; 15]).is_err());
    assert!(cipher.encrypt(&[0; 16], &mut vec![0; MOST_UNIT_BYTES + 1]).is_err());
}

#[test]
fn ieee_1619_vector_15_steals_ciphertext() {
    let plain: Vec<u8> = (0..17).collect();
    assert_vector(
        CipherKind::Aes128,
        "fffefdfcfbfaf9f8f7f6f5f4f3f2f1f0bfbebdbcbbbab9b8b7b6b5b4b3b2b1b0",
        "9a78563412",
        &plain,
        "6c1625db4671522d3d7599601de7ca09ed",
    );
}
