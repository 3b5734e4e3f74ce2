//! Oracle's MySQL: its accounts, its options, its queries.

use std::path::{Path, PathBuf};

use ciphertoll_host::programs::version_numbers;
use ciphertoll_model::{Auth, Engine, SecurityLevel, TlsPath, TlsVersion};
use ciphertoll_wire::{Secret, mysql};

use super::mysql_family::SHARED_PROPERTIES;
use super::mysql_family::queries::{self, first_accounts, native_hash};
use super::mysql_family::variant::MySqlVariant;
use super::sha_crypt;
use crate::at_rest::native::mysql::KeyringFile;
use crate::error::Error;
use crate::servers::binary;
use crate::servers::build::Build;
use crate::servers::config::ListenAddress;
use crate::servers::control::{self, ControlLogin};
use crate::servers::engine::{EngineProperties, PreparedLogin, ServerDescription};
use crate::tls::support::{TlsServer, check_openssl, check_requested_start, unavailable};

/// The version that has `mysql_native_password` only if it is enabled.
const NATIVE_OPTIONAL: [u32; 2] = [8, 4];
/// The first version without it.
const NATIVE_REMOVED: [u32; 1] = [9];
/// The last MySQL seen without `ChaCha20` in its default suites of TLS 1.2.
const WITHOUT_CHACHA20: [u32; 3] = [8, 0, 33];
/// The first MySQL without TLS 1.0 and 1.1.
const WITHOUT_OLD_TLS: [u32; 3] = [8, 0, 28];

pub(super) struct MySql;

impl MySqlVariant for MySql {
    const PROPERTIES: EngineProperties = EngineProperties {
        engine: Engine::MySql,
        parse_version,
        how_to_get: "name the directory of an unpacked server: mysql=/opt/mysql",
        native_encryption: Some(&KeyringFile),
        ..SHARED_PROPERTIES
    };
    const SECTION: &'static str = "mysqld";
    const SETTINGS_QUERY: &'static str =
        "SELECT LOWER(variable_name), variable_value FROM performance_schema.global_variables";
    const RELOAD_CERTIFICATE: &'static str = "ALTER INSTANCE RELOAD TLS";
    const LOGIN_PLUGIN: mysql::Plugin = mysql::Plugin::CachingSha2Password;

    fn check_auth(&self, auth: Auth, release: &str) -> Result<(), Error> {
        if auth != Auth::Native || version_numbers(release).as_slice() < &NATIVE_REMOVED[..] {
            return Ok(());
        }
        let ([removed], name) = (NATIVE_REMOVED, Engine::MySql.display_name());
        let reason = format!("{name} {release} has no mysql_native_password: version {removed} removed it");
        Err(Error::AuthUnavailable { auth: auth.to_string(), reason })
    }

    fn check_tls(&self, path: TlsPath, server: TlsServer<'_>) -> Result<(), Error> {
        let (name, release) = (server.name, version_numbers(server.release));
        if path.parameters.version.is_forbidden() && release.as_slice() >= &WITHOUT_OLD_TLS[..] {
            let removed = WITHOUT_OLD_TLS.map(|number| number.to_string()).join(".");
            return Err(unavailable(format!(
                "{name} has no {}: {removed} removed it",
                path.parameters.version
            )));
        }
        let is_chacha20 = path.parameters.suite.is_some_and(|suite| suite.label().contains("CHACHA20"));
        if is_chacha20
            && path.parameters.version == TlsVersion::Tls12
            && release.as_slice() <= &WITHOUT_CHACHA20[..]
        {
            let reason = format!("{name} has no ChaCha20-Poly1305 in TLS 1.2 (its ssl_cipher lists none)");
            return Err(unavailable(reason));
        }
        check_requested_start(path.start, server)?;
        check_openssl(path, server)
    }

    /// There is no installer: the server creates its data directory.
    fn install_arguments(&self, build: &Build, data: &Path, run: &Path) -> Vec<String> {
        let mut arguments = vec!["--no-defaults".to_owned(), "--initialize-insecure".to_owned()];
        arguments.extend(self.options(build).into_iter().map(|(name, value)| match value {
            Some(value) => format!("--{name}={value}"),
            None => format!("--{name}"),
        }));
        arguments.extend([
            format!("--datadir={}", data.display()),
            format!("--tmpdir={}", run.display()),
            "--skip-log-bin".to_owned(),
        ]);
        arguments
    }

    fn options(&self, build: &Build) -> Vec<(&'static str, Option<String>)> {
        let text = |path: PathBuf| Some(path.display().to_string());
        let mut options: Vec<_> =
            directories(build).into_iter().map(|(name, path)| (name, text(path))).collect();
        options.extend([
            ("mysqlx", Some("OFF".to_owned())),
            ("secure-file-priv", Some("NULL".to_owned())),
            // A template contains no keys, and clients must not be offered unauthenticated ones.
            ("auto_generate_certs", Some("OFF".to_owned())),
            ("caching_sha2_password_auto_generate_rsa_keys", Some("OFF".to_owned())),
            // Deprecated; later versions may not have it.
            ("loose-sha256_password_auto_generate_rsa_keys", Some("OFF".to_owned())),
        ]);
        let version = version_numbers(&build.version);
        if version.starts_with(&NATIVE_OPTIONAL) {
            options.push(("mysql_native_password", Some("ON".to_owned())));
        }
        options
    }

    /// MySQL offers no TLS at all if the list contains a version that it does not have.
    fn tls_versions(&self, _strength: SecurityLevel) -> &'static str {
        "TLSv1.2,TLSv1.3"
    }

    fn account_statements(&self, password: &Secret) -> Result<String, Error> {
        // CONNECTION_ADMIN is required for reloading the certificate.
        let rights = "RELOAD, PROCESS, CREATE USER, CONNECTION_ADMIN";
        Ok(first_accounts(&identified_by_caching_sha2(password)?, rights))
    }

    fn identification(
        &self,
        _control: &ControlLogin,
        auth: Auth,
        password: &Secret,
        server_name: &str,
    ) -> Result<String, Error> {
        match auth {
            Auth::CachingSha2 => identified_by_caching_sha2(password),
            Auth::Native => {
                Ok(format!("IDENTIFIED WITH mysql_native_password AS '{}'", native_hash(password)))
            }
            // With an empty password, a login by this plugin takes no further steps.
            Auth::Trust | Auth::Cert => Ok("IDENTIFIED WITH caching_sha2_password BY ''".to_owned()),
            Auth::Ed25519
            | Auth::Parsec
            | Auth::Scram { .. }
            | Auth::ScramSha1
            | Auth::Md5
            | Auth::AsAsked => {
                let reason = format!("{server_name} has no {auth}");
                Err(Error::AuthUnavailable { auth: auth.to_string(), reason })
            }
        }
    }

    /// Logs in once by [`Auth::CachingSha2`], so that the server caches the password: the next logins are short. The cache is
    /// cleared whenever accounts change. Uses the Unix socket, where a full login needs no key, or TLS if the account requires
    /// a certificate.
    fn prepare_login(&self, login: PreparedLogin<'_>) -> Result<(), Error> {
        if login.credentials.auth != Auth::CachingSha2 {
            return Ok(());
        }
        if login.credentials.require_certificate() && login.listen == ListenAddress::Everywhere {
            let auth = login.credentials.auth.to_string();
            let reason =
                "with a client certificate, it cannot be prepared behind a simulated link".to_owned();
            return Err(Error::AuthUnavailable { auth, reason });
        }
        let (user, password) = (&login.account.user, login.password);
        let control = match &login.account.identity {
            None => ControlLogin::mysql(&login.socket, user, password),
            Some(identity) => {
                ControlLogin::mysql_over_tls(login.address, user, password, login.ca_file, identity)?
            }
        };
        control.connect().and_then(control::close)
    }

    /// The settings include all that the server was started with: MySQL does not report which differ from the defaults.
    fn describe(
        &self,
        control: &ControlLogin,
        scratch: &Path,
        build: &Build,
    ) -> Result<ServerDescription, Error> {
        let doing = "read the server's version and settings";
        let mut client = control.connect()?;
        let version = control::query(&mut client, doing, "SELECT VERSION()")?;
        let version = version.into_iter().flatten().next().unwrap_or_default();
        // Available from 8.0.30.
        let library = control::query(&mut client, doing, "SHOW GLOBAL STATUS LIKE 'Tls_library_version'")?;
        let library = library.into_iter().flatten().nth(1).map(|library| library.trim().to_owned());
        let tls_library = library
            .filter(|library| !library.is_empty())
            .or_else(|| binary::linked_tls_library(&build.server_program));
        let explicit = "SELECT LOWER(v.variable_name), v.variable_value FROM performance_schema.global_variables v \
             JOIN performance_schema.variables_info i ON i.variable_name = v.variable_name \
             WHERE i.variable_source IN ('EXPLICIT', 'COMMAND_LINE')";
        let mut settings = queries::pairs(control::query(&mut client, doing, explicit)?);
        settings.retain(|_, value| {
            let value = Path::new(value.as_str());
            !value.starts_with(scratch) && !value.starts_with(&build.base_directory)
        });
        Ok(ServerDescription { version, tls_library, settings })
    }
}

/// `8.0.33`, if the output is MySQL's.
fn parse_version(text: &str) -> Option<String> {
    let (_, after) = text.split_once("Ver ")?;
    let word = after.split_ascii_whitespace().next()?;
    // Packagers add a suffix after a dash.
    let version = word.split_once('-').map_or(word, |(version, _)| version);
    let is_version = version.starts_with(|first: char| first.is_ascii_digit());
    (is_version && !text.contains("MariaDB")).then(|| version.to_owned())
}

/// Contains a password hash only.
fn identified_by_caching_sha2(password: &Secret) -> Result<String, Error> {
    let hash = sha_crypt::hash(password.expose(), &sha_crypt::random_salt()?);
    Ok(format!("IDENTIFIED WITH caching_sha2_password AS '{}'", String::from_utf8_lossy(&hash)))
}

/// Directories of an unpacked build. A packaged build has them compiled in.
fn directories(build: &Build) -> Vec<(&'static str, PathBuf)> {
    let base = &build.base_directory;
    let share = base.join("share");
    let all = [
        ("lc-messages-dir", share.clone(), share.join("english")),
        ("character-sets-dir", share.join("charsets"), share.join("charsets")),
        ("plugin-dir", base.join("lib/plugin"), base.join("lib/plugin")),
    ];
    let here = all.into_iter().filter(|(_, _, marker)| marker.is_dir());
    [("basedir", base.clone())].into_iter().chain(here.map(|(name, path, _)| (name, path))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(version: &str, base_directory: PathBuf) -> Build {
        let program = base_directory.join("bin/mysqld");
        Build {
            engine: Engine::MySql,
            version: version.to_owned(),
            server_program: program.clone(),
            install_program: program,
            base_directory,
        }
    }

    #[test]
    fn account_statements_contain_no_password() {
        let statements = MySql.account_statements(&Secret::new(b"hunter2".to_vec())).unwrap();
        assert_eq!(statements.matches("caching_sha2_password AS '$A$005$").count(), 2);
        assert!(!statements.contains("hunter2"));
        assert_eq!(statements.lines().filter(|line| line.ends_with(';')).count(), 5, "one per line");
    }

    #[test]
    fn options_name_the_directories_that_exist() {
        let place = tempfile::tempdir().unwrap();
        let names =
            |build: &Build| -> Vec<&str> { directories(build).into_iter().map(|(name, _)| name).collect() };
        let of_package = build("8.0.46", place.path().to_owned());
        assert_eq!(names(&of_package), ["basedir"]);
        for directory in ["share/english", "share/charsets", "lib/plugin"] {
            std::fs::create_dir_all(place.path().join(directory)).unwrap();
        }
        assert_eq!(names(&of_package), ["basedir", "lc-messages-dir", "character-sets-dir", "plugin-dir"]);
    }

    #[test]
    fn version_9_has_no_native_password() {
        for release in ["8.0.33", "8.4.2"] {
            assert!(MySql.check_auth(Auth::Native, release).is_ok(), "{release}");
        }
        let error = MySql.check_auth(Auth::Native, "9.7.0").unwrap_err().to_string();
        assert_eq!(error, "MySQL 9.7.0 has no mysql_native_password: version 9 removed it");
        assert!(MySql.check_auth(Auth::CachingSha2, "9.7.0").is_ok());
        let enabled = |version| {
            let options = MySql.options(&build(version, "/opt/mysql".into()));
            options.iter().any(|(name, _)| *name == "mysql_native_password")
        };
        assert_eq!([enabled("8.0.33"), enabled("8.4.2"), enabled("9.7.0")], [false, true, false]);
    }
}
