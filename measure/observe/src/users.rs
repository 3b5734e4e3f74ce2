//! Who connected to what, in words.

use std::collections::BTreeSet;

use crate::observation::{EncryptionKind, ObservedUser, Pair};
use crate::words::counted;

/// More have no place in a line.
const MAX_NAMED: usize = 2;

/// `app to shop`, `app`. A name that could be taken for something else is in quotes.
#[must_use]
pub fn user_words(user: &ObservedUser) -> String {
    match &user.database {
        Some(database) => format!("{} to {}", quoted(&user.user), quoted(database)),
        None => quoted(&user.user),
    }
}

/// `as app to shop`, for the line of a pair; `None` if no name is known.
pub(crate) fn pair_users(pair: &Pair) -> Option<String> {
    if pair.users.is_empty() {
        return None;
    }
    let who = if pair.users.len() <= MAX_NAMED && pair.other_users == 0 {
        pair.users.iter().map(user_words).collect::<Vec<_>>().join(" and ")
    } else {
        let names: BTreeSet<_> = pair.users.iter().map(|user| &user.user).collect();
        match (names.first(), pair.other_users) {
            (Some(user), 0) if names.len() == 1 => {
                format!("{} to {}", quoted(user), counted(pair.users.len() as u64, "database"))
            }
            (_, 0) => counted(names.len() as u64, "user"),
            _ => format!("at least {}", counted(names.len() as u64, "user")),
        }
    };
    let is_encrypted =
        pair.encryption.iter().any(|seen| matches!(seen.kind, EncryptionKind::Tls | EncryptionKind::Gss));
    let which = if is_encrypted { "without encryption " } else { "" };
    Some(format!("{which}as {who}"))
}

fn quoted(name: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '$' | '@' | '…');
    let is_word = !matches!(name, "" | "to" | "and");
    if is_word && name.chars().all(is_plain) { name.to_owned() } else { format!("{name:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_pretend_to_be_a_sentence() {
        let words = |user: &str, database: Option<&str>| {
            user_words(&ObservedUser {
                user: user.to_owned(),
                database: database.map(str::to_owned),
                connections: 1,
            })
        };
        assert_eq!(words("app", Some("shop-2.eu")), "app to shop-2.eu");
        assert_eq!(words("müller", None), "müller");
        assert_eq!(words("", Some("to")), "\"\" to \"to\"");
        assert_eq!(words("a to b", Some("c\"d")), "\"a to b\" to \"c\\\"d\"");
        assert_eq!(words("=1+1", None), "\"=1+1\"");
    }
}
