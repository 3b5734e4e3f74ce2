//! The algorithms behind the names of suites, groups, signature schemes and keys.
//!
//! Security levels are NIST's: SP 800-57 for classical bits; categories 1 to 5 of the post-quantum process, in which
//! AES-128, AES-192 and AES-256 define 1, 3 and 5. What Shor's algorithm breaks has category 0.

use super::document::{AlgorithmProperties, CryptoProperties, Inventory};

/// An algorithm and the name of its component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NamedAlgorithm {
    pub(super) name: String,
    pub(super) properties: AlgorithmProperties,
}

impl NamedAlgorithm {
    fn new(name: impl Into<String>, primitive: &'static str, family: Option<&'static str>) -> Self {
        let properties =
            AlgorithmProperties { primitive, algorithm_family: family, ..AlgorithmProperties::default() };
        Self { name: name.into(), properties }
    }

    fn functions(mut self, functions: &[&'static str]) -> Self {
        self.properties.crypto_functions = functions.to_vec();
        self
    }

    fn parameters(mut self, identifier: impl Into<String>) -> Self {
        self.properties.parameter_set_identifier = Some(identifier.into());
        self
    }

    fn curve(mut self, curve: Option<&'static str>) -> Self {
        self.properties.elliptic_curve = curve;
        self
    }

    fn mode(mut self, mode: Option<&'static str>) -> Self {
        self.properties.mode = mode;
        self
    }

    /// Bits against classical attacks, and NIST's category.
    fn strength(mut self, bits: u32, category: u8) -> Self {
        self.properties.classical_security_level = Some(bits);
        self.properties.nist_quantum_security_level = Some(category);
        self
    }

    /// Adds it to the inventory. Returns its reference.
    pub(super) fn add_to(self, inventory: &mut Inventory, parts: Vec<Self>) -> String {
        let parts: Vec<_> = parts.into_iter().map(|part| part.add_to(inventory, Vec::new())).collect();
        let reference = format!("algorithm/{}", self.name.to_lowercase());
        let properties = CryptoProperties::Algorithm { algorithm_properties: self.properties };
        inventory.add(reference, &self.name, properties, parts)
    }
}

const AGREE: &[&str] = &["keygen", "keyderive"];
const ENCAPSULATE: &[&str] = &["keygen", "encapsulate", "decapsulate"];
const ENCRYPT: &[&str] = &["encrypt", "decrypt"];
const SIGN: &[&str] = &["sign", "verify"];

/// IANA's name of a group.
pub(super) fn group_name(label: &str) -> &str {
    match label {
        "p256" => "secp256r1",
        "p384" => "secp384r1",
        "p521" => "secp521r1",
        "x25519mlkem768" => "X25519MLKEM768",
        "secp256r1mlkem768" => "SecP256r1MLKEM768",
        "secp384r1mlkem1024" | "0x11ed" => "SecP384r1MLKEM1024",
        "mlkem512" | "0x0200" => "MLKEM512",
        "mlkem768" => "MLKEM768",
        "mlkem1024" | "0x0202" => "MLKEM1024",
        "0x0100" => "ffdhe2048",
        "0x0101" => "ffdhe3072",
        "0x0102" => "ffdhe4096",
        "0x0103" => "ffdhe6144",
        "0x0104" => "ffdhe8192",
        other => other,
    }
}

/// The key exchange in a group, and its parts if it combines several.
pub(super) fn key_exchange(label: &str) -> (NamedAlgorithm, Vec<NamedAlgorithm>) {
    let name = group_name(label);
    let hybrid = |curve: &str, kem: &str| {
        let combined = NamedAlgorithm::new(name, "combiner", Some("ML-KEM")).functions(ENCAPSULATE);
        let kem = key_encapsulation(kem);
        let category = kem.properties.nist_quantum_security_level.unwrap_or_default();
        let bits = kem.properties.classical_security_level.unwrap_or_default();
        let identifier = kem.properties.parameter_set_identifier.clone().unwrap_or_default();
        (combined.parameters(identifier).strength(bits, category), vec![curve_agreement(curve), kem])
    };
    match name {
        "X25519MLKEM768" => hybrid("x25519", "768"),
        "SecP256r1MLKEM768" => hybrid("secp256r1", "768"),
        "SecP384r1MLKEM1024" => hybrid("secp384r1", "1024"),
        "MLKEM512" => (key_encapsulation("512"), Vec::new()),
        "MLKEM768" => (key_encapsulation("768"), Vec::new()),
        "MLKEM1024" => (key_encapsulation("1024"), Vec::new()),
        "x25519" | "x448" | "secp256r1" | "secp384r1" | "secp521r1" => (curve_agreement(name), Vec::new()),
        _ => (finite_field(name), Vec::new()),
    }
}

fn key_encapsulation(parameters: &str) -> NamedAlgorithm {
    let (bits, category) = match parameters {
        "512" => (128, 1),
        "768" => (192, 3),
        _ => (256, 5),
    };
    NamedAlgorithm::new(format!("ML-KEM-{parameters}"), "kem", Some("ML-KEM"))
        .parameters(parameters)
        .functions(ENCAPSULATE)
        .strength(bits, category)
}

fn curve_agreement(group: &str) -> NamedAlgorithm {
    let (name, curve, bits) = match group {
        "x25519" => ("x25519", "other/Curve25519", 128),
        "x448" => ("x448", "other/Curve448", 224),
        "secp256r1" => ("ECDHE-P-256", "nist/P-256", 128),
        "secp384r1" => ("ECDHE-P-384", "nist/P-384", 192),
        _ => ("ECDHE-P-521", "nist/P-521", 256),
    };
    NamedAlgorithm::new(name, "key-agree", Some("ECDH")).curve(Some(curve)).functions(AGREE).strength(bits, 0)
}

/// `ffdhe2048`, or `dhe1024` for a prime of the server's own; a group without a name stays unknown.
fn finite_field(group: &str) -> NamedAlgorithm {
    let own = group.strip_prefix("dhe");
    let bits = group.strip_prefix("ffdhe").or(own).and_then(|bits| bits.parse::<u32>().ok());
    match bits {
        None => NamedAlgorithm::new(format!("group {group}"), "unknown", None),
        Some(bits) => {
            NamedAlgorithm::new(format!("FFDHE-{}", own.unwrap_or(group)), "key-agree", Some("FFDH"))
                .parameters(bits.to_string())
                .functions(AGREE)
                .strength(modulus_strength(bits), 0)
        }
    }
}

/// Of a modulus of RSA or a prime of Diffie-Hellman (SP 800-57 part 1, table 2).
fn modulus_strength(bits: u32) -> u32 {
    match bits {
        ..1024 => 0,
        1024..2048 => 80,
        2048..3072 => 112,
        3072..7680 => 128,
        7680..15360 => 192,
        _ => 256,
    }
}

/// The algorithms of a suite by IANA's name. Empty for a suite that is known by its number only.
pub(super) fn of_suite(name: &str) -> Vec<NamedAlgorithm> {
    let Some(name) = name.strip_prefix("TLS_") else { return Vec::new() };
    let (exchange, rest) = name.split_once("_WITH_").unwrap_or(("", name));
    let (cipher, hash) = ["_SHA256", "_SHA384", "_SHA512", "_SHA", "_MD5"]
        .into_iter()
        .find_map(|hash| Some((rest.strip_suffix(hash)?, &hash[1..])))
        .unwrap_or((rest, ""));
    let cipher = self::cipher(cipher);
    let has_mac = cipher.properties.primitive != "ae" && !hash.is_empty();
    let mut algorithms = vec![cipher];
    algorithms.extend(hash_function(hash, has_mac));
    if exchange == "RSA" {
        // The client encrypts the secret to the server's key: no forward secrecy.
        let mut transport =
            NamedAlgorithm::new("RSA-PKCS1-1.5", "pke", Some("RSAES-PKCS1")).functions(ENCRYPT);
        transport.properties.padding = Some("pkcs1v15");
        transport.properties.nist_quantum_security_level = Some(0);
        algorithms.push(transport);
    }
    algorithms
}

fn cipher(name: &str) -> NamedAlgorithm {
    const BLOCK: [(&str, &str); 4] =
        [("AES", "AES"), ("CAMELLIA", "CAMELLIA"), ("ARIA", "ARIA"), ("SEED", "SEED")];
    if name == "CHACHA20_POLY1305" {
        return NamedAlgorithm::new("ChaCha20-Poly1305", "ae", Some("ChaCha20"))
            .parameters("256")
            .functions(ENCRYPT)
            .strength(256, 5);
    }
    let parts: Vec<&str> = name.split('_').collect();
    match parts.as_slice() {
        ["3DES", "EDE", "CBC"] => NamedAlgorithm::new("3DES-CBC", "block-cipher", Some("3DES"))
            .mode(Some("cbc"))
            .functions(ENCRYPT)
            .strength(112, 0),
        ["RC4", bits] => NamedAlgorithm::new("RC4", "stream-cipher", Some("RC4"))
            .parameters(*bits)
            .functions(ENCRYPT)
            .strength(0, 0),
        ["NULL"] => NamedAlgorithm::new("NULL", "other", None).strength(0, 0),
        [family, bits, mode, tag @ ..] => {
            let known = BLOCK.iter().find(|(name, _)| name == family).map(|(_, family)| *family);
            let (primitive, mode_name) = match *mode {
                "GCM" => ("ae", Some("gcm")),
                "CCM" => ("ae", Some("ccm")),
                "CBC" => ("block-cipher", Some("cbc")),
                _ => ("unknown", None),
            };
            let name = [&[*family, *bits, *mode][..], tag].concat().join("-");
            let cipher = NamedAlgorithm::new(name, primitive, known).mode(mode_name).functions(ENCRYPT);
            match bits.parse() {
                Ok(128) => cipher.parameters("128").strength(128, 1),
                Ok(192) => cipher.parameters("192").strength(192, 3),
                Ok(256_u32) => cipher.parameters("256").strength(256, 5),
                _ => cipher,
            }
        }
        _ => NamedAlgorithm::new(name, "unknown", None),
    }
}

/// The hash of a suite's key derivation, or of its MAC.
fn hash_function(hash: &str, has_mac: bool) -> Option<NamedAlgorithm> {
    let (name, family, bits) = match hash {
        "SHA256" => ("SHA-256", "SHA-2", "256"),
        "SHA384" => ("SHA-384", "SHA-2", "384"),
        "SHA512" => ("SHA-512", "SHA-2", "512"),
        "SHA" => ("SHA-1", "SHA-1", "160"),
        "MD5" => ("MD5", "MD5", "128"),
        _ => return None,
    };
    Some(if has_mac {
        NamedAlgorithm::new(format!("HMAC-{name}"), "mac", Some("HMAC")).parameters(bits).functions(&["tag"])
    } else {
        NamedAlgorithm::new(name, "hash", Some(family)).parameters(bits).functions(&["digest"])
    })
}

/// A signature scheme by IANA's name, in lower case.
pub(super) fn signature(scheme: &str) -> NamedAlgorithm {
    let hash = scheme.rsplit('_').next().and_then(|hash| Some(format!("SHA-{}", hash.strip_prefix("sha")?)));
    let hash = hash.unwrap_or_default();
    let curve = match scheme {
        "ecdsa_secp256r1_sha256" => Some(("nist/P-256", 128)),
        "ecdsa_secp384r1_sha384" => Some(("nist/P-384", 192)),
        "ecdsa_secp521r1_sha512" => Some(("nist/P-521", 256)),
        _ => None,
    };
    let ml_dsa = |parameters: &str, bits, category| {
        NamedAlgorithm::new(format!("ML-DSA-{parameters}"), "signature", Some("ML-DSA"))
            .parameters(parameters)
            .strength(bits, category)
    };
    let algorithm = match scheme {
        "mldsa44" => ml_dsa("44", 128, 2),
        "mldsa65" => ml_dsa("65", 192, 3),
        "mldsa87" => ml_dsa("87", 256, 5),
        "ed25519" => NamedAlgorithm::new("Ed25519", "signature", Some("EdDSA"))
            .curve(Some("other/Ed25519"))
            .strength(128, 0),
        "ed448" => NamedAlgorithm::new("Ed448", "signature", Some("EdDSA"))
            .curve(Some("other/Ed448"))
            .strength(224, 0),
        _ if scheme.starts_with("ecdsa_") => {
            let named = curve.map(|(curve, _)| format!("-{}", &curve["nist/".len()..])).unwrap_or_default();
            let name = format!("ECDSA{named}-{hash}");
            let algorithm =
                NamedAlgorithm::new(name, "signature", Some("ECDSA")).curve(curve.map(|(curve, _)| curve));
            match curve {
                Some((_, bits)) => algorithm.strength(bits, 0),
                None => broken_by_quantum(algorithm),
            }
        }
        _ if scheme.starts_with("rsa_pss_") => {
            let name = format!("RSA-PSS-{hash}");
            broken_by_quantum(NamedAlgorithm::new(name, "signature", Some("RSASSA-PSS")))
        }
        _ if scheme.starts_with("rsa_pkcs1_") => {
            let name = format!("RSA-PKCS1-1.5-{hash}");
            let mut algorithm =
                broken_by_quantum(NamedAlgorithm::new(name, "signature", Some("RSASSA-PKCS1")));
            algorithm.properties.padding = Some("pkcs1v15");
            algorithm
        }
        _ => return NamedAlgorithm::new(format!("signature {scheme}"), "unknown", None),
    };
    algorithm.functions(SIGN)
}

/// How many bits it has depends on the key.
fn broken_by_quantum(mut algorithm: NamedAlgorithm) -> NamedAlgorithm {
    algorithm.properties.nist_quantum_security_level = Some(0);
    algorithm
}

/// The algorithm of a certificate's signature, by OpenSSL's long name.
pub(super) fn certificate_signature(name: &str) -> NamedAlgorithm {
    let scheme = match name {
        "sha1WithRSAEncryption" => "rsa_pkcs1_sha1",
        "sha256WithRSAEncryption" => "rsa_pkcs1_sha256",
        "sha384WithRSAEncryption" => "rsa_pkcs1_sha384",
        "sha512WithRSAEncryption" => "rsa_pkcs1_sha512",
        // The curve is the authority's, which the certificate does not name.
        "ecdsa-with-SHA1" => "ecdsa_any_sha1",
        "ecdsa-with-SHA256" => "ecdsa_any_sha256",
        "ecdsa-with-SHA384" => "ecdsa_any_sha384",
        "ecdsa-with-SHA512" => "ecdsa_any_sha512",
        "ED25519" => "ed25519",
        "ED448" => "ed448",
        other => other,
    };
    signature(scheme)
}

/// The name and the bits of a public key, from its label: `rsa2048`, `p256`.
pub(super) fn public_key(label: &str) -> (String, Option<u32>) {
    match label {
        "p256" => ("EC P-256".to_owned(), Some(256)),
        "p384" => ("EC P-384".to_owned(), Some(384)),
        "p521" => ("EC P-521".to_owned(), Some(521)),
        "ed25519" => ("Ed25519".to_owned(), Some(256)),
        "ed448" => ("Ed448".to_owned(), Some(456)),
        other => match other.strip_prefix("rsa").and_then(|bits| bits.parse().ok()) {
            Some(bits) => (format!("RSA-{bits}"), Some(bits)),
            None => (format!("key of type {other}"), None),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(suite: &str) -> Vec<String> {
        of_suite(suite).into_iter().map(|algorithm| algorithm.name).collect()
    }

    #[test]
    fn suites_are_taken_apart() {
        assert_eq!(names("TLS_AES_128_GCM_SHA256"), ["AES-128-GCM", "SHA-256"]);
        assert_eq!(names("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"), ["ChaCha20-Poly1305", "SHA-256"]);
        assert_eq!(names("TLS_RSA_WITH_AES_256_CBC_SHA"), ["AES-256-CBC", "HMAC-SHA-1", "RSA-PKCS1-1.5"]);
        assert_eq!(names("TLS_RSA_WITH_3DES_EDE_CBC_SHA"), ["3DES-CBC", "HMAC-SHA-1", "RSA-PKCS1-1.5"]);
        assert_eq!(names("TLS_AES_128_CCM_8_SHA256"), ["AES-128-CCM-8", "SHA-256"]);
        assert_eq!(names("TLS_ECDHE_ECDSA_WITH_AES_128_CCM"), ["AES-128-CCM"]);
        assert!(names("0xabcd").is_empty());
    }

    #[test]
    fn only_ml_kem_withstands_quantum_computers() {
        let of = |group| {
            let (algorithm, parts) = key_exchange(group);
            let AlgorithmProperties { primitive, nist_quantum_security_level, .. } = algorithm.properties;
            (algorithm.name, primitive, nist_quantum_security_level, parts.len())
        };
        assert_eq!(of("x25519mlkem768"), ("X25519MLKEM768".to_owned(), "combiner", Some(3), 2));
        assert_eq!(of("mlkem768"), ("ML-KEM-768".to_owned(), "kem", Some(3), 0));
        assert_eq!(of("0x11ed"), ("SecP384r1MLKEM1024".to_owned(), "combiner", Some(5), 2));
        // What a report calls a group depends on whether it is one of the options.
        assert_eq!(of("secp384r1mlkem1024"), of("0x11ed"));
        assert_eq!(of("mlkem1024"), ("ML-KEM-1024".to_owned(), "kem", Some(5), 0));
        assert_eq!(of("mlkem512"), ("ML-KEM-512".to_owned(), "kem", Some(1), 0));
        assert_eq!(of("p256"), ("ECDHE-P-256".to_owned(), "key-agree", Some(0), 0));
        assert_eq!(of("dhe1024"), ("FFDHE-1024".to_owned(), "key-agree", Some(0), 0));
        assert_eq!(of("0xabcd"), ("group 0xabcd".to_owned(), "unknown", None, 0));
    }

    #[test]
    fn signatures_have_their_hash_and_curve() {
        let name = |scheme: &str| signature(scheme).name;
        assert_eq!(name("ecdsa_secp256r1_sha256"), "ECDSA-P-256-SHA-256");
        assert_eq!(name("rsa_pss_rsae_sha384"), "RSA-PSS-SHA-384");
        assert_eq!(name("mldsa65"), "ML-DSA-65");
        assert_eq!(name("0x0301"), "signature 0x0301");
        assert_eq!(certificate_signature("ecdsa-with-SHA384").name, "ECDSA-SHA-384");
        assert_eq!(certificate_signature("sha256WithRSAEncryption").name, "RSA-PKCS1-1.5-SHA-256");
    }
}
