//! The round trips of an operation, which a long link multiplies.
//!
//! The numbers were counted on real servers over a link that delays every packet; `measure/lab/tests/lab/round_trips.rs`
//! checks them. Combinations that were not counted are `None`, never a guess.
//!
//! The client is our own, which sends data as early as possible, without Nagle's algorithm.

use crate::cell::Cell;
use crate::factor::{
    Auth, Engine, FindAny, Path, QueryLanguage, Resumption, ServerKey, SshSession, SshTunnel, TlsPath,
    TlsStart, TlsVersion, Tunnel, Workload,
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
    /// The observed size of the server's first flight of TLS.
    pub first_flight_bytes: Option<u64>,
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
        Workload::ConnectQuery { queries } => connect(queries.count().into()),
        Workload::FindAny(FindAny::Connect) => connect(1),
        // One short statement on an existing connection.
        Workload::FirstQuery
        | Workload::PointSelect
        | Workload::SelectOnly
        | Workload::FindOne
        | Workload::FindAny(FindAny::First | FindAny::Open) => match cell.treatment.path {
            Path::Plain | Path::Compressed(_) | Path::Tls(_) | Path::Tunnel(_) => {
                Some(RoundTrips { tcp: 0, session: 0, statements: 1 })
            }
            Path::Unix | Path::Proxy(_) => None,
        },
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
    let peer = ServerProperties {
        engine: treatment.server.engine,
        version: "",
        hello_retry: Some(true),
        first_flight_bytes: None,
    };
    let connect = || match treatment.path {
        Path::Proxy(_) => PROXY,
        path => of_session(&peer, path, treatment.auth).map_or(CONNECT, |session| of_tcp(path) + session),
    };
    match cell.workload {
        Workload::Connect => connect(),
        Workload::ConnectQuery { queries } => connect() + u32::from(queries.count()),
        Workload::FirstQuery | Workload::FindAny(FindAny::Connect | FindAny::First) => connect() + 1,
        Workload::PointSelect
        | Workload::SelectOnly
        | Workload::FindOne
        | Workload::FindAny(FindAny::Open) => 1,
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
    const AT_ONCE: u64 = 14_600;
    of_slow_start(bytes.into(), AT_ONCE)
}

fn of_slow_start(bytes: u64, at_once: u64) -> u32 {
    let windows = bytes.div_ceil(at_once) + 1;
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

/// From the ClientHello to the client's last message, which the login follows at once.
fn of_handshake(peer: &ServerProperties<'_>, tls: TlsPath) -> Option<u32> {
    // `PostgreSQL` never resumes; document databases were not counted.
    if !peer.engine.is_mysql_family() && tls.resumption != Resumption::Never {
        return None;
    }
    let handshake = match (tls.parameters.version, tls.resumption) {
        // Resumption saves a signature, but no round trip.
        (TlsVersion::Tls13, _) => 1 + u32::from(asks_again(peer, tls)?),
        (_, Resumption::Never) => 2,
        (_, Resumption::Always | Resumption::BySessionId) => 1,
    };
    Some(handshake + of_long_flight(peer, tls)?)
}

/// Round trips in which a server waits for acknowledgements in its first flight. Other keys and chains do not matter:
/// even ten certificates with RSA-4096 keys fit into TCP's initial window (RFC 6928: ten segments), as measured over an
/// emulated link of 40 ms with an MTU of 1500. Two certificates with ML-DSA-65 do not, as measured in the same way.
fn of_long_flight(peer: &ServerProperties<'_>, tls: TlsPath) -> Option<u32> {
    /// Ten segments with TCP time stamps.
    const AT_ONCE: u64 = 14_480;
    let sends_certificates = tls.resumption == Resumption::Never;
    let is_long =
        tls.key.is_some_and(ServerKey::is_ml_dsa) && tls.chain.is_some_and(|chain| chain.count() > 1);
    match peer.first_flight_bytes {
        Some(bytes) => Some(of_slow_start(bytes, AT_ONCE).saturating_sub(1)),
        // Its size depends on engine and group.
        None if is_long && sends_certificates => None,
        None => Some(0),
    }
}

/// Whether the server sends a HelloRetryRequest (RFC 8446, 4.1.4): our key share is X25519, which `PostgreSQL` up to
/// 17 and MySQL 9.7 reject.
fn asks_again(peer: &ServerProperties<'_>, tls: TlsPath) -> Option<bool> {
    // With a single group offered, the key share matches or the handshake fails.
    if tls.parameters.group.is_some() {
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
mod tests;
