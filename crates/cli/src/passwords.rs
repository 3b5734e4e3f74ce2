//! What servers at URLs let us in with: from the environment, a file that the engine's own clients read, or a prompt.
//! Never from an argument, but for a URL that has one in it, with a warning.

use std::env;
use std::fs;
use std::io::IsTerminal;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ciphertoll_lab::Passwords;
use ciphertoll_model::{Engine, ExitCode, LoginMechanism, ServerLevel, ServerUrl, UrlPlace};
use ciphertoll_wire::Secret;
use ciphertoll_wire::postgres::password_file::{self, PasswordQuery};
use console::Term;

use crate::failure::Failure;
use crate::progress::tell;

/// For all servers at URLs; with `_NAME`, for one.
const VARIABLE: &str = "CIPHERTOLL_PASSWORD";
/// A password file that others can read is not read.
const OTHERS: u32 = 0o077;

/// A password for each of `servers` that is at a URL and has none in `given`.
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

/// `None`: the server is tried without one.
fn find(name: &str, url: &ServerUrl) -> Result<Option<Secret>, Failure> {
    if !wants_one(url) {
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
    let line = line.map_err(|error| Failure::new(ExitCode::HostResource, format!("no password: {error}")))?;
    Ok(Some(Secret::new(line.into_bytes())))
}

/// The variables that a password may be in, in the order in which they are looked at.
fn variables(name: &str, url: &ServerUrl) -> Vec<String> {
    let engines = match url.engine() {
        Engine::Postgres => Some("PGPASSWORD"),
        Engine::MariaDb | Engine::MySql => Some("MYSQL_PWD"),
        // Their own clients read none.
        Engine::MongoDb | Engine::FerretDb => None,
    };
    let own = format!("{VARIABLE}_{}", as_variable(name));
    [own, VARIABLE.to_owned()].into_iter().chain(engines.map(ToOwned::to_owned)).collect()
}

/// Everywhere that a password was looked for, for one line.
pub(crate) fn looked_in(name: &str, url: &ServerUrl) -> String {
    let files: &[&str] = match url.engine() {
        Engine::Postgres => &["PGPASSFILE", "~/.pgpass"],
        Engine::MariaDb | Engine::MySql => &["MYSQL_DEFAULTS_FILE", "~/.my.cnf"],
        Engine::MongoDb | Engine::FerretDb => &[],
    };
    let files = files.iter().map(|file| (*file).to_owned());
    variables(name, url).into_iter().chain(files).collect::<Vec<_>>().join(", ")
}

/// Whether anything is logged in to with a password there.
pub(crate) fn wants_one(url: &ServerUrl) -> bool {
    match url.documents.as_deref().map(|told| told.login.mechanism) {
        Some(LoginMechanism::None | LoginMechanism::X509) => false,
        Some(LoginMechanism::Negotiated | LoginMechanism::ScramSha256 | LoginMechanism::ScramSha1) | None => {
            true
        }
    }
}

/// Upper case, with `_` for what a variable's name cannot have.
fn as_variable(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}

/// From the file that the engine's own clients read.
fn from_file(url: &ServerUrl) -> Option<Secret> {
    let path = |variable: &str, name: &str| {
        env::var_os(variable)
            .map(PathBuf::from)
            .or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(name)))
    };
    let password = match url.engine() {
        Engine::Postgres => from_pgpass(&read_private(&path("PGPASSFILE", ".pgpass")?)?, url),
        Engine::MariaDb | Engine::MySql => {
            from_defaults(&read_private(&path("MYSQL_DEFAULTS_FILE", ".my.cnf")?)?)
        }
        Engine::MongoDb | Engine::FerretDb => None,
    };
    password.map(|password| Secret::new(password.into_bytes()))
}

/// A file that others may read is passed over, as libpq does, with a line that says so.
fn read_private(path: &Path) -> Option<String> {
    let mode = fs::metadata(path).ok()?.mode();
    if mode & OTHERS != 0 {
        tell(&format!("{} can be read by others, and is not used: chmod 600 it", path.display()));
        return None;
    }
    fs::read_to_string(path).ok()
}

fn from_pgpass(text: &str, url: &ServerUrl) -> Option<String> {
    let (host, port) = match &url.place {
        UrlPlace::Host { host, port } => (host.as_str(), Some(*port)),
        UrlPlace::Socket(_) => ("localhost", None),
    };
    let database = url.database.as_ref().unwrap_or(&url.user);
    password_file::find_password(text, &PasswordQuery { host, port, database, user: &url.user })
}

/// `password` of the groups `client` and `client-mariadb`; the last one counts.
fn from_defaults(text: &str) -> Option<String> {
    let mut group = "";
    let mut found = None;
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            group = name.trim();
        } else if let Some((name, value)) = line.split_once('=')
            && matches!(group, "client" | "client-mariadb")
            && name.trim() == "password"
        {
            found = Some(unquoted(value.trim()).to_owned());
        }
    }
    found
}

fn unquoted(value: &str) -> &str {
    let inner = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    inner('"').or_else(|| inner('\'')).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> ServerUrl {
        text.parse().unwrap()
    }

    #[test]
    fn the_first_line_that_fits_has_the_password() {
        let text =
            "# a comment\nother:5432:shop:app:no\ndb.example:*:shop:app:pa\\:ss\\\\word:more\n*:*:*:*:all\n";
        assert_eq!(
            from_pgpass(text, &url("postgres://app@db.example/shop")).as_deref(),
            Some("pa:ss\\word:more")
        );
        assert_eq!(from_pgpass(text, &url("postgres://app@else/shop")).as_deref(), Some("all"));
        assert_eq!(from_pgpass("db.example:5432:shop:app", &url("postgres://app@db.example/shop")), None);
        let socket = url("postgres://app@localhost/shop?host=/run");
        assert_eq!(from_pgpass("localhost:5432:shop:app:x", &socket).as_deref(), Some("x"));
    }

    #[test]
    fn a_defaults_file_is_read_by_groups() {
        let text = "[mysqld]\npassword=no\n[client]\nuser=a\npassword = \"a b\"\n[mysqldump]\npassword=no\n";
        assert_eq!(from_defaults(text).as_deref(), Some("a b"));
        assert_eq!(from_defaults("[client]\npassword\n"), None);
        assert_eq!(from_defaults("password=x"), None);
    }

    #[test]
    fn nobody_is_asked_for_a_password_that_is_not_sent() {
        let by_certificate = "mongodb://h/?authMechanism=MONGODB-X509&tlsCertificateKeyFile=/me.pem";
        assert!(!wants_one(&url("mongodb://h")) && !wants_one(&url(by_certificate)));
        assert!(wants_one(&url("mongodb://a@h")) && wants_one(&url("mysql://a@h")));
    }

    #[test]
    fn names_become_variables() {
        assert_eq!(as_variable("eu-west.1"), "EU_WEST_1");
    }
}
