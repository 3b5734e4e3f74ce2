//! The machine a run stood on, as far as it bears on what encryption costs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The machine a run stood on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Environment {
    /// As the kernel names it.
    pub cpu_model: String,
    /// Processors this process may use.
    pub cpus: u16,
    /// Instructions that encryption runs on.
    pub crypto_instructions: Vec<CryptoInstruction>,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Kernel release.
    pub kernel: String,
    /// Operating system, in its own words.
    pub os: String,
    /// The client's TLS library.
    pub tls_library: String,
    /// Where the roles' CPU times come from.
    pub cpu_accounting: String,
}

/// An instruction set that encryption runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CryptoInstruction {
    /// AES rounds.
    Aes,
    /// AES rounds on 256- and 512-bit vectors.
    Vaes,
    /// Carry-less multiplication (GCM's GHASH).
    Pclmulqdq,
    /// The same on wide vectors.
    Vpclmulqdq,
    /// `SHA-1` and `SHA-256` rounds.
    ShaNi,
    /// 256-bit vectors (`ChaCha20`).
    Avx2,
    /// 512-bit vectors.
    Avx512f,
    /// Multiply with carry chains (RSA, elliptic curves).
    Adx,
    /// 52-bit fused multiply (RSA on AVX-512).
    Avx512ifma,
}

impl CryptoInstruction {
    /// Every instruction set looked for, with the kernel's name for it.
    pub const ALL: [(Self, &'static str); 9] = [
        (Self::Aes, "aes"),
        (Self::Vaes, "vaes"),
        (Self::Pclmulqdq, "pclmulqdq"),
        (Self::Vpclmulqdq, "vpclmulqdq"),
        (Self::ShaNi, "sha_ni"),
        (Self::Avx2, "avx2"),
        (Self::Avx512f, "avx512f"),
        (Self::Adx, "adx"),
        (Self::Avx512ifma, "avx512ifma"),
    ];
}
