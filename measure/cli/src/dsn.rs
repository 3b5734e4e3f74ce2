//! The text behind `--url NAME=`: a URL, or what libpq accepts besides: keywords and values, and services.

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use ciphertoll_model::{Conninfo, ServerUrl, SqlUrl};

use crate::failure::Failure;

/// The system's service file, unless `PGSYSCONFDIR` names its directory: where Debian's libpq has it.
const SYSTEM_DIRECTORY: &str = "/etc/postgresql-common";
const POSTGRES_SCHEMES: [&str; 2] = ["postgres", "postgresql"];

/// A server as the user names it.
pub(crate) struct Dsn {
    /// Without a password.
    pub(crate) url: String,
    /// From the text, so that others may have seen it.
    pub(crate) visible_password: Option<String>,
    /// From a service file.
    pub(crate) password: Option<String>,
}

/// Reads `text`, which names the server `name`.
pub(crate) fn read(name: &str, text: &str) -> Result<Dsn, Failure> {
    let unusable =
        |error: &dyn std::fmt::Display| Failure::usage(format!("the URL of {name} cannot be used: {error}"));
    let (mut pairs, visible_password) = if text.contains("://") || !text.contains('=') {
        let (url, visible_password) = ServerUrl::split_password(text);
        if !may_have_service(&url) {
            return Ok(Dsn { url, visible_password, password: None });
        }
        (Conninfo::of_url(&url).map_err(|error| unusable(&error))?, visible_password)
    } else {
        let mut pairs = Conninfo::parse(text).map_err(|error| unusable(&error))?;
        let visible_password = pairs.take_password();
        (pairs, visible_password)
    };
    if let Some(service) = pairs.take_service().or_else(|| env::var("PGSERVICE").ok()) {
        fill_in(&mut pairs, &service).map_err(|error| unusable(&error))?;
    }
    let password = pairs.take_password();
    Ok(Dsn { url: pairs.to_url(), visible_password, password })
}

/// Whether the URL is PostgreSQL's, and a service adds to it.
fn may_have_service(url: &str) -> bool {
    let is_postgres = SqlUrl::scheme(url).is_ok_and(|scheme| POSTGRES_SCHEMES.contains(&scheme.as_str()));
    let (_, options) = url.split_once('?').unwrap_or_default();
    is_postgres
        && (env::var_os("PGSERVICE").is_some()
            || options.split('&').any(|option| option.starts_with("service=")))
}

/// Searches libpq's files in its order.
fn fill_in(pairs: &mut Conninfo, service: &str) -> Result<(), String> {
    let files = files();
    for file in &files {
        let text = match fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(format!("cannot read the service file {}: {error}", file.display())),
        };
        let is_found = pairs.fill_in(&text, service);
        if is_found.map_err(|error| format!("{} in {}", error, file.display()))? {
            return Ok(());
        }
    }
    let searched: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
    Err(format!("the service \"{service}\" is not defined in {}", searched.join(" or ")))
}

fn files() -> Vec<PathBuf> {
    let own = env::var_os("PGSERVICEFILE").map(PathBuf::from);
    let own = own.or_else(|| Some(Path::new(&env::var_os("HOME")?).join(".pg_service.conf")));
    let directory = env::var_os("PGSYSCONFDIR").map_or_else(|| SYSTEM_DIRECTORY.into(), PathBuf::from);
    own.into_iter().chain([directory.join("pg_service.conf")]).collect()
}
