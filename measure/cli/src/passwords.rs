//! Passwords for servers at URLs: from an environment variable, a password file of the engine's own clients, or a prompt.
//! No argument takes a password. A password within a URL is accepted with a warning.

use std::env;
use std::fs;
use std::io::IsTerminal;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ciphertoll_lab::Passwords;
use ciphertoll_model::{Engine, ExitCode, LoginMechanism, ServerLevel, ServerUrl, UrlPlace};
use ciphertoll_wire::Secret;
use ciphertoll_wire::postgres::password_file::{self, PasswordQuery, PasswordServer};
use console::Term;

use self::option_files::OTHERS;
use crate::failure::Failure;
use crate::progress::tell;

mod option_files;

/// Applies to all servers at URLs; with the suffix `_NAME`, to one.
const VARIABLE: &str = "CIPHERTOLL_PASSWORD";

/// Adds to `given` the passwords of those `servers` that have a URL.
pub(crate) fn gather<'a>(
    servers: impl IntoIterator<Item = &'a ServerLevel>,
    given: Passwords,
) -> Result<Passwords, Failure> {
    let mut passwords = given;
    for server in servers {
        let name = server.short_name();
        if let Some(url) = &server.url
            && !passwords.contains_key(&name)
            && let Some(password) = find(&name, url)?
        {
            passwords.insert(name, password);
        }
    }
    Ok(passwords)
}

/// Returns `None` if the server is to be tried without a password.
fn find(name: &str, url: &ServerUrl) -> Result<Option<Secret>, Failure> {
    if !needs_password(url) {
        return Ok(None);
    }
    if let Some(value) = variables(name, url).iter().find_map(env::var_os) {
        return Ok(Some(Secret::new(value.into_encoded_bytes())));
    }
    if let Some(password) = from_file(url) {
        return Ok(Some(password));
    }
    let terminal = Term::stderr();
    if !(terminal.is_term() && std::io::stdin().is_terminal()) {
        return Ok(None);
    }
    tell(&format!("Password of {} at {name} (empty: none):", url.user));
    let line = terminal.read_secure_line();
    let line = line.map_err(|error| {
        Failure::new(ExitCode::HostResource, format!("cannot read the password: {error}"))
    })?;
    Ok(Some(Secret::new(line.into_bytes())))
}

/// The environment variables that may hold the password, in order of precedence.
fn variables(name: &str, url: &ServerUrl) -> Vec<String> {
    let own = format!("{VARIABLE}_{}", as_variable(name));
    let engines = of_clients(url.engine()).map(|[variable, ..]| variable.to_owned());
    [own, VARIABLE.to_owned()].into_iter().chain(engines).collect()
}

/// Where the engine's own clients find a password: in a variable, or in a file that a variable names, or in a file in
/// the home directory. `None` if they read no such variable or file.
fn of_clients(engine: Engine) -> Option<[&'static str; 3]> {
    match engine {
        Engine::Postgres => Some(["PGPASSWORD", "PGPASSFILE", ".pgpass"]),
        Engine::MariaDb | Engine::MySql => Some(["MYSQL_PWD", "MYSQL_DEFAULTS_FILE", ".my.cnf"]),
        Engine::MongoDb | Engine::FerretDb => None,
    }
}

/// Names of all variables and files that may hold the password, for an error message.
pub(crate) fn sources(name: &str, url: &ServerUrl) -> String {
    let files = of_clients(url.engine()).map(|[_, variable, file]| format!("{variable}, ~/{file}"));
    variables(name, url).into_iter().chain(files).collect::<Vec<_>>().join(", ")
}

/// Whether the login sends a password.
pub(crate) fn needs_password(url: &ServerUrl) -> bool {
    match url.documents.as_deref().map(|documents| documents.login.mechanism) {
        Some(LoginMechanism::None | LoginMechanism::X509) => false,
        Some(LoginMechanism::Negotiated | LoginMechanism::ScramSha256 | LoginMechanism::ScramSha1) | None => {
            true
        }
    }
}

/// Upper case, with `_` for characters that a variable's name cannot contain.
fn as_variable(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}

/// Reads the password file of the engine's own clients.
fn from_file(url: &ServerUrl) -> Option<Secret> {
    let [_, variable, file] = of_clients(url.engine())?;
    let path = match env::var_os(variable) {
        Some(path) => PathBuf::from(path),
        None => PathBuf::from(env::var_os("HOME")?).join(file),
    };
    let bytes = read_private(&path)?;
    let password = match url.engine() {
        Engine::Postgres => from_pgpass(&bytes, url),
        engine => option_files::password(engine, &path, &bytes),
    };
    password.map(Secret::new)
}

/// Ignores a file that others can read, with a warning, as libpq does.
fn read_private(path: &Path) -> Option<Vec<u8>> {
    let metadata = fs::metadata(path).ok()?;
    // `/dev/null` means no file. Reading a pipe could block.
    if !metadata.is_file() {
        return None;
    }
    if metadata.mode() & OTHERS != 0 {
        tell(&format!("{} is ignored because others can read it; run chmod 600 on it", path.display()));
        return None;
    }
    match fs::read(path) {
        Ok(bytes) => Some(bytes),
        Err(error) => {
            tell(&format!("{} is ignored because it cannot be read: {error}", path.display()));
            None
        }
    }
}

/// As libpq reads it, but one password is for all hosts of a URL: if they have different ones, none is used, as no host may
/// learn that of another.
fn from_pgpass(file: &[u8], url: &ServerUrl) -> Option<Vec<u8>> {
    let hosts = if url.hosts.is_empty() { std::slice::from_ref(url) } else { &url.hosts };
    let mut found = hosts.iter().map(|host| of_one_host(file, host));
    let first = found.next()?;
    found.all(|other| other == first).then_some(first)?
}

fn of_one_host(file: &[u8], url: &ServerUrl) -> Option<Vec<u8>> {
    let server = match &url.place {
        UrlPlace::Host { host, port } => PasswordServer::Host { name: host, port: *port },
        UrlPlace::Socket(path) => PasswordServer::Socket(path),
    };
    let database = url.database.as_ref().unwrap_or(&url.user);
    password_file::find_password(file, &PasswordQuery { server, database, user: &url.user })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> ServerUrl {
        text.parse().unwrap()
    }

    #[test]
    fn the_first_matching_line_of_pgpass_has_the_password() {
        let file = b"caf\xe9:5432:shop:app:no\ndb.example:*:shop:app:pa\\:ss\\\\word\xff:more\n*:*:*:*:all\n";
        let of = |text: &str| from_pgpass(file, &url(text));
        assert_eq!(of("postgres://app@db.example/shop").as_deref(), Some(&b"pa:ss\\word\xff"[..]));
        assert_eq!(of("postgres://app@else/shop").as_deref(), Some(&b"all"[..]));
        assert_eq!(from_pgpass(b"db.example:5432:shop:app", &url("postgres://app@db.example/shop")), None);
        let socket = url("postgres://app@localhost/shop?host=/run/pg");
        let by_directory = from_pgpass(b"localhost:5432:shop:app:no\n/run/pg:5432:shop:app:x", &socket);
        assert_eq!(by_directory.as_deref(), Some(&b"x"[..]));
        let of_hosts = |file: &[u8]| from_pgpass(file, &url("postgres://app@one,two:6000/shop"));
        assert_eq!(of_hosts(b"one:*:*:*:x\ntwo:6000:*:*:x").as_deref(), Some(&b"x"[..]));
        assert_eq!(of_hosts(b"one:*:*:*:x\ntwo:6000:*:*:y"), None, "no host learns that of another");
        assert_eq!(of_hosts(b"one:*:*:*:x"), None);
    }

    #[test]
    fn no_password_is_needed_for_logins_without_one() {
        let by_certificate = "mongodb://h/?authMechanism=MONGODB-X509&tlsCertificateKeyFile=/me.pem";
        assert!(!needs_password(&url("mongodb://h")) && !needs_password(&url(by_certificate)));
        assert!(needs_password(&url("mongodb://a@h")) && needs_password(&url("mysql://a@h")));
    }

    #[test]
    fn server_names_become_variable_names() {
        assert_eq!(as_variable("eu-west.1"), "EU_WEST_1");
    }
}
