//! The client's answers to requests to authenticate, up to the server's consent.

use std::sync::Arc;

use super::{
    AuthMethod, Bound, ChannelBinding, Encryption, Error, Login,
    authentication::Authentication,
    codec::{printable, put_nul_terminated, put_u32},
    kind,
    md5::StoredPassword,
    message,
};
use crate::scram::{Binding, ClientFinal, ClientFirst, KeyCache, Mechanism};

/// More than any list of mechanisms has; what is longer is cut.
const MAX_NAME_CHARACTERS: usize = 128;

pub(super) struct Authenticator {
    login: Arc<Login>,
    /// Where keys are kept for other connects of the same password.
    keys: Option<Arc<KeyCache>>,
    certificate_hash: Option<Vec<u8>>,
    state: State,
}

enum State {
    /// The server has not asked for anything.
    Unasked,
    /// What was asked for was given.
    Answered(AuthMethod),
    AwaitChallenge(ClientFirst, Bound),
    AwaitSignature(ClientFinal, Bound),
    /// Failed or ended, or a state that is being moved through a call.
    Over,
}

impl Authenticator {
    pub(super) fn new(login: Arc<Login>, keys: Option<Arc<KeyCache>>) -> Self {
        Self { login, keys, certificate_hash: None, state: State::Unasked }
    }

    pub(super) fn bind_channel(&mut self, certificate_hash: &[u8]) {
        self.certificate_hash = Some(certificate_hash.to_vec());
    }

    /// Answers a request; how the client has authenticated, once the server consents. An error is final.
    pub(super) fn answer(
        &mut self,
        request: &Authentication<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<AuthMethod>, Error> {
        let state = std::mem::replace(&mut self.state, State::Over);
        self.state = match (request, state) {
            (Authentication::Ok, State::Unasked) => return self.accept(AuthMethod::None).map(Some),
            (Authentication::Ok, State::Answered(method)) => return self.accept(method).map(Some),
            (Authentication::Ok, State::AwaitChallenge(..) | State::AwaitSignature(..)) => {
                return Err(Error::ServerSignature);
            }
            (Authentication::Cleartext, State::Unasked) => self.send_cleartext(out)?,
            (Authentication::Md5 { salt }, State::Unasked) => self.send_md5(*salt, out)?,
            (Authentication::Sasl { mechanisms }, State::Unasked) => self.begin_scram(mechanisms, out)?,
            (Authentication::Other(code), State::Unasked) => {
                return Err(Error::UnsupportedAuth { method: Authentication::name_of_other(*code) });
            }
            (Authentication::SaslContinue(challenge), State::AwaitChallenge(first, bound)) => {
                let password = self.login.password.expose();
                let last = match &self.keys {
                    Some(keys) => first.answer_cached(password, keys, challenge)?,
                    None => first.answer(password, challenge)?,
                };
                message::write(out, kind::PASSWORD, |out| {
                    out.extend_from_slice(last.message());
                    Ok(())
                })?;
                State::AwaitSignature(last, bound)
            }
            (Authentication::SaslFinal(signature), State::AwaitSignature(last, channel_binding)) => {
                last.verify(signature)?;
                State::Answered(AuthMethod::Scram { iterations: last.iterations(), channel_binding })
            }
            _ => {
                let reason = "it comes out of order";
                return Err(Error::Protocol { message: "request to authenticate", reason });
            }
        };
        Ok(None)
    }

    /// The server's consent is worth nothing where it had to prove who it is and did not.
    fn accept(&self, method: AuthMethod) -> Result<AuthMethod, Error> {
        match (self.login.channel_binding, method) {
            (ChannelBinding::Disabled | ChannelBinding::Preferred, _)
            | (_, AuthMethod::Scram { channel_binding: Bound::ServerEndPoint, .. }) => Ok(method),
            (ChannelBinding::Required, _) => Err(Error::ChannelBindingNotOffered),
        }
    }

    fn send_cleartext(&self, out: &mut Vec<u8>) -> Result<State, Error> {
        let method = self.accept(AuthMethod::Cleartext)?;
        if self.login.encryption == Encryption::Plain {
            return Err(Error::PasswordInPlain);
        }
        let password = self.login.password.expose();
        if password.contains(&0) {
            return Err(Error::InvalidLogin { field: "password" });
        }
        write_password(out, password)?;
        Ok(State::Answered(method))
    }

    fn send_md5(&self, salt: [u8; 4], out: &mut Vec<u8>) -> Result<State, Error> {
        let method = self.accept(AuthMethod::Md5)?;
        let stored = StoredPassword::of(self.login.password.expose(), self.login.user.as_bytes())?;
        write_password(out, &stored.response(salt)?)?;
        Ok(State::Answered(method))
    }

    fn begin_scram(&self, mechanisms: &[&[u8]], out: &mut Vec<u8>) -> Result<State, Error> {
        let offers = |wanted| mechanisms.iter().any(|name| Mechanism::from_name(name) == Some(wanted));
        let hash = self.certificate_hash.as_deref();
        let (binding, bound) = match (self.login.channel_binding, hash) {
            (ChannelBinding::Required, None) if offers(Mechanism::Sha256Plus) => return Err(Error::NotBound),
            (ChannelBinding::Required | ChannelBinding::Preferred, Some(hash))
                if offers(Mechanism::Sha256Plus) =>
            {
                (Binding::ServerEndPoint(hash), Bound::ServerEndPoint)
            }
            (ChannelBinding::Required, _) if offers(Mechanism::Sha256) => {
                return Err(Error::ChannelBindingNotOffered);
            }
            (ChannelBinding::Preferred, Some(_)) if offers(Mechanism::Sha256) => {
                (Binding::NotOffered, Bound::Nothing)
            }
            (ChannelBinding::Disabled | ChannelBinding::Preferred, _) if offers(Mechanism::Sha256) => {
                (Binding::None, Bound::Nothing)
            }
            _ => {
                let method = printable(&mechanisms.join(&b", "[..]), MAX_NAME_CHARACTERS);
                return Err(Error::UnsupportedAuth { method });
            }
        };
        // The user in SCRAM's own message is not looked at; the start-up message has named it.
        let first = ClientFirst::new("", binding)?;
        message::write(out, kind::PASSWORD, |out| {
            put_nul_terminated(out, binding.mechanism().name().as_bytes());
            put_u32(out, first.message().len() as u32);
            out.extend_from_slice(first.message());
            Ok(())
        })?;
        Ok(State::AwaitChallenge(first, bound))
    }
}

fn write_password(out: &mut Vec<u8>, password: &[u8]) -> Result<(), Error> {
    message::write(out, kind::PASSWORD, |out| {
        put_nul_terminated(out, password);
        Ok(())
    })
}
