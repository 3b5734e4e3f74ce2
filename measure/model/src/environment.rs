//! The machine of a run, where it affects the cost of encryption.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::labelled;

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

labelled! {
    /// What a connected host is for.
    #[derive(Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum HostRole {
        /// It runs clients.
        Load = "load",
        /// The server runs there.
        Server = "server",
    }
}

/// Another machine that takes part in a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConnectedHost {
    pub name: String,
    /// The node of a Kubernetes cluster that it is on.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub node: Option<String>,
    pub role: HostRole,
    /// The version of ciphertoll there.
    pub tool_version: String,
    /// As the kernel names it: `x86_64`.
    pub architecture: String,
    pub kernel: String,
    pub cpu_model: String,
    pub processors: u16,
    /// The TLS library of its clients.
    pub tls_library: String,
    /// What its CPU times are read from; of a load host, the clients'.
    pub cpu_accounting: String,
}

labelled! {
    // The labels are the kernel's names.
    /// An instruction set relevant to encryption.
    #[derive(Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum CryptoInstruction {
        /// AES rounds.
        Aes = "aes",
        /// AES rounds on 256- and 512-bit vectors.
        Vaes = "vaes",
        /// Carry-less multiplication (GCM's GHASH).
        Pclmulqdq = "pclmulqdq",
        /// Carry-less multiplication on wide vectors.
        Vpclmulqdq = "vpclmulqdq",
        /// `SHA-1` and `SHA-256` rounds.
        ShaNi = "sha_ni",
        /// 256-bit vectors (`ChaCha20`).
        Avx2 = "avx2",
        /// 512-bit vectors.
        Avx512f = "avx512f",
        /// Multiply with carry chains (RSA, elliptic curves).
        Adx = "adx",
        /// 52-bit fused multiply (RSA on AVX-512).
        Avx512ifma = "avx512ifma",
    }
}
