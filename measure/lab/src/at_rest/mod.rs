//! Encryption at rest: by the server itself, by an encrypting file system, or by a preloaded library; and the search for
//! unencrypted data in the server's files.

pub(crate) mod fscrypt;
pub(crate) mod gocryptfs;
pub(crate) mod mount;
pub(crate) mod native;
pub(crate) mod preload;
pub(crate) mod proof;
