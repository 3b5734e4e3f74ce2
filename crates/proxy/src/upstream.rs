//! The way to the server: its addresses, its TLS and its password, and connects begun with them.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_net::tls::{Context, Library, PeerName, Resumption, Settings, Strength, Version};
use ciphertoll_net::{Address, Connecting, ContextSource, Dialer, Error, Transport};
use ciphertoll_wire::tls::NamedGroup;

use crate::dialect::Dialing;
use crate::url::{Encryption, Place, ServerUrl};

/// What a key is sent for comes first: the one group that every server has had for long, and that is fast everywhere.
const GROUPS: [NamedGroup; 4] = [NamedGroup::P256, NamedGroup::X25519, NamedGroup::P384, NamedGroup::P521];
/// A name is looked up again when a connection is opened and this has passed.
const FRESH: Duration = Duration::from_secs(5);

/// A server, as connections to it are opened.
pub struct Upstream {
    context: Option<Context>,
    addresses: Addresses,
}

/// Where the server is.
enum Addresses {
    Known(Address),
    Named(Named),
}

/// A name, looked up on a thread of its own: a resolver may take seconds, and clients are not to wait for it.
struct Named {
    found: Arc<Mutex<Vec<SocketAddr>>>,
    nudge: Sender<()>,
    asked: Instant,
    /// Which address is next.
    turn: usize,
    name: String,
}

impl Upstream {
    /// Reads authorities and certificates, and looks the name up. That this fails is no error: it is tried again.
    pub fn new(url: &ServerUrl) -> Result<Self, Error> {
        let context = context(url)?;
        let addresses = match &url.place {
            Place::Socket(path) => Addresses::Known(Address::Unix(path.clone())),
            Place::Host { host, port } => match host.parse() {
                Ok(ip) => Addresses::Known(Address::Tcp(SocketAddr::new(ip, *port))),
                Err(_) => Addresses::Named(Named::look_up(host, *port)),
            },
        };
        Ok(Self { context, addresses })
    }

    /// Begins a connect.
    pub fn open(&mut self, dialing: Dialing) -> Result<Connecting, Error> {
        let dialer = Dialer {
            address: self.addresses.next()?,
            login: dialing.login,
            tls: self.context.clone().map(ContextSource::Shared),
            transport: Transport::NonBlocking,
        };
        dialer.dial_as(dialing.machine)
    }

    /// A connect has failed: the next one is tried elsewhere, if there is more than one place.
    pub fn failed(&mut self) {
        if let Addresses::Named(named) = &mut self.addresses {
            named.turn = named.turn.wrapping_add(1);
        }
    }
}

fn context(url: &ServerUrl) -> Result<Option<Context>, Error> {
    let Encryption::Tls { verification, anchors, identity } = &url.encryption else { return Ok(None) };
    let host = match &url.place {
        Place::Host { host, .. } => host.as_str(),
        Place::Socket(_) => "",
    };
    let settings = Settings {
        library: Library::OpenSsl,
        version: Version::Tls13,
        verification: *verification,
        anchors: anchors.clone(),
        peer: PeerName::from(host),
        suite: None,
        group: None,
        strength: Strength::Default,
        resumption: Resumption::Never,
        identity: identity.clone(),
    };
    Context::negotiating(&settings, Version::Tls12, &GROUPS).map(Some)
}

impl Addresses {
    fn next(&mut self) -> Result<Address, Error> {
        match self {
            Self::Known(address) => Ok(address.clone()),
            Self::Named(named) => named.next().map(Address::Tcp),
        }
    }
}

impl Named {
    fn look_up(name: &str, port: u16) -> Self {
        let found = Arc::new(Mutex::new(resolve(name, port).unwrap_or_default()));
        let (nudge, nudges) = mpsc::channel();
        let (shared, wanted) = (Arc::clone(&found), name.to_owned());
        // Ends with the sender.
        thread::spawn(move || {
            while nudges.recv().is_ok() {
                // Old addresses are better than none.
                if let Ok(newer) = resolve(&wanted, port)
                    && !newer.is_empty()
                {
                    *shared.lock().unwrap_or_else(PoisonError::into_inner) = newer;
                }
            }
        });
        Self { found, nudge, asked: Instant::now(), turn: 0, name: name.to_owned() }
    }

    fn next(&mut self) -> Result<SocketAddr, Error> {
        if self.asked.elapsed() > FRESH {
            self.asked = Instant::now();
            // The thread is there as long as we are.
            let _ = self.nudge.send(());
        }
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if found.is_empty() {
            let reason = "it has no address; it is looked up again every few seconds".to_owned();
            return Err(Error::Unresolved { name: self.name.clone(), reason });
        }
        Ok(found[self.turn % found.len()])
    }
}

fn resolve(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok((name, port).to_socket_addrs()?.collect())
}
