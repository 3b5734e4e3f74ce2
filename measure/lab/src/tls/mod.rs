//! TLS of the private servers: certificates, credentials, and what servers and this machine's TLS library support.

pub(crate) mod certificates;
pub(crate) mod credentials;
pub(crate) mod ml_dsa;
pub(crate) mod newer_openssl;
pub(crate) mod support;
