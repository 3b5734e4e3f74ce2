//! Proxies: processes on the client's host that keep a pool of encrypted connections to the server.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use super::proxy_program::{PoolMode, ProxyDefinition, ProxyProtocol};
use super::{
    Engine, Factor, Group, LevelError, QueryLanguage, ServerKey, TlsLibrary, TlsParameters, TlsPath,
    TlsVersion, match_name, proxies,
};
use crate::labelled;

/// A connection pooler: clients connect from the same machine without encryption; connections to the server use TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Proxy {
    pub program: ProxyProgram,
    /// Where clients connect.
    pub front: ProxyFront,
    /// The TLS version of connections to the server.
    pub version: TlsVersion,
    /// The key type of the server's certificate.
    pub key: ServerKey,
    /// The only group that the proxy offers to the server; its defaults if absent.
    pub group: Option<Group>,
    /// How long a client keeps a server connection.
    pub mode: PoolMode,
}

/// A program from the list in [`super::proxies`].
#[derive(Clone, Copy)]
pub struct ProxyProgram(&'static ProxyDefinition);

labelled! {
    /// Where clients connect to a proxy.
    pub enum ProxyFront {
        Unix = "unix",
        /// TCP on loopback.
        Tcp = "tcp",
    }
}

impl ProxyProgram {
    /// `ciphertoll-proxy`.
    pub const SIDECAR: Self = Self(proxies::SIDECAR);

    pub fn all() -> Vec<Self> {
        proxies::ALL.iter().map(|definition| Self(definition)).collect()
    }

    pub fn named(label: &str) -> Option<Self> {
        Self::all().into_iter().find(|program| program.label() == label)
    }

    pub fn label(self) -> &'static str {
        self.0.label
    }

    /// As in a sentence: `PgBouncer`.
    pub fn display_name(self) -> &'static str {
        self.0.display_name
    }

    pub fn definition(self) -> &'static ProxyDefinition {
        self.0
    }

    /// Why it does not support servers of `engine`, if so.
    fn impossible(self, engine: Engine) -> Option<String> {
        let (name, protocol) = (self.display_name(), self.0.protocol);
        if protocol.supports(engine) {
            return None;
        }
        if engine.query_language() == QueryLanguage::Documents {
            return Some(format!("{name} does not speak {}'s protocol", Engine::MongoDb.display_name()));
        }
        let engine_name = engine.display_name();
        let others = || proxies::ALL.iter().filter(|other| other.protocol.supports(engine));
        let instead = or(&others().map(|other| other.label).collect::<Vec<_>>());
        Some(match protocol {
            ProxyProtocol::MySqlOnly if engine.is_mysql_family() => format!(
                "{name} does not pool connections to {engine_name}: it opens one for each client; use {instead}"
            ),
            ProxyProtocol::MySql | ProxyProtocol::MySqlOnly => {
                format!("{name} supports MySQL's protocol only: for {engine_name} use {instead}")
            }
            ProxyProtocol::Sql | ProxyProtocol::Postgres => {
                format!("{name} supports PostgreSQL's protocol only: for {engine_name} use {instead}")
            }
        })
    }

    /// The order of the list.
    fn position(self) -> usize {
        proxies::ALL.iter().position(|definition| definition.label == self.0.label).unwrap_or_default()
    }
}

/// `a, b or c`
fn or(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

impl PartialEq for ProxyProgram {
    fn eq(&self, other: &Self) -> bool {
        self.label() == other.label()
    }
}

impl Eq for ProxyProgram {}

impl PartialOrd for ProxyProgram {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ProxyProgram {
    fn cmp(&self, other: &Self) -> Ordering {
        self.position().cmp(&other.position())
    }
}

impl Hash for ProxyProgram {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.label().hash(state);
    }
}

impl fmt::Debug for ProxyProgram {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.display_name())
    }
}

impl Proxy {
    /// A proxy without modifiers: clients connect by unix socket; TLS 1.3 with a P-256 key to the server.
    pub const fn of(program: ProxyProgram) -> Self {
        let (version, key) = (TlsVersion::Tls13, ServerKey::P256);
        Self { program, front: ProxyFront::Unix, version, key, group: None, mode: PoolMode::Session }
    }

    /// The TLS parameters of connections to the server.
    pub fn upstream_tls(self) -> TlsPath {
        let is_post_quantum = self.group.is_some_and(Group::has_ml_kem) || self.key.is_ml_dsa();
        let library = if is_post_quantum { TlsLibrary::OpenSsl35 } else { TlsLibrary::OpenSsl };
        let parameters = TlsParameters { group: self.group, library, ..TlsParameters::new(self.version) };
        TlsPath { parameters, key: Some(self.key), ..TlsPath::as_served(self.version) }
    }

    /// Applies a modifier; `None` if it does not exist.
    pub(super) fn modified(mut self, modifier: &str) -> Result<Option<Self>, LevelError> {
        match modifier.split_once('=') {
            Some(("front", front)) => {
                self.front = match_name("front", front, &ProxyFront::ALL, ProxyFront::label)?;
            }
            Some(("tls", tls)) => (self.version, self.key) = version_and_key(tls)?,
            Some(("group", name)) => {
                self.group = Some(match_name("group", name, &Group::ALL, Group::label)?);
            }
            Some(("mode", mode)) => {
                self.mode = match_name("mode", mode, &PoolMode::ALL, PoolMode::label)?;
            }
            _ => return Ok(None),
        }
        Ok(Some(self))
    }

    /// Why it does not support servers of `engine`, if so.
    pub fn impossible(self, engine: Engine) -> Option<String> {
        let Self { program, version, .. } = self;
        let unsupported = self.program.impossible(engine).or_else(|| match version {
            version if version == TlsVersion::Tls13 || program.0.older_version == Some(version) => None,
            version if version.is_forbidden() => {
                Some(format!("no proxy here supports {version}: RFC 8996 forbids it"))
            }
            _ => Some(format!(
                "{} negotiates the server's newest version, and the servers here have {}",
                program.display_name(),
                TlsVersion::Tls13
            )),
        });
        unsupported.or_else(|| self.impossible_group())
    }

    /// The sidecar reports the group of its server connections, and neither the servers nor other proxies do.
    fn impossible_group(self) -> Option<String> {
        if self.group.is_none() || self.program == ProxyProgram::SIDECAR {
            return None;
        }
        let (name, sidecar) = (self.program.display_name(), ProxyProgram::SIDECAR.label());
        Some(format!(
            "neither {name} nor the server reports the group of their connections: +group= is for {sidecar} only"
        ))
    }
}

/// Parses what follows `tls` in a path's name: `1.3-rsa2048`.
fn version_and_key(text: &str) -> Result<(TlsVersion, ServerKey), LevelError> {
    let named = TlsPath::all().find(|tls| tls.to_string() == format!("tls{text}"));
    named.and_then(|tls| Some((tls.parameters.version, tls.key?))).ok_or_else(|| {
        let expected = "a version and a key as in a path's name, such as +tls=1.3-rsa2048";
        LevelError::out_of_range(Factor::Path.label(), &format!("+tls={text}"), expected)
    })
}

impl fmt::Display for Proxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { program, front, version, key, group, mode } = *self;
        let usual = Self::of(program);
        formatter.write_str(program.label())?;
        if front != usual.front {
            write!(formatter, "+front={}", front.label())?;
        }
        if (version, key) != (usual.version, usual.key) {
            write!(formatter, "+tls={}-{key}", version.label().trim_start_matches("tls"))?;
        }
        if let Some(group) = group {
            write!(formatter, "+group={group}")?;
        }
        if mode != usual.mode {
            write!(formatter, "+mode={}", mode.label())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::factor::Path;

    fn proxy(text: &str) -> Proxy {
        text.parse::<Path>().unwrap().as_proxy().expect(text)
    }

    #[test]
    fn only_connections_to_the_server_use_tls() {
        let path: Path = "proxy".parse().unwrap();
        assert_eq!((path.as_tls(), path.as_proxy()), (None, Some(Proxy::of(ProxyProgram::SIDECAR))));
        assert_eq!(path.server_tls(), "tls1.3-p256".parse::<Path>().unwrap().as_tls());
        let behind = proxy("pgbouncer+front=tcp+tls=1.2-rsa2048+mode=transaction").upstream_tls();
        assert_eq!((behind.parameters.version, behind.key), (TlsVersion::Tls12, Some(ServerKey::Rsa2048)));
    }

    #[test]
    fn defaults_are_not_printed() {
        assert_eq!(proxy("proxy+mode=session+tls=1.3-p256+front=unix").to_string(), "proxy");
        let all = proxy("proxy+mode=transaction+tls=1.3-rsa2048+front=tcp");
        assert_eq!(all.to_string(), "proxy+front=tcp+tls=1.3-rsa2048+mode=transaction");
        let group = proxy("proxy+mode=transaction+group=x25519mlkem768+front=tcp");
        assert_eq!(group.to_string(), "proxy+front=tcp+group=x25519mlkem768+mode=transaction");
    }

    #[test]
    fn the_group_of_server_connections_is_for_the_sidecar_only() {
        let group = Some(Group::X25519MlKem768);
        assert_eq!(proxy("proxy+group=x25519mlkem768").upstream_tls().parameters.group, group);
        for engine in Engine::SQL {
            assert_eq!(proxy("proxy+group=x25519mlkem768").impossible(engine), None);
        }
        for (other, engine) in [
            ("pgbouncer", Engine::Postgres),
            ("odyssey", Engine::Postgres),
            ("proxysql", Engine::MariaDb),
            ("mysqlrouter", Engine::MySql),
        ] {
            let reason = proxy(&format!("{other}+group=p256")).impossible(engine).unwrap();
            assert!(reason.ends_with("+group= is for proxy only"), "{reason}");
        }
    }

    #[test]
    fn each_program_supports_its_protocol_and_versions() {
        let why = |text: &str, engine| proxy(text).impossible(engine);
        for engine in Engine::SQL {
            assert_eq!(why("proxy", engine), None, "{engine}");
            for (other, fits) in [
                ("pgbouncer", !engine.is_mysql_family()),
                ("odyssey", !engine.is_mysql_family()),
                ("proxysql", engine.is_mysql_family()),
                ("mysqlrouter", engine == Engine::MySql),
            ] {
                assert_eq!(why(other, engine).is_none(), fits, "{other} {engine}");
            }
        }
        for other in ["proxy", "pgbouncer", "odyssey", "proxysql", "mysqlrouter"] {
            let reason = why(other, Engine::FerretDb).unwrap();
            assert!(reason.ends_with(" does not speak MongoDB's protocol"), "{reason}");
        }
        let reason = why("pgbouncer", Engine::MariaDb).unwrap();
        assert!(reason.ends_with("for MariaDB use proxy or proxysql"), "{reason}");
        let reason = why("odyssey", Engine::MySql).unwrap();
        assert!(reason.ends_with("for MySQL use proxy, proxysql or mysqlrouter"), "{reason}");
        let reason = why("mysqlrouter", Engine::MariaDb).unwrap();
        assert!(reason.contains("does not pool connections to MariaDB"), "{reason}");
        assert_eq!(why("pgbouncer+tls=1.2-p256", Engine::Postgres), None);
        for other in ["proxy", "odyssey"] {
            let newest = why(&format!("{other}+tls=1.2-p256"), Engine::Postgres).unwrap();
            assert!(newest.contains("negotiates the server's newest version"), "{newest}");
        }
        assert!(why("pgbouncer+tls=1.0-rsa2048", Engine::Postgres).unwrap().contains("RFC 8996"));
    }
}
