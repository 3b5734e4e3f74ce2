//! A MySQL client's handshake: from the greeting until it is authenticated.

use std::sync::Arc;

use ciphertoll_wire::Secret;
use ciphertoll_wire::mysql::auth::caching_sha2::{CachedPassword, FAST_OK, FULL};
use ciphertoll_wire::mysql::auth::clear_password;
use ciphertoll_wire::mysql::auth::native_password::NONCE_BYTES;
use ciphertoll_wire::mysql::auth_switch::AuthSwitchRequest;
use ciphertoll_wire::mysql::change_user::ChangeUser;
use ciphertoll_wire::mysql::greeting_template::GreetingTemplate;
use ciphertoll_wire::mysql::server::{
    ClientMessage, StoredPassword, read_auth_response, read_login, write_auth_switch, write_more_data,
};
use ciphertoll_wire::mysql::{self, Plugin, Terms};
use foldhash::HashMap;

use super::refusal;
use super::startup_request::{LoginContext, StartupRequest};
use crate::client_auth::{ClientAuth, TlsState};
use crate::protocol::{HandshakeResult, HandshakeStep, ProtocolHandshake, next_step};
use crate::refusal::Refusal;

/// Sequence number of the client's login or TLS request. The greeting has 0.
const LOGIN_NUMBER: u8 = 1;
/// Sequence number of the first response to a command, which has 0.
const ANSWER_NUMBER: u8 = 1;
/// `ER_SECURE_TRANSPORT_REQUIRED`.
const TLS_REQUIRED: u16 = 3159;
/// Length of a random password that no client knows.
const DECOY_BYTES: usize = 32;

/// Verifies that clients know the password of their user, by the plugins that need only the greeting's
/// challenge, or in clear text over TLS.
pub struct CredentialStore {
    passwords: HashMap<String, StoredCredentials>,
    /// For unknown users: it costs the same, but no password matches.
    decoy: StoredCredentials,
}

struct StoredCredentials {
    native: StoredPassword,
    sha2: CachedPassword,
}

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
    Over,
}

impl CredentialStore {
    /// Accepts the passwords of these users; `None` if OpenSSL has no random bytes.
    pub fn for_users<'a>(users: impl IntoIterator<Item = (&'a str, &'a Secret)>) -> Option<Self> {
        let mut decoy = [0; DECOY_BYTES];
        openssl::rand::rand_bytes(&mut decoy).ok()?;
        let passwords = users
            .into_iter()
            .map(|(user, password)| (user.to_owned(), StoredCredentials::of(password.expose())));
        Some(Self { passwords: passwords.collect(), decoy: StoredCredentials::of(&decoy) })
    }

    fn stored(&self, user: &str) -> &StoredCredentials {
        self.passwords.get(user).unwrap_or(&self.decoy)
    }

    fn accepts(&self, user: &str, plugin: Plugin, nonce: &[u8; NONCE_BYTES], proof: &[u8]) -> bool {
        let stored = self.stored(user);
        match plugin {
            Plugin::NativePassword => stored.native.accepts(nonce, proof),
            Plugin::CachingSha2Password => stored.sha2.accepts(nonce, proof),
            Plugin::Ed25519 | Plugin::Parsec => false,
        }
    }
}

impl StoredCredentials {
    fn of(password: &[u8]) -> Self {
        Self { native: StoredPassword::of(password), sha2: CachedPassword::of(password) }
    }
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
        Self { auth, credentials, tls, greeting_context, state, sequence: 0 }
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
        Self { auth, credentials, tls, greeting_context, state, sequence: ANSWER_NUMBER }
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
                Some(proof) => self.verify_proof(request, plugin, proof, out),
            },
            HandshakeState::AwaitPassword { request } => match self.read_answer(input)? {
                None => Ok(Some(self.wait(HandshakeState::AwaitPassword { request }))),
                Some(answer) => self.verify_password(request, answer),
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
        self.auth.check(self.credentials.is_some())?;
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
        if let Some(plugin) = plugin {
            return self.verify_proof(request, plugin, response, out);
        }
        if named == Some(clear_password::NAME) && self.is_encrypted() {
            return self.verify_password(request, response);
        }
        let plugin = named.and_then(usable).unwrap_or(self.greeting_context.template.plugin());
        let challenge = [&self.greeting_context.nonce[..], b"\0"].concat();
        let switch_request = AuthSwitchRequest { plugin: plugin.name(), data: &challenge };
        let _ = write_auth_switch(out, self.sequence, &switch_request);
        self.sequence += 2;
        self.state = HandshakeState::AwaitProof { request, plugin };
        Ok(None)
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
            // After a response by this plugin, the client expects another packet before the OK.
            let _ = write_more_data(out, self.sequence, &[FAST_OK]);
            self.sequence += 1;
        }
        if is_right {
            return Ok(Some(self.accept(request)));
        }
        if expects_more && self.is_encrypted() && self.auth.needs_password() {
            // Like servers whose cache does not have the user.
            let _ = write_more_data(out, self.sequence, &[FULL]);
            self.sequence += 2;
            self.state = HandshakeState::AwaitPassword { request };
            return Ok(None);
        }
        Err(wrong_password(&request.user, proof))
    }

    fn verify_password(&self, request: Box<StartupRequest>, answer: &[u8]) -> Outcome {
        let password = clear_password::parse(answer).filter(|password| !password.is_empty());
        let is_right =
            self.credentials.as_ref().zip(password).is_some_and(|(credentials, password)| {
                credentials.stored(&request.user).sha2.is_of(password)
            });
        if is_right { Ok(Some(self.accept(request))) } else { Err(wrong_password(&request.user, answer)) }
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
