//! The directory of a server: data, sockets, certificates, passwords.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use ciphertoll_host::files::{self, PRIVATE_DIRECTORY, PRIVATE_FILE, PUBLIC_FILE};
use ciphertoll_host::storage;
use ciphertoll_host::user::RunAs;
use ciphertoll_model::{AtRest, Identity, SecurityLevel, Storage};
use ciphertoll_record::Context;
use ciphertoll_wire::Secret;

use crate::at_rest::mount::ENCRYPTED_DIRECTORY;
use crate::error::Error;
use crate::servers::config::{CA_FILE, CERTIFICATE_FILE, CLIENT_CA_FILE, COMBINED_FILE, KEY_FILE};
use crate::tls::certificates::{Authorities, Authority};
use crate::tls::credentials::ServerCertificate;
use crate::tls::ml_dsa;
use crate::workspace::Workspace;

/// Other users can open paths below the directory, but not list it.
pub(crate) const PASS_THROUGH: u32 = 0o711;
/// A link to the directory of the current certificate.
pub(crate) const CURRENT: &str = "current";

/// Groups that a server accepts in addition to its defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddedGroups {
    None,
    /// The server's OpenSSL must have them.
    MlKem,
}

/// Paths of a server's files, which are removed on drop. The server's user can write to `data` and `run` only, so that it
/// cannot interfere with our own files.
pub(crate) struct ServerDirectory {
    pub(crate) root: PathBuf,
    pub(crate) data: PathBuf,
    /// The stored form of the data: `data` itself, or the encrypted files below a mounted file system.
    pub(crate) stored: PathBuf,
    /// Mount point of the encrypting file system that contains `data`.
    pub(crate) clear: PathBuf,
    /// Contains `clear` and `stored`; only the server's user can enter it.
    pub(crate) gate: PathBuf,
    /// For the server's temporary files; encrypted like its data.
    pub(crate) temporary: PathBuf,
    /// Keys of a server that encrypts its own files.
    pub(crate) keys: PathBuf,
    /// Files that MySQL expects in the directory of its program.
    pub(crate) component: PathBuf,
    pub(crate) run: PathBuf,
    pub(crate) tls: PathBuf,
    pub(crate) password: PathBuf,
    pub(crate) no_password: PathBuf,
}

impl ServerDirectory {
    /// Creates the directory; on tmpfs, with a size of `bytes`.
    pub(crate) fn create(
        workspace: &Workspace,
        name: &str,
        at_rest: AtRest,
        bytes: u64,
    ) -> Result<Self, Error> {
        let Workspace { scratch, run_as, .. } = workspace;
        let mode = if *run_as == RunAs::Ourselves { PRIVATE_DIRECTORY } else { PASS_THROUGH };
        let root = scratch.make_directory(name, mode)?;
        match workspace.storage {
            Storage::Disk => {}
            Storage::Tmpfs => {
                storage::mount_tmpfs(scratch.ledger(), scratch.path(), &root, mode, bytes)?;
            }
        }
        let (run, gate) = (root.join("run"), root.join("gate"));
        let clear = gate.join("clear");
        let [data, stored, temporary] = match at_rest {
            AtRest::None | AtRest::AsIs | AtRest::Native | AtRest::Tde(_) => {
                [root.join("data"), root.join("data"), run.clone()]
            }
            AtRest::Gocryptfs => [clear.join("data"), gate.join("cipher"), clear.join("temporary")],
            AtRest::Fscrypt => {
                let files = clear.join(ENCRYPTED_DIRECTORY);
                [files.join("data"), gate.join("cipher"), files.join("temporary")]
            }
        };
        let directory = Self {
            data,
            stored,
            clear,
            gate,
            temporary,
            keys: root.join("keys"),
            component: root.join("component"),
            run,
            tls: root.join("tls"),
            password: root.join("password"),
            no_password: root.join("no-password"),
            root,
        };
        files::make_directory(&directory.run, PRIVATE_DIRECTORY, *run_as)?;
        files::make_directory(&directory.tls, mode, RunAs::Ourselves)?;
        Ok(directory)
    }

    /// Writes the CA of server certificates for clients, and the CA of client certificates for the server.
    pub(crate) fn write_authorities(&self, authorities: &Authorities) -> Result<(), Error> {
        let Authorities { servers, clients } = authorities;
        [(CA_FILE, servers), (CLIENT_CA_FILE, clients)].into_iter().try_for_each(|(name, authority)| {
            let certificate = authority.certificate_pem()?;
            Ok(files::write(&self.root.join(name), &certificate, PUBLIC_FILE, RunAs::Ourselves)?)
        })
    }

    /// Writes a certificate to its own directory, unless that exists.
    pub(crate) fn write_certificate(
        &self,
        authority: &Authority,
        certificate: ServerCertificate,
        run_as: RunAs,
    ) -> Result<(), Error> {
        let directory = self.tls.join(certificate.label());
        if directory.exists() {
            return Ok(());
        }
        let (certificate, own_pem) = if certificate.key.is_ml_dsa() {
            let chain = ml_dsa::issue(certificate, &self.root)?;
            (chain.server, Some(chain.authority_pem))
        } else {
            (authority.issue(certificate)?, None)
        };
        if let Some(pem) = own_pem {
            files::write(&own_authority(&directory), &pem, PUBLIC_FILE, RunAs::Ourselves)?;
        }
        files::make_directory(&directory, PRIVATE_DIRECTORY, run_as)?;
        let public = &certificate.certificate_pem;
        files::write(&directory.join(CERTIFICATE_FILE), public, PUBLIC_FILE, run_as)?;
        files::write(&directory.join(KEY_FILE), &certificate.key_pem, PRIVATE_FILE, run_as)?;
        let both = [&public[..], &certificate.key_pem[..]].concat();
        Ok(files::write(&directory.join(COMBINED_FILE), &both, PRIVATE_FILE, run_as)?)
    }

    /// The authority that clients must trust for this certificate.
    pub(crate) fn ca_file(&self, certificate: ServerCertificate) -> PathBuf {
        if certificate.key.is_ml_dsa() {
            own_authority(&self.tls.join(certificate.label()))
        } else {
            self.root.join(CA_FILE)
        }
    }

    /// Writes an OpenSSL configuration for one process, if it needs one: it accepts weaker keys than the default, and
    /// groups with ML-KEM that are not in the default list, after those of the list.
    pub(crate) fn write_openssl(
        &self,
        strength: SecurityLevel,
        groups: AddedGroups,
        run_as: RunAs,
    ) -> Result<Option<PathBuf>, Error> {
        let level = match strength {
            SecurityLevel::Default => None,
            SecurityLevel::Weak => Some("CipherString = DEFAULT:@SECLEVEL=1\n"),
            SecurityLevel::Obsolete => Some("CipherString = DEFAULT:@SECLEVEL=0\n"),
        };
        let groups = match groups {
            AddedGroups::None => None,
            AddedGroups::MlKem => {
                Some("Groups = DEFAULT:SecP256r1MLKEM768:MLKEM768:SecP384r1MLKEM1024:MLKEM1024\n")
            }
        };
        if level.is_none() && groups.is_none() {
            return Ok(None);
        }
        let lines = [level, groups].map(Option::unwrap_or_default).concat();
        let text =
            format!("openssl_conf = all\n[all]\nssl_conf = tls\n[tls]\nsystem_default = own\n[own]\n{lines}");
        let file = self.root.join("openssl.cnf");
        files::write(&file, text.as_bytes(), PUBLIC_FILE, run_as)?;
        Ok(Some(file))
    }

    pub(crate) fn client_identity(&self, user: &str) -> Identity {
        let file = |what: &str| self.root.join(format!("{user}-{what}.pem"));
        Identity { certificate_file: file("certificate"), key_file: file("key") }
    }

    pub(crate) fn write_client_identity(&self, authority: &Authority, user: &str) -> Result<(), Error> {
        let Identity { certificate_file, key_file } = &self.client_identity(user);
        let certificate = authority.issue_to_client(user)?;
        files::write(certificate_file, &certificate.certificate_pem, PRIVATE_FILE, RunAs::Ourselves)?;
        Ok(files::write(key_file, &certificate.key_pem, PRIVATE_FILE, RunAs::Ourselves)?)
    }

    pub(crate) fn write_passwords(&self, password: &Secret) -> Result<(), Error> {
        files::write(&self.password, password.expose(), PRIVATE_FILE, RunAs::Ourselves)?;
        Ok(files::write(&self.no_password, &[], PRIVATE_FILE, RunAs::Ourselves)?)
    }

    pub(crate) fn read_password(&self) -> Result<Secret, Error> {
        Ok(Secret::new(fs::read(&self.password).context("read", &self.password)?))
    }

    pub(crate) fn remove(&self) -> Result<(), Error> {
        ciphertoll_record::unmount(&self.root)?;
        Ok(fs::remove_dir_all(&self.root).context("remove", &self.root)?)
    }

    /// Switches to a certificate atomically, so that a server never reads a certificate and the key of another.
    pub(crate) fn select_certificate(&self, certificate: ServerCertificate) -> Result<(), Error> {
        let next = self.tls.join("next");
        symlink(certificate.label(), &next).context("make", &next)?;
        Ok(fs::rename(&next, self.tls.join(CURRENT)).context("swap", &next)?)
    }
}

/// The file of the authority that exists for one certificate only.
fn own_authority(certificate: &Path) -> PathBuf {
    certificate.with_extension(CA_FILE)
}

impl Drop for ServerDirectory {
    fn drop(&mut self) {
        // Files that cannot be removed now are removed with the scratch directory.
        let _ = self.remove();
    }
}
