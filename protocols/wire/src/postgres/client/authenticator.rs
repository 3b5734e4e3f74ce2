//! The client's side of authentication, up to the server's acceptance.

use std::sync::Arc;

use crate::{
    postgres::{
        client::login::{Bound, ChannelBinding, PostgresAuthMethod, PostgresLogin, PostgresTlsMode},
        codec::{
            authentication::Authentication,
            kind, message,
            reader::{put_nul_terminated, put_u32},
        },
        error::Error,
        md5::StoredPassword,
    },
    printable::printable,
    scram::{
        self, Binding, Challenge, ClientFinal, ClientFirst, DerivedKeys, KeyCache, KeyDerivation, Mechanism,
    },
};

/// Longer than any list of mechanisms; the rest is cut.
const MAX_NAME_CHARACTERS: usize = 128;

pub(crate) struct Authenticator {
    login: Arc<PostgresLogin>,
    /// The keys cached for other connects with the same password.
    keys: Option<Arc<KeyCache>>,
    certificate_hash: Option<Vec<u8>>,
    /// Work for the driver of the login, see [`State::AwaitKeys`].
    derivation: Option<KeyDerivation>,
    state: State,
}

enum State {
    /// The server has not requested anything.
    Initial,
    /// The client has answered the request.
    Answered(PostgresAuthMethod),
    AwaitChallenge(ClientFirst, Bound),
    /// The keys for the reply are being derived.
    AwaitKeys(Challenge, Bound, DerivedKeys),
    AwaitSignature(ClientFinal, Bound),
    /// Failed or ended, or temporarily empty during a call.
    Over,
}

impl Authenticator {
    pub(crate) fn new(login: Arc<PostgresLogin>, keys: Option<Arc<KeyCache>>) -> Self {
        Self { login, keys, certificate_hash: None, derivation: None, state: State::Initial }
    }

    pub(crate) fn bind_channel(&mut self, certificate_hash: &[u8]) {
        self.certificate_hash = Some(certificate_hash.to_vec());
    }

    /// Answers a request. Returns the method once the server has accepted the client. An error is final.
    pub(crate) fn answer(
        &mut self,
        request: &Authentication<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<PostgresAuthMethod>, Error> {
        let state = std::mem::replace(&mut self.state, State::Over);
        self.state = match (request, state) {
            (Authentication::Ok, State::Initial) => return self.accept(PostgresAuthMethod::None).map(Some),
            (Authentication::Ok, State::Answered(method)) => return self.accept(method).map(Some),
            (
                Authentication::Ok,
                State::AwaitChallenge(..) | State::AwaitKeys(..) | State::AwaitSignature(..),
            ) => {
                return Err(Error::ServerSignature);
            }
            (Authentication::Cleartext, State::Initial) => self.send_cleartext(out)?,
            (Authentication::Md5 { salt }, State::Initial) => self.send_md5(*salt, out)?,
            (Authentication::Sasl { mechanisms }, State::Initial) => self.begin_scram(mechanisms, out)?,
            (Authentication::Other(code), State::Initial) => {
                return Err(Error::UnsupportedAuth { method: Authentication::name_of_other(*code) });
            }
            (Authentication::SaslContinue(challenge), State::AwaitChallenge(first, bound)) => {
                self.answer_challenge(first, challenge, bound, out)?
            }
            (Authentication::SaslFinal(signature), State::AwaitSignature(last, channel_binding)) => {
                last.verify(signature)?;
                State::Answered(PostgresAuthMethod::Scram { iterations: last.iterations(), channel_binding })
            }
            _ => {
                return Err(Error::protocol("authentication request", "it is out of order"));
            }
        };
        Ok(None)
    }

    fn answer_challenge(
        &mut self,
        first: ClientFirst,
        server_first: &[u8],
        bound: Bound,
        out: &mut Vec<u8>,
    ) -> Result<State, Error> {
        let password = self.login.password.expose();
        let Some(cache) = &self.keys else {
            return send_proof(first.answer(password, server_first)?, bound, out);
        };
        let challenge = first.max_iterations(cache.max_iterations()).challenge(server_first)?;
        if let Some(keys) = challenge.known_keys(cache) {
            return send_proof(challenge.answer(&keys), bound, out);
        }
        if !cache.has_password() {
            return Err(scram::Error::OtherVerifier.into());
        }
        let (derivation, keys) = challenge.derivation(password, cache);
        self.derivation = Some(derivation);
        Ok(State::AwaitKeys(challenge, bound, keys))
    }

    /// Work that must be run before the login can continue.
    pub(crate) fn take_derivation(&mut self) -> Option<KeyDerivation> {
        self.derivation.take()
    }

    pub(crate) fn awaits_keys(&self) -> bool {
        matches!(self.state, State::AwaitKeys(..))
    }

    /// Sends the pending reply if its keys have been derived. Returns whether no reply waits for keys. An error is
    /// final.
    pub(crate) fn send_pending(&mut self, out: &mut Vec<u8>) -> Result<bool, Error> {
        let State::AwaitKeys(.., keys) = &self.state else { return Ok(true) };
        let Some(keys) = keys.get() else { return Ok(false) };
        if let State::AwaitKeys(challenge, bound, _) = std::mem::replace(&mut self.state, State::Over) {
            self.state = send_proof(challenge.answer(&keys?), bound, out)?;
        }
        Ok(true)
    }

    /// Rejects a server that had to prove its identity and did not.
    fn accept(&self, method: PostgresAuthMethod) -> Result<PostgresAuthMethod, Error> {
        match (self.login.channel_binding, method) {
            (ChannelBinding::Disabled | ChannelBinding::Preferred, _)
            | (_, PostgresAuthMethod::Scram { channel_binding: Bound::ServerEndPoint, .. }) => Ok(method),
            (ChannelBinding::Required, _) => Err(Error::ChannelBindingNotOffered),
        }
    }

    /// Keys of a client's proof answer SCRAM and nothing else.
    fn check_password(&self, method: &str) -> Result<(), Error> {
        match &self.keys {
            Some(keys) if !keys.has_password() => Err(Error::UnsupportedAuth { method: method.to_owned() }),
            _ => Ok(()),
        }
    }

    fn send_cleartext(&self, out: &mut Vec<u8>) -> Result<State, Error> {
        self.check_password("cleartext password")?;
        let method = self.accept(PostgresAuthMethod::Cleartext)?;
        if self.login.encryption == PostgresTlsMode::Plain {
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
        self.check_password("MD5")?;
        let method = self.accept(PostgresAuthMethod::Md5)?;
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
        // The server ignores the user in the SCRAM message; the startup message has named it.
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

fn send_proof(last: ClientFinal, bound: Bound, out: &mut Vec<u8>) -> Result<State, Error> {
    message::write(out, kind::PASSWORD, |out| {
        out.extend_from_slice(last.message());
        Ok(())
    })?;
    Ok(State::AwaitSignature(last, bound))
}

fn write_password(out: &mut Vec<u8>, password: &[u8]) -> Result<(), Error> {
    message::write(out, kind::PASSWORD, |out| {
        put_nul_terminated(out, password);
        Ok(())
    })
}
