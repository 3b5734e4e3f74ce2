//! OpenSSL 3.5 or newer for clients, where the machine's own is older: the fetched one. Our programs use it when they are
//! started by its loader, because OpenSSL 3 keeps its binary interface.

use std::path::{Path, PathBuf};
use std::process::Command;

use ciphertoll_fetch::debian::layout::{LIBRARIES, LOADER};
use ciphertoll_fetch::fetchable::Fetchable;
use ciphertoll_host::programs;
use ciphertoll_host::programs::version_numbers;
use ciphertoll_model::TlsLibrary;
use ciphertoll_net::tls;

use crate::error::Error;

/// The first OpenSSL with ML-KEM and ML-DSA.
pub(crate) const POST_QUANTUM_OPENSSL: [u32; 2] = [3, 5];
/// The fetchable build.
const NAME: &str = "openssl-3.5";

/// Where one of our programs gets its OpenSSL from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientOpenSsl {
    /// It is linked with it.
    Linked,
    /// It must be started by the loader below this directory.
    Loader(PathBuf),
}

impl ClientOpenSsl {
    /// For a client with this library; an error if it is not available.
    pub fn for_library(library: TlsLibrary) -> Result<Self, Error> {
        match library {
            TlsLibrary::OpenSsl | TlsLibrary::Rustls => Ok(Self::Linked),
            TlsLibrary::OpenSsl35 if tls::openssl_has_post_quantum() => Ok(Self::Linked),
            TlsLibrary::OpenSsl35 => fetched().map(Self::Loader).ok_or_else(|| {
                let own = tls::openssl_version();
                Error::TlsUnavailable(format!(
                    "{NAME} is not fetched and this program uses {own}: `ciphertoll servers fetch {NAME}`"
                ))
            }),
        }
    }

    /// The program to start instead of `program`, and its first arguments.
    pub(crate) fn start(&self, program: &Path) -> (PathBuf, Vec<String>) {
        let text = |path: &Path| path.display().to_string();
        match self {
            Self::Linked => (program.to_owned(), Vec::new()),
            Self::Loader(root) => {
                let libraries = text(&root.join(LIBRARIES));
                (root.join(LOADER), vec!["--library-path".to_owned(), libraries, text(program)])
            }
        }
    }

    pub fn command(&self, program: &Path) -> Command {
        let (program, arguments) = self.start(program);
        let mut command = Command::new(program);
        command.args(arguments);
        command
    }
}

/// The root directory of the fetched build.
fn fetched() -> Option<PathBuf> {
    Fetchable::named(NAME).and_then(Fetchable::fetched_directory)
}

/// The program `openssl` with ML-KEM and ML-DSA: the machine's, or else the fetched one.
pub fn openssl_with_post_quantum() -> Option<PathBuf> {
    let is_new = |program: &PathBuf| {
        let said = programs::version_of(program, &["version"], Path::new("/nonexistent")).unwrap_or_default();
        let version = said.split_whitespace().nth(1).unwrap_or_default();
        version_numbers(version).as_slice() >= &POST_QUANTUM_OPENSSL[..]
    };
    let fetched = || fetched().map(|root| root.join("bin/openssl"));
    programs::search("openssl").filter(is_new).or_else(fetched)
}

pub(super) fn program() -> Result<PathBuf, Error> {
    openssl_with_post_quantum().ok_or_else(|| {
        Error::TlsUnavailable(format!(
            "certificates with ML-DSA keys need the program openssl of version 3.5: `ciphertoll servers fetch {NAME}`"
        ))
    })
}
