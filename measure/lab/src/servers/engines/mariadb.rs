//! MariaDB: its accounts, its options, its queries.

use std::path::{Path, PathBuf};

use ciphertoll_host::programs::version_numbers;
use ciphertoll_model::{Auth, Engine, SecurityLevel, TlsPath};
use ciphertoll_wire::{Secret, mysql};

use super::mysql_family::SHARED_PROPERTIES;
use super::mysql_family::queries::{self, first_accounts, native_hash};
use super::mysql_family::variant::{CONTROL_USER, MySqlVariant};
use crate::at_rest::native::mariadb::FileKeyManagement;
use crate::error::Error;
use crate::servers::build::Build;
use crate::servers::control::{self, ControlLogin};
use crate::servers::engine::{EngineProperties, ServerDescription};
use crate::tls::support::{TlsServer, check_openssl, check_requested_start};

/// The first version with parsec.
const PARSEC_SINCE: [u32; 2] = [11, 6];

pub(super) struct MariaDb;

impl MySqlVariant for MariaDb {
    const PROPERTIES: EngineProperties = EngineProperties {
        engine: Engine::MariaDb,
        server_names: &["mariadbd", "mysqld"],
        install_names: &["mariadb-install-db", "mysql_install_db"],
        install_directories: &["bin", "scripts", "sbin"],
        parse_version,
        how_to_get: "install it (Debian and Ubuntu: the package mariadb-server-core) \
             or name its directory: mariadb=/opt/mariadb",
        native_encryption: Some(&FileKeyManagement),
        ..SHARED_PROPERTIES
    };
    const SECTION: &'static str = "mariadbd";
    const SETTINGS_QUERY: &'static str =
        "SELECT LOWER(variable_name), global_value FROM information_schema.system_variables";
    const RELOAD_CERTIFICATE: &'static str = "FLUSH SSL";
    const LOGIN_PLUGIN: mysql::Plugin = mysql::Plugin::NativePassword;

    fn check_auth(&self, auth: Auth, release: &str) -> Result<(), Error> {
        if auth != Auth::Parsec || version_numbers(release).as_slice() >= &PARSEC_SINCE[..] {
            return Ok(());
        }
        let [major, minor] = PARSEC_SINCE;
        let name = Engine::MariaDb.display_name();
        let reason = format!("{name} {release} has no {auth}: it requires {major}.{minor}");
        Err(Error::AuthUnavailable { auth: auth.to_string(), reason })
    }

    fn check_tls(&self, path: TlsPath, server: TlsServer<'_>) -> Result<(), Error> {
        check_requested_start(path.start, server)?;
        check_openssl(path, server)
    }

    fn install_arguments(&self, build: &Build, data: &Path, run: &Path) -> Vec<String> {
        let mut arguments = vec!["--no-defaults".to_owned()];
        // Without an option, the script of a distribution finds its own directories.
        if build.base_directory != Path::new("/usr") {
            arguments.push(format!("--basedir={}", build.base_directory.display()));
        }
        arguments.extend([
            format!("--datadir={}", data.display()),
            format!("--tmpdir={}", run.display()),
            "--skip-test-db".to_owned(),
            "--skip-name-resolve".to_owned(),
            "--auth-root-authentication-method=normal".to_owned(),
            // Otherwise the script fails on machines whose host name does not resolve.
            "--force".to_owned(),
        ]);
        arguments
    }

    fn options(&self, build: &Build) -> Vec<(&'static str, Option<String>)> {
        let base_directory = build.base_directory.display().to_string();
        // The feedback plugin must not report usage.
        vec![("basedir", Some(base_directory)), ("loose-feedback", Some("OFF".to_owned()))]
    }

    fn tls_versions(&self, strength: SecurityLevel) -> &'static str {
        match strength {
            SecurityLevel::Default | SecurityLevel::Weak => "TLSv1.2,TLSv1.3",
            SecurityLevel::Obsolete => "TLSv1.0,TLSv1.1,TLSv1.2,TLSv1.3",
        }
    }

    fn account_statements(&self, password: &Secret) -> Result<String, Error> {
        let plugins = format!("GRANT INSERT ON mysql.plugin TO '{CONTROL_USER}'@'localhost';\n");
        Ok(first_accounts(&identified_by_native(password), "RELOAD, PROCESS, CREATE USER") + &plugins)
    }

    fn identification(
        &self,
        control: &ControlLogin,
        auth: Auth,
        password: &Secret,
        server_name: &str,
    ) -> Result<String, Error> {
        match auth {
            Auth::Native => Ok(identified_by_native(password)),
            Auth::Trust | Auth::Cert => Ok("IDENTIFIED VIA mysql_native_password USING ''".to_owned()),
            Auth::Ed25519 | Auth::Parsec => {
                install_plugin(control, auth, server_name)?;
                // Only the server can compute the hash. The Unix socket is private, and statements are not logged.
                let password = String::from_utf8_lossy(password.expose());
                Ok(format!("IDENTIFIED VIA {auth} USING PASSWORD('{password}')"))
            }
            Auth::CachingSha2 | Auth::Scram { .. } | Auth::ScramSha1 | Auth::Md5 | Auth::AsAsked => {
                let reason = format!("{server_name} has no {auth}");
                Err(Error::AuthUnavailable { auth: auth.to_string(), reason })
            }
        }
    }

    fn describe(
        &self,
        control: &ControlLogin,
        scratch: &Path,
        _build: &Build,
    ) -> Result<ServerDescription, Error> {
        let doing = "read the server's version and settings";
        let mut client = control.connect()?;
        let identity = control::query(&mut client, doing, "SELECT VERSION(), @@version_ssl_library")?;
        let mut identity = identity.into_iter().flatten();
        let version = identity.next().unwrap_or_default();
        let tls_library =
            identity.next().map(|library| library.trim().to_owned()).filter(|library| !library.is_empty());
        let changed = "SELECT LOWER(variable_name), global_value FROM information_schema.system_variables \
             WHERE global_value_origin IN ('CONFIG', 'COMMAND-LINE') AND global_value <> default_value";
        let scratch = scratch.display().to_string();
        let mut settings = queries::pairs(control::query(&mut client, doing, changed)?);
        // One setting has a word before its path.
        settings.retain(|_, value| !value.contains(&scratch));
        Ok(ServerDescription { version, tls_library, settings })
    }
}

/// Contains a password hash only.
fn identified_by_native(password: &Secret) -> String {
    format!("IDENTIFIED VIA mysql_native_password USING '{}'", native_hash(password))
}

/// `10.11.19`, if the output is MariaDB's.
fn parse_version(text: &str) -> Option<String> {
    let (_, after) = text.split_once("Ver ")?;
    let word = after.split_ascii_whitespace().next()?;
    let (version, rest) = word.split_once('-')?;
    rest.contains("MariaDB").then(|| version.to_owned())
}

/// Makes the server load the authentication plugin, unless it is loaded.
fn install_plugin(control: &ControlLogin, auth: Auth, server_name: &str) -> Result<(), Error> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn account_statements_contain_no_password() {
        let statements = MariaDb.account_statements(&Secret::new(b"hunter2".to_vec())).unwrap();
        assert_eq!(statements.matches("'*58815970BE77B3720276F63DB198B1FA42E5CC02'").count(), 2);
        assert!(!statements.contains("hunter2"));
    }

    #[test]
    fn parsec_requires_11_6() {
        for release in ["11.6.1", "11.8.6", "12.0.2"] {
            assert!(MariaDb.check_auth(Auth::Parsec, release).is_ok(), "{release}");
        }
        for release in ["10.11.19", "11.4.3"] {
            let error = MariaDb.check_auth(Auth::Parsec, release).unwrap_err().to_string();
            assert_eq!(error, format!("MariaDB {release} has no parsec: it requires 11.6"));
        }
        assert!(MariaDb.check_auth(Auth::Ed25519, "10.11.19").is_ok());
    }
}
