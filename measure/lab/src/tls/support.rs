//! Checks whether the client's TLS library and a server support a path. Paths that they do not support are left out of a
//! run with the reason. What only one engine lacks is in that engine's module.

use ciphertoll_fetch::table::FETCHABLE;
use ciphertoll_host::programs::version_numbers;
use ciphertoll_model::{Engine, Group, ServerKey, TlsLibrary, TlsParameters, TlsPath, TlsStart};
use ciphertoll_net::tls;

use super::newer_openssl::{ClientOpenSsl, POST_QUANTUM_OPENSSL};
use crate::error::Error;
use crate::servers::build::Build;

const POSTGRES_WITH_DIRECT_TLS: u32 = 17;

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
pub fn check_client(path: TlsPath) -> Result<(), Error> {
    let openssl = ClientOpenSsl::for_library(path.parameters.library)?;
    // Another process has the newer OpenSSL, so it is not asked. From 3.5 on, it has all groups and keys.
    let asked = match openssl {
        ClientOpenSsl::Linked => path,
        ClientOpenSsl::Loader(_) => {
            let parameters = TlsParameters { library: TlsLibrary::OpenSsl, group: None, ..path.parameters };
            TlsPath { parameters, key: None, ..path }
        }
    };
    if let Some(error) = tls::Context::lacks(&client_settings(asked)) {
        return Err(unavailable(error.to_string()));
    }
    let own = tls::openssl_version();
    match asked.key.filter(|key| key.is_ml_dsa() && asked.parameters.library == TlsLibrary::OpenSsl) {
        Some(key) if !is_since(Some(own), "OpenSSL", POST_QUANTUM_OPENSSL) => Err(unavailable(format!(
            "the client uses {own}, which cannot verify {key} certificates: use +client=openssl-3.5 or +client=rustls"
        ))),
        Some(_) | None => Ok(()),
    }
}

/// Fails if servers of this release do not support the path, whatever their TLS library.
pub(crate) fn check_release(path: TlsPath, engine: Engine, server: TlsServer<'_>) -> Result<(), Error> {
    let reason = path.impossible_for_release(engine, server.release, server.name);
    reason.map_or(Ok(()), |reason| Err(unavailable(reason)))
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
        .find(|one| one.engine() == Some(Engine::Postgres) && has_direct_tls(one.version))
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

/// Fails if the path needs a newer OpenSSL than the server's.
pub(crate) fn check_openssl(path: TlsPath, server: TlsServer<'_>) -> Result<(), Error> {
    let group = path.parameters.group.and_then(|group| Some((group.label(), group.openssl_since()?)));
    let key = path.key.filter(|key| key.is_ml_dsa()).map(|key| (key.label(), POST_QUANTUM_OPENSSL));
    group.into_iter().chain(key).try_for_each(|(what, since)| check_library(server, what, "OpenSSL", since))
}

/// Fails if the path has ML-KEM or ML-DSA and the server's TLS library is not `library` of at least version `since`.
pub(crate) fn check_post_quantum(
    path: TlsPath,
    server: TlsServer<'_>,
    library: &str,
    since: [u32; 2],
) -> Result<(), Error> {
    let group = path.parameters.group.filter(|group| group.has_ml_kem()).map(Group::label);
    let key = path.key.filter(|key| key.is_ml_dsa()).map(ServerKey::label);
    group.or(key).map_or(Ok(()), |what| check_library(server, what, library, since))
}

fn check_library(server: TlsServer<'_>, what: &str, library: &str, since: [u32; 2]) -> Result<(), Error> {
    if is_since(server.tls_library, library, since) {
        return Ok(());
    }
    let found = server.tls_library.unwrap_or("an unknown TLS library");
    let ([major, minor], name) = (since, server.name);
    Err(unavailable(format!("{name} uses {found}; {what} requires {library} {major}.{minor}")))
}

/// Whether the server's OpenSSL has ML-KEM and ML-DSA, as far as its files tell.
pub(crate) fn has_openssl_with_ml_kem(build: &Build) -> bool {
    is_since(build.tls_library().as_deref(), "OpenSSL", POST_QUANTUM_OPENSSL)
}

/// Whether a server with this TLS library has a group.
pub(crate) fn openssl_has_group(tls_library: Option<&str>, group: Group) -> bool {
    group.openssl_since().is_none_or(|since| is_since(tls_library, "OpenSSL", since))
}

fn is_since(found: Option<&str>, library: &str, since: [u32; 2]) -> bool {
    let version = found.and_then(|found| found.strip_prefix(library)?.split_whitespace().next());
    version.is_some_and(|version| version_numbers(version).as_slice() >= &since[..])
}

/// The client's TLS settings; the server name does not matter here.
fn client_settings(path: TlsPath) -> tls::Settings {
    let peer = tls::PeerName::from("localhost");
    tls::Settings {
        security_level: path.security_level(),
        ..tls::Settings::new(path.parameters, tls::TrustAnchors::System, peer)
    }
}
