//! TLS with clients.

use ciphertoll_net::tls::{self, Acceptor, AcceptorSettings, FilePurpose, Identity};
use ciphertoll_net::{Accepted, Error, Peer};

use super::{AccessRules, ClientStage, Worker};
use crate::client_auth::ClientAuth;
use crate::log::Level;
use crate::protocol::{Protocol, ProtocolHandshake};
use crate::settings::UnixAuth;
use crate::slab::Id;
use crate::upstream::{CertificateExpiry, expiry_of};

#[derive(Clone)]
pub(super) struct ClientTls {
    acceptor: Acceptor,
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

impl AccessRules {
    pub(super) fn auth_for(&self, peer: Peer) -> ClientAuth {
        match (peer, &self.tls) {
            (Peer::Process { uid, .. }, _) if !self.uids.allow(uid) => ClientAuth::Denied { uid },
            (Peer::Process { .. }, _) => match self.unix_auth {
                UnixAuth::Peer => ClientAuth::Granted,
                UnixAuth::Scram | UnixAuth::Password => ClientAuth::PasswordByUnix,
            },
            (Peer::Address(_), Some(tls)) => tls.auth,
            // Without a peer UID and without a certificate, the client must know a password.
            (Peer::Address(_), None) => ClientAuth::PasswordByTcp,
        }
    }
}

impl<P: Protocol> Worker<P> {
    pub(super) fn begin_tls(&mut self, id: Id) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let Some(tls) = &self.access.tls else {
            return self.close_client(id, "requested TLS, which is not offered");
        };
        if let Err(error) = client.channel.accept_tls(&tls.acceptor) {
            self.log.event(Level::Warn, "tls-failed", &[("client", &id.index), ("reason", &error)]);
            return self.close_client(id, "failed its TLS handshake");
        }
        let stage = std::mem::replace(&mut client.stage, ClientStage::Flushing);
        if let ClientStage::Handshake(handshake) = stage {
            client.stage = ClientStage::TlsHandshake(handshake);
        }
        self.continue_tls(id);
    }

    /// Continues a TLS handshake; the protocol's handshake follows.
    pub(super) fn continue_tls(&mut self, id: Id) {
        let Some(client) = self.clients.get_mut(id) else { return };
        match client.channel.shake_hands() {
            Ok(Accepted::NeedInput) if client.channel.is_blocked() => {
                self.close_client(id, "does not read responses");
            }
            Ok(Accepted::NeedInput) => {}
            Ok(Accepted::Done) => {
                let name = client.channel.peer_common_name();
                let stage = std::mem::replace(&mut client.stage, ClientStage::Flushing);
                if let ClientStage::TlsHandshake(mut handshake) = stage {
                    handshake.tls_established(name);
                    client.stage = ClientStage::Handshake(handshake);
                }
                self.step_handshake(id);
            }
            Err(error) => {
                self.log.event(Level::Info, "tls-failed", &[("client", &id.index), ("reason", &error)]);
                self.close_client(id, "failed its TLS handshake");
            }
        }
    }
}
