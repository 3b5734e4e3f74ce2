//! What TLS a server accepts, by asking it: hellos that no handshake follows, and one handshake that shows the certificates.

use std::cell::Cell;
use std::cmp::Reverse;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_wire::mongodb::{Mechanism, MongoDbLogin, MongoDbTlsMode};
use ciphertoll_wire::mysql::{MySqlLogin, MySqlTlsMode};
use ciphertoll_wire::passive::DatabaseProtocol;
use ciphertoll_wire::postgres::{ChannelBinding, PostgresLogin, PostgresTlsMode};
use ciphertoll_wire::session::{self, Connect, Login};
use ciphertoll_wire::tls::{NamedGroup, ProbeAnswer, ProbeHello, ProbedSelection};
use ciphertoll_wire::{Secret, Step, mysql, postgres};
use openssl::ssl::{HandshakeError, Ssl, SslContextBuilder, SslMethod, SslVerifyMode, SslVersion};
use socket2::Socket;

use crate::Error;
use crate::socket::{Transport, connect_tcp, limit_waits, receive, send};

const TLS_1_0: u16 = 0x0301;
const TLS_1_1: u16 = 0x0302;
const TLS_1_2: u16 = 0x0303;
const TLS_1_3: u16 = 0x0304;
/// The groups of TLS 1.3 that are asked for: post-quantum ones first.
const GROUPS: [u16; 12] =
    [0x11ec, 0x11eb, 0x11ed, 0x0202, 0x0201, 0x0200, 0x001d, 0x0017, 0x0018, 0x0019, 0x001e, 0x0100];
/// Second tries of one probe, for servers that end connections for reasons unrelated to the hello.
const RETRIES: usize = 3;
/// Before a second try.
const PAUSE: Duration = Duration::from_millis(250);
/// The round trips of a probe of a server that accepts much; the server's own time is extra.
const ROUND_TRIPS: u32 = 80;
/// The most connections that [`probe`] makes: for each group and one more, each older version and one more, weak suites and the
/// certificates; for each second try the retry itself, and one to see whether the server still answers.
pub const MAX_PROBE_CONNECTIONS: usize = GROUPS.len() + 1 + 4 + 1 + 1 + 2 * RETRIES;
/// Of what a server sends before TLS. MySQL's greeting has less than 200 bytes.
const MAX_OPENING_BYTES: usize = 4 << 10;
/// Of a server's answer to a hello: more than its longest ServerHello.
const MAX_ANSWER_BYTES: usize = 32 << 10;
/// It is never sent.
const USER: &str = "probe";
const MAX_CHAIN: usize = 10;

/// Which server is asked.
#[derive(Clone, Copy, Debug)]
pub struct ProbeTarget<'a> {
    pub address: SocketAddr,
    pub protocol: DatabaseProtocol,
    /// Which one of the servers at the address is meant (SNI).
    pub server_name: Option<&'a str>,
}

/// What a server accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probed {
    NoTls,
    Tls(AcceptedTls),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AcceptedTls {
    /// Each version with the suite that the server selects in it, the newest first.
    pub versions: Vec<(u16, u16)>,
    /// The groups of TLS 1.3, in the server's order if it has one.
    pub groups: Vec<NamedGroup>,
    /// What it selects if a client offers weak suites only.
    pub weak_suite: Option<u16>,
    /// The certificate chain as the server sends it, DER, its own first. Empty if this machine's OpenSSL cannot complete a
    /// handshake with it.
    pub chain: Vec<Vec<u8>>,
    /// The parts that could not be found out, or not fully: the server may accept what is missing there.
    pub unknown: Vec<ProbePart>,
    /// The reason for the first of these parts.
    pub reason: Option<String>,
}

/// What a probe asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbePart {
    Certificates,
    /// Those before TLS 1.3.
    OlderVersions,
    WeakSuites,
    Groups,
}

impl ProbePart {
    /// In the order in which they are asked for: parts that take few connections first.
    const ALL: [Self; 4] = [Self::Certificates, Self::OlderVersions, Self::WeakSuites, Self::Groups];
}

/// Asks a server what it accepts. Makes at most [`MAX_PROBE_CONNECTIONS`] connections and never logs in. Verifies nothing: the
/// result is that of whatever answers at this address. Takes at most the first of the limits, or as long as 80 round trips, up to
/// the last. Fails if the server does not answer, or speaks another protocol.
pub fn probe(target: ProbeTarget<'_>, limits: RangeInclusive<Duration>) -> Result<Probed, Error> {
    let limit = *limits.start();
    let probe = Probe {
        target,
        login: login(target.protocol),
        begun: Instant::now(),
        limit: Cell::new(limit),
        limits,
        retries: Cell::new(RETRIES),
    };
    match probe.accepted() {
        Ok(accepted) => Ok(Probed::Tls(accepted)),
        Err(error) if is_without_tls(&error) => Ok(Probed::NoTls),
        Err(error) => Err(error),
    }
}

fn is_without_tls(error: &Error) -> bool {
    matches!(
        error,
        Error::Protocol(
            session::Error::Postgres(postgres::Error::TlsNotOffered)
                | session::Error::MySql(mysql::Error::TlsNotOffered)
        )
    )
}

struct Probe<'a> {
    target: ProbeTarget<'a>,
    login: Login,
    begun: Instant,
    limit: Cell<Duration>,
    limits: RangeInclusive<Duration>,
    /// Second tries that are left.
    retries: Cell<usize>,
}

/// A chain of certificates, and the version and the suite of the handshake that showed it.
type Shown = (Vec<Vec<u8>>, Option<(u16, u16)>);

/// The result of one connection.
enum Attempt<T> {
    Accepted(T),
    /// The server said so.
    Refused,
    /// The connection ended, or was not made. Servers that limit connections do so, and some that refuse what is offered.
    Ended(Error),
}

impl Probe<'_> {
    fn accepted(&self) -> Result<AcceptedTls, Error> {
        let (mut accepted, mut first_error) = (AcceptedTls::default(), None);
        for part in ProbePart::ALL {
            let asked = match part {
                ProbePart::Certificates => self.add_chain(&mut accepted),
                ProbePart::OlderVersions => self.add_older_versions(&mut accepted),
                ProbePart::WeakSuites => self.add_weak_suite(&mut accepted),
                ProbePart::Groups => self.add_groups(&mut accepted),
            };
            match asked {
                Ok(()) => {}
                // TLS was not reached.
                Err(error) if part == ProbePart::Certificates && !matches!(error, Error::Tls(_)) => {
                    return Err(error);
                }
                Err(error) => {
                    accepted.unknown.push(part);
                    first_error.get_or_insert(error);
                }
            }
        }
        if accepted.versions.is_empty() && accepted.chain.is_empty() {
            let refused = || Error::Tls("the server accepts no TLS handshake".to_owned());
            return Err(first_error.unwrap_or_else(refused));
        }
        accepted.reason = first_error.map(|error| error.to_string());
        accepted.versions.sort_unstable_by_key(|(version, _)| Reverse(*version));
        Ok(accepted)
    }

    /// Asks again and again, each time without the group that the server selected before.
    fn add_groups(&self, accepted: &mut AcceptedTls) -> Result<(), Error> {
        let mut left = GROUPS.map(NamedGroup).to_vec();
        while !left.is_empty()
            && let Some(ProbedSelection { version: TLS_1_3, suite, group: Some(group) }) =
                self.ask(ProbeHello::Groups(&left), accepted)?
            && let Some(place) = left.iter().position(|known| *known == group)
        {
            accepted.add_version(TLS_1_3, suite);
            accepted.groups.push(left.remove(place));
        }
        if accepted.groups.is_empty() && accepted.has_version(TLS_1_3) {
            return Err(Error::Tls("the server answers no hello without a key share".to_owned()));
        }
        Ok(())
    }

    fn add_older_versions(&self, accepted: &mut AcceptedTls) -> Result<(), Error> {
        let mut newest = TLS_1_2;
        while newest >= TLS_1_0
            && let Some(ProbedSelection { version, suite, .. }) =
                self.ask(ProbeHello::UpTo(newest), accepted)?
            && (TLS_1_0..=newest).contains(&version)
        {
            accepted.add_version(version, suite);
            newest = version - 1;
        }
        Ok(())
    }

    /// They exist in older versions only.
    fn add_weak_suite(&self, accepted: &mut AcceptedTls) -> Result<(), Error> {
        if accepted.versions.iter().any(|(version, _)| *version < TLS_1_3) {
            let weak = self.ask(ProbeHello::WeakSuites, accepted)?;
            accepted.weak_suite = weak.map(|selection| selection.suite);
        } else if accepted.unknown.contains(&ProbePart::OlderVersions) {
            return Err(Error::Closed);
        }
        Ok(())
    }

    /// What the server selects; `None` if it accepts nothing of what is offered. A server may end a connection instead of sending
    /// an alert. That counts if it does so twice, and then still accepts something else.
    fn ask(&self, hello: ProbeHello<'_>, known: &AcceptedTls) -> Result<Option<ProbedSelection>, Error> {
        let error = match self.twice(|| self.attempt(hello))? {
            Attempt::Accepted(selection) => return Ok(Some(selection)),
            Attempt::Refused => return Ok(None),
            Attempt::Ended(error) => error,
        };
        let (all, newest) =
            (GROUPS.map(NamedGroup), known.versions.iter().map(|(version, _)| *version).max());
        let other = match newest {
            Some(older) if older < TLS_1_3 => ProbeHello::UpTo(older),
            Some(_) | None => ProbeHello::Groups(&all),
        };
        match self.attempt(other)? {
            Attempt::Accepted(_) => Ok(None),
            // It has never accepted anything: there is nothing to compare with.
            _ if known.versions.is_empty() => Ok(None),
            Attempt::Refused | Attempt::Ended(_) => Err(error),
        }
    }

    /// Tries once more if the connection ended.
    fn twice<T>(&self, attempt: impl Fn() -> Result<Attempt<T>, Error>) -> Result<Attempt<T>, Error> {
        let first = match attempt()? {
            Attempt::Ended(error) => error,
            answered => return Ok(answered),
        };
        let Some(retries) = self.retries.get().checked_sub(1) else { return Err(first) };
        self.retries.set(retries);
        thread::sleep(PAUSE.min(self.left()?));
        attempt()
    }

    /// One hello. Fails if time is over.
    fn attempt(&self, hello: ProbeHello<'_>) -> Result<Attempt<ProbedSelection>, Error> {
        let mut random = [0; 32];
        openssl::rand::rand_bytes(&mut random).map_err(|error| Error::TlsSettings(error.to_string()))?;
        let mut bytes = Vec::new();
        hello.encode(random, self.target.server_name, &mut bytes);
        let mut answer = ProbeAnswer::to(&bytes);
        match self.answer_to(&bytes, &mut answer) {
            Err(error) if is_lasting(&error) => return Err(error),
            // A server may end a connection behind its answer.
            Err(error) if answer.is_silent() => return Ok(Attempt::Ended(error)),
            Ok(()) | Err(_) => {}
        }
        Ok(answer.accepted().map_or(Attempt::Refused, Attempt::Accepted))
    }

    fn answer_to(&self, hello: &[u8], answer: &mut ProbeAnswer) -> Result<(), Error> {
        let socket = self.open()?;
        self.send(&socket, hello)?;
        let (mut buffer, mut received) = ([0; 4 << 10], 0);
        while !answer.is_complete() && received < MAX_ANSWER_BYTES {
            let length = self.receive(&socket, &mut buffer)?;
            if length == 0 {
                return Err(ended());
            }
            answer.read(&buffer[..length]);
            received += length;
        }
        Ok(())
    }

    /// Adds the certificate chain, and the version of the handshake that showed it.
    fn add_chain(&self, accepted: &mut AcceptedTls) -> Result<(), Error> {
        let attempt = self.twice(|| self.shake_hands())?;
        let (chain, selected) = match attempt {
            Attempt::Accepted(shown) => shown,
            // The server does not want this client.
            Attempt::Refused => return Ok(()),
            Attempt::Ended(error) => return Err(error),
        };
        accepted.chain = chain;
        if let Some((version, suite)) = selected {
            accepted.add_version(version, suite);
        }
        Ok(())
    }

    /// A whole handshake, behind which the connection ends: the chain, and the version with its suite.
    fn shake_hands(&self) -> Result<Attempt<Shown>, Error> {
        let unusable = |error: openssl::error::ErrorStack| Error::TlsSettings(error.to_string());
        let mut context = SslContextBuilder::new(SslMethod::tls_client()).map_err(unusable)?;
        // What an inventory needs is what the server has, also if it must not be trusted.
        context.set_verify(SslVerifyMode::NONE);
        context.set_min_proto_version(Some(SslVersion::TLS1)).map_err(unusable)?;
        context.set_cipher_list("ALL:@SECLEVEL=0").map_err(unusable)?;
        let mut ssl = Ssl::new(&context.build()).map_err(unusable)?;
        if let Some(name) = self.target.server_name {
            ssl.set_hostname(name).map_err(unusable)?;
        }
        let socket = match self.open() {
            Ok(socket) => socket,
            Err(error) if is_lasting(&error) => return Err(error),
            Err(error) => return Ok(Attempt::Ended(error)),
        };
        match ssl.connect(TimedSocket { socket, probe: self, has_ended: false }) {
            Ok(stream) => {
                let chain = stream.ssl().peer_cert_chain().into_iter().flatten().take(MAX_CHAIN);
                let chain = chain.filter_map(|certificate| certificate.to_der().ok()).collect();
                let version = stream.ssl().version2().and_then(number);
                let suite = stream.ssl().current_cipher();
                let suite = suite.map(|cipher| u16::from_be_bytes(cipher.protocol_id()));
                Ok(Attempt::Accepted((chain, version.zip(suite))))
            }
            Err(HandshakeError::Failure(failed)) if failed.get_ref().has_ended => {
                self.left()?;
                Ok(Attempt::Ended(ended()))
            }
            Err(_) => self.left().map(|_| Attempt::Refused),
        }
    }

    /// A connection on which the client's TLS comes next.
    fn open(&self) -> Result<Socket, Error> {
        let begun = Instant::now();
        let (socket, _) = connect_tcp(self.target.address, Transport::Blocking(self.left()?), None)?;
        self.limit.set(self.limit.get().max(limit_over(begun.elapsed(), &self.limits)));
        let mut machine = Connect::new(&self.login);
        let (mut input, mut output) = (Vec::new(), Vec::new());
        loop {
            let mut left = &input[..];
            let step = machine.step(&mut left, &mut output)?;
            let consumed = input.len() - left.len();
            input.drain(..consumed);
            self.send(&socket, &output)?;
            output.clear();
            match step {
                // What is not encrypted must not be left in front of TLS.
                Step::StartTls if input.is_empty() => return Ok(socket),
                Step::StartTls | Step::OfferTls | Step::Done => return Err(Error::Closed),
                Step::Phase(_) => {}
                Step::NeedInput => {
                    let mut buffer = [0; 512];
                    let length = self.receive(&socket, &mut buffer)?;
                    if length == 0 || input.len() + length > MAX_OPENING_BYTES {
                        return Err(Error::Closed);
                    }
                    input.extend_from_slice(&buffer[..length]);
                }
            }
        }
    }

    fn receive(&self, socket: &Socket, buffer: &mut [u8]) -> Result<usize, Error> {
        limit_waits(socket, self.left()?)?;
        receive(socket, buffer).map_err(|error| self.failed("cannot receive", error))
    }

    fn send(&self, socket: &Socket, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            limit_waits(socket, self.left()?)?;
            let sent = send(socket, bytes).map_err(|error| self.failed("cannot send", error))?;
            bytes = &bytes[sent..];
        }
        Ok(())
    }

    fn failed(&self, doing: &'static str, source: io::Error) -> Error {
        match source.kind() {
            io::ErrorKind::WouldBlock => self.timed_out(),
            _ => Error::Socket { doing, source },
        }
    }

    /// Not zero.
    fn left(&self) -> Result<Duration, Error> {
        let left = self.limit.get().saturating_sub(self.begun.elapsed());
        if left.is_zero() { Err(self.timed_out()) } else { Ok(left) }
    }

    fn timed_out(&self) -> Error {
        Error::TimedOut { seconds: self.limit.get().as_secs() }
    }
}

/// A socket whose every wait ends with the probe.
struct TimedSocket<'a> {
    socket: Socket,
    probe: &'a Probe<'a>,
    /// Whether the server has ended the connection, or the network.
    has_ended: bool,
}

impl Read for TimedSocket<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let received = self.probe.receive(&self.socket, into);
        self.has_ended |= matches!(received, Ok(0) | Err(_));
        received.map_err(io::Error::other)
    }
}

impl Write for TimedSocket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.probe.send(&self.socket, bytes);
        self.has_ended |= sent.is_err();
        sent.map(|()| bytes.len()).map_err(io::Error::other)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AcceptedTls {
    fn has_version(&self, version: u16) -> bool {
        self.versions.iter().any(|(known, _)| *known == version)
    }

    fn add_version(&mut self, version: u16, suite: u16) {
        if !self.has_version(version) {
            self.versions.push((version, suite));
        }
    }
}

fn ended() -> Error {
    Error::Tls("the server ended the connection without an answer".to_owned())
}

/// Whether another try cannot help.
fn is_lasting(error: &Error) -> bool {
    is_without_tls(error) || matches!(error, Error::TimedOut { .. } | Error::TlsSettings(_))
}

/// The time for a probe over a network with this round trip.
fn limit_over(round_trip: Duration, limits: &RangeInclusive<Duration>) -> Duration {
    round_trip.saturating_mul(ROUND_TRIPS).max(*limits.start()).min(*limits.end())
}

fn number(version: SslVersion) -> Option<u16> {
    [
        (SslVersion::TLS1, TLS_1_0),
        (SslVersion::TLS1_1, TLS_1_1),
        (SslVersion::TLS1_2, TLS_1_2),
        (SslVersion::TLS1_3, TLS_1_3),
    ]
    .into_iter()
    .find_map(|(known, number)| (known == version).then_some(number))
}

/// A login that gets as far as TLS.
fn login(protocol: DatabaseProtocol) -> Login {
    let none = || Secret::new(Vec::new());
    match protocol {
        DatabaseProtocol::Postgres => Login::Postgres(Arc::new(PostgresLogin {
            user: USER.to_owned(),
            password: none(),
            database: None,
            encryption: PostgresTlsMode::Tls,
            channel_binding: ChannelBinding::Disabled,
            startup: Vec::new(),
        })),
        DatabaseProtocol::MySql => Login::MySql(Arc::new(MySqlLogin {
            encryption: MySqlTlsMode::Tls,
            ..MySqlLogin::new(USER, none())
        })),
        DatabaseProtocol::MongoDb => Login::MongoDb(Arc::new(MongoDbLogin {
            tls: MongoDbTlsMode::Tls,
            mechanism: Mechanism::None,
            ..MongoDbLogin::new(USER, none())
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_follows_the_round_trip() {
        let limits = Duration::from_secs(10)..=Duration::from_secs(30);
        for (round_trip_ms, seconds) in [(0, 10), (125, 10), (200, 16), (375, 30), (100_000, 30)] {
            let limit = limit_over(Duration::from_millis(round_trip_ms), &limits);
            assert_eq!(limit, Duration::from_secs(seconds), "{round_trip_ms} ms");
        }
    }
}
