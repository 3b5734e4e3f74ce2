//! The client's side of the authentication exchange, for all plugins.

use zeroize::Zeroizing;

use crate::{
    mysql::{
        auth::{
            MySqlAuthMethod, Plugin, caching_sha2, clear_password, ed25519,
            native_password::{self, NONCE_BYTES},
            parsec::{self, ExtSalt},
            rsa_key,
        },
        client::login::{MySqlLogin, MySqlTlsMode, Transport},
        codec::auth_switch::AuthSwitchRequest,
        error::Error,
    },
    printable::printable,
};

/// Longer than any server's version or plugin name; the rest is cut.
pub(crate) const MAX_NAME_CHARACTERS: usize = 128;

/// A message to the server; it may be the cleartext password.
pub(crate) type AuthMessage = Zeroizing<Vec<u8>>;

/// The exchange of one plugin. The server's OK, ERR and switch to another plugin are not part of it.
pub(crate) enum AuthExchange {
    /// The client has sent everything; the server's decision is pending.
    Sent(MySqlAuthMethod),
    /// The proof is sent; the server decides whether it suffices.
    CachingSha2 { nonce: [u8; NONCE_BYTES] },
    /// The server's public key was requested.
    PublicKey { nonce: [u8; NONCE_BYTES] },
    /// The salt was requested.
    ExtSalt { nonce: [u8; parsec::NONCE_BYTES] },
}

impl AuthExchange {
    /// Starts with the plugin that the client offers, in answer to the greeting's nonce.
    pub(crate) fn guess(
        plugin: Plugin,
        login: &MySqlLogin,
        nonce: &[u8; NONCE_BYTES],
    ) -> (Self, AuthMessage) {
        match plugin {
            Plugin::NativePassword => native(login, nonce),
            Plugin::CachingSha2Password => caching_sha2(login, nonce),
            // The greeting's nonce is too short for these; the server will send another.
            Plugin::Ed25519 | Plugin::Parsec => (Self::Sent(MySqlAuthMethod::Empty), AuthMessage::default()),
        }
    }

    /// Starts with the plugin that the server requests.
    pub(crate) fn switch(
        request: &AuthSwitchRequest<'_>,
        login: &MySqlLogin,
    ) -> Result<(Self, AuthMessage), Error> {
        let Some(plugin) = Plugin::of_name(request.plugin) else {
            return other(request.plugin, login);
        };
        match plugin {
            Plugin::NativePassword => Ok(native(login, challenge(request.data)?)),
            Plugin::CachingSha2Password => Ok(caching_sha2(login, challenge(request.data)?)),
            Plugin::Ed25519 => {
                let signature = ed25519::response(login.password.expose(), challenge(request.data)?);
                Ok((Self::Sent(MySqlAuthMethod::Ed25519), AuthMessage::new(signature.to_vec())))
            }
            Plugin::Parsec => {
                Ok((Self::ExtSalt { nonce: *challenge(request.data)? }, AuthMessage::default()))
            }
        }
    }

    /// Takes the server's next message to the plugin and returns the answer, if any.
    pub(crate) fn more(&mut self, data: &[u8], login: &MySqlLogin) -> Result<Option<AuthMessage>, Error> {
        let password = login.password.expose();
        let (next, answer) = match self {
            Self::CachingSha2 { .. } if data == [caching_sha2::FAST_OK] => {
                (Self::Sent(MySqlAuthMethod::CachingSha2Fast), None)
            }
            Self::CachingSha2 { nonce } if data == [caching_sha2::FULL] => {
                match (login.encryption, login.transport) {
                    (MySqlTlsMode::Tls | MySqlTlsMode::EagerTls, _) | (_, Transport::UnixSocket) => {
                        let clear = clear_password::response(password)?;
                        (Self::Sent(MySqlAuthMethod::CachingSha2FullPrivate), Some(clear))
                    }
                    (MySqlTlsMode::Plain, Transport::Tcp) => (
                        Self::PublicKey { nonce: *nonce },
                        Some(AuthMessage::new(vec![caching_sha2::KEY_WANTED])),
                    ),
                }
            }
            Self::PublicKey { nonce } => {
                let sealed = rsa_key::seal(data, nonce, password)?;
                (Self::Sent(MySqlAuthMethod::CachingSha2FullRsa), Some(AuthMessage::new(sealed)))
            }
            Self::ExtSalt { nonce } => {
                let ext_salt = ExtSalt::parse(data)?;
                let response = parsec::response(password, nonce, &ext_salt)?;
                let method = MySqlAuthMethod::Parsec { iterations: ext_salt.iterations() };
                (Self::Sent(method), Some(AuthMessage::new(response.to_vec())))
            }
            Self::Sent(_) | Self::CachingSha2 { .. } => {
                return Err(Error::protocol(
                    "reply to the login",
                    "it is not a message that the plugin expects",
                ));
            }
        };
        *self = next;
        Ok(answer)
    }

    /// The method that the server accepts if it sends OK now.
    pub(crate) fn accepted(&self) -> Result<MySqlAuthMethod, Error> {
        match self {
            Self::Sent(method) => Ok(*method),
            Self::CachingSha2 { .. } => Ok(MySqlAuthMethod::CachingSha2Fast),
            Self::PublicKey { .. } | Self::ExtSalt { .. } => {
                Err(Error::protocol("reply to the login", "OK before the client has sent its proof"))
            }
        }
    }
}

fn native(login: &MySqlLogin, nonce: &[u8; NONCE_BYTES]) -> (AuthExchange, AuthMessage) {
    let password = login.password.expose();
    if password.is_empty() {
        return (AuthExchange::Sent(MySqlAuthMethod::Empty), AuthMessage::default());
    }
    let response = native_password::response(password, nonce);
    (AuthExchange::Sent(MySqlAuthMethod::NativePassword), AuthMessage::new(response.to_vec()))
}

fn caching_sha2(login: &MySqlLogin, nonce: &[u8; NONCE_BYTES]) -> (AuthExchange, AuthMessage) {
    let password = login.password.expose();
    if password.is_empty() {
        return (AuthExchange::Sent(MySqlAuthMethod::Empty), AuthMessage::default());
    }
    let response = caching_sha2::response(password, nonce);
    (AuthExchange::CachingSha2 { nonce: *nonce }, AuthMessage::new(response.to_vec()))
}

/// A plugin that is never offered first: the cleartext password, or one that is not supported.
fn other(plugin: &[u8], login: &MySqlLogin) -> Result<(AuthExchange, AuthMessage), Error> {
    match login.encryption {
        MySqlTlsMode::Tls | MySqlTlsMode::EagerTls if plugin == clear_password::NAME => {
            let clear = clear_password::response(login.password.expose())?;
            Ok((AuthExchange::Sent(MySqlAuthMethod::ClearPassword), clear))
        }
        MySqlTlsMode::Plain if plugin == clear_password::NAME => Err(Error::ClearPasswordRefused),
        _ => Err(Error::UnsupportedAuth { plugin: printable(plugin, MAX_NAME_CHARACTERS) }),
    }
}

/// The nonce in a plugin's data. MySQL's plugins end it with a NUL, MariaDB's do not.
fn challenge<const N: usize>(data: &[u8]) -> Result<&[u8; N], Error> {
    match data.split_first_chunk() {
        Some((nonce, [] | [0])) => Ok(nonce),
        _ => Err(Error::protocol(
            "request to switch authentication",
            "its challenge does not have the plugin's length",
        )),
    }
}
