//! Certificates with ML-DSA keys, made by the program `openssl` 3.5: the bindings to OpenSSL cannot generate such keys.
//!
//! The whole chain has keys of this kind, the authority included, which exists for one chain. Its key is removed.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use ciphertoll_host::files::{self, PRIVATE_DIRECTORY};
use ciphertoll_host::user::RunAs;
use ciphertoll_model::ServerKey;
use ciphertoll_record::Context;

use super::certificates::{Certificate, NAME, VALID_DAYS};
use super::credentials::ServerCertificate;
use super::newer_openssl;
use crate::error::Error;

/// The program requires a file, even if everything is in its arguments.
const CONFIG: &str = "[req]\ndistinguished_name = name\n[name]\n";
const AUTHORITY: &str = "authority";
const SERVER: &str = "server";

/// A chain, and the authority that clients must trust.
pub(crate) struct MlDsaChain {
    pub(crate) authority_pem: Vec<u8>,
    pub(crate) server: Certificate,
}

/// Issues a certificate for this machine's loopback addresses and name, and for the addresses of links. `directory` is
/// private; the keys exist there while this runs.
pub(crate) fn issue(certificate: ServerCertificate, directory: &Path) -> Result<MlDsaChain, Error> {
    let program = newer_openssl::program()?;
    let place = directory.join("issuing");
    files::make_directory(&place, PRIVATE_DIRECTORY, RunAs::Ourselves)?;
    let issued = Issuer { program: &program, place: &place, key: certificate.key }.issue_chain(certificate);
    fs::remove_dir_all(&place).context("remove", &place)?;
    issued
}

struct Issuer<'a> {
    program: &'a Path,
    place: &'a Path,
    key: ServerKey,
}

impl Issuer<'_> {
    fn issue_chain(&self, certificate: ServerCertificate) -> Result<MlDsaChain, Error> {
        fs::write(self.place.join("config"), CONFIG).context("write", self.place)?;
        let further = certificate.intermediates();
        self.issue(AUTHORITY, NAME, None, &authority_extensions(further))?;
        let mut names = vec![AUTHORITY.to_owned()];
        for further in (0..further).rev() {
            let name = format!("intermediate{further}");
            let extensions = authority_extensions(further);
            self.issue(&name, &format!("{NAME} {further}"), names.last().map(String::as_str), &extensions)?;
            names.push(name);
        }
        self.issue(SERVER, "localhost", names.last().map(String::as_str), &server_extensions())?;
        let mut certificate_pem = self.read(&format!("{SERVER}.pem"))?;
        for name in names[1..].iter().rev() {
            certificate_pem.extend(self.read(&format!("{name}.pem"))?);
        }
        let server = Certificate { certificate_pem, key_pem: self.read(&format!("{SERVER}.key"))? };
        Ok(MlDsaChain { authority_pem: self.read(&format!("{AUTHORITY}.pem"))?, server })
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, Error> {
        let path = self.place.join(name);
        Ok(fs::read(&path).context("read", &path)?)
    }

    /// Makes `NAME.key` and `NAME.pem`, signed by `issuer`, or by itself.
    fn issue(
        &self,
        file: &str,
        name: &str,
        issuer: Option<&str>,
        extensions: &[String],
    ) -> Result<(), Error> {
        let (key, certificate) = (format!("{file}.key"), format!("{file}.pem"));
        // Labels are the algorithms without dashes, as in `mldsa65`.
        let algorithm = self.key.label().to_uppercase();
        self.run(&["genpkey", "-algorithm", &algorithm, "-out", &key])?;
        let (subject, days) = (format!("/CN={name}"), VALID_DAYS.to_string());
        let mut arguments = vec!["req", "-new", "-x509", "-config", "config", "-subj", &subject];
        arguments.extend(["-days", &days, "-key", &key, "-out", &certificate]);
        let signing = issuer.map(|issuer| [format!("{issuer}.pem"), format!("{issuer}.key")]);
        if let Some([certificate, key]) = &signing {
            arguments.extend(["-CA", certificate, "-CAkey", key]);
        }
        arguments.extend(extensions.iter().flat_map(|extension| ["-addext", extension]));
        self.run(&arguments)
    }

    fn run(&self, arguments: &[&str]) -> Result<(), Error> {
        let mut command = Command::new(self.program);
        command.args(arguments).current_dir(self.place).env_remove("OPENSSL_CONF").stdin(Stdio::null());
        let output = command.output().context("start", self.program)?;
        if output.status.success() {
            return Ok(());
        }
        let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(ciphertoll_host::Error::Program { program: self.program.to_owned(), reason }.into())
    }
}

fn authority_extensions(further: u8) -> Vec<String> {
    vec![
        format!("basicConstraints=critical,CA:TRUE,pathlen:{further}"),
        "keyUsage=critical,keyCertSign,cRLSign".to_owned(),
    ]
}

fn server_extensions() -> Vec<String> {
    let addresses = ciphertoll_link::SERVER.iter().map(|address| format!(",IP:{address}"));
    vec![
        "basicConstraints=critical,CA:FALSE".to_owned(),
        "keyUsage=critical,digitalSignature".to_owned(),
        "extendedKeyUsage=serverAuth".to_owned(),
        format!("subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1{}", addresses.collect::<String>()),
    ]
}
