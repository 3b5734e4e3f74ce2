//! Clients that come by TLS.

use ciphertoll_net::tls::{self, Acceptor, AcceptorSettings, FilePurpose, Identity};
use ciphertoll_net::{Accepted, Error, Peer};

use super::{ClientStage, Door, Proxy};
use crate::dialect::{Admission, Dialect, Front, Way};
use crate::log::Level;
use crate::settings::UnixAuth;
use crate::slab::Id;
use crate::upstream::{Expiry, expiry_of};

/// How clients are encrypted.
#[derive(Clone)]
pub(super) struct FrontTls {
    acceptor: Acceptor,
    admits: Admits,
    pub(super) expiries: Vec<Expiry>,
}

/// What lets a client in.
#[derive(Clone, Copy)]
enum Admits {
    Password,
    Certificate,
}

impl FrontTls {
    pub(super) fn read(service: &AcceptorSettings) -> Result<Self, Error> {
        check_files(service)?;
        let acceptor = Acceptor::build(service)?;
        let files = std::iter::once(&service.identity.certificate_file).chain(&service.clients);
        let expiries = files.filter_map(|file| expiry_of(file)).collect();
        let admits = if service.clients.is_some() { Admits::Certificate } else { Admits::Password };
        Ok(Self { acceptor, admits, expiries })
    }
}

/// Fails unless every file for clients' TLS can be used.
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

impl Door {
    /// What one who has come must do.
    pub(super) fn admission(&self, peer: Peer) -> Admission {
        match (peer, &self.tls) {
            (Peer::Process { uid, .. }, _) if !self.uids.allow(uid) => Admission::Denied { uid },
            (Peer::Process { .. }, _) => match self.unix_auth {
                UnixAuth::Peer => Admission::Granted,
                UnixAuth::Scram | UnixAuth::Password => Admission::PasswordByUnix,
            },
            (Peer::Address(_), Some(FrontTls { admits: Admits::Certificate, .. })) => Admission::Certificate,
            (Peer::Address(_), Some(FrontTls { admits: Admits::Password, .. })) => {
                Admission::PasswordByTcp(Way::Tls)
            }
            // Of whom the kernel says nothing, and no certificate, must know a password.
            (Peer::Address(_), None) => Admission::PasswordByTcp(Way::Plain),
        }
    }
}

impl<D: Dialect> Proxy<D> {
    /// A client was told that it may begin with TLS, or has begun.
    pub(super) fn begin_tls(&mut self, id: Id) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let Some(tls) = &self.door.tls else {
            return self.client_gone(id, "wants TLS, of which there is none");
        };
        if let Err(error) = client.channel.accept_tls(&tls.acceptor) {
            self.log.event(Level::Warn, "tls-failed", &[("client", &id.index), ("reason", &error)]);
            return self.client_gone(id, "could not be encrypted");
        }
        let stage = std::mem::replace(&mut client.stage, ClientStage::Flushing);
        if let ClientStage::Front(front) = stage {
            client.stage = ClientStage::Encrypting(front);
        }
        self.shake_hands(id);
    }

    /// Goes on with a client's handshake; behind it comes its start-up.
    pub(super) fn shake_hands(&mut self, id: Id) {
        let Some(client) = self.clients.get_mut(id) else { return };
        match client.channel.shake_hands() {
            Ok(Accepted::NeedInput) if client.channel.is_blocked() => {
                self.client_gone(id, "does not take answers");
            }
            Ok(Accepted::NeedInput) => {}
            Ok(Accepted::Done) => {
                let name = client.channel.peer_common_name();
                let stage = std::mem::replace(&mut client.stage, ClientStage::Flushing);
                if let ClientStage::Encrypting(mut front) = stage {
                    front.encrypted(name);
                    client.stage = ClientStage::Front(front);
                }
                self.step_front(id);
            }
            Err(error) => {
                self.log.event(Level::Info, "tls-failed", &[("client", &id.index), ("reason", &error)]);
                self.client_gone(id, "could not be encrypted");
            }
        }
    }
}
