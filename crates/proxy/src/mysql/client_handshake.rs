//! A MySQL client's handshake: from the greeting until it is authenticated.

use std::collections::HashMap;
use std::sync::Arc;

use ciphertoll_wire::Secret;
use ciphertoll_wire::mysql::auth::caching_sha2::{CachedPassword, FAST_OK, FULL};
use ciphertoll_wire::mysql::auth::clear_password;
use ciphertoll_wire::mysql::auth::native_password::NONCE_BYTES;
use ciphertoll_wire::mysql::auth_switch::AuthSwitchRequest;
use ciphertoll_wire::mysql::change_user::ChangeUser;
use ciphertoll_wire::mysql::greeting_template::GreetingTemplate;
use ciphertoll_wire::mysql::handshake_response::HandshakeResponse;
use ciphertoll_wire::mysql::server::{
    ClientMessage, StoredPassword, read_auth_response, read_login, write_auth_switch, write_more_data,
};
use ciphertoll_wire::mysql::{self, Plugin, Terms};

use super::refusal;
use super::startup_request::{HandshakeContext, StartupRequest};
use crate::protocol::{self, HandshakeStep};
use crate::refusal::Refusal;

/// Sequence number of the client's login or TLS request. The greeting has 0.
const LOGIN_NUMBER: u8 = 1;
/// Sequence number of the first response to a command, which has 0.
const ANSWER_NUMBER: u8 = 1;
/// `ER_SECURE_TRANSPORT_REQUIRED`.
const TLS_REQUIRED: u16 = 3159;
/// Length of a random password that no client knows.
const DECOY_BYTES: usize = 32;

/// How a client must authenticate.
#[derive(Clone)]
pub enum AuthRequirement {
    /// The peer UID was checked, and that is enough.
    Granted,
    /// The peer UID is not allowed, or there is no credential that could be checked.
    Denied {
        /// `None` if the peer UID is not known.
        uid: Option<u32>,
    },
    Password(Arc<CredentialStore>),
    /// With a certificate issued to its user name.
    Certificate,
}

/// TLS on a client connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TlsState {
    /// Not offered.
    #[default]
    Off,
    /// Required and not established yet.
    Required,
    Established {
        /// The common name of the client's verified certificate, if it presented one.
        name: Option<String>,
    },
}

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
    /// The challenge, from random bytes.
    pub nonce: [u8; NONCE_BYTES],
}

/// A client's handshake, driven by the bytes it sends.
pub struct ClientHandshake {
    auth: AuthRequirement,
    tls: TlsState,
    greeting_context: GreetingContext,
    state: HandshakeState,
    /// Sequence number of the next packet to the client.
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
        request: StartupRequest,
        plugin: Plugin,
    },
    /// The client was asked for its password in clear text over TLS.
    AwaitPassword {
        request: StartupRequest,
    },
    Over,
}

impl CredentialStore {
    /// Accepts the password of one user; `None` if OpenSSL has no random bytes.
    pub fn new(user: &str, password: &Secret) -> Option<Self> {
        Self::for_users([(user, password)])
    }

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
        let nonce = random.map(|byte| match byte & 0x7f {
            0 => b'0',
            b'$' => b'%',
            plain => plain,
        });
        Self { template, connection_id, nonce }
    }
}

impl ClientHandshake {
    /// A client that has not been greeted yet.
    pub fn new(auth: AuthRequirement, greeting_context: GreetingContext) -> Self {
        Self { auth, tls: TlsState::Off, greeting_context, state: HandshakeState::Greet, sequence: 0 }
    }

    /// Like [`Self::new`], with TLS offered and required.
    pub fn by_tls(auth: AuthRequirement, greeting_context: GreetingContext) -> Self {
        Self { tls: TlsState::Required, ..Self::new(auth, greeting_context) }
    }

    /// A client that was greeted like this and has logged in on these terms, and now changes its user
    /// (`COM_CHANGE_USER`). It authenticates with the challenge of its greeting, as servers and clients do.
    pub fn change_user(
        auth: AuthRequirement,
        tls: TlsState,
        greeting_context: GreetingContext,
        terms: Terms,
    ) -> Self {
        let state = HandshakeState::AwaitChange { terms };
        Self { tls, state, sequence: ANSWER_NUMBER, ..Self::new(auth, greeting_context) }
    }

    /// The client connection uses TLS now. `name` is the common name of the client's verified certificate, if
    /// it presented one.
    pub fn tls_established(&mut self, name: Option<String>) {
        self.tls = TlsState::Established { name };
        self.state = HandshakeState::AwaitLogin;
    }

    /// What a later change of the user needs of this handshake.
    pub(super) fn context(&self, auth: protocol::ClientAuth) -> HandshakeContext {
        HandshakeContext { auth, tls: self.tls.clone(), nonce: self.greeting_context.nonce }
    }

    /// Takes whole packets from the front of `input` and appends to `out` what is to be sent. The first step
    /// needs no input. Any step except [`HandshakeStep::NeedInput`] is the last one.
    pub fn step(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> HandshakeStep<StartupRequest> {
        loop {
            let step = match std::mem::replace(&mut self.state, HandshakeState::Over) {
                HandshakeState::Greet => self.greet(out),
                HandshakeState::AwaitLogin => self.login(input, out),
                HandshakeState::AwaitChange { terms } => self.change(terms, input, out),
                HandshakeState::AwaitProof { request, plugin } => {
                    Some(self.proof(request, plugin, input, out))
                }
                HandshakeState::AwaitPassword { request } => Some(self.password(request, input)),
                HandshakeState::Over => Some(HandshakeStep::HangUp("the handshake is over")),
            };
            if let Some(step) = step {
                return step;
            }
        }
    }

    /// Appends an error packet for the client.
    pub fn refuse(&self, refusal: &Refusal, out: &mut Vec<u8>) {
        refusal::write(refusal, self.sequence, out);
    }

    fn greet(&mut self, out: &mut Vec<u8>) -> Option<HandshakeStep<StartupRequest>> {
        let GreetingContext { template, connection_id, nonce } = &self.greeting_context;
        // Fails only for more than a gigabyte of version.
        let _ = match self.tls {
            TlsState::Required => template.write_with_tls(*connection_id, *nonce, out),
            TlsState::Off | TlsState::Established { .. } => template.write(*connection_id, *nonce, out),
        };
        self.sequence = LOGIN_NUMBER + 1;
        self.state = HandshakeState::AwaitLogin;
        None
    }

    fn login(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Option<HandshakeStep<StartupRequest>> {
        match read_login(input, self.sequence - 1) {
            Ok(None) => {
                self.state = HandshakeState::AwaitLogin;
                Some(HandshakeStep::NeedInput)
            }
            Ok(Some(ClientMessage::TlsRequest(_))) if self.tls == TlsState::Required => {
                // The login over TLS has the next number.
                self.sequence += 1;
                Some(HandshakeStep::StartTls)
            }
            Ok(Some(ClientMessage::TlsRequest(_))) => {
                let message = "TLS was requested, but this proxy does not offer it to clients";
                Some(HandshakeStep::Refuse(Refusal::new(Refusal::UNSUPPORTED, message)))
            }
            Ok(Some(ClientMessage::Login(login))) => self.verify_login(&login, out),
            Err(error) => Some(broken(&error)),
        }
    }

    fn verify_login(
        &mut self,
        login: &HandshakeResponse<'_>,
        out: &mut Vec<u8>,
    ) -> Option<HandshakeStep<StartupRequest>> {
        if let Some(refusal) = self.denial() {
            return Some(HandshakeStep::Refuse(refusal));
        }
        let GreetingContext { template, connection_id, .. } = &self.greeting_context;
        let request = match StartupRequest::read(login, template.capabilities(), *connection_id) {
            Ok(request) => request,
            Err(refusal) => return Some(HandshakeStep::Refuse(refusal)),
        };
        let offered = template.plugin();
        let plugin = match login.plugin {
            // A client that names no plugin uses this one.
            None => Plugin::NativePassword,
            Some(name) if name == offered.name() => offered,
            // A clear-text password needs no challenge. Without authentication by password it is ignored.
            Some(clear_password::NAME) if self.needs_no_password() => Plugin::NativePassword,
            Some(clear_password::NAME) if self.is_encrypted() => {
                return Some(self.verify_password(request, login.auth_response));
            }
            // With any other plugin, the response is not for the greeting's challenge.
            Some(name) => {
                self.switch(request, usable(name).unwrap_or(offered), out);
                return None;
            }
        };
        Some(self.verify_proof(request, plugin, login.auth_response, out))
    }

    /// Why the client is refused, whatever it presents.
    fn denial(&self) -> Option<Refusal> {
        if let AuthRequirement::Denied { uid } = self.auth {
            let peer = uid.map_or("this client".to_owned(), |uid| format!("UID {uid}"));
            let message = format!("{peer} may not use this proxy (--allow-uid)");
            return Some(Refusal::new(Refusal::WHO, message));
        }
        if self.tls == TlsState::Required {
            let message = "this proxy requires TLS";
            return Some(Refusal { number: Some(TLS_REQUIRED), ..Refusal::new(*b"HY000", message) });
        }
        None
    }

    /// Whether the client authenticates by other means than a password.
    fn needs_no_password(&self) -> bool {
        matches!(self.auth, AuthRequirement::Granted | AuthRequirement::Certificate)
    }

    fn is_encrypted(&self) -> bool {
        matches!(self.tls, TlsState::Established { .. })
    }

    /// The client changes its user, perhaps to the same one.
    fn change(
        &mut self,
        terms: Terms,
        input: &mut &[u8],
        out: &mut Vec<u8>,
    ) -> Option<HandshakeStep<StartupRequest>> {
        let change = match ChangeUser::read(input) {
            Ok(Some(change)) => change,
            Ok(None) => {
                self.state = HandshakeState::AwaitChange { terms };
                return Some(HandshakeStep::NeedInput);
            }
            Err(error) => return Some(broken(&error)),
        };
        if let Some(refusal) = self.denial() {
            return Some(HandshakeStep::Refuse(refusal));
        }
        let request = match StartupRequest::change(&change, terms, self.greeting_context.connection_id) {
            Ok(request) => request,
            Err(refusal) => return Some(HandshakeStep::Refuse(refusal)),
        };
        let named = change.plugin.map_or(Some(Plugin::NativePassword), usable);
        let plugin = match named {
            Some(plugin) => plugin,
            // Without authentication by password, any plugin will do.
            None if self.needs_no_password() => Plugin::NativePassword,
            None if change.plugin == Some(clear_password::NAME) && self.is_encrypted() => {
                return Some(self.verify_password(request, change.auth_response));
            }
            None => {
                self.switch(request, self.greeting_context.template.plugin(), out);
                return None;
            }
        };
        Some(self.verify_proof(request, plugin, change.auth_response, out))
    }

    /// Asks the client to authenticate by this plugin.
    fn switch(&mut self, request: StartupRequest, plugin: Plugin, out: &mut Vec<u8>) {
        let challenge = [&self.greeting_context.nonce[..], b"\0"].concat();
        let switch_request = AuthSwitchRequest { plugin: plugin.name(), data: &challenge };
        let _ = write_auth_switch(out, self.sequence, &switch_request);
        self.sequence += 2;
        self.state = HandshakeState::AwaitProof { request, plugin };
    }

    fn proof(
        &mut self,
        request: StartupRequest,
        plugin: Plugin,
        input: &mut &[u8],
        out: &mut Vec<u8>,
    ) -> HandshakeStep<StartupRequest> {
        match read_auth_response(input, self.sequence - 1) {
            Ok(None) => {
                self.state = HandshakeState::AwaitProof { request, plugin };
                HandshakeStep::NeedInput
            }
            Ok(Some(proof)) => self.verify_proof(request, plugin, proof, out),
            Err(error) => broken(&error),
        }
    }

    fn verify_proof(
        &mut self,
        request: StartupRequest,
        plugin: Plugin,
        proof: &[u8],
        out: &mut Vec<u8>,
    ) -> HandshakeStep<StartupRequest> {
        let is_right = match &self.auth {
            AuthRequirement::Granted => true,
            AuthRequirement::Denied { .. } => false,
            AuthRequirement::Password(credentials) => {
                credentials.accepts(&request.user, plugin, &self.greeting_context.nonce, proof)
            }
            AuthRequirement::Certificate => {
                matches!(&self.tls, TlsState::Established { name: Some(name) } if *name == request.user)
            }
        };
        if is_right {
            return self.accept(request, plugin, proof, out);
        }
        let needs_clear_text =
            plugin == Plugin::CachingSha2Password && !is_empty(proof) && self.is_encrypted();
        if needs_clear_text && !self.needs_no_password() {
            // Like servers whose cache does not have the user.
            let _ = write_more_data(out, self.sequence, &[FULL]);
            self.sequence += 2;
            self.state = HandshakeState::AwaitPassword { request };
            return HandshakeStep::NeedInput;
        }
        wrong_password(&request.user, proof)
    }

    fn password(&mut self, request: StartupRequest, input: &mut &[u8]) -> HandshakeStep<StartupRequest> {
        match read_auth_response(input, self.sequence - 1) {
            Ok(None) => {
                self.state = HandshakeState::AwaitPassword { request };
                HandshakeStep::NeedInput
            }
            Ok(Some(answer)) => self.verify_password(request, answer),
            Err(error) => broken(&error),
        }
    }

    /// Verifies a clear-text password, which ends with a NUL.
    fn verify_password(&self, mut request: StartupRequest, answer: &[u8]) -> HandshakeStep<StartupRequest> {
        let password = clear_password::parse(answer).filter(|password| !password.is_empty());
        let is_right = match (&self.auth, password) {
            (AuthRequirement::Password(credentials), Some(password)) => {
                credentials.stored(&request.user).sha2.is_of(password)
            }
            _ => false,
        };
        if !is_right {
            return wrong_password(&request.user, answer);
        }
        request.sequence = self.sequence;
        HandshakeStep::Login(request)
    }

    fn accept(
        &mut self,
        mut request: StartupRequest,
        plugin: Plugin,
        proof: &[u8],
        out: &mut Vec<u8>,
    ) -> HandshakeStep<StartupRequest> {
        // After a response by this plugin, the client expects another packet before the OK.
        if plugin == Plugin::CachingSha2Password && !is_empty(proof) {
            let _ = write_more_data(out, self.sequence, &[FAST_OK]);
            self.sequence += 1;
        }
        request.sequence = self.sequence;
        HandshakeStep::Login(request)
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
fn wrong_password(user: &str, proof: &[u8]) -> HandshakeStep<StartupRequest> {
    let using = if is_empty(proof) { "NO" } else { "YES" };
    let message = format!("Access denied for user '{user}'@'localhost' (using password: {using})");
    HandshakeStep::Refuse(Refusal::new(Refusal::PASSWORD, message))
}

fn broken(error: &mysql::Error) -> HandshakeStep<StartupRequest> {
    HandshakeStep::Refuse(Refusal::new(Refusal::PROTOCOL, error.to_string()))
}

#[cfg(test)]
mod tests;
