//! What TLS a server accepts, by asking it: hellos that no handshake follows, and one handshake that shows the certificates.

use std::cmp::Reverse;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ciphertoll_wire::mongodb::{Mechanism, MongoDbLogin, MongoDbTlsMode};
use ciphertoll_wire::mysql::{MySqlLogin, MySqlTlsMode};
use ciphertoll_wire::passive::DatabaseProtocol;
use ciphertoll_wire::postgres::{ChannelBinding, PostgresLogin, PostgresTlsMode};
use ciphertoll_wire::session::{self, Connect, Login};
use ciphertoll_wire::tls::{NamedGroup, ProbeAnswer, ProbeHello, ProbedSelection};
use ciphertoll_wire::{Secret, Step, mysql, postgres};
use openssl::ssl::{Ssl, SslContextBuilder, SslMethod, SslVerifyMode, SslVersion};
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
/// The most connections that [`probe`] makes: for each group and one more, each older version and one more, weak suites and the
/// certificates.
pub const MAX_PROBE_CONNECTIONS: usize = GROUPS.len() + 1 + 4 + 1 + 1;
/// Of what a server sends before TLS. MySQL's greeting has less than 200 bytes.
const MAX_OPENING_BYTES: usize = 4 << 10;
/// Of a server's answer to a hello: more than its longest ServerHello.
const MAX_ANSWER_BYTES: usize = 32 << 10;
/// It is never sent.
const USER: &str = "probe";
const MAX_CHAIN: usize = 10;

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
}

/// Asks a server what it accepts. Makes at most [`MAX_PROBE_CONNECTIONS`] connections and never logs in. Verifies nothing: the
/// result is that of whatever answers at this address. Fails if the server does not answer, or speaks another protocol.
pub fn probe(address: SocketAddr, protocol: DatabaseProtocol, limit: Duration) -> Result<Probed, Error> {
    let probe = Probe { address, login: login(protocol), limit, end: Instant::now() + limit };
    match probe.accepted() {
        Ok(accepted) => Ok(Probed::Tls(accepted)),
        Err(Error::Protocol(
            session::Error::Postgres(postgres::Error::TlsNotOffered)
            | session::Error::MySql(mysql::Error::TlsNotOffered),
        )) => Ok(Probed::NoTls),
        Err(error) => Err(error),
    }
}

struct Probe {
    address: SocketAddr,
    login: Login,
    limit: Duration,
    end: Instant,
}

impl Probe {
    fn accepted(&self) -> Result<AcceptedTls, Error> {
        let mut accepted = AcceptedTls::default();
        self.add_groups(&mut accepted)?;
        self.add_older_versions(&mut accepted)?;
        if accepted.versions.iter().any(|(version, _)| *version < TLS_1_3) {
            let weak = self.ask(ProbeHello::WeakSuites)?;
            accepted.weak_suite = weak.map(|selection| selection.suite);
        }
        self.add_chain(&mut accepted)?;
        if accepted.versions.is_empty() && accepted.chain.is_empty() {
            return Err(Error::Tls("the server accepts no TLS handshake".to_owned()));
        }
        Ok(accepted)
    }

    /// Asks again and again, each time without the group that the server selected before.
    fn add_groups(&self, accepted: &mut AcceptedTls) -> Result<(), Error> {
        let mut left = GROUPS.map(NamedGroup).to_vec();
        while !left.is_empty()
            && let Some(ProbedSelection { version: TLS_1_3, suite, group: Some(group) }) =
                self.ask(ProbeHello::Groups(&left))?
            && let Some(place) = left.iter().position(|known| *known == group)
        {
            if accepted.groups.is_empty() {
                accepted.versions.push((TLS_1_3, suite));
            }
            accepted.groups.push(left.remove(place));
        }
        Ok(())
    }

    fn add_older_versions(&self, accepted: &mut AcceptedTls) -> Result<(), Error> {
        let mut newest = TLS_1_2;
        while newest >= TLS_1_0
            && let Some(ProbedSelection { version, suite, .. }) = self.ask(ProbeHello::UpTo(newest))?
            && (TLS_1_0..=newest).contains(&version)
        {
            accepted.versions.push((version, suite));
            newest = version - 1;
        }
        Ok(())
    }

    /// What the server selects; `None` if it accepts nothing of what is offered.
    fn ask(&self, hello: ProbeHello<'_>) -> Result<Option<ProbedSelection>, Error> {
        let socket = self.open()?;
        let mut random = [0; 32];
        openssl::rand::rand_bytes(&mut random).map_err(|error| Error::TlsSettings(error.to_string()))?;
        let mut bytes = Vec::new();
        hello.encode(random, &mut bytes);
        self.send(&socket, &bytes)?;
        let mut answer = ProbeAnswer::to(&bytes);
        let (mut buffer, mut received) = ([0; 4 << 10], 0);
        while !answer.is_complete() && received < MAX_ANSWER_BYTES {
            match self.receive(&socket, &mut buffer) {
                // A server may end a connection instead of sending an alert, but it must not be silent.
                Ok(0) | Err(Error::Socket { .. }) => break,
                Ok(length) => {
                    answer.read(&buffer[..length]);
                    received += length;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(answer.accepted())
    }

    /// Adds the certificate chain, and the version of the handshake that showed it.
    fn add_chain(&self, accepted: &mut AcceptedTls) -> Result<(), Error> {
        let unusable = |error: openssl::error::ErrorStack| Error::TlsSettings(error.to_string());
        let mut context = SslContextBuilder::new(SslMethod::tls_client()).map_err(unusable)?;
        // What an inventory needs is what the server has, also if it must not be trusted.
        context.set_verify(SslVerifyMode::NONE);
        context.set_min_proto_version(Some(SslVersion::TLS1)).map_err(unusable)?;
        context.set_cipher_list("ALL:@SECLEVEL=0").map_err(unusable)?;
        let ssl = Ssl::new(&context.build()).map_err(unusable)?;
        let stream = TimedSocket { socket: self.open()?, probe: self };
        let Ok(stream) = ssl.connect(stream) else {
            // Unless time is over, the server does not want this client.
            return self.left().map(|_| ());
        };
        let chain = stream.ssl().peer_cert_chain().into_iter().flatten();
        accepted.chain = chain.take(MAX_CHAIN).filter_map(|certificate| certificate.to_der().ok()).collect();
        let version = stream.ssl().version2().and_then(number);
        let suite = stream.ssl().current_cipher().map(|cipher| u16::from_be_bytes(cipher.protocol_id()));
        if let Some((version, suite)) = version.zip(suite)
            && accepted.versions.iter().all(|(known, _)| *known != version)
        {
            // With parameters that no hello here offers.
            accepted.versions.push((version, suite));
            accepted.versions.sort_unstable_by_key(|(version, _)| Reverse(*version));
        }
        Ok(())
    }

    /// A connection on which the client's TLS comes next.
    fn open(&self) -> Result<Socket, Error> {
        let (socket, _) = connect_tcp(self.address, Transport::Blocking(self.left()?), None)?;
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
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(self.timed_out()) } else { Ok(left) }
    }

    fn timed_out(&self) -> Error {
        Error::TimedOut { seconds: self.limit.as_secs() }
    }
}

/// A socket whose every wait ends with the probe.
struct TimedSocket<'a> {
    socket: Socket,
    probe: &'a Probe,
}

impl Read for TimedSocket<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.probe.receive(&self.socket, into).map_err(io::Error::other)
    }
}

impl Write for TimedSocket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.probe.send(&self.socket, bytes).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
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
