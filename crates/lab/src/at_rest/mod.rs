//! Encryption at rest: what a server is told so that it encrypts its own files, what lies under those of one that does
//! not, and the proof that what was written cannot be read there.

mod component;
mod fscrypt;
mod gocryptfs;
mod layer;
mod native;
mod proof;
mod tde;

pub(crate) use fscrypt::{FILES, Fscrypt, fscrypt_missing, kernel_cipher};
pub(crate) use gocryptfs::{Gocryptfs, fuse_missing};
pub(crate) use layer::{Layer, Sites};
pub(crate) use native::{Native, find_plugins, make_keys, options, unencrypted, wait_until_encrypted};
pub use proof::Proof;
pub(crate) use proof::prove;
pub(crate) use tde::{Preload, find_library, make_keys as make_tde_keys};

use std::path::PathBuf;

use ciphertoll_model::Tde;

/// What a server encrypts its own files by.
#[derive(Clone, Debug)]
pub(crate) enum Means {
    /// Its plugins, which are in this directory.
    Plugins(PathBuf),
    /// This library, which is to be preloaded.
    Library(PathBuf, Tde),
}
