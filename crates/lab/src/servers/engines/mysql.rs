//! What only Oracle's MySQL does: its directories, its accounts, how it is asked.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use ciphertoll_model::{Auth, Engine};
use ciphertoll_wire::Secret;

use crate::control::{self, Control};
use crate::credentials::Credentials;
use crate::error::Error;
use crate::find::{Build, version_numbers};
use crate::mysql_family::{self, CERT_USER, TRUST_USER, USER, first_accounts, native_hash};
use crate::server::{About, Account, Unmet};
use crate::sha_crypt;

const NATIVE_USER: &str = "ciphertoll_native";
/// The version that has `mysql_native_password` only where it is asked for, and the first that has not.
const NATIVE_ASKED_FOR: [u32; 2] = [8, 4];
const NATIVE_GONE: [u32; 1] = [9];
/// The beginning of what this plugin stores, and no login needs anything of it.
const EMPTY_PASSWORD: &str = "IDENTIFIED WITH caching_sha2_password BY ''";

/// Where a build that was unpacked somewhere has its files. One from a package has been told when it was made.
fn directories(build: &Build) -> Vec<(&'static str, PathBuf)> {
    let base = &build.base_directory;
    let share = base.join("share");
    let all = [
        ("lc-messages-dir", share.clone(), share.join("english")),
        ("character-sets-dir", share.join("charsets"), share.join("charsets")),
        ("plugin-dir", base.join("lib/plugin"), base.join("lib/plugin")),
    ];
    let here = all.into_iter().filter(|(_, _, mark)| mark.is_dir());
    [("basedir", base.clone())].into_iter().chain(here.map(|(name, path, _)| (name, path))).collect()
}

/// What every server process of `build` is told, beside what those of its family are.
pub(crate) fn options(build: &Build) -> Vec<(&'static str, Option<String>)> {
    let text = |path: PathBuf| Some(path.display().to_string());
    let mut options: Vec<_> = directories(build).into_iter().map(|(name, path)| (name, text(path))).collect();
    options.extend([
        ("mysqlx", Some("OFF".to_owned())),
        ("secure-file-priv", Some("NULL".to_owned())),
        // A template has no keys in it, and clients are not to be offered one that nobody vouches for.
        ("auto_generate_certs", Some("OFF".to_owned())),
        ("caching_sha2_password_auto_generate_rsa_keys", Some("OFF".to_owned())),
        // Gone one day.
        ("loose-sha256_password_auto_generate_rsa_keys", Some("OFF".to_owned())),
    ]);
    let version = version_numbers(&build.version);
    if version.starts_with(&NATIVE_ASKED_FOR) {
        options.push(("mysql_native_password", Some("ON".to_owned())));
    }
    options
}

/// There is no installer: the server makes its own data directory.
pub(crate) fn install_arguments(build: &Build, data: &Path, run: &Path) -> Vec<String> {
    let mut arguments = vec!["--no-defaults".to_owned(), "--initialize-insecure".to_owned()];
    arguments.extend(options(build).into_iter().map(|(name, value)| match value {
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

/// The statements that make the first accounts, to be run before the first login.
pub(crate) fn account_statements(password: &Secret) -> Result<String, Error> {
    // The last is for its certificate to be read again.
    Ok(first_accounts(&by_caching_sha2(password)?, "RELOAD, PROCESS, CREATE USER, CONNECTION_ADMIN"))
}

/// There is no password in it, only what the server stores of one.
fn by_caching_sha2(password: &Secret) -> Result<String, Error> {
    let stored = sha_crypt::stored(password.expose(), &sha_crypt::random_salt()?);
    Ok(format!("IDENTIFIED WITH caching_sha2_password AS '{}'", String::from_utf8_lossy(&stored)))
}

/// Its clients' certificates have it as their common name, too.
pub(crate) fn account_name(credentials: Credentials) -> String {
    let name = match credentials.auth {
        Auth::Trust => TRUST_USER,
        Auth::Native => NATIVE_USER,
        Auth::Cert => CERT_USER,
        Auth::CachingSha2
        | Auth::Ed25519
        | Auth::Parsec
        | Auth::Scram { .. }
        | Auth::ScramSha1
        | Auth::Md5
        | Auth::AsAsked => USER,
    };
    format!("{name}{}", credentials.account_suffix())
}

/// Fails where a MySQL of this version cannot have `auth`.
pub(crate) fn check_release(auth: Auth, release: &str) -> Result<(), Error> {
    if auth != Auth::Native || version_numbers(release).as_slice() < &NATIVE_GONE[..] {
        return Ok(());
    }
    let ([gone], name) = (NATIVE_GONE, Engine::MySql.display_name());
    let reason = format!("{name} {release} has no mysql_native_password: it went with version {gone}");
    Err(Error::AuthUnavailable { auth: auth.to_string(), reason })
}

/// Makes the account for these credentials; the one for [`Auth::CachingSha2`] is there from the start.
pub(crate) fn make_account(
    control: &Control,
    credentials: Credentials,
    password: &Secret,
    server_name: &str,
) -> Result<(), Error> {
    let user = account_name(credentials);
    let identified = match credentials.auth {
        Auth::CachingSha2 if user == USER => return Ok(()),
        Auth::CachingSha2 => by_caching_sha2(password)?,
        Auth::Native => {
            format!("IDENTIFIED WITH mysql_native_password AS '{}'", native_hash(password))
        }
        Auth::Trust | Auth::Cert => EMPTY_PASSWORD.to_owned(),
        auth @ (Auth::Ed25519
        | Auth::Parsec
        | Auth::Scram { .. }
        | Auth::ScramSha1
        | Auth::Md5
        | Auth::AsAsked) => {
            let reason = format!("{server_name} has no {auth}");
            return Err(Error::AuthUnavailable { auth: auth.to_string(), reason });
        }
    };
    mysql_family::make_account(control, credentials, &user, &identified)
}

/// A login by [`Auth::CachingSha2`], and the two ways that it may take.
pub(crate) struct Visit {
    pub(crate) socket: PathBuf,
    pub(crate) address: SocketAddr,
    pub(crate) account: Account,
    pub(crate) ca_file: PathBuf,
}

/// Has the server remember the account for [`Auth::CachingSha2`], as it does from a full login on until accounts change:
/// over the unix socket, where that takes no key; by TLS, where the account demands a certificate.
pub(crate) fn warm(visit: Visit, password: Secret) -> Result<(), Error> {
    let Visit { socket, address, account, ca_file } = visit;
    match account.identity {
        None => Control::mysql(&socket, &account.user, password),
        Some(identity) => Control::mysql_by_tls(address, &account.user, password, &ca_file, &identity)?,
    }
    .connect()
    .and_then(control::close)
}

pub(crate) fn reload_certificate(control: &Control) -> Result<(), Error> {
    let doing = "make the server read its certificate";
    control::execute(&mut control.connect()?, doing, "ALTER INSTANCE RELOAD TLS")
}

/// What the server says of itself; values that begin with `scratch` or where `build` lies are left out. It does not tell
/// its own choices: all that it was told is there.
pub(crate) fn ask(control: &Control, scratch: &Path, build: &Build) -> Result<About, Error> {
    let doing = "ask the server about itself";
    let mut client = control.connect()?;
    let version = control::query(&mut client, doing, "SELECT VERSION()")?;
    let version = version.into_iter().flatten().next().unwrap_or_default();
    // From 8.0.30 on.
    let library = control::query(&mut client, doing, "SHOW GLOBAL STATUS LIKE 'Tls_library_version'")?;
    let library = library.into_iter().flatten().nth(1).map(|library| library.trim().to_owned());
    let tls_library = library.filter(|library| !library.is_empty()).or_else(|| build.tls_library());
    let told = "SELECT LOWER(v.variable_name), v.variable_value FROM performance_schema.global_variables v \
         JOIN performance_schema.variables_info i ON i.variable_name = v.variable_name \
         WHERE i.variable_source IN ('EXPLICIT', 'COMMAND_LINE')";
    let mut settings = mysql_family::pairs(control::query(&mut client, doing, told)?);
    settings.retain(|_, value| {
        !Path::new(value.as_str()).starts_with(scratch)
            && !Path::new(value.as_str()).starts_with(&build.base_directory)
    });
    Ok(About { version, tls_library, settings })
}

/// Those of `asked` that the server does not have as they were asked for.
pub(crate) fn unmet_settings(
    control: &Control,
    asked: &BTreeMap<String, String>,
) -> Result<Vec<Unmet>, Error> {
    let all = "SELECT LOWER(variable_name), variable_value FROM performance_schema.global_variables";
    mysql_family::unmet_settings(control, all, asked)
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
    fn what_makes_the_accounts_has_no_password_in_it() {
        let statements = account_statements(&Secret::new(b"hunter2".to_vec())).unwrap();
        assert_eq!(statements.matches("caching_sha2_password AS '$A$005$").count(), 2);
        assert!(!statements.contains("hunter2"));
        assert_eq!(statements.lines().filter(|line| line.ends_with(';')).count(), 5, "one a line");
    }

    #[test]
    fn directories_are_told_where_they_are() {
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
    fn native_went_with_9() {
        for release in ["8.0.33", "8.4.2"] {
            assert!(check_release(Auth::Native, release).is_ok(), "{release}");
        }
        let error = check_release(Auth::Native, "9.7.0").unwrap_err().to_string();
        assert_eq!(error, "MySQL 9.7.0 has no mysql_native_password: it went with version 9");
        assert!(check_release(Auth::CachingSha2, "9.7.0").is_ok());
        let asked_for = |version| {
            let options = options(&build(version, "/opt/mysql".into()));
            options.iter().any(|(name, _)| *name == "mysql_native_password")
        };
        assert_eq!([asked_for("8.0.33"), asked_for("8.4.2"), asked_for("9.7.0")], [false, true, false]);
    }
}
