//! Passwords for the server: from the file or environment variable in the configuration, otherwise from where
//! the server's own clients look for them.

use std::env;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ciphertoll_wire::Secret;
use ciphertoll_wire::postgres::password_file::{self, PasswordQuery, PasswordServer};

use crate::url::{ProtocolKind, ServerAddress, ServerUrl};

/// Mode bits that a password file must not have.
const OTHERS: u32 = 0o077;
/// Service managers pass secrets in files of root that are readable by a group.
const OTHERS_OF_ROOT: u32 = 0o037;
/// Far longer than any password or token.
const MAX_PASSWORD_BYTES: u64 = 64 << 10;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PasswordError {
    #[error("{} can be read by others: run chmod 600 on it", .0.display())]
    Readable(PathBuf),
    #[error("cannot read {}: {reason}", path.display())]
    Unreadable { path: PathBuf, reason: String },
    #[error("no password in {}: the file is empty or longer than 64 KiB", .0.display())]
    NoPassword(PathBuf),
    #[error("no password in the environment variable {0}: it is not set or empty")]
    NoVariable(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PasswordSource {
    /// The content of this file, without a line end after it.
    File(PathBuf),
    Variable(String),
}

pub fn read_password(source: &PasswordSource) -> Result<Secret, PasswordError> {
    match source {
        PasswordSource::File(path) => from_file(path),
        PasswordSource::Variable(name) => match env::var_os(name) {
            Some(value) if !value.is_empty() => Ok(Secret::new(value.into_encoded_bytes())),
            _ => Err(PasswordError::NoVariable(name.clone())),
        },
    }
}

fn from_file(path: &Path) -> Result<Secret, PasswordError> {
    let unreadable = |error: std::io::Error| PasswordError::Unreadable {
        path: path.to_owned(),
        reason: error.to_string(),
    };
    let file = File::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    let others = if metadata.uid() == 0 { OTHERS_OF_ROOT } else { OTHERS };
    if metadata.mode() & others != 0 {
        return Err(PasswordError::Readable(path.to_owned()));
    }
    let mut bytes = Vec::new();
    file.take(MAX_PASSWORD_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    let length = bytes.strip_suffix(b"\n").map_or(bytes.len(), <[u8]>::len);
    bytes.truncate(length);
    if bytes.is_empty() || bytes.len() as u64 > MAX_PASSWORD_BYTES {
        return Err(PasswordError::NoPassword(path.to_owned()));
    }
    Ok(Secret::new(bytes))
}

/// The password of the user in `url`, from `CIPHERTOLL_PASSWORD` or the variable that the server's own
/// clients read, for PostgreSQL otherwise from `PGPASSFILE` or `~/.pgpass`. `None` if there is none.
pub fn find_password(url: &ServerUrl) -> Result<Option<Secret>, PasswordError> {
    let own = match url.protocol {
        ProtocolKind::Postgres => "PGPASSWORD",
        ProtocolKind::MySql => "MYSQL_PWD",
    };
    if let Some(value) = ["CIPHERTOLL_PASSWORD", own].into_iter().find_map(env::var_os) {
        return Ok(Some(Secret::new(value.into_encoded_bytes())));
    }
    find_in_password_file(url)
}

/// The password of any user. The environment variables are for the user in the server's URL.
pub fn find_in_password_file(url: &ServerUrl) -> Result<Option<Secret>, PasswordError> {
    if url.protocol == ProtocolKind::MySql {
        return Ok(None);
    }
    let home = || Some(PathBuf::from(env::var_os("HOME")?).join(".pgpass"));
    let Some(path) = env::var_os("PGPASSFILE").map(PathBuf::from).or_else(home) else {
        return Ok(None);
    };
    let Ok(metadata) = fs::metadata(&path) else { return Ok(None) };
    // As to libpq, `/dev/null` has no password. Reading a pipe could block.
    if !metadata.is_file() {
        return Ok(None);
    }
    if metadata.mode() & OTHERS != 0 {
        return Err(PasswordError::Readable(path));
    }
    let file =
        fs::read(&path).map_err(|error| PasswordError::Unreadable { path, reason: error.to_string() })?;
    Ok(from_pgpass(&file, url).map(Secret::new))
}

/// Where a password was looked for. Only the user in the server's URL has the environment variables.
pub(crate) fn searched(protocol: ProtocolKind, is_of_url: bool) -> &'static str {
    match (protocol, is_of_url) {
        (ProtocolKind::Postgres, true) => "searched CIPHERTOLL_PASSWORD, PGPASSWORD, PGPASSFILE, ~/.pgpass",
        (ProtocolKind::Postgres, false) => {
            "password-file and password-env are not set; searched PGPASSFILE, ~/.pgpass"
        }
        (ProtocolKind::MySql, true) => "searched CIPHERTOLL_PASSWORD, MYSQL_PWD",
        (ProtocolKind::MySql, false) => "password-file and password-env are not set",
    }
}

fn from_pgpass(file: &[u8], url: &ServerUrl) -> Option<Vec<u8>> {
    let server = |address| match address {
        &ServerAddress::Host { ref host, port } => PasswordServer::Host { name: host, port },
        ServerAddress::Socket(path) => PasswordServer::Socket(path),
    };
    let database = url.database.as_deref().unwrap_or(&url.user);
    let user = &url.user;
    // A cluster has one password: that of the first host that has one.
    url.hosts()
        .map(server)
        .find_map(|server| password_file::find_password(file, &PasswordQuery { server, database, user }))
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_password_file_is_read_only_if_others_cannot_read_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("password");
        let read = |bytes: &[u8], mode: u32| {
            write(&path, bytes).unwrap();
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            read_password(&PasswordSource::File(path.clone())).map(|secret| secret.expose().to_vec())
        };
        assert_eq!(read(b"pass word\n", 0o600), Ok(b"pass word".to_vec()));
        assert_eq!(read(b"two\n\n", 0o400), Ok(b"two\n".to_vec()));
        assert_eq!(read(b"x", 0o644), Err(PasswordError::Readable(path.clone())));
        // As a service manager passes it: owned by root, readable by a group.
        let group = read(b"x", 0o440);
        assert_eq!(group.is_ok(), nix::unistd::geteuid().is_root());
        assert_eq!(read(b"\n", 0o600), Err(PasswordError::NoPassword(path.clone())));
        assert_eq!(read(&vec![b'x'; 1 << 17], 0o600), Err(PasswordError::NoPassword(path.clone())));
        let missing = PasswordSource::File(directory.path().join("missing"));
        assert!(matches!(read_password(&missing), Err(PasswordError::Unreadable { .. })));
        let variable = PasswordSource::Variable("CIPHERTOLL_NO_SUCH_VARIABLE".to_owned());
        assert!(matches!(read_password(&variable), Err(PasswordError::NoVariable(_))));
    }

    #[test]
    fn the_first_matching_line_has_the_password() {
        let file = b"caf\xe9:5432:shop:app:no\ndb.example:*:shop:app:pa\\:ss\\\\word\xff:more\n*:*:*:*:all\n";
        let of = |url: &str| from_pgpass(file, &url.parse().unwrap());
        assert_eq!(of("postgres://app@db.example/shop").as_deref(), Some(&b"pa:ss\\word\xff"[..]));
        assert_eq!(of("postgres://app@else/shop").as_deref(), Some(&b"all"[..]));
        let url = "postgres://app@db.example/shop".parse().unwrap();
        assert_eq!(from_pgpass(b"db.example:5432:shop:app", &url), None);
        let url = "postgres://app@/shop?host=/run/pg&port=1&sslmode=disable".parse().unwrap();
        let file = b"localhost:*:*:*:no\n/run/pg:1:shop:app:x\n";
        assert_eq!(from_pgpass(file, &url).as_deref(), Some(&b"x"[..]));
    }
}
