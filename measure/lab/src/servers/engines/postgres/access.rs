//! PostgreSQL's access rules and roles.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use ciphertoll_host::files::{self, PRIVATE_FILE, PUBLIC_FILE};
use ciphertoll_host::hex::hex;
use ciphertoll_host::user::RunAs;
use ciphertoll_model::{Auth, ClientCertificate};
use ciphertoll_net::blocking::Client;
use ciphertoll_record::Context;
use ciphertoll_wire::{Secret, scram};
use nix::unistd::{User, geteuid};
use openssl::hash::{MessageDigest, hash};

use crate::datasets::sysbench;
use crate::error::Error;
use crate::servers::config::{CLIENT_CA_FILE, CertificateRequest};
use crate::servers::control::{self, ControlLogin};
use crate::servers::directory::ServerDirectory;
use crate::tls::credentials::Credentials;

/// The superuser of control connections: only the user who runs us, over the Unix socket.
pub(super) const CONTROL_ROLE: &str = "ciphertoll";
/// The role for [`Auth::default_of`].
pub(super) const DEFAULT_ROLE: &str = "toll_scram_4096";
/// Group of the roles that log in by SCRAM: one access rule covers all iteration counts.
const SCRAM_GROUP: &str = "toll_scram";
/// The group of such roles that also require a client certificate.
const SCRAM_GROUP_MTLS: &str = "toll_scram_group_mtls";
const MD5_ROLE: &str = "toll_md5";
const TRUST_ROLE: &str = "toll_trust";
const CERT_ROLE: &str = "toll_cert";
const ACCESS_RULES: &str = "pg_hba.conf";

/// Writes the access rules, and the file that maps our user to the control role.
pub(crate) fn write_access_rules(directory: &ServerDirectory, owner: RunAs) -> Result<PathBuf, Error> {
    let path = directory.root.join(ACCESS_RULES);
    files::write(&path, access_rules().as_bytes(), PRIVATE_FILE, owner)?;
    let user = User::from_uid(geteuid()).ok().flatten();
    let name = user.map(|user| user.name).ok_or_else(|| {
        ciphertoll_host::Error::NoServerUser(format!(
            "PostgreSQL requires a user name, but the user id {} has none",
            geteuid()
        ))
    })?;
    let map = format!("lab \"{}\" {CONTROL_ROLE}\n", name.replace('"', "\"\""));
    files::write(&identity_map(&path), map.as_bytes(), PRIVATE_FILE, owner)?;
    Ok(path)
}

/// The user name map that belongs to the access rules.
pub(crate) fn identity_map(access_rules: &Path) -> PathBuf {
    access_rules.with_file_name("pg_ident.conf")
}

/// The configuration file that makes the server request client certificates; absent if it does not.
pub(crate) fn certificate_request_file(access_rules: &Path) -> PathBuf {
    access_rules.with_file_name("certificate-request.conf")
}

/// Addresses of clients: loopback, and the client ends of simulated links and VPNs.
const CLIENT_NETWORKS: [&str; 4] = ["127.0.0.0/8", "10.77.0.0/24", "10.78.0.0/24", "10.79.0.0/24"];

fn access_rules() -> String {
    let mut rules = format!("local all {CONTROL_ROLE} peer map=lab\n");
    let scram = format!("+{SCRAM_GROUP}");
    for (role, method) in [(TRUST_ROLE, "trust"), (MD5_ROLE, "md5"), (scram.as_str(), "scram-sha-256")] {
        // Writing to a string cannot fail.
        let _ = writeln!(rules, "local {} {role} {method}", sysbench::SCHEMA);
        for network in CLIENT_NETWORKS {
            let _ = writeln!(rules, "host {} {role} {network} {method}", sysbench::SCHEMA);
        }
    }
    let scram = format!("+{SCRAM_GROUP_MTLS}");
    let [trust, md5] = [TRUST_ROLE, MD5_ROLE].map(|role| format!("{role}_mtls"));
    for (role, method) in [
        (CERT_ROLE, "cert"),
        (&trust, "trust clientcert=verify-full"),
        (&md5, "md5 clientcert=verify-full"),
        (&scram, "scram-sha-256 clientcert=verify-full"),
    ] {
        for network in CLIENT_NETWORKS {
            let _ = writeln!(rules, "hostssl {} {role} {network} {method}", sysbench::SCHEMA);
        }
    }
    rules
}

/// Role name, which is also the common name of its client certificate.
pub(crate) fn role_name(credentials: Credentials) -> String {
    let role = match credentials.auth {
        Auth::Trust => TRUST_ROLE.to_owned(),
        Auth::Md5 => MD5_ROLE.to_owned(),
        // The client decides whether it uses channel binding.
        Auth::Scram { iterations, .. } => format!("{SCRAM_GROUP}_{}", iterations.number()),
        Auth::Cert => CERT_ROLE.to_owned(),
        // Not supported; `create_role` fails.
        auth @ (Auth::ScramSha1
        | Auth::Native
        | Auth::CachingSha2
        | Auth::Ed25519
        | Auth::Parsec
        | Auth::AsAsked) => {
            format!("toll_{auth}")
        }
    };
    format!("{role}{}", credentials.account_suffix())
}

/// Creates the role for `credentials`. Statements contain password verifiers only.
pub(crate) fn create_role(
    control: &ControlLogin,
    credentials: Credentials,
    password: &Secret,
) -> Result<(), Error> {
    let auth = credentials.auth;
    let role = role_name(credentials);
    let scram_group = match credentials.client_certificate {
        ClientCertificate::None => SCRAM_GROUP,
        ClientCertificate::Demanded => SCRAM_GROUP_MTLS,
    };
    let options = match auth {
        Auth::Trust | Auth::Cert => String::new(),
        Auth::Md5 => format!("PASSWORD '{}'", md5_verifier(password, &role)?),
        Auth::Scram { iterations, .. } => {
            let verifier = scram::Verifier::of(password.expose(), iterations.number())?.text();
            format!("PASSWORD '{}' IN ROLE {scram_group}", verifier.as_str())
        }
        Auth::ScramSha1 | Auth::Native | Auth::CachingSha2 | Auth::Ed25519 | Auth::Parsec | Auth::AsAsked => {
            let reason = format!("PostgreSQL has no {auth}");
            return Err(Error::AuthUnavailable { auth: auth.to_string(), reason });
        }
    };
    let mut client = control.connect()?;
    // One transaction, so that no role exists without its grants.
    let statements = format!(
        "CREATE ROLE {role} LOGIN {options}; GRANT ALL ON SCHEMA public TO {role}; \
         GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}; \
         GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {role}"
    );
    control::execute(&mut client, "create a role", &statements)
}

fn md5_verifier(password: &Secret, role: &str) -> Result<String, Error> {
    let digest = hash(MessageDigest::md5(), &[password.expose(), role.as_bytes()].concat())?;
    Ok(format!("md5{}", hex(&digest)))
}

/// Writes or removes [`certificate_request_file`]; the server must reload its configuration.
pub(crate) fn write_certificate_request(
    directory: &ServerDirectory,
    request: CertificateRequest,
) -> Result<(), Error> {
    let path = certificate_request_file(&directory.root.join(ACCESS_RULES));
    match request {
        CertificateRequest::Sent => {
            let authority = directory.root.join(CLIENT_CA_FILE).display().to_string().replace('\'', "''");
            let text = format!("ssl_ca_file = '{authority}'\n");
            Ok(files::write(&path, text.as_bytes(), PUBLIC_FILE, RunAs::Ourselves)?)
        }
        CertificateRequest::Omitted => Ok(std::fs::remove_file(&path).context("remove", &path)?),
    }
}

pub(crate) fn create_groups(client: &mut Client) -> Result<(), Error> {
    [SCRAM_GROUP, SCRAM_GROUP_MTLS].iter().try_for_each(|group| {
        control::execute(client, "create a group of roles", &format!("CREATE ROLE {group} NOLOGIN"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_tcp_only_client_roles_may_log_in() {
        let rules = access_rules();
        assert_eq!(rules.lines().count(), 4 + CLIENT_NETWORKS.len() * (4 + 3));
        let over_tcp: Vec<&str> = rules.lines().filter(|rule| rule.starts_with("host")).collect();
        let from = |rule: &str| CLIENT_NETWORKS.iter().any(|network| rule.contains(network));
        assert!(over_tcp.iter().all(|rule| rule.contains("toll_") && from(rule)), "{rules}");
        let with_certificate: Vec<&str> = rules.lines().filter(|rule| rule.starts_with("hostssl")).collect();
        assert!(with_certificate.contains(&"hostssl sbtest toll_cert 127.0.0.0/8 cert"), "{rules}");
        let mutual = with_certificate.iter().filter(|rule| rule.contains("_mtls"));
        let verified = mutual.filter(|rule| rule.ends_with(" clientcert=verify-full")).count();
        assert_eq!(verified, CLIENT_NETWORKS.len() * 3, "{rules}");
        assert!(rules.starts_with("local all ciphertoll peer map=lab\n"), "{rules}");
    }

    #[test]
    fn role_names_depend_on_the_stored_verifier() {
        let default = Auth::default_of(ciphertoll_model::Engine::Postgres);
        assert_eq!(role_name(default.into()), DEFAULT_ROLE);
        let bound: Auth = "scram-4096+plus".parse().unwrap();
        assert_eq!(role_name(bound.into()), DEFAULT_ROLE);
        let mutual = Credentials { auth: bound, client_certificate: ClientCertificate::Demanded };
        assert_eq!(role_name(mutual), "toll_scram_4096_mtls");
    }

    #[test]
    fn md5_is_of_password_and_role() {
        // SELECT 'md5' || md5('hunter2' || 'toll_md5')
        let verifier = md5_verifier(&Secret::new(b"hunter2".to_vec()), MD5_ROLE).unwrap();
        assert_eq!(verifier, "md56a2dce1e6482e3e0cebe523840fc25cf");
    }
}
