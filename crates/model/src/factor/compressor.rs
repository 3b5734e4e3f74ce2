//! Message compression: a modifier of paths, `+compress=zlib`.

use std::fmt;
use std::str::FromStr;

use super::{Engine, LevelError, as_text, match_name};

/// The compressor of MongoDB protocol messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Compressor {
    /// zlib at its default level.
    Zlib,
}

impl Compressor {
    pub const ALL: [Self; 1] = [Self::Zlib];

    /// As in a path's modifier and in a leg.
    pub fn label(self) -> &'static str {
        match self {
            Self::Zlib => "zlib",
        }
    }

    /// Why `engine` does not negotiate it with our client, if so.
    pub fn impossible(self, engine: Engine) -> Option<String> {
        let name = engine.display_name();
        match engine {
            Engine::MongoDb => None,
            Engine::FerretDb => Some(format!("{name} compresses no messages: it negotiates no compressor")),
            Engine::MariaDb | Engine::MySql | Engine::Postgres => {
                Some(format!("{name} has no compressed messages here: +compress is for MongoDB's protocol"))
            }
        }
    }
}

impl fmt::Display for Compressor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.label())
    }
}

impl FromStr for Compressor {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        match_name("compressor", text, &Self::ALL, Self::label)
    }
}

as_text!(Compressor);

#[cfg(test)]
mod tests {
    use super::super::Path;
    use super::*;

    #[test]
    fn only_mongodb_negotiates_it() {
        let reason = |engine| Compressor::Zlib.impossible(engine);
        assert_eq!(reason(Engine::MongoDb), None);
        assert!(reason(Engine::FerretDb).is_some_and(|reason| reason.contains("compresses no messages")));
        for engine in [Engine::MariaDb, Engine::MySql, Engine::Postgres] {
            assert!(
                reason(engine).is_some_and(|reason| reason.contains("for MongoDB's protocol")),
                "{engine}"
            );
        }
    }

    #[test]
    fn it_is_a_modifier_of_tcp_with_and_without_tls() {
        let of = |text: &str| text.parse::<Path>().map(Path::compressor).ok();
        assert_eq!(of("plain+compress=zlib"), Some(Some(Compressor::Zlib)));
        assert_eq!(of("tls1.3-p256+compress=zlib"), Some(Some(Compressor::Zlib)));
        assert_eq!(of("tls1.3-p256"), Some(None));
        for wrong in
            ["unix+compress=zlib", "plain+compress", "plain+compress=", "plain+compress=zip", "plain+resume"]
        {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
