//! The round trips of an operation, which a long link multiplies.
//!
//! The numbers were counted on real servers over a link that delays every packet; `crates/lab/tests/lab/round_trips.rs`
//! checks them. Combinations that were not counted are `None`, never a guess.
//!
//! The client is our own, which sends data as early as possible, without Nagle's algorithm.

use crate::cell::Cell;
use crate::factor::{
    Auth, Engine, Path, QueryLanguage, Resumption, SshSession, SshTunnel, TlsPath, TlsStart, TlsVersion,
    Tunnel, Workload,
};

/// Properties of a server that affect the number of round trips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerProperties<'a> {
    pub engine: Engine,
    /// As it reports it: `15.18 (Debian 15.18-0+deb12u1)`.
    pub version: &'a str,
    /// Whether it was observed to send a HelloRetryRequest. This depends on settings, so the version is used only if
    /// nothing was observed.
    pub hello_retry: Option<bool>,
}

/// The round trips of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrips {
    /// TCP's handshake. 0 on an existing connection, or if the connection ends at a local end of a tunnel.
    pub tcp: u32,
    /// From connected to the completed login.
    pub session: u32,
    /// One for each statement.
    pub statements: u32,
}

impl RoundTrips {
    pub fn total(self) -> u32 {
        self.tcp + self.session + self.statements
    }
}

/// The round trips of an operation of `cell`. The close waits for nothing.
pub fn of_operation(peer: &ServerProperties<'_>, cell: &Cell) -> Option<RoundTrips> {
    let connect = |statements| {
        let session = of_session(peer, cell.treatment.path, cell.treatment.auth)?;
        Some(RoundTrips { tcp: of_tcp(cell.treatment.path), session, statements })
    };
    match cell.workload {
        Workload::Connect => connect(0),
        Workload::ConnectQuery => connect(1),
        // One short statement on an existing connection.
        Workload::FirstQuery | Workload::PointSelect | Workload::SelectOnly | Workload::FindOne => {
            match cell.treatment.path {
                Path::Plain | Path::Compressed(_) | Path::Tls(_) | Path::Tunnel(_) => {
                    Some(RoundTrips { tcp: 0, session: 0, statements: 1 })
                }
                Path::Unix | Path::Proxy(_) => None,
            }
        }
        // Not counted. Large results also wait for TCP's window.
        Workload::TpcbLike
        | Workload::OltpReadOnly
        | Workload::OltpReadWrite
        | Workload::BulkRead { .. }
        | Workload::Ycsb(_)
        | Workload::Query => None,
    }
}

/// An upper bound for an operation of `cell`, including its connect even if that is not timed. Combinations not
/// counted are estimated generously, as the duration of trials depends on it.
pub fn of_operation_at_most(cell: &Cell) -> u32 {
    /// For a connect not counted: the maximum of those counted.
    const CONNECT: u32 = 8;
    /// For a proxy on the client's side of the link: a reset, and settings before a statement.
    const PROXY: u32 = 2;
    let treatment = &cell.treatment;
    let peer = ServerProperties { engine: treatment.server.engine, version: "", hello_retry: Some(true) };
    let connect = || match treatment.path {
        Path::Proxy(_) => PROXY,
        path => of_session(&peer, path, treatment.auth).map_or(CONNECT, |session| of_tcp(path) + session),
    };
    match cell.workload {
        Workload::Connect => connect(),
        Workload::ConnectQuery | Workload::FirstQuery => connect() + 1,
        Workload::PointSelect | Workload::SelectOnly | Workload::FindOne => 1,
        // Prepare and execute; read and update.
        Workload::Query | Workload::Ycsb(_) => 2,
        // Five, fourteen and eighteen statements between `BEGIN` and `COMMIT`.
        Workload::TpcbLike => 7,
        Workload::OltpReadOnly => 16,
        Workload::OltpReadWrite => 20,
        Workload::BulkRead { bytes } => of_answer(bytes.number()),
    }
}

/// Round trips of a result of this size by TCP's slow start: ten segments at once (RFC 6928), doubling each time.
fn of_answer(bytes: u32) -> u32 {
    const AT_ONCE: u32 = 14_600;
    let windows = bytes.div_ceil(AT_ONCE) + 1;
    // The smallest n for which 2ⁿ − 1 windows suffice.
    windows.next_power_of_two().trailing_zeros()
}

/// From connected to the completed login; without TCP's handshake.
pub fn of_session(peer: &ServerProperties<'_>, path: Path, auth: Auth) -> Option<u32> {
    let login = of_login(peer, auth)?;
    match path {
        // The server's greeting, then the login.
        Path::Plain | Path::Compressed(_) => Some(of_greeting(peer.engine) + login),
        Path::Tls(tls) => {
            let handshake = of_handshake(peer, tls)?;
            Some(of_start(peer, tls.start)? + handshake + login)
        }
        // Not counted.
        Path::Tunnel(_) if peer.engine.query_language() == QueryLanguage::Documents => None,
        Path::Tunnel(tunnel) => Some(of_tunnel(peer.engine, tunnel) + login),
        // There is no network, or a proxy that needs the server only now and then.
        Path::Unix | Path::Proxy(_) => None,
    }
}

/// Round trips of a tunnel before the login, counted over an emulated link of 100 ms.
fn of_tunnel(engine: Engine, tunnel: Tunnel) -> u32 {
    match tunnel {
        // As without a tunnel.
        Tunnel::OpenVpn(_) | Tunnel::WireGuard => of_greeting(engine),
        // Opening a channel; the server's greeting follows the reply at once.
        Tunnel::Ssh(SshTunnel { session: SshSession::Open, .. }) => 1,
        // Nagle's algorithm delays the greeting until the reply is acknowledged.
        Tunnel::Ssh(SshTunnel { session: SshSession::None, .. }) => 2,
        // TCP and TLS between its ends are part of the client's connect.
        Tunnel::Stunnel => 2 + of_greeting(engine),
    }
}

/// Whether TCP's handshake is with the server's machine instead of a local end of a tunnel.
pub fn of_tcp(path: Path) -> u32 {
    match path {
        Path::Plain | Path::Compressed(_) | Path::Unix | Path::Tls(_) => 1,
        Path::Tunnel(tunnel) => u32::from(tunnel.joins_networks()),
        Path::Proxy(_) => 0,
    }
}

/// MySQL's servers speak first, and the client waits for that. `MongoDB`'s `hello` counts as part of the login.
fn of_greeting(engine: Engine) -> u32 {
    match engine {
        Engine::MariaDb | Engine::MySql => 1,
        Engine::Postgres | Engine::MongoDb | Engine::FerretDb => 0,
    }
}

/// Until TLS starts. In MySQL's protocol the client waits for the greeting and the request has no reply; in
/// `PostgreSQL`'s protocol there is no greeting and the request has a reply.
fn of_start(peer: &ServerProperties<'_>, start: TlsStart) -> Option<u32> {
    match (peer.engine, start) {
        (Engine::MariaDb | Engine::MySql | Engine::Postgres, TlsStart::Requested) => Some(1),
        // Document databases: TLS from the first byte.
        (Engine::MariaDb | Engine::MySql, TlsStart::Eager)
        | (Engine::MongoDb | Engine::FerretDb, TlsStart::Requested) => Some(0),
        (Engine::Postgres, TlsStart::Eager | TlsStart::Direct) => (peer.major()? >= 17).then_some(0),
        _ => None,
    }
}

/// From the ClientHello to the client's last message, which the login follows at once. Keys, suites and certificates
/// do not matter: even the longest possible chain, ten certificates with RSA-4096 keys, fits into TCP's initial
/// window (RFC 6928: ten segments), as measured over an emulated link of 40 ms with an MTU of 1500.
fn of_handshake(peer: &ServerProperties<'_>, tls: TlsPath) -> Option<u32> {
    // `PostgreSQL` never resumes; document databases were not counted.
    if !peer.engine.is_mysql_family() && tls.resumption != Resumption::Never {
        return None;
    }
    match (tls.version, tls.resumption) {
        // Resumption saves a signature, but no round trip.
        (TlsVersion::Tls13, _) => Some(1 + u32::from(asks_again(peer, tls)?)),
        (_, Resumption::Never) => Some(2),
        (_, Resumption::Always | Resumption::BySessionId) => Some(1),
    }
}

/// Whether the server sends a HelloRetryRequest (RFC 8446, 4.1.4): our key share is X25519, which `PostgreSQL` up to
/// 17 and MySQL 9.7 reject.
fn asks_again(peer: &ServerProperties<'_>, tls: TlsPath) -> Option<bool> {
    // With a single group offered, the key share matches or the handshake fails.
    if tls.group.is_some() {
        return Some(false);
    }
    peer.hello_retry.or_else(|| match peer.engine {
        Engine::MariaDb => peer.is_of("10.11").then_some(false),
        Engine::MySql if peer.is_of("9.7") => Some(true),
        Engine::MySql => peer.is_of("8.0").then_some(false),
        Engine::Postgres => Some(peer.major()? <= 17),
        // Go accepts X25519.
        Engine::FerretDb => peer.is_of("1.24").then_some(false),
        Engine::MongoDb => None,
    })
}

/// Round trips of a login; `None` if the engine does not support it or it was not counted.
fn of_login(peer: &ServerProperties<'_>, auth: Auth) -> Option<u32> {
    match (peer.engine, auth) {
        (Engine::FerretDb, _) if !peer.is_of("1.24") => None,
        // `FerretDB`: `hello` only.
        (Engine::MariaDb | Engine::MySql | Engine::Postgres, Auth::Trust | Auth::Cert)
        | (Engine::MariaDb, Auth::Native)
        | (Engine::MySql, Auth::CachingSha2)
        | (Engine::FerretDb, Auth::Trust) => Some(1),
        // MySQL's protocol: the client begins with another method and must switch.
        (Engine::MariaDb, Auth::Ed25519) | (Engine::MySql, Auth::Native) | (Engine::Postgres, Auth::Md5) => {
            Some(2)
        }
        // MariaDB: a switch, and then the salt. SCRAM: with or without channel binding.
        (Engine::MariaDb, Auth::Parsec) | (Engine::Postgres, Auth::Scram { .. }) => Some(3),
        // The client does not use SCRAM within `hello`, and ends with an empty exchange although none is required.
        (Engine::FerretDb, Auth::Scram { .. } | Auth::ScramSha1) => Some(4),
        _ => None,
    }
}

impl ServerProperties<'_> {
    /// 15 of `15.18 (Debian 15.18-0+deb12u1)`.
    fn major(&self) -> Option<u32> {
        let digits = self.version.bytes().take_while(u8::is_ascii_digit).count();
        self.version[..digits].parse().ok()
    }

    /// Whether 10.11.19 is of the series 10.11.
    fn is_of(&self, series: &str) -> bool {
        self.version.strip_prefix(series).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sessions(engine: Engine, version: &str, kinds: &[(&str, &str, Option<u32>)]) {
        for (path, auth, count) in kinds {
            let peer = ServerProperties { engine, version, hello_retry: None };
            let said = of_session(&peer, path.parse().unwrap(), auth.parse().unwrap());
            assert_eq!(said, *count, "{engine} {version} {path} {auth}");
        }
    }

    #[test]
    fn mariadb() {
        sessions(
            Engine::MariaDb,
            "10.11.19-MariaDB-0+deb12u1",
            &[
                ("plain", "native", Some(2)),
                ("plain", "trust", Some(2)),
                ("plain", "ed25519", Some(3)),
                ("plain", "parsec", Some(4)),
                ("ssh-aes256-gcm", "native", Some(2)),
                ("ssh-aes256-gcm+N", "native", Some(3)),
                ("openvpn-none", "native", Some(2)),
                ("wireguard", "native", Some(2)),
                ("stunnel", "native", Some(4)),
                ("tls1.0-rsa2048", "native", Some(4)),
                ("tls1.1-rsa2048", "native", Some(4)),
                ("tls1.2-p256", "native", Some(4)),
                ("tls1.2-p256+mtls", "native", Some(4)),
                ("tls1.2-p256+resume", "native", Some(3)),
                ("tls1.2-p256+resume=id", "native", Some(3)),
                ("tls1.2-p256+eager", "native", Some(3)),
                ("tls1.2-p256+resume+eager", "native", Some(2)),
                ("tls1.3-p256", "native", Some(3)),
                ("tls1.3-p256", "cert", Some(3)),
                ("tls1.3-p256+resume", "native", Some(3)),
                ("tls1.3-rsa4096+chain=3", "native", Some(3)),
                ("tls1.3-p256+mtls", "native", Some(3)),
                ("tls1.3-p256+client=rustls", "native", Some(3)),
                ("tls1.3-p256+eager", "native", Some(2)),
                ("tls1.3-p256", "parsec", Some(5)),
                ("tls1.3-p256", "as-asked", None),
                ("tls1.3-p256+direct", "native", None),
                ("unix", "native", None),
            ],
        );
    }

    #[test]
    fn mysql() {
        sessions(
            Engine::MySql,
            "8.0.33",
            &[
                ("plain", "caching-sha2", Some(2)),
                ("plain", "trust", Some(2)),
                ("plain", "native", Some(3)),
                ("tls1.2-p256", "caching-sha2", Some(4)),
                ("tls1.2-p256+resume", "caching-sha2", Some(3)),
                ("tls1.3-p256", "caching-sha2", Some(3)),
                ("tls1.3-p256", "native", Some(4)),
                ("tls1.3-p256+resume", "caching-sha2", Some(3)),
                ("tls1.3-p256+eager", "caching-sha2", Some(2)),
            ],
        );
        sessions(Engine::MySql, "9.7.0", &[("tls1.3-p256", "caching-sha2", Some(4))]);
    }

    #[test]
    fn postgres_with_nist_curves_only() {
        let kinds = [
            ("plain", "trust", Some(1)),
            ("plain", "scram-4096", Some(3)),
            ("plain", "md5", Some(2)),
            ("ssh-aes256-gcm", "scram-4096", Some(4)),
            ("ssh-aes256-gcm+N", "scram-4096", Some(5)),
            ("openvpn-aes256-cbc", "scram-4096", Some(3)),
            ("wireguard", "scram-4096", Some(3)),
            ("stunnel", "scram-4096", Some(5)),
            ("tls1.2-p256", "trust", Some(4)),
            ("tls1.2-p256", "scram-4096", Some(6)),
            ("tls1.3-p256", "trust", Some(4)),
            ("tls1.3-p256", "scram-4096", Some(6)),
            ("tls1.3-p256+group=p256", "trust", Some(3)),
            ("tls1.3-p256+group=p256", "scram-4096", Some(5)),
        ];
        for version in ["15.18 (Debian 15.18-0+deb12u1)", "16.4", "17.0"] {
            sessions(Engine::Postgres, version, &kinds);
        }
        sessions(Engine::Postgres, "15.18", &[("tls1.3-p256+direct", "trust", None)]);
        sessions(Engine::Postgres, "15.18", &[("tls1.2-p256+resume", "trust", None)]);
        sessions(Engine::Postgres, "17.2", &[("tls1.3-p256+direct", "trust", Some(3))]);
    }

    #[test]
    fn postgres_18() {
        sessions(
            Engine::Postgres,
            "18.1",
            &[
                ("plain", "trust", Some(1)),
                ("plain", "scram-4096", Some(3)),
                ("plain", "md5", Some(2)),
                ("tls1.2-p256", "trust", Some(4)),
                ("tls1.2-p256", "scram-4096", Some(6)),
                ("tls1.3-p256", "trust", Some(3)),
                ("tls1.3-p256", "cert", Some(3)),
                ("tls1.3-p256", "scram-4096", Some(5)),
                ("tls1.3-p256", "scram-4096+plus", Some(5)),
                ("tls1.3-p256+direct", "trust", Some(2)),
                ("tls1.3-p256+direct", "scram-4096", Some(4)),
                ("tls1.3-p256+eager", "trust", Some(2)),
                ("tls1.3-p256+eager", "scram-4096", Some(4)),
                ("tls1.2-p256+eager", "trust", Some(3)),
                ("tls1.2-p256+eager", "scram-4096", Some(5)),
            ],
        );
    }

    #[test]
    fn ferretdb() {
        let kinds = [
            ("plain", "trust", Some(1)),
            ("plain", "scram-15000", Some(4)),
            ("plain", "scram-sha1", Some(4)),
            ("tls1.2-p256", "scram-15000", Some(6)),
            ("tls1.3-p256", "trust", Some(2)),
            ("tls1.3-p256", "scram-15000", Some(5)),
            ("tls1.3-p256+resume", "scram-15000", None),
            ("wireguard", "scram-15000", None),
            ("unix", "scram-15000", None),
        ];
        sessions(Engine::FerretDb, "1.24.2", &kinds);
        sessions(Engine::FerretDb, "2.5.0", &[("plain", "scram-15000", None)]);
        sessions(Engine::MongoDb, "8.0.4", &[("plain", "scram-15000", None)]);
    }

    #[test]
    fn observations_take_precedence_and_unknown_cases_are_none() {
        let tls13 = "tls1.3-p256".parse().unwrap();
        let of = |version, hello_retry| {
            let peer = ServerProperties { engine: Engine::MariaDb, version, hello_retry };
            of_session(&peer, tls13, Auth::Native)
        };
        assert_eq!(of("10.11.19", Some(true)), Some(4));
        assert_eq!((of("99.1", None), of("99.1", Some(false))), (None, Some(3)));
        assert_eq!((of("10.1.1", None), of("", None), of("ünknown", None)), (None, None, None));
    }

    #[test]
    fn no_chain_costs_a_round_trip() {
        let kinds = [
            ("tls1.3-p256+chain=10", "native", Some(3)),
            ("tls1.3-rsa4096+chain=10", "native", Some(3)),
            ("tls1.2-rsa4096+chain=10", "native", Some(4)),
        ];
        sessions(Engine::MariaDb, "10.11.19", &kinds);
    }

    #[test]
    fn an_operation_is_a_connect_or_statement_or_both() {
        let text = "[[grid]]\npath = [\"plain\"]\nworkload = [\"connect\", \"connect-query\", \"first-query\", \
                    \"point-select\", \"bulk-read\"]\nclients = [1]\n";
        let plan = crate::Plan::new(&crate::Spec::from_toml(text).unwrap(), 1).unwrap();
        let peer = ServerProperties { engine: Engine::MariaDb, version: "10.11.19", hello_retry: None };
        let totals: Vec<(String, Option<u32>)> = plan
            .cells
            .iter()
            .map(|cell| (cell.workload.to_string(), of_operation(&peer, cell).map(RoundTrips::total)))
            .collect();
        let expected = [
            ("connect", Some(3)),
            ("connect-query", Some(4)),
            ("first-query", Some(1)),
            ("point-select", Some(1)),
            ("bulk-read+bytes=16k", None),
        ];
        assert_eq!(totals, expected.map(|(name, total)| (name.to_owned(), total)));
    }
}
