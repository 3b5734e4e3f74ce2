//! Message compression: a modifier of paths, `+compress=zlib`.

use super::{Engine, as_label};
use crate::labelled;

labelled! {
    /// The compressor of MongoDB protocol messages.
    pub enum Compressor {
        /// zlib at its default level.
        Zlib = "zlib",
    }
}

as_label!(Compressor of "compressor");

impl Compressor {
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
