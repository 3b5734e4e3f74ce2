//! Checks TLS files before anything is sent, so that an unusable file is not mistaken for a server that refuses TLS.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use openssl::error::ErrorStack;
use openssl::pkey::{PKey, Private};
use openssl::x509::X509;

/// Larger than the CA bundle of any operating system.
const MAX_BYTES: u64 = 16 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilePurpose {
    /// CA certificates that verify the peer.
    Authorities,
    Certificate,
    Key,
}

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot read the {} {}: {source}", .purpose.noun(), path.display())]
    Unreadable { purpose: FilePurpose, path: PathBuf, source: io::Error },
    /// It does not contain what its purpose needs.
    #[error("cannot use the {} {}: {reason}", .purpose.noun(), path.display())]
    Unusable { purpose: FilePurpose, path: PathBuf, reason: &'static str },
}

impl FilePurpose {
    fn noun(self) -> &'static str {
        match self {
            Self::Authorities => "CA file",
            Self::Certificate => "certificate file",
            Self::Key => "key file",
        }
    }
}

impl FileError {
    fn unusable(purpose: FilePurpose, path: &Path, reason: &'static str) -> Self {
        Self::Unusable { purpose, path: path.to_owned(), reason }
    }
}

/// Checks that `path` contains what `purpose` needs; a key must belong to `certificate`.
pub fn check_file(purpose: FilePurpose, path: &Path, certificate: &Path) -> Result<(), FileError> {
    match purpose {
        FilePurpose::Authorities | FilePurpose::Certificate => certificates(purpose, path).map(drop),
        FilePurpose::Key => check_key(path, certificate),
    }
}

/// Checks that `path` contains the unencrypted key of the first certificate in `certificate`.
fn check_key(path: &Path, certificate: &Path) -> Result<(), FileError> {
    let unusable = |reason| FileError::unusable(FilePurpose::Key, path, reason);
    let key = private_key(path)?;
    let certificates = certificates(FilePurpose::Certificate, certificate)?;
    let public = certificates.first().map(|certificate| certificate.public_key());
    match public {
        Some(Ok(public)) if public.public_eq(&key) => Ok(()),
        Some(_) | None => Err(unusable("it is not the key of the certificate named with it")),
    }
}

/// The certificates in `path`, at least one, all of them intact.
pub(super) fn certificates(purpose: FilePurpose, path: &Path) -> Result<Vec<X509>, FileError> {
    let unusable = |reason| FileError::unusable(purpose, path, reason);
    let certificates = X509::stack_from_pem(&read(purpose, path)?)
        .map_err(|_| unusable("a certificate in it is damaged"))?;
    if certificates.is_empty() { Err(unusable("it holds no certificate in PEM")) } else { Ok(certificates) }
}

/// An unencrypted key.
pub(super) fn private_key(path: &Path) -> Result<PKey<Private>, FileError> {
    let unusable = |reason| FileError::unusable(FilePurpose::Key, path, reason);
    let pem = read(FilePurpose::Key, path)?;
    let mut is_encrypted = false;
    let key = PKey::private_key_from_pem_callback(&pem, |_| {
        is_encrypted = true;
        // Otherwise OpenSSL would prompt on the terminal, in every load process.
        Err(ErrorStack::get())
    });
    key.map_err(|_| {
        unusable(if is_encrypted {
            "its key is encrypted by a passphrase"
        } else {
            "it holds no private key in PEM"
        })
    })
}

fn read(purpose: FilePurpose, path: &Path) -> Result<Vec<u8>, FileError> {
    let unreadable = |source| FileError::Unreadable { purpose, path: path.to_owned(), source };
    let unusable = |reason| FileError::unusable(purpose, path, reason);
    // A pipe could be read only once, and opening it could block.
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    if metadata.is_dir() {
        return Err(unusable("it is a directory"));
    }
    if !metadata.is_file() {
        return Err(unusable("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    match bytes.len() as u64 {
        0 => Err(unusable("it is empty")),
        length if length > MAX_BYTES => Err(unusable("it is longer than 16 MiB")),
        _ => Ok(bytes),
    }
}
