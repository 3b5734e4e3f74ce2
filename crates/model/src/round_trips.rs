//! How often an operation waits for the server: what a long link multiplies.
//!
//! A table of what was counted on real servers over a line that holds every packet (`crates/lab/tests/lab/round_trips.rs`
//! takes what it expects from here, the first measurements were made over a line of 100 ms). What was not counted is
//! `None`, and never a guess: another link in between, a login or a version that no test has met.
//!
//! The client is our own, which sends what it can as soon as it may, without Nagle's delay.

use crate::cell::Cell;
use crate::factor::{
    Auth, Engine, Path, QueryLanguage, Resumption, SshSession, SshTunnel, TlsPath, TlsStart, TlsVersion,
    Tunnel, Workload,
};

/// Whom a client goes to, as far as it decides how often it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer<'a> {
    /// The engine.
    pub engine: Engine,
    /// The version it says it is: `15.18 (Debian 15.18-0+deb12u1)`.
    pub version: &'a str,
    /// Whether a TLS 1.3 client was asked for another group (HelloRetryRequest), where that was seen. It is asked for by
    /// settings, too, and so what was seen counts, and the version only where nothing was.
    pub hello_retry: Option<bool>,
}

/// The round trips of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrips {
    /// TCP's own: SYN and its answer. 0 where the connection stands already, or goes no further than to a tunnel's end
    /// on this machine.
    pub tcp: u32,
    /// From connected to authenticated and ready.
    pub session: u32,
    /// Statements, each of which waits for its answer.
    pub statements: u32,
}

impl RoundTrips {
    /// All of them.
    pub fn total(self) -> u32 {
        self.tcp + self.session + self.statements
    }
}

/// Those of one operation of `cell`. The close waits for nobody.
pub fn of_operation(peer: &Peer<'_>, cell: &Cell) -> Option<RoundTrips> {
    let connect = |statements| {
        let session = of_session(peer, cell.treatment.path, cell.treatment.auth)?;
        Some(RoundTrips { tcp: of_tcp(cell.treatment.path), session, statements })
    };
    match cell.workload {
        Workload::Connect => connect(0),
        Workload::ConnectQuery => connect(1),
        // One short statement, on a connection that stands.
        Workload::FirstQuery | Workload::PointSelect | Workload::SelectOnly | Workload::FindOne => {
            match cell.treatment.path {
                Path::Plain | Path::Compressed(_) | Path::Tls(_) | Path::Tunnel(_) => {
                    Some(RoundTrips { tcp: 0, session: 0, statements: 1 })
                }
                Path::Unix | Path::Proxy(_) => None,
            }
        }
        // Not counted yet; and a large answer waits for TCP's window, too.
        Workload::TpcbLike
        | Workload::OltpReadOnly
        | Workload::OltpReadWrite
        | Workload::BulkRead { .. }
        | Workload::Ycsb(_)
        | Workload::Query => None,
    }
}

/// Those that one operation of `cell` takes at most, its connect included where it opens a connection, whatever of it is
/// timed. What was not counted is estimated, and rather too high: how long a trial must be follows from it.
pub fn of_operation_at_most(cell: &Cell) -> u32 {
    /// Of a connect that was not counted. No connect that was takes more.
    const CONNECT: u32 = 8;
    /// Of a proxy on the client's side of the link, which keeps its connections: a reset and what it sets before a statement.
    const PROXY: u32 = 2;
    let treatment = &cell.treatment;
    let peer = Peer { engine: treatment.server.engine, version: "", hello_retry: Some(true) };
    let connect = || match treatment.path {
        Path::Proxy(_) => PROXY,
        path => of_session(&peer, path, treatment.auth).map_or(CONNECT, |session| of_tcp(path) + session),
    };
    match cell.workload {
        Workload::Connect => connect(),
        Workload::ConnectQuery | Workload::FirstQuery => connect() + 1,
        Workload::PointSelect | Workload::SelectOnly | Workload::FindOne => 1,
        // Prepared, then run; read, then updated.
        Workload::Query | Workload::Ycsb(_) => 2,
        // Five, fourteen and eighteen statements between `BEGIN` and `COMMIT`.
        Workload::TpcbLike => 7,
        Workload::OltpReadOnly => 16,
        Workload::OltpReadWrite => 20,
        Workload::BulkRead { bytes } => of_answer(bytes.number()),
    }
}

/// Those that an answer of so many bytes takes by TCP's slow start: ten segments at once (RFC 6928), then twice as many each
/// time.
fn of_answer(bytes: u32) -> u32 {
    const AT_ONCE: u32 = 14_600;
    let windows = bytes.div_ceil(AT_ONCE) + 1;
    // So many that 2ⁿ − 1 windows hold it.
    windows.next_power_of_two().trailing_zeros()
}

/// Those of a connect, from connected to authenticated and ready; TCP's own is not among them.
pub fn of_session(peer: &Peer<'_>, path: Path, auth: Auth) -> Option<u32> {
    let login = of_login(peer, auth)?;
    match path {
        // The server greets; the client says who it is.
        Path::Plain | Path::Compressed(_) => Some(of_greeting(peer.engine) + login),
        Path::Tls(tls) => {
            let handshake = of_handshake(peer, tls)?;
            Some(of_start(peer, tls.start)? + handshake + login)
        }
        // Not counted yet.
        Path::Tunnel(_) if peer.engine.query_language() == QueryLanguage::Documents => None,
        Path::Tunnel(tunnel) => Some(of_tunnel(peer.engine, tunnel) + login),
        // No network lies in between; or somebody who keeps connections, and waits for the server now and then.
        Path::Unix | Path::Proxy(_) => None,
    }
}

/// What there is before a login through a tunnel. Counted over a made link of 100 ms.
fn of_tunnel(engine: Engine, tunnel: Tunnel) -> u32 {
    match tunnel {
        // As if there were none.
        Tunnel::OpenVpn(_) | Tunnel::WireGuard => of_greeting(engine),
        // A channel is opened, and a server's greeting comes right behind the answer to that.
        Tunnel::Ssh(SshTunnel { session: SshSession::Open, .. }) => 1,
        // And Nagle's algorithm holds what comes behind until that is acknowledged.
        Tunnel::Ssh(SshTunnel { session: SshSession::None, .. }) => 2,
        // TCP and TLS between its ends are within the client's connection.
        Tunnel::Stunnel => 2 + of_greeting(engine),
    }
}

/// Whether a connect waits for TCP's handshake with the server's machine, and not with a tunnel's end on its own.
pub fn of_tcp(path: Path) -> u32 {
    match path {
        Path::Plain | Path::Compressed(_) | Path::Unix | Path::Tls(_) => 1,
        Path::Tunnel(tunnel) => u32::from(tunnel.joins_networks()),
        Path::Proxy(_) => 0,
    }
}

/// MySQL's servers speak first, and the client waits for it. What `MongoDB`'s answer to `hello` costs is part
/// of the login.
fn of_greeting(engine: Engine) -> u32 {
    match engine {
        Engine::MariaDb | Engine::MySql => 1,
        Engine::Postgres | Engine::MongoDb | Engine::FerretDb => 0,
    }
}

/// Until TLS may begin. In MySQL's protocol the greeting is waited for and the request is not answered, in
/// `PostgreSQL`'s there is no greeting and the request is.
fn of_start(peer: &Peer<'_>, start: TlsStart) -> Option<u32> {
    let takes_tls_at_once = || peer.major().is_some_and(|major| major >= 17);
    match peer.engine {
        Engine::MariaDb | Engine::MySql => match start {
            TlsStart::Requested => Some(1),
            TlsStart::Eager => Some(0),
            TlsStart::Direct => None,
        },
        Engine::Postgres => match start {
            TlsStart::Requested => Some(1),
            TlsStart::Eager | TlsStart::Direct => takes_tls_at_once().then_some(0),
        },
        // TLS from the first byte, without a word of the protocol's.
        Engine::MongoDb | Engine::FerretDb => (start == TlsStart::Requested).then_some(0),
    }
}

/// From the client's first message to its last, which the login follows without waiting. Keys, suites and certificates do
/// not matter, the client's own neither: the longest chain that a path can ask for, ten with RSA-4096 keys, still fits into
/// what TCP sends at once (RFC 6928: ten segments), as connects over a made link of 40 ms with an MTU of 1500 have shown.
fn of_handshake(peer: &Peer<'_>, tls: TlsPath) -> Option<u32> {
    // `PostgreSQL` never resumes, and with servers of documents nobody has counted yet.
    if !peer.engine.is_mysql_family() && tls.resumption != Resumption::Never {
        return None;
    }
    match (tls.version, tls.resumption) {
        // Resumption saves the signature, not the wait.
        (TlsVersion::Tls13, _) => Some(1 + u32::from(asks_again(peer, tls)?)),
        (_, Resumption::Never) => Some(2),
        (_, Resumption::Always | Resumption::BySessionId) => Some(1),
    }
}

/// Whether the server asks a TLS 1.3 client for a group that it has not guessed (RFC 8446, 4.1.4): ours guesses X25519,
/// which `PostgreSQL` to 17 and MySQL 9.7 do not take.
fn asks_again(peer: &Peer<'_>, tls: TlsPath) -> Option<bool> {
    // Who offers one group has guessed it, or fails.
    if tls.group.is_some() {
        return Some(false);
    }
    peer.hello_retry.or_else(|| match peer.engine {
        Engine::MariaDb => peer.is_of("10.11").then_some(false),
        Engine::MySql if peer.is_of("9.7") => Some(true),
        Engine::MySql => peer.is_of("8.0").then_some(false),
        Engine::Postgres => Some(peer.major()? <= 17),
        // Go takes X25519.
        Engine::FerretDb => peer.is_of("1.24").then_some(false),
        Engine::MongoDb => None,
    })
}

/// Answers to a login that are waited for. What the engine does not have, and what is not known before it is asked for,
/// was not counted.
fn of_login(peer: &Peer<'_>, auth: Auth) -> Option<u32> {
    match peer.engine {
        Engine::MariaDb => match auth {
            Auth::Trust | Auth::Cert | Auth::Native => Some(1),
            // The client begins with another method and is told to change it.
            Auth::Ed25519 => Some(2),
            // And then gets the salt.
            Auth::Parsec => Some(3),
            Auth::Scram { .. } | Auth::ScramSha1 | Auth::Md5 | Auth::CachingSha2 | Auth::AsAsked => None,
        },
        Engine::MySql => match auth {
            Auth::Trust | Auth::Cert | Auth::CachingSha2 => Some(1),
            // Told to change, too.
            Auth::Native => Some(2),
            Auth::Scram { .. }
            | Auth::ScramSha1
            | Auth::Md5
            | Auth::Ed25519
            | Auth::Parsec
            | Auth::AsAsked => None,
        },
        Engine::Postgres => match auth {
            Auth::Trust | Auth::Cert => Some(1),
            Auth::Md5 => Some(2),
            // Bound to the channel or not.
            Auth::Scram { .. } => Some(3),
            Auth::ScramSha1
            | Auth::Native
            | Auth::CachingSha2
            | Auth::Ed25519
            | Auth::Parsec
            | Auth::AsAsked => None,
        },
        Engine::FerretDb if peer.is_of("1.24") => match auth {
            // `hello` alone.
            Auth::Trust => Some(1),
            // It passes over what `hello` has of SCRAM, and ends with an empty exchange although none is asked for.
            Auth::Scram { .. } | Auth::ScramSha1 => Some(4),
            Auth::Md5
            | Auth::Native
            | Auth::CachingSha2
            | Auth::Ed25519
            | Auth::Parsec
            | Auth::Cert
            | Auth::AsAsked => None,
        },
        // Not counted yet.
        Engine::MongoDb | Engine::FerretDb => None,
    }
}

impl Peer<'_> {
    /// 15 of `15.18 (Debian 15.18-0+deb12u1)`.
    fn major(&self) -> Option<u32> {
        let digits = self.version.bytes().take_while(u8::is_ascii_digit).count();
        self.version[..digits].parse().ok()
    }

    /// Whether 10.11.19 is one of 10.11.
    fn is_of(&self, series: &str) -> bool {
        self.version.strip_prefix(series).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sessions(engine: Engine, version: &str, kinds: &[(&str, &str, Option<u32>)]) {
        for (path, auth, count) in kinds {
            let peer = Peer { engine, version, hello_retry: None };
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
    fn postgres_that_takes_nist_curves_only() {
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
    fn what_was_seen_counts_and_what_nobody_has_met_is_not_known() {
        let tls13 = "tls1.3-p256".parse().unwrap();
        let of = |version, hello_retry| {
            let peer = Peer { engine: Engine::MariaDb, version, hello_retry };
            of_session(&peer, tls13, Auth::Native)
        };
        assert_eq!(of("10.11.19", Some(true)), Some(4));
        assert_eq!((of("99.1", None), of("99.1", Some(false))), (None, Some(3)));
        assert_eq!((of("10.1.1", None), of("", None), of("ünknown", None)), (None, None, None));
    }

    #[test]
    fn no_chain_that_can_be_asked_for_costs_a_round_trip() {
        let kinds = [
            ("tls1.3-p256+chain=10", "native", Some(3)),
            ("tls1.3-rsa4096+chain=10", "native", Some(3)),
            ("tls1.2-rsa4096+chain=10", "native", Some(4)),
        ];
        sessions(Engine::MariaDb, "10.11.19", &kinds);
    }

    #[test]
    fn an_operation_is_a_connect_or_a_statement_or_both() {
        let text = "[[grid]]\npath = [\"plain\"]\nworkload = [\"connect\", \"connect-query\", \"first-query\", \
                    \"point-select\", \"bulk-read\"]\nclients = [1]\n";
        let plan = crate::Plan::new(&crate::Spec::from_toml(text).unwrap(), 1).unwrap();
        let peer = Peer { engine: Engine::MariaDb, version: "10.11.19", hello_retry: None };
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
