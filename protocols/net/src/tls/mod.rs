//! One interface to two TLS libraries, bytes in and bytes out, so that the same buffers and the same readiness loop
//! serve encrypted and plain connections.
//!
//! Part of the cost of encryption is the library's. OpenSSL is used by most drivers, rustls by drivers written in
//! Rust; a cost that both show is not specific to one library.

mod acceptor;
mod certificate;
mod context;
mod files;
mod handshake_size;
mod memory;
mod observed;
mod openssl;
mod resumption;
mod rustls;
mod session;
mod settings;
mod unverified;

pub use ciphertoll_vocabulary::{
    Group, Identity, SecurityLevel, ServerKey, Suite, TlsLibrary, TlsParameters, TlsVersion, Verification,
};
pub use ciphertoll_wire::tls::{KeyShare, NamedGroup};

pub use self::acceptor::{Acceptor, AcceptorSettings};
pub use self::context::Context;
pub use self::files::{FileError, FilePurpose, check_file};
pub use self::handshake_size::HandshakeSize;
pub use self::openssl::{openssl_has_post_quantum, openssl_version};
pub use self::resumption::Sessions;
pub use self::session::Negotiated;
pub(crate) use self::session::{Decrypted, Filled, Handshake, TlsSession};
pub use self::settings::{PeerName, Resumption, ResumptionMethod, Settings, TrustAnchors};

/// Whether the library has a group.
pub fn has_group(library: TlsLibrary, group: Group) -> bool {
    match library {
        TlsLibrary::OpenSsl | TlsLibrary::OpenSsl35 => openssl::has_group(group),
        TlsLibrary::Rustls => rustls::has_group(group),
    }
}

#[cfg(test)]
mod tests;
