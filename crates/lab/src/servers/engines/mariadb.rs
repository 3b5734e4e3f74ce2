//! What only MariaDB does: its accounts, how it is asked.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ciphertoll_model::{Auth, Engine};
use ciphertoll_wire::Secret;

use crate::control::{self, Control};
use crate::credentials::Credentials;
use crate::error::Error;
use crate::find::{Build, version_numbers};
use crate::mysql_family::{self, CERT_USER, CONTROL_USER, TRUST_USER, USER, first_accounts, native_hash};
use crate::server::{About, Unmet};

const ED25519_USER: &str = "ciphertoll_ed25519";
const PARSEC_USER: &str = "ciphertoll_parsec";
/// The first version that has parsec.
const PARSEC_SINCE: [u32; 2] = [11, 6];
const EMPTY_PASSWORD: &str = "IDENTIFIED VIA mysql_native_password USING ''";

/// What it is told beside what its family is told.
pub(crate) fn options(build: &Build) -> Vec<(&'static str, Option<String>)> {
    let base_directory = build.base_directory.display().to_string();
    // Never tells anybody that it ran.
    vec![("basedir", Some(base_directory)), ("loose-feedback", Some("OFF".to_owned()))]
}

/// The statements that make the first accounts, to be run before the first login.
pub(crate) fn account_statements(password: &Secret) -> String {
    let identified = format!("IDENTIFIED VIA mysql_native_password USING '{}'", native_hash(password));
    let plugins = format!("GRANT INSERT ON mysql.plugin TO '{CONTROL_USER}'@'localhost';\n");
    first_accounts(&identified, "RELOAD, PROCESS, CREATE USER") + &plugins
}

/// Its clients' certificates have it as their common name, too.
pub(crate) fn account_name(credentials: Credentials) -> String {
    let name = match credentials.auth {
        Auth::Trust => TRUST_USER,
        Auth::Ed25519 => ED25519_USER,
        Auth::Parsec => PARSEC_USER,
        Auth::Cert => CERT_USER,
        Auth::Native
        | Auth::CachingSha2
        | Auth::Scram { .. }
        | Auth::ScramSha1
        | Auth::Md5
        | Auth::AsAsked => USER,
    };
    format!("{name}{}", credentials.account_suffix())
}

/// Fails where a MariaDB of this version cannot have `auth`.
pub(crate) fn check_release(auth: Auth, release: &str) -> Result<(), Error> {
    if auth != Auth::Parsec || version_numbers(release).as_slice() >= &PARSEC_SINCE[..] {
        return Ok(());
    }
    let [major, minor] = PARSEC_SINCE;
    let name = Engine::MariaDb.display_name();
    let reason = format!("{name} {release} has no {auth}: it came with {major}.{minor}");
    Err(Error::AuthUnavailable { auth: auth.to_string(), reason })
}

/// Makes the account for these credentials; the one for [`Auth::Native`] is there from the start.
pub(crate) fn make_account(
    control: &Control,
    credentials: Credentials,
    password: &Secret,
    server_name: &str,
) -> Result<(), Error> {
    let auth = credentials.auth;
    let user = account_name(credentials);
    let how = match auth {
        Auth::Native if user == USER => return Ok(()),
        Auth::Native => format!("IDENTIFIED VIA mysql_native_password USING '{}'", native_hash(password)),
        Auth::Trust | Auth::Cert => EMPTY_PASSWORD.to_owned(),
        Auth::Ed25519 | Auth::Parsec => {
            install_plugin(control, auth, server_name)?;
            // Only the server can make what it stores. Nobody listens at the socket, nothing logs statements.
            let password = String::from_utf8_lossy(password.expose());
            format!("IDENTIFIED VIA {auth} USING PASSWORD('{password}')")
        }
        Auth::CachingSha2 | Auth::Scram { .. } | Auth::ScramSha1 | Auth::Md5 | Auth::AsAsked => {
            let reason = format!("{server_name} has no {auth}");
            return Err(Error::AuthUnavailable { auth: auth.to_string(), reason });
        }
    };
    mysql_family::make_account(control, credentials, &user, &how)
}

/// Makes the server load the plugin of this name, if it has not yet.
fn install_plugin(control: &Control, auth: Auth, server_name: &str) -> Result<(), Error> {
    let doing = "load a plugin";
    let mut client = control.connect()?;
    let active = "SELECT 1 FROM information_schema.plugins WHERE plugin_status = 'ACTIVE' AND plugin_name =";
    if !control::query(&mut client, doing, &format!("{active} '{auth}'"))?.is_empty() {
        return Ok(());
    }
    let directory = control::query(&mut client, doing, "SELECT @@plugin_dir")?;
    let directory = PathBuf::from(directory.into_iter().flatten().next().unwrap_or_default());
    if !directory.join(format!("auth_{auth}.so")).is_file() {
        let reason = format!(
            "{server_name} has no {auth}: its plugin auth_{auth}.so is not in {}; \
             install it (Debian and Ubuntu: the package mariadb-server)",
            directory.display()
        );
        return Err(Error::AuthUnavailable { auth: auth.to_string(), reason });
    }
    control::execute(&mut client, doing, &format!("INSTALL SONAME 'auth_{auth}'"))
}

pub(crate) fn reload_certificate(control: &Control) -> Result<(), Error> {
    control::execute(&mut control.connect()?, "make the server read its certificate", "FLUSH SSL")
}

/// What the server says of itself; values with `scratch` in them are left out.
pub(crate) fn ask(control: &Control, scratch: &Path) -> Result<About, Error> {
    let doing = "ask the server about itself";
    let mut client = control.connect()?;
    let identity = control::query(&mut client, doing, "SELECT VERSION(), @@version_ssl_library")?;
    let mut identity = identity.into_iter().flatten();
    let version = identity.next().unwrap_or_default();
    let tls_library =
        identity.next().map(|library| library.trim().to_owned()).filter(|library| !library.is_empty());
    let changed = "SELECT LOWER(variable_name), global_value FROM information_schema.system_variables \
         WHERE global_value_origin IN ('CONFIG', 'COMMAND-LINE') AND global_value <> default_value";
    let scratch = scratch.display().to_string();
    let mut settings = mysql_family::pairs(control::query(&mut client, doing, changed)?);
    // There is one that has a word before its path.
    settings.retain(|_, value| !value.contains(&scratch));
    Ok(About { version, tls_library, settings })
}

/// Those of `asked` that the server does not have as they were asked for.
pub(crate) fn unmet_settings(
    control: &Control,
    asked: &BTreeMap<String, String>,
) -> Result<Vec<Unmet>, Error> {
    let all = "SELECT LOWER(variable_name), global_value FROM information_schema.system_variables";
    mysql_family::unmet_settings(control, all, asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_the_accounts_has_no_password_in_it() {
        let statements = account_statements(&Secret::new(b"hunter2".to_vec()));
        assert_eq!(statements.matches("'*58815970BE77B3720276F63DB198B1FA42E5CC02'").count(), 2);
        assert!(!statements.contains("hunter2"));
    }

    #[test]
    fn parsec_came_with_11_6() {
        for release in ["11.6.1", "11.8.6", "12.0.2"] {
            assert!(check_release(Auth::Parsec, release).is_ok(), "{release}");
        }
        for release in ["10.11.19", "11.4.3"] {
            let error = check_release(Auth::Parsec, release).unwrap_err().to_string();
            assert_eq!(error, format!("MariaDB {release} has no parsec: it came with 11.6"));
        }
        assert!(check_release(Auth::Ed25519, "10.11.19").is_ok());
    }
}
