//! A MySQL client's handshake: from the greeting until it is authenticated.

use std::sync::{Arc, OnceLock};

use ciphertoll_wire::Secret;
use ciphertoll_wire::mysql::auth::caching_sha2::{FAST_OK, FULL, KEY_WANTED};
use ciphertoll_wire::mysql::auth::clear_password;
use ciphertoll_wire::mysql::auth::native_password::NONCE_BYTES;
use ciphertoll_wire::mysql::auth_switch::AuthSwitchRequest;
use ciphertoll_wire::mysql::change_user::ChangeUser;
use ciphertoll_wire::mysql::greeting_template::GreetingTemplate;
use ciphertoll_wire::mysql::packet::MAX_LOGIN_PAYLOAD_BYTES;
use ciphertoll_wire::mysql::server::{
    ClientMessage, read_auth_response, read_login, write_auth_switch, write_more_data,
};
use ciphertoll_wire::mysql::{self, Plugin, Terms};

use super::credential_store::CredentialStore;
use super::pass_through_auth::{PassThroughAuth, ServerAnswer};
use super::refusal;
use super::startup_request::{LoginContext, PasswordProof, StartupRequest};
use crate::client_auth::{ClientAuth, TlsState};
use crate::protocol::{HandshakeResult, HandshakeStep, ProtocolHandshake, next_step};
use crate::refusal::Refusal;

/// Sequence number of the client's login or TLS request. The greeting has 0.
const LOGIN_NUMBER: u8 = 1;
/// Sequence number of the first response to a command, which has 0.
const ANSWER_NUMBER: u8 = 1;
/// `ER_SECURE_TRANSPORT_REQUIRED`.
const TLS_REQUIRED: u16 = 3159;

#[derive(Clone)]
pub struct GreetingContext {
    /// What is the same for all clients.
    pub template: Arc<GreetingTemplate>,
    pub connection_id: u32,
    pub nonce: [u8; NONCE_BYTES],
}

pub struct ClientHandshake {
    auth: ClientAuth,
    credentials: Option<Arc<CredentialStore>>,
    /// For users whom the settings do not name; `None` if they are refused.
    pass_through: Option<PassThroughAuth>,
    tls: TlsState,
    greeting_context: GreetingContext,
    state: HandshakeState,
    sequence: u8,
}

enum HandshakeState {
    Greet,
    AwaitLogin,
    /// Logged in on these terms, the client changes its user (`COM_CHANGE_USER`).
    AwaitChange {
        terms: Terms,
    },
    /// The client was asked to authenticate by this plugin.
    AwaitProof {
        request: Box<StartupRequest>,
        plugin: Plugin,
    },
    /// The client was asked for its password in clear text over TLS.
    AwaitPassword {
        request: Box<StartupRequest>,
    },
    /// The server is asked whether the password is right.
    AwaitVerdict {
        request: Box<StartupRequest>,
        answer: Arc<OnceLock<ServerAnswer>>,
    },
    Over,
}

impl GreetingContext {
    /// Like servers, the challenge avoids NUL, which ends a string, and `$`, which separates parts of a hash.
    pub fn new(template: Arc<GreetingTemplate>, connection_id: u32, random: [u8; NONCE_BYTES]) -> Self {
        let mut nonce = random;
        for byte in &mut nonce {
            let plain = *byte & 0x7f;
            *byte = plain + u8::from(plain == 0 || plain == b'$');
        }
        Self { template, connection_id, nonce }
    }
}

type Outcome = HandshakeResult<Box<StartupRequest>>;

impl ClientHandshake {
    /// A client that has not been greeted yet.
    pub fn new(
        auth: ClientAuth,
        credentials: Option<Arc<CredentialStore>>,
        greeting_context: GreetingContext,
    ) -> Self {
        let (tls, state) = (auth.initial_tls(), HandshakeState::Greet);
        Self { auth, credentials, pass_through: None, tls, greeting_context, state, sequence: 0 }
    }

    #[must_use]
    pub(super) fn with_pass_through(self, pass_through: Option<PassThroughAuth>) -> Self {
        Self { pass_through, ..self }
    }

    /// A client that has logged in and now changes its user (`COM_CHANGE_USER`). It authenticates with the
    /// challenge of its greeting, as servers and clients do.
    pub fn change_user(
        context: LoginContext,
        credentials: Option<Arc<CredentialStore>>,
        template: Arc<GreetingTemplate>,
    ) -> Self {
        let LoginContext { auth, tls, nonce, terms, connection_id } = context;
        let greeting_context = GreetingContext { template, connection_id, nonce };
        let state = HandshakeState::AwaitChange { terms };
        let sequence = ANSWER_NUMBER;
        Self { auth, credentials, pass_through: None, tls, greeting_context, state, sequence }
    }

    /// See [`ProtocolHandshake::tls_established`].
    pub fn tls_established(&mut self, name: Option<String>) {
        self.tls = TlsState::Established { name };
        self.state = HandshakeState::AwaitLogin;
    }

    /// See [`ProtocolHandshake::step`]. The first step needs no input.
    pub fn step(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> HandshakeStep<Box<StartupRequest>> {
        next_step(|| self.advance(input, out))
    }

    fn refuse(&self, refusal: &Refusal, out: &mut Vec<u8>) {
        refusal::write(refusal, self.sequence, out);
    }

    fn advance(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Outcome {
        match std::mem::replace(&mut self.state, HandshakeState::Over) {
            HandshakeState::Greet => {
                self.greet(out);
                Ok(None)
            }
            HandshakeState::AwaitLogin => self.login(input, out),
            HandshakeState::AwaitChange { terms } => self.change(terms, input, out),
            HandshakeState::AwaitProof { request, plugin } => match self.read_answer(input)? {
                None => Ok(Some(self.wait(HandshakeState::AwaitProof { request, plugin }))),
                Some(proof) => match self.asked_for(&request.user) {
                    Some(asked) => self.verify_unknown(&asked, request, Some((plugin, proof)), out),
                    None => self.verify_proof(request, plugin, proof, out),
                },
            },
            HandshakeState::AwaitPassword { request } => match self.read_answer(input)? {
                None => Ok(Some(self.wait(HandshakeState::AwaitPassword { request }))),
                Some(answer) => match self.asked_for(&request.user) {
                    Some(asked) => self.ask_server(&asked, request, answer),
                    None => self.verify_password(request, answer),
                },
            },
            // The input is not read at this point, so its size must be limited.
            HandshakeState::AwaitVerdict { .. } if input.len() > MAX_LOGIN_PAYLOAD_BYTES => {
                Err(Refusal::new(Refusal::PROTOCOL, "the client sends before its login is answered"))
            }
            HandshakeState::AwaitVerdict { request, answer } => match answer.get() {
                None => Ok(Some(self.wait(HandshakeState::AwaitVerdict { request, answer }))),
                Some(ServerAnswer::Right) => self.accept_unknown(request),
                Some(ServerAnswer::Denied) => Err(wrong_password(&request.user, b"?")),
                Some(ServerAnswer::Refused(refusal)) => Err(refusal.clone()),
            },
            HandshakeState::Over => Ok(Some(HandshakeStep::HangUp("the handshake is over"))),
        }
    }

    fn wait(&mut self, state: HandshakeState) -> HandshakeStep<Box<StartupRequest>> {
        self.state = state;
        HandshakeStep::NeedInput
    }

    fn greet(&mut self, out: &mut Vec<u8>) {
        let GreetingContext { template, connection_id, nonce } = &self.greeting_context;
        match self.tls {
            TlsState::Required => template.write_with_tls(*connection_id, nonce, out),
            TlsState::Off | TlsState::Established { .. } => template.write(*connection_id, nonce, out),
        }
        self.sequence = LOGIN_NUMBER + 1;
        self.state = HandshakeState::AwaitLogin;
    }

    fn login(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Outcome {
        let login = match read_login(input, self.sequence - 1).map_err(|error| broken(&error))? {
            None => return Ok(Some(self.wait(HandshakeState::AwaitLogin))),
            Some(ClientMessage::TlsRequest(_)) if self.tls == TlsState::Required => {
                // The login over TLS has the next number.
                self.sequence += 1;
                return Ok(Some(HandshakeStep::StartTls));
            }
            Some(ClientMessage::TlsRequest(_)) => {
                let message = "TLS was requested, but this proxy does not offer it to clients";
                return Err(Refusal::new(Refusal::UNSUPPORTED, message));
            }
            Some(ClientMessage::Login(login)) => login,
        };
        self.check()?;
        let GreetingContext { template, connection_id, .. } = &self.greeting_context;
        let request = StartupRequest::read(&login, template.capabilities(), *connection_id)?;
        let offered = template.plugin();
        let plugin = match login.plugin {
            // A client that names no plugin uses this one.
            None => Some(Plugin::NativePassword),
            Some(name) if name == offered.name() => Some(offered),
            // A clear-text password needs no challenge. Without authentication by password it is ignored.
            Some(clear_password::NAME) if !self.auth.needs_password() => Some(Plugin::NativePassword),
            // With any other plugin, the response is not for the greeting's challenge.
            Some(_) => None,
        };
        self.verify(request, plugin, login.plugin, login.auth_response, out)
    }

    /// The client changes its user, perhaps to the same one.
    fn change(&mut self, terms: Terms, input: &mut &[u8], out: &mut Vec<u8>) -> Outcome {
        let Some(change) = ChangeUser::read(input).map_err(|error| broken(&error))? else {
            return Ok(Some(self.wait(HandshakeState::AwaitChange { terms })));
        };
        self.check()?;
        let request = StartupRequest::change(&change, terms, self.greeting_context.connection_id)?;
        let plugin = match change.plugin.map_or(Some(Plugin::NativePassword), usable) {
            // Without authentication by password, any plugin will do.
            None if !self.auth.needs_password() => Some(Plugin::NativePassword),
            plugin => plugin,
        };
        self.verify(request, plugin, change.plugin, change.auth_response, out)
    }

    fn check(&self) -> Result<(), Refusal> {
        self.auth.check(self.credentials.is_some() || self.pass_through.is_some())?;
        if self.tls == TlsState::Required {
            let message = "this proxy requires TLS";
            return Err(Refusal { number: Some(TLS_REQUIRED), ..Refusal::new(*b"HY000", message) });
        }
        Ok(())
    }

    fn is_encrypted(&self) -> bool {
        matches!(self.tls, TlsState::Established { .. })
    }

    /// Verifies a response that answers the challenge by `plugin`. If it does not (`None`), the client must
    /// authenticate by another plugin than the one that it has named.
    fn verify(
        &mut self,
        request: Box<StartupRequest>,
        plugin: Option<Plugin>,
        named: Option<&[u8]>,
        response: &[u8],
        out: &mut Vec<u8>,
    ) -> Outcome {
        if let Some(asked) = self.asked_for(&request.user) {
            let is_clear = named == Some(clear_password::NAME);
            let proof = if is_clear { None } else { plugin.map(|plugin| (plugin, response)) };
            if is_clear && self.is_private() {
                return self.ask_server(&asked, request, response);
            }
            return self.verify_unknown(&asked, request, proof, out);
        }
        if let Some(plugin) = plugin {
            return self.verify_proof(request, plugin, response, out);
        }
        if named == Some(clear_password::NAME) && self.is_encrypted() {
            return self.verify_password(request, response);
        }
        let plugin = named.and_then(usable).unwrap_or(self.greeting_context.template.plugin());
        self.switch(request, plugin, out);
        Ok(None)
    }

    /// Asks the client to authenticate by this plugin.
    fn switch(&mut self, request: Box<StartupRequest>, plugin: Plugin, out: &mut Vec<u8>) {
        let challenge = [&self.greeting_context.nonce[..], b"\0"].concat();
        let switch_request = AuthSwitchRequest { plugin: plugin.name(), data: &challenge };
        let _ = write_auth_switch(out, self.sequence, &switch_request);
        self.sequence += 2;
        self.state = HandshakeState::AwaitProof { request, plugin };
    }

    fn read_answer<'a>(&self, input: &mut &'a [u8]) -> Result<Option<&'a [u8]>, Refusal> {
        read_auth_response(input, self.sequence - 1).map_err(|error| broken(&error))
    }

    fn verify_proof(
        &mut self,
        request: Box<StartupRequest>,
        plugin: Plugin,
        proof: &[u8],
        out: &mut Vec<u8>,
    ) -> Outcome {
        let is_right = match &self.credentials {
            Some(credentials) if self.auth.needs_password() => {
                credentials.accepts(&request.user, plugin, &self.greeting_context.nonce, proof)
            }
            _ => self.auth.is_met(&self.tls, &request.user),
        };
        let expects_more = plugin == Plugin::CachingSha2Password && !is_empty(proof);
        if is_right && expects_more {
            self.end_fast(out);
        }
        if is_right {
            return Ok(Some(self.accept(request)));
        }
        if expects_more && self.is_encrypted() && self.auth.needs_password() {
            self.ask_password(request, out);
            return Ok(None);
        }
        Err(wrong_password(&request.user, proof))
    }

    /// After a right response by `caching_sha2_password`, the client expects another packet before the OK.
    fn end_fast(&mut self, out: &mut Vec<u8>) {
        let _ = write_more_data(out, self.sequence, &[FAST_OK]);
        self.sequence += 1;
    }

    /// After a response by `caching_sha2_password`: like servers whose cache does not have the user.
    fn ask_password(&mut self, request: Box<StartupRequest>, out: &mut Vec<u8>) {
        let _ = write_more_data(out, self.sequence, &[FULL]);
        self.sequence += 2;
        self.state = HandshakeState::AwaitPassword { request };
    }

    fn verify_password(&self, request: Box<StartupRequest>, answer: &[u8]) -> Outcome {
        let password = clear_password::parse(answer).filter(|password| !password.is_empty());
        let is_right = self
            .credentials
            .as_ref()
            .zip(password)
            .is_some_and(|(credentials, password)| credentials.stored(&request.user).is_of(password));
        if is_right { Ok(Some(self.accept(request))) } else { Err(wrong_password(&request.user, answer)) }
    }

    /// Who checks the password of this user, if the settings do not name it.
    fn asked_for(&self, user: &str) -> Option<PassThroughAuth> {
        self.pass_through.clone().filter(|asked| !asked.configures(user))
    }

    /// Whether nobody else reads what the client sends.
    fn is_private(&self) -> bool {
        self.is_encrypted() || matches!(self.auth, ClientAuth::Granted | ClientAuth::PasswordByUnix)
    }

    /// Verifies a response to the challenge by what the server has confirmed lately. If that does not suffice, the client
    /// is asked for the password itself.
    fn verify_unknown(
        &mut self,
        asked: &PassThroughAuth,
        request: Box<StartupRequest>,
        proof: Option<(Plugin, &[u8])>,
        out: &mut Vec<u8>,
    ) -> Outcome {
        let (user, nonce) = (&request.user, &self.greeting_context.nonce);
        if let Some((_, response)) = proof.filter(|(_, response)| is_empty(response)) {
            return Err(wrong_password(user, response));
        }
        let is_sha2 = proof.is_some_and(|(plugin, _)| plugin == Plugin::CachingSha2Password);
        if proof.is_some_and(|(plugin, response)| asked.proven().accepts(user, plugin, nonce, response)) {
            if is_sha2 {
                self.end_fast(out);
            }
            return self.accept_unknown(request);
        }
        if !self.is_private() {
            // MySQL's wording.
            let message = "Authentication requires secure connection.";
            return Err(Refusal::new(Refusal::WHO, message));
        }
        if is_sha2 {
            self.ask_password(request, out);
        } else {
            // With this plugin, all drivers can send the password itself.
            self.switch(request, Plugin::CachingSha2Password, out);
        }
        Ok(None)
    }

    /// `answer` has the password in clear text.
    fn ask_server(
        &mut self,
        asked: &PassThroughAuth,
        request: Box<StartupRequest>,
        answer: &[u8],
    ) -> Outcome {
        if answer == [KEY_WANTED] {
            let message = "this proxy has no RSA key for passwords: use TLS or the unix socket";
            return Err(Refusal::new(Refusal::UNSUPPORTED, message));
        }
        let Some(password) = clear_password::parse(answer).filter(|password| !password.is_empty()) else {
            return Err(wrong_password(&request.user, answer));
        };
        if asked.proven().is_right(&request.user, password) {
            return self.accept_unknown(request);
        }
        let answer = Arc::default();
        let plugin = self.greeting_context.template.plugin();
        let step = asked.look_up(&request.user, Secret::new(password.to_vec()), plugin, &answer);
        self.state = HandshakeState::AwaitVerdict { request, answer };
        Ok(Some(HandshakeStep::LookUp(step)))
    }

    /// The password is right. With certificates, both are needed.
    fn accept_unknown(&self, mut request: Box<StartupRequest>) -> Outcome {
        if self.auth == ClientAuth::Certificate && !self.auth.is_met(&self.tls, &request.user) {
            return Err(wrong_password(&request.user, &[]));
        }
        request.proof = PasswordProof::Server;
        Ok(Some(self.accept(request)))
    }

    fn accept(&self, mut request: Box<StartupRequest>) -> HandshakeStep<Box<StartupRequest>> {
        request.sequence = self.sequence;
        request.login_context = Some(LoginContext {
            auth: self.auth,
            tls: self.tls.clone(),
            nonce: self.greeting_context.nonce,
            terms: request.terms,
            connection_id: request.connection_id,
        });
        HandshakeStep::Login(request)
    }
}

/// `None` if the server's greeting is not known.
impl ProtocolHandshake for Option<ClientHandshake> {
    type Request = Box<StartupRequest>;

    fn step(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> HandshakeStep<Box<StartupRequest>> {
        match self {
            Some(handshake) => handshake.step(input, out),
            None => HandshakeStep::HangUp("the server's greeting is not known"),
        }
    }

    fn tls_established(&mut self, name: Option<String>) {
        if let Some(handshake) = self {
            handshake.tls_established(name);
        }
    }

    fn refuse(&self, refusal: &Refusal, out: &mut Vec<u8>) {
        match self {
            Some(handshake) => handshake.refuse(refusal, out),
            None => refusal::write_unasked(refusal, out),
        }
    }
}

/// The plugins that need only the greeting's challenge.
fn usable(name: &[u8]) -> Option<Plugin> {
    [Plugin::NativePassword, Plugin::CachingSha2Password].into_iter().find(|plugin| plugin.name() == name)
}

/// Some plugins send a NUL for an empty password.
fn is_empty(proof: &[u8]) -> bool {
    matches!(proof, [] | [0])
}

/// The server's wording, whatever the reason.
fn wrong_password(user: &str, proof: &[u8]) -> Refusal {
    let using = if is_empty(proof) { "NO" } else { "YES" };
    let message = format!("Access denied for user '{user}'@'localhost' (using password: {using})");
    Refusal::new(Refusal::PASSWORD, message)
}

fn broken(error: &mysql::Error) -> Refusal {
    Refusal::new(Refusal::PROTOCOL, error.to_string())
}

#[cfg(test)]
mod tests;
