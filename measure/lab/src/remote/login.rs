//! Logins to a server at a URL.

use std::collections::BTreeMap;

use ciphertoll_model::{ServerUrl, TlsDemand, TlsVersion, UrlError, UrlFileContent};
use ciphertoll_net::blocking::Client;
use ciphertoll_net::tls::{self, FilePurpose};
use ciphertoll_wire::Secret;

use super::connection::{UrlLogin, check_tls_answer, is_final, is_unverified, tls_versions, unverified};
use crate::error::Error;

/// Passwords by server name; a server without an entry has an empty password.
pub type Passwords = BTreeMap<String, Secret>;

pub(super) fn password_of(passwords: &Passwords, name: &str) -> Secret {
    passwords.get(name).cloned().unwrap_or_else(|| Secret::new(Vec::new()))
}

/// Fails unless every TLS file that `url` names can be used, and its TLS options protect. Does not connect.
pub fn check_files(name: &str, url: &ServerUrl) -> Result<(), Error> {
    let unprotected = |error: UrlError| Error::UrlTls { name: name.to_owned(), reason: error.to_string() };
    url.check_protection().map_err(unprotected)?;
    let certificate = url.tls.identity.as_ref().map(|identity| identity.certificate_file.as_path());
    for (option, path) in url.files() {
        let checked = match option.content {
            UrlFileContent::Authorities => tls::check_file(FilePurpose::Authorities, path, path),
            UrlFileContent::Certificate => tls::check_file(FilePurpose::Certificate, path, path),
            UrlFileContent::Key => tls::check_file(FilePurpose::Key, path, certificate.unwrap_or(path)),
            UrlFileContent::CertificateAndKey => tls::check_file(FilePurpose::Certificate, path, path)
                .and_then(|()| tls::check_file(FilePurpose::Key, path, path)),
        };
        checked.map_err(|source| Error::UrlFile { source, option: option.name, name: name.to_owned() })?;
    }
    Ok(())
}

pub(super) fn no_connection(name: &str) -> Error {
    Error::Unreachable { name: name.to_owned(), reason: "the URL permits no connection".to_owned() }
}

/// Logs in once to a single host, by the most secure TLS version that `url` permits and the server accepts, by the
/// rules of [`probe`](super::probe::probe).
pub(crate) fn log_in(name: &str, url: &ServerUrl, passwords: &Passwords) -> Result<Client, Error> {
    check_files(name, url)?;
    let login = UrlLogin { url, password: &password_of(passwords, name) };
    let mut refused: Vec<ciphertoll_net::Error> = Vec::new();
    for tls_version in tls_versions(url) {
        check_plaintext(name, url, tls_version, refused.first())?;
        match attempt(name, login, tls_version, refused.last())? {
            Ok(client) => return Ok(client),
            Err(error) => refused.push(error),
        }
    }
    Err(match refused.first() {
        Some(error) => unreachable_server(name, error),
        None => no_connection(name),
    })
}

/// Fails before a login without TLS if no login with TLS has succeeded, and the URL permits plaintext for a comparison with
/// TLS only.
pub(super) fn check_plaintext(
    name: &str,
    url: &ServerUrl,
    tls_version: Option<TlsVersion>,
    first_refusal: Option<&ciphertoll_net::Error>,
) -> Result<(), Error> {
    match (tls_version, url.tls.demand, first_refusal) {
        (None, TlsDemand::Both, Some(error)) => Err(unreachable_server(name, error)),
        _ => Ok(()),
    }
}

/// Tries one TLS version. The inner error: the server refuses this one, and the next may be tried.
pub(super) fn attempt(
    name: &str,
    login: UrlLogin<'_>,
    tls_version: Option<TlsVersion>,
    last_refusal: Option<&ciphertoll_net::Error>,
) -> Result<Result<Client, ciphertoll_net::Error>, Error> {
    let url = login.url;
    let answered = check_tls_answer(url, tls_version, last_refusal);
    match answered.and_then(|()| login.connect(tls_version, url.database.as_deref(), None)) {
        Err(error) if error.is_too_many_connections() || is_final(url, tls_version, &error) => {
            Err(unreachable_server(name, &error))
        }
        Err(error) if is_unverified(&error) => Err(unverified(name, url, error.to_string())),
        Err(error @ ciphertoll_net::Error::TlsSettings(_)) => {
            Err(Error::UrlTls { name: name.to_owned(), reason: error.to_string() })
        }
        outcome => Ok(outcome),
    }
}

pub(super) fn unreachable_server(name: &str, error: &ciphertoll_net::Error) -> Error {
    let (name, reason) = (name.to_owned(), error.to_string());
    if error.is_wrong_password() {
        Error::WrongPassword { name, reason }
    } else {
        Error::Unreachable { name, reason }
    }
}
