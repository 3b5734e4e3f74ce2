//! The server: its addresses, its TLS settings, and connects to it.

use std::fs;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_net::tls::{
    self, Context, Group, PeerName, Resumption, SecurityLevel, Settings, TlsLibrary, TlsParameters,
    TlsVersion, TrustAnchors, Verification,
};
use ciphertoll_net::{Address, Connecting, ContextSource, Dialer, Error, Transport};
use openssl::asn1::Asn1Time;
use openssl::x509::X509;

use crate::fingerprint::{Fingerprint, FingerprintBuilder};
use crate::protocol::ConnectPlan;
use crate::settings::UpstreamTlsLibrary;
use crate::url::{ServerAddress, ServerUrl, UpstreamEncryption};

/// The client sends a key share for the first group: P-256 is supported by all servers and fast everywhere.
const CLASSICAL_GROUPS: [Group; 4] = [Group::P256, Group::X25519, Group::P384, Group::P521];
/// When a connection is opened, a name that was resolved longer ago is resolved again.
const RESOLVE_INTERVAL: Duration = Duration::from_secs(5);

/// The server as connections to it are opened. Clones resolve its name together.
#[derive(Clone)]
pub struct Upstream {
    context: Option<Context>,
    addresses: Addresses,
    /// Of the TLS settings and files.
    pub fingerprint: Fingerprint,
    pub expiries: Vec<CertificateExpiry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateExpiry {
    pub file: PathBuf,
    /// The first expiry, in seconds since 1970.
    pub at_unix_s: i64,
}

#[derive(Clone)]
enum Addresses {
    Known(Address),
    Resolved(Resolver),
}

/// A name that is resolved on a separate thread: clients must not wait for a resolver, which may take seconds.
#[derive(Clone)]
struct Resolver {
    found: Arc<Mutex<Vec<SocketAddr>>>,
    refresh: Sender<()>,
    requested: Instant,
    /// The index of the next address to try.
    next_address: usize,
    name: String,
}

impl Upstream {
    /// Reads certificates and resolves the name. A name that cannot be resolved now is not an error: it is resolved again later.
    pub fn new(url: &ServerUrl, library: UpstreamTlsLibrary, groups: &[Group]) -> Result<Self, Error> {
        check_files(url)?;
        let context = context(url, library, groups)?;
        let addresses = match &url.address {
            ServerAddress::Socket(path) => Addresses::Known(Address::Unix(path.clone())),
            ServerAddress::Host { host, port } => match host.parse() {
                Ok(ip) => Addresses::Known(Address::Tcp(SocketAddr::new(ip, *port))),
                Err(_) => Addresses::Resolved(Resolver::look_up(host, *port)),
            },
        };
        let (fingerprint, expiries) = read_tls_files(&url.encryption, library, groups)?;
        Ok(Self { context, addresses, fingerprint, expiries })
    }

    /// The TLS settings; `None` without TLS.
    pub(crate) fn context(&self) -> Option<&Context> {
        self.context.as_ref()
    }

    pub fn open(&mut self, plan: ConnectPlan) -> Result<Connecting, Error> {
        let dialer = Dialer {
            address: self.addresses.next()?,
            login: plan.login,
            tls: self.context.clone().map(ContextSource::Shared),
            transport: Transport::NonBlocking,
        };
        dialer.dial_as(plan.machine)
    }

    /// After a failed connect, the next one uses another address, if there is one.
    pub fn failed(&mut self) {
        if let Addresses::Resolved(resolver) = &mut self.addresses {
            resolver.next_address = resolver.next_address.wrapping_add(1);
        }
    }
}

/// The fingerprint of the TLS settings and their files, and the expiry of certificates.
fn read_tls_files(
    encryption: &UpstreamEncryption,
    library: UpstreamTlsLibrary,
    groups: &[Group],
) -> Result<(Fingerprint, Vec<CertificateExpiry>), Error> {
    let (mut fingerprint, mut expiries) = (FingerprintBuilder::default(), Vec::new());
    let UpstreamEncryption::Tls { verification, anchors, identity } = encryption else {
        fingerprint.add(b"plain");
        return Ok((fingerprint.finish(), expiries));
    };
    fingerprint.add(match verification {
        Verification::Full => b"full",
        Verification::Authority => b"authority",
        Verification::Off => b"off",
    });
    fingerprint.add(tls_library(library).label().as_bytes());
    for group in groups {
        fingerprint.add(group.label().as_bytes());
    }
    // The system's authorities are left out: they are updated without affecting open connections.
    let authorities = match anchors {
        TrustAnchors::File(file) | TrustAnchors::FileAndSystem(file) => Some(file),
        TrustAnchors::System => None,
    };
    let authorities = authorities.filter(|_| *verification != Verification::Off);
    for file in authorities.into_iter().chain(identity.as_ref().map(|identity| &identity.certificate_file)) {
        let bytes = read(file)?;
        fingerprint.add(&bytes);
        let expiry = expiry(&bytes);
        expiries.extend(expiry.map(|at_unix_s| CertificateExpiry { file: file.clone(), at_unix_s }));
    }
    if let Some(identity) = identity {
        fingerprint.add(&read(&identity.key_file)?);
    }
    Ok((fingerprint.finish(), expiries))
}

fn read(file: &Path) -> Result<Vec<u8>, Error> {
    fs::read(file).map_err(|error| Error::TlsSettings(format!("cannot read {}: {error}", file.display())))
}

/// When the first certificate of a file expires; `None` if it contains none.
pub(crate) fn expiry_of(file: &Path) -> Option<CertificateExpiry> {
    let at_unix_s = expiry(&fs::read(file).ok()?)?;
    Some(CertificateExpiry { file: file.to_owned(), at_unix_s })
}

/// When the first of these certificates expires; `None` if there are none.
fn expiry(pem: &[u8]) -> Option<i64> {
    const DAY_S: i64 = 86_400;
    let began = Asn1Time::from_unix(0).ok()?;
    let ends = X509::stack_from_pem(pem).ok()?.into_iter().filter_map(|certificate| {
        let left = began.diff(certificate.not_after()).ok()?;
        Some(i64::from(left.days) * DAY_S + i64::from(left.secs))
    });
    ends.min()
}

fn check_files(url: &ServerUrl) -> Result<(), Error> {
    let UpstreamEncryption::Tls { identity, .. } = &url.encryption else { return Ok(()) };
    for (option, purpose, path) in url.files() {
        let certificate = identity.as_ref().map_or(path, |identity| identity.certificate_file.as_path());
        tls::check_file(purpose, path, certificate)
            .map_err(|error| Error::TlsSettings(format!("{error} ({option} in the URL of --server)")))?;
    }
    Ok(())
}

fn tls_library(library: UpstreamTlsLibrary) -> TlsLibrary {
    match library {
        UpstreamTlsLibrary::Rustls => TlsLibrary::Rustls,
        UpstreamTlsLibrary::OpenSsl => TlsLibrary::OpenSsl,
    }
}

pub(crate) fn has_group(library: UpstreamTlsLibrary, group: Group) -> bool {
    tls::has_group(tls_library(library), group)
}

/// The groups that are offered if the settings name none: post-quantum key exchange if the library has it.
pub(crate) fn default_groups(library: UpstreamTlsLibrary) -> Vec<Group> {
    [Group::X25519MlKem768]
        .into_iter()
        .chain(CLASSICAL_GROUPS)
        .filter(|group| has_group(library, *group))
        .collect()
}

fn context(url: &ServerUrl, library: UpstreamTlsLibrary, groups: &[Group]) -> Result<Option<Context>, Error> {
    let UpstreamEncryption::Tls { verification, anchors, identity } = &url.encryption else {
        return Ok(None);
    };
    let library = tls_library(library);
    if let Some(group) = groups.iter().find(|group| !tls::has_group(library, **group)) {
        return Err(Error::TlsSettings(format!("{library} has no group {group} (tls-groups)")));
    }
    let host = match &url.address {
        ServerAddress::Host { host, .. } => host.as_str(),
        ServerAddress::Socket(_) => "",
    };
    let settings = Settings {
        parameters: TlsParameters { library, ..TlsParameters::new(TlsVersion::Tls13) },
        verification: *verification,
        anchors: anchors.clone(),
        peer: PeerName::from(host),
        security_level: SecurityLevel::Default,
        resumption: Resumption::Never,
        identity: identity.clone(),
    };
    Context::negotiating(&settings, TlsVersion::Tls12, groups).map(Some).map_err(|error| match error {
        Error::TlsSettings(reason) if library == TlsLibrary::Rustls => {
            Error::TlsSettings(format!("{reason} (rustls; tls-library = \"openssl\" selects OpenSSL)"))
        }
        error => error,
    })
}

impl Addresses {
    fn next(&mut self) -> Result<Address, Error> {
        match self {
            Self::Known(address) => Ok(address.clone()),
            Self::Resolved(resolver) => resolver.next().map(Address::Tcp),
        }
    }
}

impl Resolver {
    fn look_up(name: &str, port: u16) -> Self {
        let found = Arc::new(Mutex::new(resolve(name, port).unwrap_or_default()));
        let (refresh, requests) = mpsc::channel();
        let (shared, host) = (Arc::clone(&found), name.to_owned());
        // The loop ends when the sender is dropped.
        thread::spawn(move || {
            while requests.recv().is_ok() {
                // Old addresses are better than none.
                if let Ok(newer) = resolve(&host, port)
                    && !newer.is_empty()
                {
                    *shared.lock().unwrap_or_else(PoisonError::into_inner) = newer;
                }
            }
        });
        Self { found, refresh, requested: Instant::now(), next_address: 0, name: name.to_owned() }
    }

    fn next(&mut self) -> Result<SocketAddr, Error> {
        if self.requested.elapsed() > RESOLVE_INTERVAL {
            self.requested = Instant::now();
            // The thread ends only when this sender is dropped.
            let _ = self.refresh.send(());
        }
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if found.is_empty() {
            let reason = "it has no address; it is resolved again every few seconds".to_owned();
            return Err(Error::Unresolved { name: self.name.clone(), reason });
        }
        Ok(found[self.next_address % found.len()])
    }
}

fn resolve(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok((name, port).to_socket_addrs()?.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUSTLS: UpstreamTlsLibrary = UpstreamTlsLibrary::Rustls;
    const OPENSSL: UpstreamTlsLibrary = UpstreamTlsLibrary::OpenSsl;

    #[test]
    fn the_fingerprint_changes_with_the_tls_mode() {
        let fingerprint = |mode: &str, library, groups: &[Group]| {
            let url = format!("postgres://a@127.0.0.1/shop?sslmode={mode}").parse().unwrap();
            Upstream::new(&url, library, groups).unwrap().fingerprint
        };
        let (usual, other) = (default_groups(RUSTLS), [Group::X25519, Group::P256]);
        assert_eq!(fingerprint("disable", RUSTLS, &[]), fingerprint("disable", RUSTLS, &[]));
        assert_ne!(fingerprint("disable", RUSTLS, &[]), fingerprint("require", RUSTLS, &usual));
        assert_ne!(fingerprint("require", RUSTLS, &other), fingerprint("require", RUSTLS, &usual));
        assert_ne!(fingerprint("require", RUSTLS, &other), fingerprint("require", OPENSSL, &other));
    }

    #[test]
    fn post_quantum_key_exchange_is_preferred_where_the_library_has_it() {
        let [p256, x25519, p384, p521] = CLASSICAL_GROUPS;
        assert_eq!(default_groups(RUSTLS), [Group::X25519MlKem768, p256, x25519, p384]);
        let groups = default_groups(OPENSSL);
        if has_group(OPENSSL, Group::X25519MlKem768) {
            assert_eq!(groups, [Group::X25519MlKem768, p256, x25519, p384, p521]);
        } else {
            assert_eq!(groups, CLASSICAL_GROUPS);
        }
    }

    #[test]
    fn a_group_that_the_library_lacks_is_refused() {
        let url: ServerUrl = "postgres://a@127.0.0.1/shop?sslmode=require".parse().unwrap();
        let refusal = |library, group| Upstream::new(&url, library, &[group]).err().unwrap().to_string();
        for group in [Group::P521, Group::SecP384r1MlKem1024] {
            let reason = format!("cannot build the TLS context: rustls has no group {group} (tls-groups)");
            assert_eq!(refusal(RUSTLS, group), reason);
        }
        for group in [Group::MlKem768, Group::SecP384r1MlKem1024, Group::MlKem1024] {
            if !has_group(OPENSSL, group) {
                let reason =
                    format!("cannot build the TLS context: openssl has no group {group} (tls-groups)");
                assert_eq!(refusal(OPENSSL, group), reason);
            }
        }
        assert!(Upstream::new(&url, RUSTLS, &[Group::MlKem1024]).is_ok());
    }

    #[test]
    fn the_first_certificate_to_expire_counts() {
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
