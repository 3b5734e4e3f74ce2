//! A PostgreSQL client's handshake: from its first byte until it is authenticated.

use std::collections::HashMap;
use std::sync::Arc;

use ciphertoll_wire::postgres::message::MAX_LOGIN_PAYLOAD_BYTES;
use ciphertoll_wire::postgres::server::{
    Authentication, FrontendMessage, Startup, StartupMessage, TlsAnswer, read_frontend, read_startup,
    write_authentication, write_negotiate_protocol_version, write_tls_answer,
};
use ciphertoll_wire::postgres::startup::PROTOCOL_3_0;
use ciphertoll_wire::scram::{self, Binding, Mechanism, ServerFirst, Verifier};
use ciphertoll_wire::{Secret, postgres};

use crate::postgres::startup_request::StartupRequest;
use crate::protocol::HandshakeStep;
use crate::refusal::Refusal;

const SALT_BYTES: usize = 16;
/// One for TLS and one for GSSAPI encryption.
const MAX_REQUESTS: u8 = 2;

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
enum TlsState {
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

/// Verifies that clients know the password of their user.
pub struct CredentialStore {
    verifiers: HashMap<String, Verifier>,
    /// For unknown users: it has the same salt and costs the same, but no password matches.
    decoy: Verifier,
}

/// A client's handshake, driven by the bytes it sends.
pub struct ClientHandshake {
    auth: AuthRequirement,
    tls: TlsState,
    state: HandshakeState,
}

enum HandshakeState {
    Startup { requests: u8 },
    AwaitScram { request: StartupRequest },
    AwaitProof { request: StartupRequest, first: ServerFirst },
    Over,
}

impl CredentialStore {
    /// The number that drivers expect over TCP, and the least that some of them accept.
    pub const DEFAULT_ITERATIONS: u32 = 4096;

    /// Accepts the password of one user.
    pub fn new(user: &str, password: &Secret) -> Result<Self, scram::Error> {
        Self::for_users([(user, password)], Self::DEFAULT_ITERATIONS)
    }

    /// Accepts the passwords of these users, hashed with so many iterations.
    pub fn for_users<'a>(
        users: impl IntoIterator<Item = (&'a str, &'a Secret)>,
        iterations: u32,
    ) -> Result<Self, scram::Error> {
        let random = |bytes: &mut [u8]| {
            openssl::rand::rand_bytes(bytes).map_err(|_| scram::Error::Crypto { operation: "random bytes" })
        };
        // One salt for all users, known or not, so that it does not reveal which users exist.
        let (mut salt, mut decoy) = ([0; SALT_BYTES], [0; SALT_BYTES]);
        random(&mut salt)?;
        random(&mut decoy)?;
        let verifier = |password: &[u8]| Verifier::with_salt(password, iterations, &salt);
        let verifiers = users
            .into_iter()
            .map(|(user, password)| Ok((user.to_owned(), verifier(password.expose())?)))
            .collect::<Result<_, scram::Error>>()?;
        Ok(Self { verifiers, decoy: verifier(&decoy)? })
    }

    fn verifier_of(&self, user: &str) -> &Verifier {
        self.verifiers.get(user).unwrap_or(&self.decoy)
    }
}

impl ClientHandshake {
    pub fn new(auth: AuthRequirement) -> Self {
        Self { auth, tls: TlsState::Off, state: HandshakeState::Startup { requests: 0 } }
    }

    /// Like [`Self::new`], with TLS required.
    pub fn by_tls(auth: AuthRequirement) -> Self {
        Self { tls: TlsState::Required, ..Self::new(auth) }
    }

    /// The client connection uses TLS now. `name` is the common name of the client's verified certificate, if
    /// it presented one.
    pub fn tls_established(&mut self, name: Option<String>) {
        self.tls = TlsState::Established { name };
        self.state = HandshakeState::Startup { requests: MAX_REQUESTS };
    }

    /// Takes whole messages from the front of `input` and appends to `out` what is to be sent. Any step
    /// except [`HandshakeStep::NeedInput`] is the last one.
    pub fn step(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> HandshakeStep<StartupRequest> {
        loop {
            let step = match std::mem::replace(&mut self.state, HandshakeState::Over) {
                HandshakeState::Startup { requests } => self.startup(requests, input, out),
                HandshakeState::AwaitScram { request } => self.scram(request, input, out),
                HandshakeState::AwaitProof { request, first } => Some(self.proof(request, first, input, out)),
                HandshakeState::Over => Some(HandshakeStep::HangUp("the handshake is over")),
            };
            if let Some(step) = step {
                return step;
            }
        }
    }

    fn startup(
        &mut self,
        requests: u8,
        input: &mut &[u8],
        out: &mut Vec<u8>,
    ) -> Option<HandshakeStep<StartupRequest>> {
        match read_startup(input) {
            Ok(None) => {
                self.state = HandshakeState::Startup { requests };
                Some(HandshakeStep::NeedInput)
            }
            Ok(Some(Startup::TlsRequest)) if self.tls == TlsState::Required => {
                write_tls_answer(out, TlsAnswer::Yes);
                Some(HandshakeStep::StartTls)
            }
            Ok(Some(Startup::DirectTls)) if self.tls == TlsState::Required => Some(HandshakeStep::StartTls),
            Ok(Some(Startup::TlsRequest | Startup::GssEncRequest)) => {
                if requests >= MAX_REQUESTS {
                    return Some(HandshakeStep::HangUp("it requests encryption repeatedly"));
                }
                write_tls_answer(out, TlsAnswer::No);
                self.state = HandshakeState::Startup { requests: requests + 1 };
                None
            }
            Ok(Some(Startup::DirectTls)) => {
                Some(HandshakeStep::HangUp("it starts TLS, which is not offered"))
            }
            Ok(Some(Startup::Cancel { process_id, key })) => {
                Some(HandshakeStep::Cancel { process_id, key: key.to_vec() })
            }
            Ok(Some(Startup::Login(message))) => self.login(&message, out),
            // Like servers: this may not be a client of this protocol.
            Err(postgres::Error::StartupLength { .. }) => {
                Some(HandshakeStep::HangUp("its first message has an impossible length"))
            }
            Err(error) => Some(HandshakeStep::Refuse(Refusal::new(Refusal::PROTOCOL, error.to_string()))),
        }
    }

    fn login(
        &mut self,
        message: &StartupMessage<'_>,
        out: &mut Vec<u8>,
    ) -> Option<HandshakeStep<StartupRequest>> {
        if let AuthRequirement::Denied { uid } = self.auth {
            let peer = uid.map_or_else(|| "this client".to_owned(), |uid| format!("UID {uid}"));
            let message = format!("{peer} may not use this proxy (--allow-uid)");
            return Some(HandshakeStep::Refuse(Refusal::new(Refusal::WHO, message)));
        }
        let request = match StartupRequest::read(message) {
            Ok(request) => request,
            Err(refusal) => return Some(HandshakeStep::Refuse(refusal)),
        };
        if self.tls == TlsState::Required {
            let message = "this proxy requires TLS";
            return Some(HandshakeStep::Refuse(Refusal::new(Refusal::WHO, message)));
        }
        let names = message.parameters().map(|(name, _)| name);
        let unknown: Vec<&[u8]> = names.filter(|name| name.starts_with(b"_pq_.")).collect();
        if message.version > PROTOCOL_3_0 || !unknown.is_empty() {
            // Fails only for more than a gigabyte of options.
            let _ = write_negotiate_protocol_version(out, PROTOCOL_3_0, &unknown);
        }
        match &self.auth {
            AuthRequirement::Granted => Some(HandshakeStep::Login(request)),
            AuthRequirement::Denied { .. } => None,
            AuthRequirement::Certificate => Some(match &self.tls {
                TlsState::Established { name: Some(name) } if *name == request.user => {
                    HandshakeStep::Login(request)
                }
                _ => wrong_certificate(&request.user),
            }),
            AuthRequirement::Password(_) => {
                let mechanisms = vec![Mechanism::Sha256.name().as_bytes()];
                let _ = write_authentication(out, &Authentication::Sasl { mechanisms });
                self.state = HandshakeState::AwaitScram { request };
                None
            }
        }
    }

    fn scram(
        &mut self,
        request: StartupRequest,
        input: &mut &[u8],
        out: &mut Vec<u8>,
    ) -> Option<HandshakeStep<StartupRequest>> {
        let AuthRequirement::Password(credentials) = &self.auth else {
            return Some(HandshakeStep::NeedInput);
        };
        let answer = match read_frontend(input, MAX_LOGIN_PAYLOAD_BYTES) {
            Ok(None) => {
                self.state = HandshakeState::AwaitScram { request };
                return Some(HandshakeStep::NeedInput);
            }
            Ok(Some(FrontendMessage::Auth(answer))) => answer,
            Ok(Some(_)) => return Some(out_of_order()),
            Err(error) => return Some(broken(&error)),
        };
        let verifier = credentials.verifier_of(&request.user);
        let first = match answer.sasl_initial() {
            Ok((name, Some(first))) if Mechanism::from_name(name) == Some(Mechanism::Sha256) => {
                ServerFirst::answer(verifier, Mechanism::Sha256, Binding::None, first)
            }
            Ok(_) => return Some(out_of_order()),
            Err(error) => return Some(broken(&error)),
        };
        match first {
            Ok(first) => {
                let _ = write_authentication(out, &Authentication::SaslContinue(first.message()));
                self.state = HandshakeState::AwaitProof { request, first };
                None
            }
            Err(_) => Some(wrong_password(&request.user)),
        }
    }

    fn proof(
        &mut self,
        request: StartupRequest,
        first: ServerFirst,
        input: &mut &[u8],
        out: &mut Vec<u8>,
    ) -> HandshakeStep<StartupRequest> {
        match read_frontend(input, MAX_LOGIN_PAYLOAD_BYTES) {
            Ok(None) => {
                self.state = HandshakeState::AwaitProof { request, first };
                HandshakeStep::NeedInput
            }
            Ok(Some(FrontendMessage::Auth(answer))) => match first.judge(answer.sasl()) {
                Ok(last) => {
                    let _ = write_authentication(out, &Authentication::SaslFinal(&last));
                    HandshakeStep::Login(request)
                }
                Err(_) => wrong_password(&request.user),
            },
            Ok(Some(_)) => out_of_order(),
            Err(error) => broken(&error),
        }
    }
}

/// The server's wording, whatever the reason.
fn wrong_password(user: &str) -> HandshakeStep<StartupRequest> {
    let message = format!("password authentication failed for user \"{user}\"");
    HandshakeStep::Refuse(Refusal::new(Refusal::PASSWORD, message))
}

/// The server's wording, without the name in the certificate.
fn wrong_certificate(user: &str) -> HandshakeStep<StartupRequest> {
    let message = format!("certificate authentication failed for user \"{user}\"");
    HandshakeStep::Refuse(Refusal::new(Refusal::WHO, message))
}

fn out_of_order() -> HandshakeStep<StartupRequest> {
    HandshakeStep::Refuse(Refusal::new(Refusal::PROTOCOL, "a response to the password request was expected"))
}

fn broken(error: &postgres::Error) -> HandshakeStep<StartupRequest> {
    HandshakeStep::Refuse(Refusal::new(Refusal::PROTOCOL, error.to_string()))
}

#[cfg(test)]
mod tests;
