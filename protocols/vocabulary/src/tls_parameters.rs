use serde::{Deserialize, Serialize};

use crate::suite::Suite;
use crate::tls::{Group, TlsLibrary, TlsVersion};

/// What a client offers in a TLS handshake, and with which library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TlsParameters {
    /// The only version offered.
    pub version: TlsVersion,
    /// The only suite offered; the library's defaults if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suite: Option<Suite>,
    /// The only group offered; the library's defaults if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Group>,
    #[serde(default)]
    pub library: TlsLibrary,
}

impl TlsParameters {
    /// The library's defaults of this version.
    #[must_use]
    pub const fn new(version: TlsVersion) -> Self {
        Self { version, suite: None, group: None, library: TlsLibrary::OpenSsl }
    }
}
