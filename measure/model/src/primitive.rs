//! CPU times of cryptographic primitives, measured on the machine of a run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// CPU time of a signature, single-threaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SignatureTime {
    /// To sign.
    pub sign_ns: u64,
    /// To verify.
    pub verify_ns: u64,
}

/// CPU time of one side of a key exchange, single-threaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyExchangeTime {
    /// To generate a key and derive the shared secret.
    pub agree_ns: u64,
}
