//! The first answer of a server: does it speak the protocol of the login at all?

use std::io;
use std::time::Duration;

use ciphertoll_wire::opening::{POSTGRES_TLS_REQUEST, SpokenProtocol};
use ciphertoll_wire::session::Login;

use crate::Readiness;
use crate::connecting::{ConnectProgress, Connecting, Dialer};
use crate::error::{Error, Instead};
use crate::socket::{self, Address, Transport};

/// More than the first message of the recognised protocols needs.
const FIRST_BYTES: usize = 80;
/// Time limit for the answer to PostgreSQL's request, which a server sends without a look at anything.
const REQUEST_LIMIT: Duration = Duration::from_secs(1);

/// The protocol of a login, and what its server sends first.
fn expected(login: &Login) -> (&'static str, &'static str) {
    match login {
        Login::MySql(_) => ("MySQL", "greeting"),
        Login::Postgres(_) => ("PostgreSQL", "answer"),
        Login::MongoDb(_) if login.uses_tls() => ("MongoDB over TLS", "answer"),
        Login::MongoDb(_) => ("MongoDB", "answer"),
    }
}

fn is_expected(login: &Login, spoken: SpokenProtocol) -> bool {
    match (login, spoken) {
        (Login::MySql(_), SpokenProtocol::MySql) | (Login::Postgres(_), SpokenProtocol::Postgres) => true,
        (Login::MySql(_), _) => false,
        // Both may begin with TLS.
        (Login::Postgres(_) | Login::MongoDb(_), spoken) => spoken == SpokenProtocol::Tls && login.uses_tls(),
    }
}

/// Sends what the client sends first, and waits for the first bytes, which stay in the socket. Fails if they are of
/// another protocol, or if none arrive within `limit`.
pub(crate) fn await_answer(
    connecting: Connecting,
    dialer: &Dialer,
    limit: Duration,
) -> Result<ConnectProgress, Error> {
    let mut connecting = match connecting.advance(Readiness::Writable)? {
        ConnectProgress::Pending(connecting) => connecting,
        done @ ConnectProgress::Done(_) => return Ok(done),
    };
    let (protocol, first) = expected(&dialer.login);
    let other = |instead| Error::OtherProtocol { protocol, instead };
    let mut bytes = [0; FIRST_BYTES];
    match socket::peek(&connecting.channel().socket, &mut bytes) {
        Ok(length) if length > 0 => match recognise(&dialer.login, &bytes[..length]) {
            Some(instead) => Err(other(instead)),
            None => Ok(ConnectProgress::Pending(connecting)),
        },
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(other(when_asked(dialer).unwrap_or(Instead::Silence { first, limit })))
        }
        // The server closed the connection.
        Ok(_) | Err(_) => Err(when_asked(dialer).map_or(Error::Closed, other)),
    }
}

fn recognise(login: &Login, first: &[u8]) -> Option<Instead> {
    let spoken = SpokenProtocol::of(first).filter(|spoken| !is_expected(login, *spoken))?;
    Some(Instead::Other { protocol: spoken.name(), text: spoken.text(first) })
}

/// What a server that waits for its clients' first message answers to that of PostgreSQL. It says nothing to the
/// messages of others, or closes the connection.
fn when_asked(dialer: &Dialer) -> Option<Instead> {
    let asks_already = matches!(dialer.login, Login::Postgres(_));
    // Where TLS comes first, nothing is sent without it.
    let begins_with_tls = matches!(dialer.login, Login::MongoDb(_)) && dialer.login.uses_tls();
    if asks_already || begins_with_tls {
        return None;
    }
    let transport = Transport::Blocking(REQUEST_LIMIT);
    let (socket, _) = match &dialer.address {
        Address::Unix(path) => socket::connect_unix(path, transport),
        Address::Tcp(address) => socket::connect_tcp(*address, transport, None),
        Address::Host { .. } => return None,
    }
    .ok()?;
    socket::send(&socket, &POSTGRES_TLS_REQUEST).ok()?;
    let mut bytes = [0; FIRST_BYTES];
    let length = socket::receive(&socket, &mut bytes).ok()?;
    let spoken = SpokenProtocol::of(&bytes[..length])?;
    Some(Instead::Other { protocol: spoken.name(), text: spoken.text(&bytes[..length]) })
}
