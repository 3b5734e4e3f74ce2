//! The client's side of authentication, up to the server's acceptance: SCRAM over `saslStart` and
//! `saslContinue`, and `authenticate` for certificates. Either may start within `hello`.

use std::sync::Arc;

use bson::{Binary, RawBsonRef, RawDocument, RawDocumentBuf, cstr, rawdoc, spec::BinarySubtype};
use openssl::hash::{MessageDigest, hash};
use zeroize::Zeroizing;

use crate::{
    mongodb::{
        client::{
            hello::Mechanisms,
            login::{MIN_ITERATIONS, Mechanism, MongoDbLogin},
            server_info::MongoDbAuthMethod,
        },
        codec::{
            document::{as_i64, is_true},
            message::write_command,
        },
        error::Error,
    },
    scram::{Binding, ClientFinal, ClientFirst, Digest},
};

const X509: &str = "MONGODB-X509";
/// The database of users that are managed outside MongoDB.
const EXTERNAL: &str = "$external";

pub(crate) struct Authenticator {
    login: Arc<MongoDbLogin>,
    state: State,
}

enum State {
    Idle,
    /// Started within `hello`.
    Speculated(AuthStart),
    AwaitChallenge(ClientFirst, Digest),
    AwaitSignature(ClientFinal, Digest),
    /// The server has proved that it knows the password, but has not ended the exchange.
    AwaitEnd(MongoDbAuthMethod),
    AwaitConsent,
    /// Failed or ended, or temporarily empty during a call.
    Over,
}

/// The first message of an authentication.
enum AuthStart {
    Scram(ClientFirst, Digest),
    Certificate,
}

/// The reply to a step of SCRAM.
struct SaslReply<'a> {
    conversation: i64,
    is_done: bool,
    payload: &'a [u8],
}

impl Authenticator {
    pub(crate) fn new(login: Arc<MongoDbLogin>) -> Self {
        Self { login, state: State::Idle }
    }

    /// Starts the likely authentication, to be sent within `hello`.
    pub(crate) fn speculate(&mut self) -> Result<Option<RawDocumentBuf>, Error> {
        let start = match self.login.mechanism {
            Mechanism::None => return Ok(None),
            Mechanism::ScramSha256 | Mechanism::Negotiated => self.begin_scram(Digest::Sha256)?,
            Mechanism::ScramSha1 => self.begin_scram(Digest::Sha1)?,
            Mechanism::X509 => AuthStart::Certificate,
        };
        let mut command = start.command(&self.login);
        command.append(cstr!("db"), source(&self.login));
        self.state = State::Speculated(start);
        Ok(Some(command))
    }

    /// Continues after `hello`: with the server's reply to the authentication in it, or from the start.
    /// Returns the method if the authentication is complete.
    pub(crate) fn continue_after_hello(
        &mut self,
        mechanisms: Option<&Mechanisms>,
        speculative: Option<&[u8]>,
        out: &mut Vec<u8>,
        request_id: i32,
    ) -> Result<Option<MongoDbAuthMethod>, Error> {
        match (std::mem::replace(&mut self.state, State::Over), speculative) {
            (State::Idle, _) => Ok(Some(MongoDbAuthMethod::None)),
            (State::Speculated(start), Some(reply)) => {
                self.state = start.sent();
                self.answer(RawDocument::from_bytes(reply)?, out, request_id)
            }
            (State::Speculated(_), None) => {
                let start = self.begin(mechanisms)?;
                write_command(out, request_id, start.command(&self.login), source(&self.login))?;
                self.state = start.sent();
                Ok(None)
            }
            _ => Err(out_of_order()),
        }
    }

    /// Takes the reply to the last step and continues. Returns the method once the server has accepted the
    /// client. An error is final.
    pub(crate) fn answer(
        &mut self,
        body: &RawDocument,
        out: &mut Vec<u8>,
        request_id: i32,
    ) -> Result<Option<MongoDbAuthMethod>, Error> {
        let state = std::mem::replace(&mut self.state, State::Over);
        if let State::AwaitConsent = state {
            return Ok(Some(MongoDbAuthMethod::Certificate));
        }
        let reply = SaslReply::parse(body)?;
        match state {
            State::AwaitChallenge(first, digest) => {
                if reply.is_done {
                    return Err(Error::ServerSignature);
                }
                let password = password(&self.login, digest)?;
                let last = first.answer_cached(&password, &self.login.keys, reply.payload)?;
                self.send_step(reply.conversation, last.message(), out, request_id)?;
                self.state = State::AwaitSignature(last, digest);
                Ok(None)
            }
            State::AwaitSignature(last, digest) => {
                last.verify(reply.payload)?;
                let kind = MongoDbAuthMethod::Scram { digest, iterations: last.iterations() };
                if reply.is_done {
                    return Ok(Some(kind));
                }
                // A server that does not support `skipEmptyExchange` sends one more reply.
                self.send_step(reply.conversation, b"", out, request_id)?;
                self.state = State::AwaitEnd(kind);
                Ok(None)
            }
            State::AwaitEnd(kind) if reply.is_done => Ok(Some(kind)),
            _ => Err(out_of_order()),
        }
    }

    /// Starts the mechanism that the login requires, or that the server offers.
    fn begin(&self, mechanisms: Option<&Mechanisms>) -> Result<AuthStart, Error> {
        let digest = match (self.login.mechanism, mechanisms) {
            (Mechanism::X509, _) => return Ok(AuthStart::Certificate),
            (Mechanism::ScramSha1, _)
            | (Mechanism::Negotiated, Some(Mechanisms { sha256: false, sha1: true, .. })) => Digest::Sha1,
            (Mechanism::Negotiated, Some(Mechanisms { sha256: false, sha1: false, names })) => {
                return Err(Error::UnsupportedAuth { method: names.clone() });
            }
            // Servers with `hello` support SHA-256. They list no mechanisms for an unknown user.
            (Mechanism::Negotiated | Mechanism::ScramSha256 | Mechanism::None, _) => Digest::Sha256,
        };
        self.begin_scram(digest)
    }

    fn begin_scram(&self, digest: Digest) -> Result<AuthStart, Error> {
        let first = ClientFirst::new(&self.login.user, Binding::None)?;
        Ok(AuthStart::Scram(first.digest(digest).min_iterations(MIN_ITERATIONS), digest))
    }

    fn send_step(
        &self,
        conversation: i64,
        payload: &[u8],
        out: &mut Vec<u8>,
        request_id: i32,
    ) -> Result<(), Error> {
        let mut command = rawdoc! { "saslContinue": 1 };
        // Servers count from 1. A number beyond 32 bits is returned in the same type.
        match i32::try_from(conversation) {
            Ok(conversation) => command.append(cstr!("conversationId"), conversation),
            Err(_) => command.append(cstr!("conversationId"), conversation),
        }
        command.append(cstr!("payload"), binary(payload));
        write_command(out, request_id, command, source(&self.login))
    }
}

impl AuthStart {
    fn command(&self, login: &MongoDbLogin) -> RawDocumentBuf {
        match self {
            Self::Scram(first, digest) => rawdoc! {
                "saslStart": 1,
                "mechanism": digest.mechanism(),
                "payload": binary(first.message()),
                "options": { "skipEmptyExchange": true },
            },
            Self::Certificate => {
                let mut command = rawdoc! { "authenticate": 1, "mechanism": X509 };
                // Without a user the server takes the subject of the certificate.
                if !login.user.is_empty() {
                    command.append(cstr!("user"), login.user.as_str());
                }
                command
            }
        }
    }

    fn sent(self) -> State {
        match self {
            Self::Scram(first, digest) => State::AwaitChallenge(first, digest),
            Self::Certificate => State::AwaitConsent,
        }
    }
}

impl<'a> SaslReply<'a> {
    fn parse(body: &'a RawDocument) -> Result<Self, Error> {
        let error = |reason| Error::protocol("reply to the authentication", reason);
        let conversation = body.get("conversationId")?.and_then(as_i64);
        let is_done = body.get("done")?.map(is_true);
        let payload = match body.get("payload")? {
            Some(RawBsonRef::Binary(binary)) => binary.bytes,
            Some(RawBsonRef::String(text)) => text.as_bytes(),
            _ => return Err(error("no payload")),
        };
        Ok(Self {
            conversation: conversation.ok_or_else(|| error("no conversation"))?,
            is_done: is_done.ok_or_else(|| error("no done field"))?,
            payload,
        })
    }
}

/// The database that authenticates the user.
fn source(login: &MongoDbLogin) -> &str {
    match login.mechanism {
        Mechanism::X509 => EXTERNAL,
        Mechanism::None | Mechanism::ScramSha256 | Mechanism::ScramSha1 | Mechanism::Negotiated => {
            &login.auth_source
        }
    }
}

/// The secret from which keys are derived: the password, or for SHA-1 the hash that servers stored before
/// SCRAM.
fn password(login: &MongoDbLogin, digest: Digest) -> Result<Zeroizing<Vec<u8>>, Error> {
    let password = login.password.expose();
    match digest {
        Digest::Sha256 => Ok(Zeroizing::new(password.to_vec())),
        Digest::Sha1 => {
            let text = Zeroizing::new([login.user.as_bytes(), b":mongo:", password].concat());
            let digest = hash(MessageDigest::md5(), &text).map_err(|_| Error::Crypto { operation: "MD5" })?;
            let digits =
                |byte: &u8| [byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[usize::from(digit)]);
            Ok(Zeroizing::new(digest.iter().flat_map(digits).collect()))
        }
    }
}

fn binary(bytes: &[u8]) -> Binary {
    Binary { subtype: BinarySubtype::Generic, bytes: bytes.to_vec() }
}

fn out_of_order() -> Error {
    Error::protocol("reply to the authentication", "it is out of order")
}
