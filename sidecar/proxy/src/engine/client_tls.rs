//! TLS with clients.

use ciphertoll_net::Error;
use ciphertoll_net::tls::{self, Acceptor, AcceptorSettings, FilePurpose, Identity};

use crate::client_auth::ClientAuth;
use crate::upstream::{CertificateExpiry, expiry_of};

#[derive(Clone)]
pub(super) struct ClientTls {
    pub(super) acceptor: Acceptor,
    /// How TLS clients authenticate.
    auth: ClientAuth,
    pub(super) expiries: Vec<CertificateExpiry>,
}

impl ClientTls {
    pub(super) fn read(service: &AcceptorSettings) -> Result<Self, Error> {
        check_files(service)?;
        let acceptor = Acceptor::build(service)?;
        let files = std::iter::once(&service.identity.certificate_file).chain(&service.clients);
        let expiries = files.filter_map(|file| expiry_of(file)).collect();
        let auth =
            if service.clients.is_some() { ClientAuth::Certificate } else { ClientAuth::PasswordByTls };
        Ok(Self { acceptor, auth, expiries })
    }

    pub(super) fn auth(&self) -> ClientAuth {
        self.auth
    }
}

fn check_files(service: &AcceptorSettings) -> Result<(), Error> {
    let Identity { certificate_file, key_file } = &service.identity;
    let files = [
        ("tls-cert", FilePurpose::Certificate, Some(certificate_file)),
        ("tls-key", FilePurpose::Key, Some(key_file)),
        ("tls-client-ca", FilePurpose::Authorities, service.clients.as_ref()),
    ];
    for (setting, purpose, path) in files {
        if let Some(path) = path {
            tls::check_file(purpose, path, certificate_file)
                .map_err(|error| Error::TlsSettings(format!("{error} ({setting})")))?;
        }
    }
    Ok(())
}
