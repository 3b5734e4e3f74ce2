//! The client's login: from the first byte to the server's acceptance ("MongoDB Handshake",
//! "Authentication").

use std::sync::Arc;

use ciphertoll_vocabulary::Phase;

use crate::{
    mongodb::{
        client::{
            authenticator::Authenticator,
            hello::{self, Hello},
            login::{Mechanism, MongoDbLogin, MongoDbTlsMode},
            reply::{self, Reply},
            server_info::MongoDbServerInfo,
        },
        codec::message::MAX_LOGIN_MESSAGE_BYTES,
        error::Error,
    },
    step::Step,
};

/// The longest application name that servers accept.
const MAX_APPLICATION_NAME_BYTES: usize = 128;

pub struct MongoDbConnect {
    login: Arc<MongoDbLogin>,
    authenticator: Authenticator,
    state: State,
    /// The request ID of the pending command.
    request_id: i32,
    server: Option<MongoDbServerInfo>,
}

enum State {
    Begin,
    SendHello,
    AwaitHello,
    /// Boxed because it is large and short-lived.
    Greeted(Box<Hello>),
    AwaitAuth,
    Ready,
    Failed,
}

impl MongoDbConnect {
    pub fn new(login: Arc<MongoDbLogin>) -> Self {
        let authenticator = Authenticator::new(Arc::clone(&login));
        Self { login, authenticator, state: State::Begin, request_id: 0, server: None }
    }

    /// Takes whole messages from the front of `input` and appends output to `out`. The client speaks first:
    /// the first step takes no input.
    ///
    /// [`Phase::ServerGreeting`] is the reply to `hello`, after TLS if it is used. Input before TLS starts is
    /// an error: it would be plaintext that passes for encrypted. An error is final.
    pub fn step(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Step, Error> {
        match std::mem::replace(&mut self.state, State::Failed) {
            State::Begin => self.begin(input, out),
            State::SendHello => self.send_hello(input, out),
            State::AwaitHello => self.await_hello(input),
            State::Greeted(hello) => self.authenticate(*hello, out),
            State::AwaitAuth => self.await_auth(input, out),
            State::Ready => {
                self.state = State::Ready;
                Ok(Step::Done)
            }
            State::Failed => Err(Error::NotReset),
        }
    }

    /// What is known of the server, once it awaits commands.
    pub fn server(&self) -> Option<&MongoDbServerInfo> {
        if let State::Ready = self.state { self.server.as_ref() } else { None }
    }

    fn begin(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Step, Error> {
        check(&self.login)?;
        match self.login.tls {
            MongoDbTlsMode::Plain => self.send_hello(input, out),
            MongoDbTlsMode::Tls => {
                refuse_early_input(input)?;
                self.state = State::SendHello;
                Ok(Step::StartTls)
            }
        }
    }

    fn send_hello(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Step, Error> {
        // The server must not send anything here; bytes would be plaintext from before TLS.
        refuse_early_input(input)?;
        self.request_id += 1;
        let speculate = self.authenticator.speculate()?;
        hello::encode(out, self.request_id, &self.login, speculate)?;
        self.state = State::AwaitHello;
        Ok(Step::NeedInput)
    }

    fn await_hello(&mut self, input: &mut &[u8]) -> Result<Step, Error> {
        let Some(reply) = self.take(input)? else {
            self.state = State::AwaitHello;
            return Ok(Step::NeedInput);
        };
        self.state = State::Greeted(Box::new(Hello::parse(&reply, &self.login)?));
        Ok(Step::Phase(Phase::ServerGreeting))
    }

    fn authenticate(&mut self, hello: Hello, out: &mut Vec<u8>) -> Result<Step, Error> {
        let Hello { server, mechanisms, speculative } = hello;
        self.server = Some(server);
        self.request_id += 1;
        let request_id = self.request_id;
        let kind = self.authenticator.continue_after_hello(
            mechanisms.as_ref(),
            speculative.as_deref(),
            out,
            request_id,
        )?;
        if let (Some(auth), Some(server)) = (kind, &mut self.server) {
            server.auth = auth;
            self.state = State::Ready;
            return Ok(Step::Phase(Phase::Auth));
        }
        self.state = State::AwaitAuth;
        Ok(Step::NeedInput)
    }

    fn await_auth(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Step, Error> {
        while let Some(reply) = self.take(input)? {
            self.request_id += 1;
            let kind = self.authenticator.answer(reply.body, out, self.request_id)?;
            if let (Some(auth), Some(server)) = (kind, &mut self.server) {
                server.auth = auth;
                self.state = State::Ready;
                return Ok(Step::Phase(Phase::Auth));
            }
        }
        self.state = State::AwaitAuth;
        Ok(Step::NeedInput)
    }

    /// Takes a reply, which is not compressed, because the request was not.
    fn take<'a>(&self, input: &mut &'a [u8]) -> Result<Option<Reply<'a>>, Error> {
        reply::take(input, self.request_id, MAX_LOGIN_MESSAGE_BYTES)
    }
}

fn check(login: &MongoDbLogin) -> Result<(), Error> {
    let is_name = |name: &str| !name.is_empty() && !name.contains('\0');
    let is_named = match login.mechanism {
        Mechanism::None | Mechanism::X509 => !login.user.contains('\0'),
        Mechanism::ScramSha256 | Mechanism::ScramSha1 | Mechanism::Negotiated => is_name(&login.user),
    };
    if !is_named {
        return Err(Error::InvalidLogin { field: "user" });
    }
    if !is_name(&login.auth_source) {
        return Err(Error::InvalidLogin { field: "authentication database" });
    }
    if !is_name(&login.database) {
        return Err(Error::InvalidLogin { field: "database" });
    }
    if login.application_name.len() > MAX_APPLICATION_NAME_BYTES {
        return Err(Error::InvalidLogin { field: "application name" });
    }
    match (login.mechanism, login.tls) {
        (Mechanism::X509, MongoDbTlsMode::Plain) => Err(Error::CertificateInPlain),
        _ => Ok(()),
    }
}

/// Rejects plaintext that would cross into the encrypted part. Servers never speak first.
fn refuse_early_input(input: &[u8]) -> Result<(), Error> {
    if input.is_empty() {
        return Ok(());
    }
    Err(Error::protocol("first bytes", "they arrive before the client has sent anything"))
}
