use super::*;

const PASSWORD: &[u8] = b"correct horse";
/// Computed with Python's hashlib and `cryptography`, for [`NONCE`], [`CLIENT_NONCE`] and [`SALT`].
const SIGNATURES: [(u8, u32, [u8; SIGNATURE_BYTES]); 2] = [
    (
        0,
        1024,
        [
            0xde, 0x44, 0xd6, 0xcf, 0xd0, 0x47, 0x2a, 0xb5, 0xb9, 0x92, 0x06, 0xc3, 0x59, 0xff, 0xd9, 0xd8,
            0x3f, 0x95, 0x3d, 0x2e, 0x9f, 0xf0, 0x34, 0xfe, 0x50, 0x1b, 0x0b, 0x6f, 0xee, 0x9f, 0xae, 0x48,
            0x43, 0xd0, 0x0f, 0x7f, 0x63, 0xd4, 0x7e, 0x85, 0x14, 0x25, 0x56, 0xea, 0xf2, 0xff, 0x9a, 0x32,
            0x23, 0xf8, 0x5b, 0x9e, 0x76, 0xfe, 0x2c, 0xed, 0xc3, 0x72, 0xe1, 0x6c, 0xf4, 0xab, 0xe3, 0x05,
        ],
    ),
    (
        3,
        8192,
        [
            0x26, 0x70, 0x3d, 0x6c, 0x3d, 0xe4, 0x1c, 0x23, 0x8a, 0x7a, 0x4b, 0x24, 0x24, 0x42, 0x0c, 0x08,
            0x9f, 0x80, 0x94, 0xe9, 0x69, 0xed, 0x80, 0xfc, 0x74, 0xfa, 0x8c, 0xb2, 0xab, 0xc6, 0x80, 0xd1,
            0xa9, 0xf5, 0x6b, 0xc8, 0xae, 0xc8, 0x58, 0x4d, 0x22, 0xdc, 0xc5, 0x58, 0x76, 0xca, 0x91, 0x51,
            0xa9, 0x05, 0x07, 0x00, 0x1e, 0x6e, 0x67, 0x3c, 0x43, 0x39, 0x4f, 0x30, 0xdc, 0x89, 0x7b, 0x0c,
        ],
    ),
];
const NONCE: [u8; NONCE_BYTES] = counted(0);
const CLIENT_NONCE: [u8; NONCE_BYTES] = counted(200);
const SALT: [u8; 18] = counted(100);

const fn counted<const N: usize>(first: u8) -> [u8; N] {
    let mut bytes = [first; N];
    let mut index = 1;
    while index < N {
        bytes[index] = bytes[index - 1] + 1;
        index += 1;
    }
    bytes
}

#[test]
fn response_matches_an_independent_implementation() {
    for (exponent, iterations, signature) in SIGNATURES {
        let ext_salt = ExtSalt { exponent, salt: &SALT };
        assert_eq!(ext_salt.iterations(), iterations);
        let response = respond(PASSWORD, &NONCE, &CLIENT_NONCE, &ext_salt).unwrap();
        assert_eq!(response[..NONCE_BYTES], CLIENT_NONCE);
        assert_eq!(response[NONCE_BYTES..], signature);
    }
}

#[test]
fn each_response_has_a_fresh_nonce() {
    let ext_salt = ExtSalt { exponent: 0, salt: &SALT };
    let responses = [(); 2].map(|()| response(PASSWORD, &NONCE, &ext_salt).unwrap());
    assert_ne!(responses[0][..NONCE_BYTES], responses[1][..NONCE_BYTES]);
}

#[test]
fn ext_salt_round_trip() {
    let ext_salt = ExtSalt { exponent: 2, salt: &SALT };
    let mut payload = Vec::new();
    ext_salt.encode(&mut payload);
    assert_eq!(ExtSalt::parse(&payload), Ok(ext_salt));
}

#[test]
fn impossible_salts_are_refused() {
    for payload in [&b""[..], b"P", b"P\0", b"P\x04salt", b"S\0salt", &[b'P'; 67]] {
        let error = ExtSalt::parse(payload).unwrap_err();
        assert!(matches!(error, Error::Protocol { message: "salt", .. }), "{payload:?}: {error}");
    }
}
