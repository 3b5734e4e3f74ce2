//! The machine of a run, where it affects the cost of encryption.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The machine of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Environment {
    /// The kernel's name for it.
    pub cpu_model: String,
    /// Processors available to this process.
    pub cpus: u16,
    /// Instruction sets relevant to encryption.
    pub crypto_instructions: Vec<CryptoInstruction>,
    /// Size of its memory.
    pub memory_bytes: u64,
    /// The kernel's release.
    pub kernel: String,
    /// The operating system's own name.
    pub os: String,
    /// The client's TLS library.
    pub tls_library: String,
    /// The sources of the roles' CPU times.
    pub cpu_accounting: String,
}

/// An instruction set relevant to encryption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CryptoInstruction {
    /// AES rounds.
    Aes,
    /// AES rounds on 256- and 512-bit vectors.
    Vaes,
    /// Carry-less multiplication (GCM's GHASH).
    Pclmulqdq,
    /// Carry-less multiplication on wide vectors.
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
    /// Every known instruction set, with the kernel's name for it.
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
