//! The way to the server: its addresses and its TLS, and connects begun with them.

use std::fs;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_net::tls::{
    self, Context, Group, PeerName, Resumption, SecurityLevel, Settings, TlsLibrary, TlsVersion,
    TrustAnchors, Verification,
};
use ciphertoll_net::{Address, Connecting, ContextSource, Dialer, Error, Transport};
use openssl::asn1::Asn1Time;
use openssl::x509::X509;

use crate::dialect::Dialing;
use crate::mark::{Mark, Marker};
use crate::url::{Encryption, Place, ServerUrl};

/// What a key is sent for comes first: the one group that every server has had for long, and that is fast everywhere.
const GROUPS: [Group; 4] = [Group::P256, Group::X25519, Group::P384, Group::P521];
/// A name is looked up again when a connection is opened and this has passed.
const FRESH: Duration = Duration::from_secs(5);

/// A server, as connections to it are opened. Clones look its name up together.
#[derive(Clone)]
pub struct Upstream {
    context: Option<Context>,
    addresses: Addresses,
    mark: Mark,
    expiries: Vec<Expiry>,
}

/// When a file's certificates are over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// The file.
    pub file: PathBuf,
    /// That of its first certificate to end; in seconds since 1970.
    pub at_unix_s: i64,
}

/// Where the server is.
#[derive(Clone)]
enum Addresses {
    Known(Address),
    Named(Named),
}

/// A name, looked up on a thread of its own: a resolver may take seconds, and clients are not to wait for it.
#[derive(Clone)]
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
        check_files(url)?;
        let context = context(url)?;
        let addresses = match &url.place {
            Place::Socket(path) => Addresses::Known(Address::Unix(path.clone())),
            Place::Host { host, port } => match host.parse() {
                Ok(ip) => Addresses::Known(Address::Tcp(SocketAddr::new(ip, *port))),
                Err(_) => Addresses::Named(Named::look_up(host, *port)),
            },
        };
        let Material { marker, expiries } = Material::read(&url.encryption)?;
        Ok(Self { context, addresses, mark: marker.finish(), expiries })
    }

    /// What connections are encrypted with now.
    pub fn mark(&self) -> Mark {
        self.mark
    }

    /// When certificates are over that were read from files.
    pub fn expiries(&self) -> &[Expiry] {
        &self.expiries
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

/// The files that TLS needs, as far as they can change.
struct Material {
    marker: Marker,
    expiries: Vec<Expiry>,
}

impl Material {
    fn read(encryption: &Encryption) -> Result<Self, Error> {
        let mut material = Self { marker: Marker::default(), expiries: Vec::new() };
        let Encryption::Tls { verification, anchors, identity } = encryption else {
            material.marker.add(b"plain");
            return Ok(material);
        };
        material.marker.add(match verification {
            Verification::Full => b"full",
            Verification::Authority => b"authority",
            Verification::Off => b"off",
        });
        // The system's authorities come and go without anything's being wrong with connections that there are.
        if *verification != Verification::Off
            && let TrustAnchors::File(file) | TrustAnchors::FileAndSystem(file) = anchors
        {
            material.add_certificates(file)?;
        }
        if let Some(identity) = identity {
            material.add_certificates(&identity.certificate_file)?;
            material.marker.add(&read(&identity.key_file)?);
        }
        Ok(material)
    }

    fn add_certificates(&mut self, file: &Path) -> Result<(), Error> {
        let bytes = read(file)?;
        self.marker.add(&bytes);
        if let Some(at_unix_s) = expiry(&bytes) {
            self.expiries.push(Expiry { file: file.to_owned(), at_unix_s });
        }
        Ok(())
    }
}

fn read(file: &Path) -> Result<Vec<u8>, Error> {
    fs::read(file).map_err(|error| Error::TlsSettings(format!("cannot read {}: {error}", file.display())))
}

/// When the first certificate of a file is over; none where there is no certificate.
pub(crate) fn expiry_of(file: &Path) -> Option<Expiry> {
    let at_unix_s = expiry(&fs::read(file).ok()?)?;
    Some(Expiry { file: file.to_owned(), at_unix_s })
}

/// When the first of these is over; none where there is no certificate.
fn expiry(pem: &[u8]) -> Option<i64> {
    const DAY_S: i64 = 86_400;
    let began = Asn1Time::from_unix(0).ok()?;
    let ends = X509::stack_from_pem(pem).ok()?.into_iter().filter_map(|certificate| {
        let left = began.diff(certificate.not_after()).ok()?;
        Some(i64::from(left.days) * DAY_S + i64::from(left.secs))
    });
    ends.min()
}

/// Fails unless every file that `url` names for TLS can be used.
fn check_files(url: &ServerUrl) -> Result<(), Error> {
    let Encryption::Tls { identity, .. } = &url.encryption else { return Ok(()) };
    for (option, purpose, path) in url.files() {
        let certificate = identity.as_ref().map_or(path, |identity| identity.certificate_file.as_path());
        tls::check_file(purpose, path, certificate)
            .map_err(|error| Error::TlsSettings(format!("{error} ({option} in the URL of --server)")))?;
    }
    Ok(())
}

fn context(url: &ServerUrl) -> Result<Option<Context>, Error> {
    let Encryption::Tls { verification, anchors, identity } = &url.encryption else { return Ok(None) };
    let host = match &url.place {
        Place::Host { host, .. } => host.as_str(),
        Place::Socket(_) => "",
    };
    let settings = Settings {
        library: TlsLibrary::OpenSsl,
        version: TlsVersion::Tls13,
        verification: *verification,
        anchors: anchors.clone(),
        peer: PeerName::from(host),
        suite: None,
        group: None,
        security_level: SecurityLevel::Default,
        resumption: Resumption::Never,
        identity: identity.clone(),
    };
    Context::negotiating(&settings, TlsVersion::Tls12, &GROUPS).map(Some)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_changes_with_how_the_server_is_spoken_to() {
        let mark = |mode: &str| {
            let url = format!("postgres://a@127.0.0.1/shop?sslmode={mode}").parse().unwrap();
            Upstream::new(&url).unwrap().mark()
        };
        assert_eq!(mark("disable"), mark("disable"));
        assert_ne!(mark("disable"), mark("require"));
    }

    #[test]
    fn the_first_certificate_to_end_counts() {
        let authority = ciphertoll_lab::Authority::generate().unwrap();
        let mut pem = authority.certificate_pem().unwrap();
        let now = jiff::Timestamp::now().as_second();
        let of_the_authority = expiry(&pem).unwrap();
        assert!(of_the_authority > now, "{of_the_authority}");
        pem.extend(authority.issue_expired(ciphertoll_model::ServerKey::P256).unwrap().certificate_pem);
        let ended = expiry(&pem).unwrap();
        assert!((now - 2 * 86_400..now).contains(&ended), "{ended}");
        assert_eq!(expiry(b"no certificate"), None);
    }
}
