//! `userlist.txt`: names, and passwords or what proves them. Passwords are not kept.

use std::path::Path;

use super::ini::{ImportError, read_text, until_quote};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListedUser {
    pub(super) name: String,
    pub(super) secret: SecretKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SecretKind {
    None,
    Plain,
    Md5,
    Scram,
}

pub(super) fn read(path: &Path) -> Result<Vec<ListedUser>, ImportError> {
    Ok(parse(&read_text(path)?))
}

/// Lines that are not in the format are skipped, as PgBouncer does.
pub(super) fn parse(text: &str) -> Vec<ListedUser> {
    let user = |line: &str| {
        let (name, rest) = until_quote(line.trim_start().strip_prefix('"')?, '"')?;
        let (secret, _) = until_quote(rest.trim_start().strip_prefix('"')?, '"')?;
        let is_md5 = secret
            .strip_prefix("md5")
            .is_some_and(|digest| digest.len() == 32 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let secret = match secret.as_str() {
            "" => SecretKind::None,
            scram if scram.starts_with("SCRAM-SHA-256$") => SecretKind::Scram,
            _ if is_md5 => SecretKind::Md5,
            _ => SecretKind::Plain,
        };
        Some(ListedUser { name, secret })
    };
    text.lines().filter_map(user).collect()
}
