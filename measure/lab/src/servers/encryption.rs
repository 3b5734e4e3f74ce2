//! The encryption of one connection, as a server reports it.

use ciphertoll_model::{Leg, ServerKey};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionEncryption {
    None,
    Tls {
        /// As in a path: `tls1.3`.
        version: String,
        /// OpenSSL's name.
        suite: String,
    },
}

impl ConnectionEncryption {
    /// From OpenSSL's names of version and suite; an empty version means no TLS.
    pub(crate) fn from_names(version: &str, suite: &str) -> Self {
        if version.is_empty() {
            return Self::None;
        }
        // OpenSSL calls TLS 1.0 "TLSv1".
        let number = version.trim_start_matches("TLSv");
        let version = if number == "1" { "tls1.0".to_owned() } else { format!("tls{number}") };
        Self::Tls { version, suite: suite.to_owned() }
    }

    /// The leg to a server whose certificate has this key.
    pub(crate) fn leg(self, key: ServerKey) -> Leg {
        let leg = Leg { to: "server".to_owned(), ..Leg::default() };
        match self {
            Self::None => leg,
            Self::Tls { version, suite } => Leg {
                tls_version: Some(version),
                suite: Some(suite),
                key: Some(key.label().to_owned()),
                ..leg
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_named_as_in_paths() {
        let version = |name: &str| match ConnectionEncryption::from_names(name, "S") {
            ConnectionEncryption::None => String::new(),
            ConnectionEncryption::Tls { version, .. } => version,
        };
        assert_eq!(["TLSv1.3", "TLSv1.2", "TLSv1", ""].map(version), ["tls1.3", "tls1.2", "tls1.0", ""]);
    }
}
