//! A client's start-up, from its first byte until it is known who it is and what it wants.

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

use crate::dialect::FrontStep;
use crate::refusal::Refusal;
use crate::wanted::Wanted;

const SALT_BYTES: usize = 16;
/// One for TLS and one for GSSAPI's encryption.
const MAX_REQUESTS: u8 = 2;

/// What a client must do to be let in.
#[derive(Clone)]
pub enum Admission {
    /// Nothing: the kernel has said who it is.
    Granted,
    /// Nothing helps: the kernel has said who it is.
    Denied {
        /// Its user, if the kernel has said that.
        uid: Option<u32>,
    },
    /// Prove that it knows the password.
    Password(Arc<Gate>),
    /// Show a certificate with the name of the user whom it names.
    Certificate,
}

/// Whether a client's way is encrypted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Way {
    /// It is not, and need not be.
    #[default]
    Plain,
    /// It must be, and is not yet.
    Wanted,
    /// It is.
    Encrypted {
        /// Who the client is by its certificate, if it has shown one that was verified.
        name: Option<String>,
    },
}

/// Judges proofs.
pub struct Gate {
    verifiers: HashMap<String, Verifier>,
    /// For users that are not there: it has the same salt and costs the same, and no password fits.
    decoy: Verifier,
}

/// A client's start-up, stepped with its bytes.
pub struct Front {
    admission: Admission,
    way: Way,
    stage: Stage,
}

enum Stage {
    Startup { requests: u8 },
    AwaitScram { wanted: Wanted },
    AwaitProof { wanted: Wanted, first: ServerFirst },
    Over,
}

impl Gate {
    /// As drivers expect it of anything that does not come by unix socket, and the fewest that some of them take.
    pub const USUAL_ITERATIONS: u32 = 4096;

    /// Lets in those who know the password of `user`.
    pub fn new(user: &str, password: &Secret) -> Result<Self, scram::Error> {
        Self::of([(user, password)], Self::USUAL_ITERATIONS)
    }

    /// Lets in those who know the password of the one of these whom they name, and have hashed it so often.
    pub fn of<'a>(
        users: impl IntoIterator<Item = (&'a str, &'a Secret)>,
        iterations: u32,
    ) -> Result<Self, scram::Error> {
        let random = |bytes: &mut [u8]| {
            openssl::rand::rand_bytes(bytes).map_err(|_| scram::Error::Crypto { operation: "random bytes" })
        };
        // One salt for all, also for those who are not there: it must not tell who is.
        let (mut salt, mut nobodys) = ([0; SALT_BYTES], [0; SALT_BYTES]);
        random(&mut salt)?;
        random(&mut nobodys)?;
        let verifier = |password: &[u8]| Verifier::with_salt(password, iterations, &salt);
        let verifiers = users
            .into_iter()
            .map(|(user, password)| Ok((user.to_owned(), verifier(password.expose())?)))
            .collect::<Result<_, scram::Error>>()?;
        Ok(Self { verifiers, decoy: verifier(&nobodys)? })
    }

    fn verifier_of(&self, user: &str) -> &Verifier {
        self.verifiers.get(user).unwrap_or(&self.decoy)
    }
}

impl Front {
    /// A client that has said nothing yet.
    pub fn new(admission: Admission) -> Self {
        Self { admission, way: Way::Plain, stage: Stage::Startup { requests: 0 } }
    }

    /// The same for one who must do so by TLS.
    pub fn by_tls(admission: Admission) -> Self {
        Self { way: Way::Wanted, ..Self::new(admission) }
    }

    /// The client's way is encrypted now. By its certificate, if it has shown one that was verified, it is `name`.
    pub fn encrypted(&mut self, name: Option<String>) {
        self.way = Way::Encrypted { name };
        self.stage = Stage::Startup { requests: MAX_REQUESTS };
    }

    /// Takes whole messages from the front of `input` and appends to `out` what is to be sent. After anything but
    /// [`FrontStep::NeedInput`] it is over.
    pub fn step(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> FrontStep<Wanted> {
        loop {
            let step = match std::mem::replace(&mut self.stage, Stage::Over) {
                Stage::Startup { requests } => self.startup(requests, input, out),
                Stage::AwaitScram { wanted } => self.scram(wanted, input, out),
                Stage::AwaitProof { wanted, first } => Some(self.proof(wanted, first, input, out)),
                Stage::Over => Some(FrontStep::HangUp("the start-up is over")),
            };
            if let Some(step) = step {
                return step;
            }
        }
    }

    fn startup(&mut self, requests: u8, input: &mut &[u8], out: &mut Vec<u8>) -> Option<FrontStep<Wanted>> {
        match read_startup(input) {
            Ok(None) => {
                self.stage = Stage::Startup { requests };
                Some(FrontStep::NeedInput)
            }
            Ok(Some(Startup::TlsRequest)) if self.way == Way::Wanted => {
                write_tls_answer(out, TlsAnswer::Yes);
                Some(FrontStep::StartTls)
            }
            Ok(Some(Startup::DirectTls)) if self.way == Way::Wanted => Some(FrontStep::StartTls),
            Ok(Some(Startup::TlsRequest | Startup::GssEncRequest)) => {
                if requests >= MAX_REQUESTS {
                    return Some(FrontStep::HangUp("it asks for encryption again and again"));
                }
                write_tls_answer(out, TlsAnswer::No);
                self.stage = Stage::Startup { requests: requests + 1 };
                None
            }
            Ok(Some(Startup::DirectTls)) => {
                Some(FrontStep::HangUp("it began with TLS, of which there is none"))
            }
            Ok(Some(Startup::Cancel { process_id, key })) => {
                Some(FrontStep::Cancel { process_id, key: key.to_vec() })
            }
            Ok(Some(Startup::Login(message))) => self.login(&message, out),
            // As servers do: it may be no client of this protocol.
            Err(postgres::Error::StartupLength { .. }) => {
                Some(FrontStep::HangUp("its first message has an impossible length"))
            }
            Err(error) => Some(FrontStep::Refuse(Refusal::new(Refusal::PROTOCOL, error.to_string()))),
        }
    }

    fn login(&mut self, message: &StartupMessage<'_>, out: &mut Vec<u8>) -> Option<FrontStep<Wanted>> {
        if let Admission::Denied { uid } = self.admission {
            let who =
                uid.map_or_else(|| "whoever comes here".to_owned(), |uid| format!("the user with id {uid}"));
            let message = format!("{who} may not use this proxy (--allow-uid)");
            return Some(FrontStep::Refuse(Refusal::new(Refusal::WHO, message)));
        }
        let wanted = match Wanted::read(message) {
            Ok(wanted) => wanted,
            Err(refusal) => return Some(FrontStep::Refuse(refusal)),
        };
        if self.way == Way::Wanted {
            let message = "this proxy lets clients in by TLS only";
            return Some(FrontStep::Refuse(Refusal::new(Refusal::WHO, message)));
        }
        let names = message.parameters().map(|(name, _)| name);
        let unknown: Vec<&[u8]> = names.filter(|name| name.starts_with(b"_pq_.")).collect();
        if message.version > PROTOCOL_3_0 || !unknown.is_empty() {
            // Only more than a gigabyte of options could not be written.
            let _ = write_negotiate_protocol_version(out, PROTOCOL_3_0, &unknown);
        }
        match &self.admission {
            Admission::Granted => Some(FrontStep::Login(wanted)),
            Admission::Denied { .. } => None,
            Admission::Certificate => Some(match &self.way {
                Way::Encrypted { name: Some(name) } if *name == wanted.user => FrontStep::Login(wanted),
                _ => wrong_certificate(&wanted.user),
            }),
            Admission::Password(_) => {
                let mechanisms = vec![Mechanism::Sha256.name().as_bytes()];
                let _ = write_authentication(out, &Authentication::Sasl { mechanisms });
                self.stage = Stage::AwaitScram { wanted };
                None
            }
        }
    }

    fn scram(&mut self, wanted: Wanted, input: &mut &[u8], out: &mut Vec<u8>) -> Option<FrontStep<Wanted>> {
        let Admission::Password(gate) = &self.admission else { return Some(FrontStep::NeedInput) };
        let answer = match read_frontend(input, MAX_LOGIN_PAYLOAD_BYTES) {
            Ok(None) => {
                self.stage = Stage::AwaitScram { wanted };
                return Some(FrontStep::NeedInput);
            }
            Ok(Some(FrontendMessage::Auth(answer))) => answer,
            Ok(Some(_)) => return Some(out_of_order()),
            Err(error) => return Some(broken(&error)),
        };
        let verifier = gate.verifier_of(&wanted.user);
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
                self.stage = Stage::AwaitProof { wanted, first };
                None
            }
            Err(_) => Some(wrong_password(&wanted.user)),
        }
    }

    fn proof(
        &mut self,
        wanted: Wanted,
        first: ServerFirst,
        input: &mut &[u8],
        out: &mut Vec<u8>,
    ) -> FrontStep<Wanted> {
        match read_frontend(input, MAX_LOGIN_PAYLOAD_BYTES) {
            Ok(None) => {
                self.stage = Stage::AwaitProof { wanted, first };
                FrontStep::NeedInput
            }
            Ok(Some(FrontendMessage::Auth(answer))) => match first.judge(answer.sasl()) {
                Ok(last) => {
                    let _ = write_authentication(out, &Authentication::SaslFinal(&last));
                    FrontStep::Login(wanted)
                }
                Err(_) => wrong_password(&wanted.user),
            },
            Ok(Some(_)) => out_of_order(),
            Err(error) => broken(&error),
        }
    }
}

/// In the server's words, whatever was wrong.
fn wrong_password(user: &str) -> FrontStep<Wanted> {
    let message = format!("password authentication failed for user \"{user}\"");
    FrontStep::Refuse(Refusal::new(Refusal::PASSWORD, message))
}

/// As servers say it: who else the certificate is for is nobody's business.
fn wrong_certificate(user: &str) -> FrontStep<Wanted> {
    let message = format!("certificate authentication failed for user \"{user}\"");
    FrontStep::Refuse(Refusal::new(Refusal::WHO, message))
}

fn out_of_order() -> FrontStep<Wanted> {
    FrontStep::Refuse(Refusal::new(Refusal::PROTOCOL, "an answer to the password request was expected"))
}

fn broken(error: &postgres::Error) -> FrontStep<Wanted> {
    FrontStep::Refuse(Refusal::new(Refusal::PROTOCOL, error.to_string()))
}

#[cfg(test)]
mod tests;
