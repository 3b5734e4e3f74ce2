//! Checks whether the client's TLS library and a server support a path. Paths that they do not support are left out of a
//! run with the reason. What only one engine lacks is in that engine's module.

use ciphertoll_model::{Engine, Group, TlsPath, TlsStart};
use ciphertoll_net::tls;

use crate::error::Error;
use crate::fetch::table::FETCHABLE;
use crate::servers::build::version_numbers;

const POSTGRES_WITH_DIRECT_TLS: u32 = 17;
/// The first OpenSSL with ML-KEM.
const OPENSSL_WITH_ML_KEM: [u32; 2] = [3, 5];

/// A server, as far as its TLS depends on it.
#[derive(Clone, Copy)]
pub(crate) struct TlsServer<'a> {
    /// `MariaDB 10.11.19`
    pub(crate) name: &'a str,
    /// `10.11.19`
    pub(crate) release: &'a str,
    /// As the server reports it: `OpenSSL 3.0.19 …`.
    pub(crate) tls_library: Option<&'a str>,
}

pub(crate) fn unavailable(reason: impl Into<String>) -> Error {
    Error::TlsUnavailable(reason.into())
}

/// Fails if the client's TLS library does not support the path.
pub(crate) fn check_client(path: TlsPath) -> Result<(), Error> {
    if let Some(key) = path.key.filter(|key| key.is_ml_dsa()) {
        return Err(unavailable(format!("certificates with {key} keys cannot be issued yet")));
    }
    match tls::Context::lacks(&client_settings(path)) {
        Some(error) => Err(unavailable(error.to_string())),
        None => Ok(()),
    }
}

/// Fails if a server that begins TLS only after a request cannot start it like that.
pub(crate) fn check_requested_start(start: TlsStart, server: TlsServer<'_>) -> Result<(), Error> {
    match start {
        TlsStart::Requested | TlsStart::Eager => Ok(()),
        TlsStart::Direct => Err(no_direct_tls(start, server)),
    }
}

/// The error for a server that requires a request for TLS first. It names a server that can be fetched and does not.
pub(crate) fn no_direct_tls(start: TlsStart, server: TlsServer<'_>) -> Error {
    let name = server.name;
    let advice = FETCHABLE
        .iter()
        .find(|one| one.engine == Engine::Postgres && has_direct_tls(one.version))
        .map(|one| format!(": fetch {} by `ciphertoll servers fetch {}`", one.version, one.name))
        .unwrap_or_default();
    let supported = format!("PostgreSQL does from version {POSTGRES_WITH_DIRECT_TLS}{advice}");
    unavailable(match start {
        TlsStart::Eager => format!("{name} accepts no data right after a request for TLS; {supported}"),
        TlsStart::Requested | TlsStart::Direct => {
            format!("{name} does not accept TLS from the first byte; {supported}")
        }
    })
}

/// Whether this PostgreSQL accepts TLS from the first byte, or right after the request for it.
pub(crate) fn has_direct_tls(postgres_release: &str) -> bool {
    version_numbers(postgres_release).first().is_some_and(|major| *major >= POSTGRES_WITH_DIRECT_TLS)
}

/// Fails if `group` needs a newer OpenSSL than the server's.
pub(crate) fn check_openssl_group(group: Option<Group>, server: TlsServer<'_>) -> Result<(), Error> {
    check_ml_kem(group, server, "OpenSSL", OPENSSL_WITH_ML_KEM)
}

/// Fails if `group` is ML-KEM and the server's TLS library is not `library` of at least version `since`.
pub(crate) fn check_ml_kem(
    group: Option<Group>,
    server: TlsServer<'_>,
    library: &str,
    since: [u32; 2],
) -> Result<(), Error> {
    let version = server.tls_library.and_then(|found| found.strip_prefix(library)?.split_whitespace().next());
    let has_ml_kem = version.is_some_and(|version| version_numbers(version).as_slice() >= &since[..]);
    let Some(group) = group.filter(|group| group.has_ml_kem() && !has_ml_kem) else { return Ok(()) };
    let found = server.tls_library.unwrap_or("an unknown TLS library");
    let ([major, minor], name) = (since, server.name);
    Err(unavailable(format!("{name} uses {found}; {group} requires {library} {major}.{minor}")))
}

/// The client's TLS settings; the server name does not matter here.
fn client_settings(path: TlsPath) -> tls::Settings {
    tls::Settings {
        library: path.library,
        version: path.version,
        verification: tls::Verification::Full,
        anchors: tls::TrustAnchors::System,
        suite: path.suite,
        group: path.group,
        security_level: path.security_level(),
        resumption: tls::Resumption::Never,
        peer: tls::PeerName::from("localhost"),
        identity: None,
    }
}
