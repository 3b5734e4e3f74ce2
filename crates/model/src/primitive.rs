//! What cryptographic primitives take on the machine of a run: timed there, never assumed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What one signature by a key takes, CPU time of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SignatureTime {
    /// To sign.
    pub sign_ns: u64,
    /// To verify what was signed.
    pub verify_ns: u64,
}

/// What one side of a key exchange takes, CPU time of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyExchangeTime {
    /// To make a key of one's own and to derive the secret from it and the other's.
    pub agree_ns: u64,
}
