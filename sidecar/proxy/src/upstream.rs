//! The server: its addresses, its TLS settings, and connects to it.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ciphertoll_net::tls::{
    self, Context, Group, PeerName, Resumption, SecurityLevel, Settings, TlsLibrary, TlsParameters,
    TlsVersion, TrustAnchors, Verification,
};
use ciphertoll_net::{Address, Channel, Connecting, ContextSource, Dialer, Error, Transport};
use openssl::asn1::Asn1Time;
use openssl::x509::X509;

use crate::fingerprint::{Fingerprint, FingerprintBuilder};
use crate::login_hosts::LoginHost;
use crate::protocol::ConnectPlan;
use crate::resolver::Resolver;
use crate::settings::UpstreamTlsLibrary;
use crate::url::{ServerAddress, ServerUrl, UpstreamEncryption};

/// The client sends a key share for the first group: P-256 is supported by all servers and fast everywhere.
const CLASSICAL_GROUPS: [Group; 4] = [Group::P256, Group::X25519, Group::P384, Group::P521];

/// How connections to the server are opened. Clones share the resolved names.
#[derive(Clone)]
pub struct Upstream {
    first: UpstreamHost,
    further: Vec<UpstreamHost>,
    /// Of the TLS settings and files.
    pub fingerprint: Fingerprint,
    pub expiries: Vec<CertificateExpiry>,
    silence: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateExpiry {
    pub file: PathBuf,
    /// The first expiry, in seconds since 1970.
    pub at_unix_s: i64,
}

#[derive(Clone)]
struct UpstreamHost {
    context: Option<Context>,
    named: ServerAddress,
    addresses: Addresses,
}

#[derive(Clone)]
enum Addresses {
    Known(Address),
    Resolved(Resolver),
}

/// The address that a connection was opened to.
#[derive(Clone, Debug)]
pub(crate) struct OpenedAt {
    pub(crate) address: Address,
    /// The number of changes of the name's addresses at that time.
    pub(crate) changes: u64,
}

/// A name and its addresses.
pub(crate) struct KnownName {
    pub(crate) name: String,
    /// Seconds until a connect looks it up again.
    pub(crate) ttl_s: u64,
    pub(crate) addresses: Vec<SocketAddr>,
}

impl OpenedAt {
    /// Names are resolved anew, so that the address must be looked for.
    pub(crate) fn forget_names(&mut self) {
        self.changes = u64::MAX;
    }
}

impl Upstream {
    /// Reads certificates and resolves names. A name that cannot be resolved now is not an error: it is resolved again later.
    pub fn new(url: &ServerUrl, library: UpstreamTlsLibrary, groups: &[Group]) -> Result<Self, Error> {
        check_files(url)?;
        let host = |address: &ServerAddress| {
            let context = context(url, address, library, groups)?;
            let addresses = match address {
                ServerAddress::Socket(path) => Addresses::Known(Address::Unix(path.clone())),
                ServerAddress::Host { host, port } => match host.parse() {
                    Ok(ip) => Addresses::Known(Address::Tcp(SocketAddr::new(ip, *port))),
                    Err(_) => Addresses::Resolved(Resolver::look_up(host, *port)),
                },
            };
            Ok(UpstreamHost { context, named: address.clone(), addresses })
        };
        let first = host(&url.address)?;
        let further = url.further.iter().map(host).collect::<Result<_, Error>>()?;
        let (fingerprint, expiries) = read_tls_files(&url.encryption, library, groups)?;
        Ok(Self { first, further, fingerprint, expiries, silence: None })
    }

    /// Ends connections to hosts that do not answer for this long.
    #[must_use]
    pub(crate) fn with_silence(self, limit: Duration) -> Self {
        Self { silence: Some(limit).filter(|limit| !limit.is_zero()), ..self }
    }

    /// `None`: as the kernel decides.
    pub(crate) fn silence(&self) -> Option<Duration> {
        self.silence
    }

    /// How often names are resolved again.
    #[must_use]
    pub(crate) fn with_dns_time(mut self, interval: Duration) -> Self {
        for resolver in self.resolvers() {
            resolver.interval = interval;
        }
        self
    }

    /// The hosts for logins outside of the pool.
    pub(crate) fn login_hosts(&self) -> Vec<LoginHost> {
        let hosts = std::iter::once(&self.first).chain(&self.further);
        let login_host = |host: &UpstreamHost| LoginHost {
            address: match &host.named {
                ServerAddress::Socket(path) => Address::Unix(path.clone()),
                ServerAddress::Host { host, port } => {
                    Address::Host { name: host.clone(), port: *port, family: None }
                }
            },
            context: host.context.clone(),
        };
        hosts.map(login_host).collect()
    }

    pub fn open(&mut self, plan: ConnectPlan) -> Result<Connecting, Error> {
        let address = self.first.addresses.next()?;
        self.first.dial(address, plan)
    }

    /// Begins a connect to one of several hosts.
    pub(crate) fn open_at(
        &mut self,
        host: usize,
        plan: ConnectPlan,
    ) -> Result<(Connecting, OpenedAt), Error> {
        let silence = self.silence;
        let Some(host) = self.host(host) else { return Err(Error::Closed) };
        let at = OpenedAt { address: host.addresses.next()?, changes: host.addresses.changes() };
        let mut connecting = host.dial(at.address.clone(), plan)?;
        if let (Some(limit), Address::Tcp(_)) = (silence, &at.address) {
            connecting.channel().probe_when_idle(limit)?;
        }
        Ok((connecting, at))
    }

    /// Begins a connect to the address of an open connection to this host: a name can have several servers.
    pub(crate) fn open_beside(
        &mut self,
        host: usize,
        other: &Channel,
        plan: ConnectPlan,
    ) -> Result<Connecting, Error> {
        let peer = other.peer_address()?.map(Address::Tcp);
        let host = self.host(host).ok_or(Error::Closed)?;
        let address = peer.map_or_else(|| host.addresses.next(), Ok)?;
        host.dial(address, plan)
    }

    /// After a failed connect, the next one uses another address, if there is one.
    pub fn failed(&mut self) {
        self.failed_at(0);
    }

    pub(crate) fn failed_at(&mut self, host: usize) {
        if let Some(UpstreamHost { addresses: Addresses::Resolved(resolver), .. }) = self.host(host) {
            resolver.use_next();
        }
    }

    /// Resolves names again that were resolved long ago.
    pub(crate) fn refresh(&mut self) {
        self.resolvers().for_each(Resolver::refresh_if_old);
    }

    /// Whether the name of this host has lost the address.
    pub(crate) fn has_lost(&mut self, host: usize, at: &mut OpenedAt) -> bool {
        match (self.host(host).map(|host| &host.addresses), &at.address) {
            (Some(Addresses::Resolved(resolver)), Address::Tcp(address)) => {
                let changes = resolver.changes();
                if changes == at.changes {
                    return false;
                }
                let has_lost = !resolver.has(address);
                if !has_lost {
                    at.changes = changes;
                }
                has_lost
            }
            _ => false,
        }
    }

    /// The names that are resolved, for the console.
    pub(crate) fn known_names(&mut self) -> Vec<KnownName> {
        let known = self.resolvers().map(|resolver| resolver.known());
        known.map(|(name, ttl_s, addresses)| KnownName { name, ttl_s, addresses }).collect()
    }

    fn host(&mut self, at: usize) -> Option<&mut UpstreamHost> {
        match at.checked_sub(1) {
            None => Some(&mut self.first),
            Some(further) => self.further.get_mut(further),
        }
    }

    fn resolvers(&mut self) -> impl Iterator<Item = &mut Resolver> {
        let hosts = std::iter::once(&mut self.first).chain(&mut self.further);
        hosts.filter_map(|host| match &mut host.addresses {
            Addresses::Resolved(resolver) => Some(resolver),
            Addresses::Known(_) => None,
        })
    }
}

impl UpstreamHost {
    fn dial(&self, address: Address, plan: ConnectPlan) -> Result<Connecting, Error> {
        let dialer = Dialer {
            address,
            login: plan.login,
            tls: self.context.clone().map(ContextSource::Shared),
            transport: Transport::NonBlocking,
        };
        dialer.dial_as(plan.machine)
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

/// The fingerprint of the TLS settings, with the names of their files and not their content.
pub(crate) fn fingerprint_of_settings(settings: &crate::settings::Settings) -> Fingerprint {
    let mut fingerprint = FingerprintBuilder::default();
    let UpstreamEncryption::Tls { verification, anchors, identity } = &settings.server.encryption else {
        fingerprint.add(b"plain");
        return fingerprint.finish();
    };
    let text = format!("watched {verification:?} {anchors:?} {identity:?} {:?}", settings.tls_library);
    fingerprint.add(text.as_bytes());
    for group in &settings.groups {
        fingerprint.add(group.label().as_bytes());
    }
    fingerprint.finish()
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

fn context(
    url: &ServerUrl,
    address: &ServerAddress,
    library: UpstreamTlsLibrary,
    groups: &[Group],
) -> Result<Option<Context>, Error> {
    let UpstreamEncryption::Tls { verification, anchors, identity } = &url.encryption else {
        return Ok(None);
    };
    let library = tls_library(library);
    if let Some(group) = groups.iter().find(|group| !tls::has_group(library, **group)) {
        return Err(Error::TlsSettings(format!("{library} has no group {group} (tls-groups)")));
    }
    let host = match address {
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

    fn changes(&self) -> u64 {
        match self {
            Self::Known(_) => 0,
            Self::Resolved(resolver) => resolver.changes(),
        }
    }
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
