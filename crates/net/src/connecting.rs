//! A connect, from `socket()` to authenticated: one straight sequence of named phases that
//! suspends wherever the peer must speak next.

use std::net::SocketAddr;
use std::sync::Arc;

use ciphertoll_wire::Step;
use ciphertoll_wire::postgres::ChannelBinding;
use ciphertoll_wire::scram::KeyDerivation;
use ciphertoll_wire::session::{Connect, Login, ServerInfo};

use crate::channel::{Channel, Received};
use crate::phase::{PhaseTimes, Stopwatch};
use crate::resolve::{Lookup, resolve};
use crate::socket::{Address, Connection, Socket, SourceAddresses, Transport, connect_tcp, connect_unix};
use crate::tls::{Context, Handshake, Session, Settings};
use crate::{Error, Phase, Readiness, Sent};

/// What every connect of a load has in common.
#[derive(Clone)]
pub struct Dialer {
    /// Where to.
    pub address: Address,
    /// Who.
    pub login: Login,
    /// TLS, where the login wants it.
    pub tls: Option<ContextSource>,
    /// Whether calls wait.
    pub transport: Transport,
}

/// Who builds the TLS context, and when.
#[derive(Clone)]
pub enum ContextSource {
    /// One context for all.
    Shared(Context),
    /// A new context for each connect, as libmysqlclient and libpq do.
    PerConnect(Arc<Settings>),
}

/// A connect that is under way.
pub struct Connecting {
    channel: Channel,
    login: Login,
    /// Boxed, as a connect is moved with every event and its machine is large.
    machine: Box<Connect>,
    tls: Option<ContextSource>,
    context: Option<Context>,
    /// TLS that has said its first word while the server has not yet said whether it will have it.
    offered: Option<Session>,
    stage: Stage,
    stopwatch: Stopwatch,
}

/// A connection whose server awaits the first command.
pub struct Connected {
    /// The connection.
    pub channel: Channel,
    /// What the server said of itself.
    pub server: ServerInfo,
    /// Runs since the connect began.
    pub stopwatch: Stopwatch,
}

/// What became of a connect.
pub enum Progress {
    /// It waits for its socket.
    Pending(Connecting),
    /// It is there.
    Done(Connected),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    TcpConnect,
    /// The machine has not made its first step.
    Opening,
    Protocol,
    TlsHandshake,
}

/// What a stage says of the connect.
enum Advance {
    Continue,
    AwaitPeer,
    Finished,
}

impl Dialer {
    /// Begins a connect; `sources` spreads connects to loopback addresses over source addresses, but none to a name.
    /// Looking a name up blocks on either transport; of its addresses the first is taken.
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

    /// Begins a connect to an address (to no name, which would block) in which `machine` speaks for the login, of a
    /// connection that may be idle for long: a peer that is no more is noticed (`SO_KEEPALIVE`).
    pub fn dial_as(&self, machine: Connect) -> Result<Connecting, Error> {
        let stopwatch = Stopwatch::start();
        let connect = match &self.address {
            Address::Tcp(address) => connect_tcp(*address, self.transport, None)?,
            Address::Unix(path) => connect_unix(path, self.transport)?,
            Address::Host { name, .. } => {
                let reason = "it is to be looked up before".to_owned();
                return Err(Error::Unresolved { name: name.clone(), reason });
            }
        };
        connect.0.keep_alive()?;
        Ok(self.begin(connect, machine, stopwatch))
    }

    /// Begins a connect to this address, wherever else the dialer's leads to.
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
                Stage::Opening
            }
            Connection::InProgress => Stage::TcpConnect,
        };
        Connecting {
            channel: Channel::new(socket),
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
    /// The channel, for registering it.
    pub fn channel(&mut self) -> &mut Channel {
        &mut self.channel
    }

    /// The phases so far: where a failed connect spent its time.
    pub fn phases(&self) -> &PhaseTimes {
        self.stopwatch.times()
    }

    /// Goes on as far as the peer allows. On a blocking socket, [`Readiness::Readable`] waits until
    /// something has come.
    pub fn advance(mut self, readiness: Readiness) -> Result<Progress, Error> {
        if self.stage == Stage::TcpConnect {
            self.channel.socket.take_error().map_err(Error::socket("cannot connect"))?;
            self.stopwatch.lap(Phase::TcpConnect);
            self.stage = Stage::Opening;
        }
        if self.stage == Stage::Opening {
            self.stage = Stage::Protocol;
            // In PostgreSQL and MongoDB the client speaks first: nothing would come that waited for it. In MySQL this asks for the
            // greeting.
            // A request to cancel is all that there is to say.
            if let Advance::Finished = self.digest()? {
                return self.finish();
            }
        }
        self.channel.send()?;
        if readiness == Readiness::Writable {
            return Ok(Progress::Pending(self));
        }
        loop {
            // What comes meanwhile stays in the socket: it could be any amount.
            if self.machine.awaits_keys() {
                return Ok(Progress::Pending(self));
            }
            let received = self.channel.receive()?;
            match received {
                Received::WouldBlock => return Ok(Progress::Pending(self)),
                Received::Closed => return Err(Error::Closed),
                Received::Drained | Received::MoreLikely => {}
            }
            if let Advance::Finished = self.digest()? {
                return self.finish();
            }
            if received == Received::Drained && readiness == Readiness::Readable {
                return Ok(Progress::Pending(self));
            }
        }
    }

    /// What has to be run, on any thread, before the connect can [`resume`](Self::resume).
    pub fn take_key_derivation(&mut self) -> Option<KeyDerivation> {
        self.machine.take_key_derivation()
    }

    /// Goes on after a key derivation as far as the peer allows.
    pub fn resume(mut self) -> Result<Progress, Error> {
        if let Advance::Finished = self.digest()? {
            return self.finish();
        }
        // Edges that came meanwhile were not followed.
        self.advance(Readiness::ReadableToEnd)
    }

    /// Works off what was received until the peer must speak next.
    fn digest(&mut self) -> Result<Advance, Error> {
        loop {
            let advance = match self.stage {
                Stage::TlsHandshake => self.step_handshake()?,
                Stage::TcpConnect | Stage::Opening | Stage::Protocol => self.step_protocol()?,
            };
            match advance {
                Advance::Continue => {}
                Advance::AwaitPeer | Advance::Finished => return Ok(advance),
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
                self.send()?;
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
            self.send()?;
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
            Some(ContextSource::PerConnect(settings)) => {
                let context = Context::build(&settings)?;
                self.stopwatch.lap(Phase::TlsContext);
                Some(context)
            }
        };
        Ok(())
    }

    /// Sends TLS's first message behind the request for it.
    fn offer_tls(&mut self) -> Result<Advance, Error> {
        let mut session = self.new_session()?;
        session.handshake()?;
        self.channel.output().append(session.outgoing());
        self.offered = Some(session);
        self.send()?;
        Ok(Advance::Continue)
    }

    fn start_tls(&mut self) -> Result<Advance, Error> {
        let session = match self.offered.take() {
            Some(mut session) => {
                // What has come behind the plaintext is TLS: only one that was offered gets so far with any.
                let early = self.channel.input();
                session.feed(early);
                let bytes = early.len();
                self.channel.consume(bytes);
                session
            }
            None => self.new_session()?,
        };
        self.channel.session = Some(session);
        self.stage = Stage::TlsHandshake;
        Ok(Advance::Continue)
    }

    fn new_session(&mut self) -> Result<Session, Error> {
        // Where the server has not greeted, this is the first that is known of it.
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
        // An alert tells the server why, so it is sent before the error is returned.
        let sent = self.channel.send();
        match handshake? {
            Handshake::NeedInput => sent.map(|_| Advance::AwaitPeer),
            Handshake::Done => {
                sent?;
                let Some(session) = &self.channel.session else { return Ok(Advance::Continue) };
                if let Some(protocol) = self.login.alpn() {
                    session.expect_alpn(protocol)?;
                }
                match self.login.channel_binding() {
                    ChannelBinding::Disabled => {}
                    // Some certificates have no hash to bind to.
                    ChannelBinding::Preferred => {
                        if let Ok(hash) = session.server_end_point() {
                            self.machine.bind_channel(&hash);
                        }
                    }
                    ChannelBinding::Required => self.machine.bind_channel(&session.server_end_point()?),
                }
                self.stopwatch.lap(Phase::TlsHandshake);
                self.stage = Stage::Protocol;
                Ok(Advance::Continue)
            }
        }
    }

    fn send(&mut self) -> Result<Sent, Error> {
        self.channel.send()
    }

    fn finish(self) -> Result<Progress, Error> {
        let server = self.machine.server().ok_or(Error::Closed)?;
        Ok(Progress::Done(Connected { channel: self.channel, server, stopwatch: self.stopwatch }))
    }
}
