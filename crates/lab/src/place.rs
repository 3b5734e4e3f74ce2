//! Where the files of a server are: data, sockets, certificates, passwords.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use ciphertoll_model::{AtRest, Identity, SecurityLevel, Storage};
use ciphertoll_wire::Secret;

use crate::at_rest::FILES;
use crate::certificates::{Authorities, Authority};
use crate::config::{BOTH_FILE, CA_FILE, CERTIFICATE_FILE, CLIENT_CA_FILE, KEY_FILE};
use crate::credentials::ServerCertificate;
use crate::error::{Context, Error};
use crate::files::{self, PRIVATE_DIRECTORY, PRIVATE_FILE, PUBLIC_FILE};
use crate::lab::Lab;
use crate::storage;
use crate::user::RunAs;

/// Others pass through to their own directories in it, and see none of the names.
const PASS_THROUGH: u32 = 0o711;
/// Points to the directory of the certificate in use.
pub(crate) const CURRENT: &str = "current";

/// Where a server's files are; gone when dropped. Only `data` and `run` can be written to by the
/// server's user, so that it can put nothing in our way.
pub(crate) struct Place {
    pub(crate) root: PathBuf,
    pub(crate) data: PathBuf,
    /// What of the data really lies on the disk: the same, unless something is in between.
    pub(crate) stored: PathBuf,
    /// Where a file system is mounted that `data` is in, if one is.
    pub(crate) clear: PathBuf,
    /// What that and `stored` are in then.
    pub(crate) gate: PathBuf,
    /// For what the server needs for a moment only; as safe as its data are.
    pub(crate) temporary: PathBuf,
    /// For what it encrypts its own files with.
    pub(crate) keys: PathBuf,
    /// For what it looks for beside its program.
    pub(crate) component: PathBuf,
    pub(crate) run: PathBuf,
    pub(crate) tls: PathBuf,
    pub(crate) password: PathBuf,
    pub(crate) no_password: PathBuf,
}

impl Place {
    /// With room for `bytes`, where it is to be in memory.
    pub(crate) fn make(lab: &Lab, name: &str, at_rest: AtRest, bytes: u64) -> Result<Self, Error> {
        let mode = if lab.run_as == RunAs::Ourselves { PRIVATE_DIRECTORY } else { PASS_THROUGH };
        let root = lab.scratch.make_directory(name, mode)?;
        match lab.storage {
            Storage::Disk => {}
            Storage::Tmpfs => {
                storage::mount_memory(lab.scratch.ledger(), lab.scratch.path(), &root, mode, bytes)?;
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
                let files = clear.join(FILES);
                [files.join("data"), gate.join("cipher"), files.join("temporary")]
            }
        };
        let place = Self {
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
        files::make_directory(&place.run, PRIVATE_DIRECTORY, lab.run_as)?;
        files::make_directory(&place.tls, mode, RunAs::Ourselves)?;
        Ok(place)
    }

    /// The authority of servers, for clients to trust, and the other way round.
    pub(crate) fn write_authorities(&self, authorities: &Authorities) -> Result<(), Error> {
        let Authorities { servers, clients } = authorities;
        [(CA_FILE, servers), (CLIENT_CA_FILE, clients)].into_iter().try_for_each(|(name, authority)| {
            let certificate = authority.certificate_pem()?;
            files::write(&self.root.join(name), &certificate, PUBLIC_FILE, RunAs::Ourselves)
        })
    }

    /// The certificate in a directory of its own; once it is there, nothing is done.
    pub(crate) fn write_certificate(
        &self,
        authority: &Authority,
        wanted: ServerCertificate,
        run_as: RunAs,
    ) -> Result<(), Error> {
        let directory = self.tls.join(wanted.label());
        if directory.exists() {
            return Ok(());
        }
        let certificate = authority.issue(wanted)?;
        files::make_directory(&directory, PRIVATE_DIRECTORY, run_as)?;
        let public = &certificate.certificate_pem;
        files::write(&directory.join(CERTIFICATE_FILE), public, PUBLIC_FILE, run_as)?;
        files::write(&directory.join(KEY_FILE), &certificate.key_pem, PRIVATE_FILE, run_as)?;
        let both = [&public[..], &certificate.key_pem[..]].concat();
        files::write(&directory.join(BOTH_FILE), &both, PRIVATE_FILE, run_as)
    }

    /// Settings for an OpenSSL that takes what is weaker than its default; of one process, never of the system.
    pub(crate) fn write_openssl(
        &self,
        strength: SecurityLevel,
        run_as: RunAs,
    ) -> Result<Option<PathBuf>, Error> {
        let level = match strength {
            SecurityLevel::Default => return Ok(None),
            SecurityLevel::Weak => 1,
            SecurityLevel::Obsolete => 0,
        };
        let text = format!(
            "openssl_conf = all\n[all]\nssl_conf = tls\n[tls]\nsystem_default = weak\n\
             [weak]\nCipherString = DEFAULT:@SECLEVEL={level}\n"
        );
        let file = self.root.join("openssl.cnf");
        files::write(&file, text.as_bytes(), PUBLIC_FILE, run_as)?;
        Ok(Some(file))
    }

    /// Where the certificate of the account `user` is.
    pub(crate) fn client_identity(&self, user: &str) -> Identity {
        let file = |what: &str| self.root.join(format!("{user}-{what}.pem"));
        Identity { certificate_file: file("certificate"), key_file: file("key") }
    }

    /// The certificate of the account `user`, for clients that prove by it who they are.
    pub(crate) fn write_client_identity(&self, authority: &Authority, user: &str) -> Result<(), Error> {
        let Identity { certificate_file, key_file } = &self.client_identity(user);
        let certificate = authority.issue_to_client(user)?;
        files::write(certificate_file, &certificate.certificate_pem, PRIVATE_FILE, RunAs::Ourselves)?;
        files::write(key_file, &certificate.key_pem, PRIVATE_FILE, RunAs::Ourselves)
    }

    pub(crate) fn write_passwords(&self, password: &Secret) -> Result<(), Error> {
        files::write(&self.password, password.expose(), PRIVATE_FILE, RunAs::Ourselves)?;
        files::write(&self.no_password, &[], PRIVATE_FILE, RunAs::Ourselves)
    }

    pub(crate) fn read_password(&self) -> Result<Secret, Error> {
        Ok(Secret::new(fs::read(&self.password).context("read", &self.password)?))
    }

    pub(crate) fn remove(&self) -> Result<(), Error> {
        storage::release(&self.root)?;
        fs::remove_dir_all(&self.root).context("remove", &self.root)
    }

    /// Swaps certificate and key in one step: a server that reads them meanwhile sees no mixed pair.
    pub(crate) fn point_to(&self, certificate: ServerCertificate) -> Result<(), Error> {
        let next = self.tls.join("next");
        symlink(certificate.label(), &next).context("make", &next)?;
        fs::rename(&next, self.tls.join(CURRENT)).context("swap", &next)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What cannot be removed now goes with the scratch directory.
        let _ = self.remove();
    }
}
