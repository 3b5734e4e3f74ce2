//! Replication connections of PostgreSQL: each has a separate server connection, which ends with it.

use ciphertoll_wire::postgres::relay::PassThrough;

use crate::protocol::{FromClient, FromServer, SessionResult};
use crate::refusal::Refusal;
use crate::settings::ReplicationAccess;

/// What the startup parameter `replication` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replication {
    /// A stream of the WAL, and base backups.
    Physical,
    /// The same for one database, with SQL, and logical decoding.
    Logical,
}

impl Replication {
    /// Reads the value as servers do; `None` for a usual connection.
    pub(crate) fn requested(value: &str, access: ReplicationAccess) -> Result<Option<Self>, Refusal> {
        // Servers accept any unambiguous prefix of a word.
        let is = |words: &[&str]| words.iter().any(|word| value.eq_ignore_ascii_case(word));
        if is(&["false", "fals", "fal", "fa", "f", "off", "of", "no", "n", "0"]) {
            return Ok(None);
        }
        if access == ReplicationAccess::Refused {
            let message = "this proxy does not support replication: set replication = true in its settings, or \
                           connect to the server directly";
            return Err(Refusal::new(Refusal::UNSUPPORTED, message));
        }
        if value == "database" {
            Ok(Some(Self::Logical))
        } else if is(&["true", "tru", "tr", "t", "on", "yes", "ye", "y", "1"]) {
            Ok(Some(Self::Physical))
        } else {
            // The server's wording.
            let message = format!("invalid value for parameter \"replication\": \"{value}\"");
            Err(Refusal::new(Refusal::PARAMETER, message))
        }
    }

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Physical => "physical",
            Self::Logical => "logical",
        }
    }

    /// The value that the server is sent.
    pub(crate) fn value(self) -> &'static str {
        match self {
            Self::Physical => "true",
            Self::Logical => "database",
        }
    }
}

pub(super) fn from_client(relay: &mut PassThrough, input: &[u8]) -> SessionResult<FromClient> {
    let passed = relay.process_client(input)?;
    Ok(FromClient::passes(passed.pass_bytes, passed.goodbye))
}

pub(super) fn from_server(relay: &mut PassThrough, input: &[u8]) -> SessionResult<FromServer> {
    Ok(FromServer { pass_bytes: relay.process_server(input)?, ..FromServer::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replication_is_granted_only_if_the_settings_allow_it() {
        let (refused, allowed) = (ReplicationAccess::Refused, ReplicationAccess::Allowed);
        for no in ["false", "FALS", "f", "of", "off", "n", "no", "0"] {
            assert_eq!(Replication::requested(no, refused), Ok(None), "{no}");
            assert_eq!(Replication::requested(no, allowed), Ok(None), "{no}");
        }
        for yes in ["true", "T", "on", "yes", "1"] {
            assert_eq!(Replication::requested(yes, allowed), Ok(Some(Replication::Physical)), "{yes}");
            let error = Replication::requested(yes, refused).unwrap_err();
            assert_eq!(error.sqlstate, Refusal::UNSUPPORTED, "{yes}");
        }
        assert_eq!(Replication::requested("database", allowed), Ok(Some(Replication::Logical)));
        assert!(Replication::requested("database", refused).is_err());
        for wrong in ["o", "Database", "", "2", "true "] {
            let error = Replication::requested(wrong, allowed).unwrap_err();
            assert_eq!(error.sqlstate, Refusal::PARAMETER, "{wrong}");
        }
    }
}
