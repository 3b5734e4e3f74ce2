//! A connect, from `socket()` to the completed login: a sequence of timed phases that suspends whenever the peer must
//! send next.

use std::net::SocketAddr;
use std::sync::Arc;

use ciphertoll_wire::Step;
use ciphertoll_wire::postgres::ChannelBinding;
use ciphertoll_wire::scram::KeyDerivation;
use ciphertoll_wire::session::{Connect, Login, ServerInfo};
use socket2::Socket;

use crate::channel::{Channel, Received};
use crate::phase::{PhaseTimes, Stopwatch};
use crate::resolve::{Lookup, resolve};
use crate::socket::{Address, Connection, SourceAddresses, Transport, connect_tcp, connect_unix};
use crate::tls::{Context, Handshake, Settings, TlsSession};
use crate::{Error, Phase, Readiness};

/// What all connects of a load have in common.
#[derive(Clone)]
pub struct Dialer {
    pub address: Address,
    pub login: Login,
    /// Required if the login asks for TLS.
    pub tls: Option<ContextSource>,
    pub transport: Transport,
}

/// Where a connect gets its TLS context.
#[derive(Clone)]
pub enum ContextSource {
    Shared(Context),
    /// A new context for each connect, as libmysqlclient and libpq do.
    PerConnect(Arc<Settings>, fn(&Settings) -> Result<Context, Error>),
}

impl ContextSource {
    pub fn per_connect(settings: Settings) -> Self {
        Self::PerConnect(Arc::new(settings), Context::build)
    }
}

pub struct Connecting {
    channel: Channel,
    login: Login,
    /// Boxed because it is large and a connect is moved with every event.
    machine: Box<Connect>,
    tls: Option<ContextSource>,
    context: Option<Context>,
    /// A TLS session whose ClientHello was sent before the server has agreed to TLS.
    offered: Option<Box<dyn TlsSession>>,
    stage: ConnectStage,
    stopwatch: Stopwatch,
}

/// A connection that is ready for its first command.
pub struct Connected {
    pub channel: Channel,
    /// What the server reported during the login.
    pub server: ServerInfo,
    /// Running since the connect began.
    pub stopwatch: Stopwatch,
}

pub enum ConnectProgress {
    Pending(Connecting),
    Done(Connected),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ConnectStage {
    TcpConnect,
    /// Connected; the protocol has not begun.
    Opening,
    Protocol,
    TlsHandshake,
}

enum Advance {
    Continue,
    AwaitPeer,
    Finished,
}

impl Dialer {
    /// Begins a connect. `sources` spreads connects to loopback addresses over source addresses. A name is looked up,
    /// which blocks on either transport, and its first address is used.
    pub fn dial(&self, sources: Option<&mut SourceAddresses>) -> Result<Connecting, Error> {
        let mut stopwatch = Stopwatch::start();
        let connect = match &self.address {
            Address::Tcp(address) => connect_tcp(*address, self.transport, sources)?,
            Address::Unix(path) => connect_unix(path, self.transport)?,
            Address::Host { name, port, family } => {
                let resolved = resolve(name, *port, *family)?;
                if resolved.lookup == Lookup::Done {
                    stopwatch.lap(Phase::Dns);
                }
                connect_tcp(resolved.first, self.transport, None)?
            }
        };
        Ok(self.begin(connect, Connect::new(&self.login), stopwatch))
    }

    /// Begins a connect in which `machine` performs the login; the dialer must have an address, as a lookup would
    /// block. The connection may be idle for long, so `SO_KEEPALIVE` detects a vanished peer, as in libpq.
    pub fn dial_as(&self, machine: Connect) -> Result<Connecting, Error> {
        let stopwatch = Stopwatch::start();
        let connect = match &self.address {
            Address::Tcp(address) => connect_tcp(*address, self.transport, None)?,
            Address::Unix(path) => connect_unix(path, self.transport)?,
            Address::Host { name, .. } => {
                let reason = "the caller must look the name up first".to_owned();
                return Err(Error::Unresolved { name: name.clone(), reason });
            }
        };
        connect.0.set_keepalive(true).map_err(Error::socket("cannot set SO_KEEPALIVE"))?;
        Ok(self.begin(connect, machine, stopwatch))
    }

    /// Begins a connect to this address instead of the dialer's.
    pub(crate) fn dial_to(&self, address: SocketAddr) -> Result<Connecting, Error> {
        let stopwatch = Stopwatch::start();
        let connect = connect_tcp(address, self.transport, None)?;
        Ok(self.begin(connect, Connect::new(&self.login), stopwatch))
    }

    fn begin(&self, connect: (Socket, Connection), machine: Connect, mut stopwatch: Stopwatch) -> Connecting {
        debug_assert_eq!(self.tls.is_some(), self.login.uses_tls());
        let (socket, connection) = connect;
        let stage = match connection {
            Connection::Established => {
                stopwatch.lap(Phase::TcpConnect);
                ConnectStage::Opening
            }
            Connection::InProgress => ConnectStage::TcpConnect,
        };
        Connecting {
            channel: Channel::over(socket),
            login: self.login.clone(),
            machine: Box::new(machine),
            tls: self.tls.clone(),
            context: None,
            offered: None,
            stage,
            stopwatch,
        }
    }
}

impl Connecting {
    /// The channel, to register it with a reactor.
    pub fn channel(&mut self) -> &mut Channel {
        &mut self.channel
    }

    /// Whether the peer's machine has accepted the connection.
    pub fn is_accepted(&self) -> bool {
        self.stage != ConnectStage::TcpConnect
    }

    /// The phases so far, which show where a failed connect spent its time.
    pub fn phases(&self) -> &PhaseTimes {
        self.stopwatch.times()
    }

    /// Continues as far as the peer allows. On a blocking socket, [`Readiness::Readable`] waits for input.
    pub fn advance(mut self, readiness: Readiness) -> Result<ConnectProgress, Error> {
        if self.stage == ConnectStage::TcpConnect {
            let error = self.channel.socket.take_error().and_then(|error| error.map_or(Ok(()), Err));
            error.map_err(Error::socket("cannot connect"))?;
            self.stopwatch.lap(Phase::TcpConnect);
            self.stage = ConnectStage::Opening;
        }
        if self.stage == ConnectStage::Opening {
            self.stage = ConnectStage::Protocol;
            // In the PostgreSQL and MongoDB protocols the client speaks first. A cancel request is complete after that.
            if let Advance::Finished = self.digest()? {
                return self.finish();
            }
        }
        self.channel.send()?;
        if readiness == Readiness::Writable {
            return Ok(ConnectProgress::Pending(self));
        }
        loop {
            // Later input stays in the socket: its size is unlimited.
            if self.machine.awaits_keys() {
                return Ok(ConnectProgress::Pending(self));
            }
            let received = self.channel.receive()?;
            match received {
                Received::WouldBlock => return Ok(ConnectProgress::Pending(self)),
                Received::Closed => return Err(Error::Closed),
                Received::Drained | Received::MoreLikely => {}
            }
            if let Advance::Finished = self.digest()? {
                return self.finish();
            }
            if received == Received::Drained && readiness == Readiness::Readable {
                return Ok(ConnectProgress::Pending(self));
            }
        }
    }

    /// The key derivation that must run, on any thread, before [`resume`](Self::resume).
    pub fn take_key_derivation(&mut self) -> Option<KeyDerivation> {
        self.machine.take_key_derivation()
    }

    /// Continues after a key derivation, as far as the peer allows.
    pub fn resume(mut self) -> Result<ConnectProgress, Error> {
        if let Advance::Finished = self.digest()? {
            return self.finish();
        }
        // Edges in the meantime were ignored.
        self.advance(Readiness::ReadableToEnd)
    }

    /// Processes the input until the peer must send next.
    fn digest(&mut self) -> Result<Advance, Error> {
        loop {
            let advance = match self.stage {
                ConnectStage::TlsHandshake => self.step_handshake()?,
                ConnectStage::TcpConnect | ConnectStage::Opening | ConnectStage::Protocol => {
                    self.step_protocol()?
                }
            };
            if !matches!(advance, Advance::Continue) {
                return Ok(advance);
            }
        }
    }

    fn step_protocol(&mut self) -> Result<Advance, Error> {
        self.channel.decrypt()?;
        let (mut input, output) = self.channel.buffers();
        let before = input.len();
        let step = self.machine.step(&mut input, output)?;
        let consumed = before - input.len();
        self.channel.consume(consumed);
        match step {
            Step::NeedInput => {
                self.channel.send()?;
                Ok(Advance::AwaitPeer)
            }
            Step::OfferTls => self.offer_tls(),
            Step::StartTls => self.start_tls(),
            Step::Phase(phase) => self.end_phase(phase),
            Step::Done => Ok(Advance::Finished),
        }
    }

    fn end_phase(&mut self, phase: Phase) -> Result<Advance, Error> {
        if phase == Phase::TlsRequest {
            self.channel.send()?;
        }
        self.stopwatch.lap(phase);
        // A server that greets within TLS has the context already.
        if phase == Phase::ServerGreeting && self.offered.is_none() && self.channel.session.is_none() {
            self.build_context()?;
        }
        Ok(Advance::Continue)
    }

    fn build_context(&mut self) -> Result<(), Error> {
        self.context = match self.tls.take() {
            None => None,
            Some(ContextSource::Shared(context)) => Some(context),
            Some(ContextSource::PerConnect(settings, build)) => {
                let context = build(&settings)?;
                self.stopwatch.lap(Phase::TlsContext);
                Some(context)
            }
        };
        Ok(())
    }

    /// Sends the ClientHello together with the request for TLS.
    fn offer_tls(&mut self) -> Result<Advance, Error> {
        let mut session = self.new_session()?;
        session.handshake()?;
        self.channel.output().append(session.outgoing());
        self.offered = Some(session);
        self.channel.send()?;
        Ok(Advance::Continue)
    }

    fn start_tls(&mut self) -> Result<Advance, Error> {
        let session = match self.offered.take() {
            Some(mut session) => {
                // Bytes after the plaintext are TLS: only a server that was offered TLS early gets here with any.
                let early = self.channel.input();
                session.feed(early);
                let bytes = early.len();
                self.channel.consume(bytes);
                session
            }
            None => self.new_session()?,
        };
        self.channel.session = Some(session);
        self.stage = ConnectStage::TlsHandshake;
        Ok(Advance::Continue)
    }

    fn new_session(&mut self) -> Result<Box<dyn TlsSession>, Error> {
        // A server that did not greet first leaves the context to be built here.
        if self.context.is_none() {
            self.build_context()?;
        }
        let Some(context) = self.context.take() else {
            return Err(Error::TlsSettings("no TLS context was given".to_owned()));
        };
        context.session(self.login.alpn())
    }

    fn step_handshake(&mut self) -> Result<Advance, Error> {
        let Some(session) = &mut self.channel.session else { return Ok(Advance::Continue) };
        let handshake = session.handshake();
        // An alert tells the server the reason, so it is sent before the error is returned.
        let sent = self.channel.send();
        match handshake? {
            Handshake::NeedInput => sent.map(|_| Advance::AwaitPeer),
            Handshake::Done => {
                sent?;
                let Some(session) = &self.channel.session else { return Ok(Advance::Continue) };
                // A server without ALPN may speak another protocol (RFC 7301).
                if self.login.alpn().is_some_and(|protocol| session.alpn() != Some(protocol)) {
                    let reason = "the server did not choose the protocol offered in ALPN";
                    return Err(Error::Tls(reason.to_owned()));
                }
                match self.login.channel_binding() {
                    ChannelBinding::Disabled => {}
                    // Some certificates have no hash for channel binding.
                    ChannelBinding::Preferred => {
                        if let Ok(hash) = session.server_end_point() {
                            self.machine.bind_channel(&hash);
                        }
                    }
                    ChannelBinding::Required => self.machine.bind_channel(&session.server_end_point()?),
                }
                self.stopwatch.lap(Phase::TlsHandshake);
                self.stage = ConnectStage::Protocol;
                Ok(Advance::Continue)
            }
        }
    }

    fn finish(self) -> Result<ConnectProgress, Error> {
        let server = self.machine.server().ok_or(Error::Closed)?;
        Ok(ConnectProgress::Done(Connected { channel: self.channel, server, stopwatch: self.stopwatch }))
    }
}
