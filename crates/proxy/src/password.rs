//! What the server lets us in with: from the environment or the file that PostgreSQL's own clients read.

use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use ciphertoll_wire::Secret;
use ciphertoll_wire::postgres::password_file::{self, Entry};

use crate::url::{Place, Protocol, ServerUrl};

/// A password file that others can read is not read.
const OTHERS: u32 = 0o077;

/// A password file that may not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PasswordError {
    /// Others can read it.
    #[error("{} can be read by others, and is not used: chmod 600 it", .0.display())]
    Readable(PathBuf),
    /// It is there and cannot be read.
    #[error("cannot read {}: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
}

/// The password of `url`'s user: that of `CIPHERTOLL_PASSWORD`, or of the variable that the server's own clients read; for
/// PostgreSQL else that of `PGPASSFILE` or `~/.pgpass`. `None`: the server is tried without one.
pub fn find_password(url: &ServerUrl) -> Result<Option<Secret>, PasswordError> {
    let own = match url.protocol {
        Protocol::Postgres => "PGPASSWORD",
        Protocol::MySql => "MYSQL_PWD",
    };
    if let Some(value) = ["CIPHERTOLL_PASSWORD", own].into_iter().find_map(env::var_os) {
        return Ok(Some(Secret::new(value.into_encoded_bytes())));
    }
    if url.protocol == Protocol::MySql {
        return Ok(None);
    }
    let home = || Some(PathBuf::from(env::var_os("HOME")?).join(".pgpass"));
    let Some(path) = env::var_os("PGPASSFILE").map(PathBuf::from).or_else(home) else {
        return Ok(None);
    };
    let Ok(metadata) = fs::metadata(&path) else { return Ok(None) };
    if metadata.mode() & OTHERS != 0 {
        return Err(PasswordError::Readable(path));
    }
    let text = fs::read_to_string(&path);
    let text = text.map_err(|error| PasswordError::Unreadable { path, reason: error.to_string() })?;
    Ok(from_pgpass(&text, url).map(|password| Secret::new(password.into_bytes())))
}

fn from_pgpass(text: &str, url: &ServerUrl) -> Option<String> {
    let (host, port) = match &url.place {
        Place::Host { host, port } => (host.as_str(), Some(*port)),
        Place::Socket(_) => ("localhost", None),
    };
    let database = url.database.as_deref().unwrap_or(&url.user);
    password_file::find_password(text, &Entry { host, port, database, user: &url.user })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_fits_has_the_password() {
        let text = "# a comment\nother:5432:shop:app:no\ndb.example:*:shop:app:pa\\:ss\\\\word:more\n\
                    *:*:*:*:all\n";
        let of = |url: &str| from_pgpass(text, &url.parse().unwrap());
        assert_eq!(of("postgres://app@db.example/shop").as_deref(), Some("pa:ss\\word:more"));
        assert_eq!(of("postgres://app@else/shop").as_deref(), Some("all"));
        let url = "postgres://app@db.example/shop".parse().unwrap();
        assert_eq!(from_pgpass("db.example:5432:shop:app", &url), None);
    }
}
