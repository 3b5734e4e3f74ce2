//! Who logs in to what.

use crate::printable::printable;

/// Whether names of users and databases are read from logins that are not encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccountNames {
    /// No name leaves its message.
    #[default]
    Ignored,
    Read,
}

/// The names in a login that is not encrypted. A peer chose them: they are made printable, and cut.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account {
    user: Box<str>,
    database: Option<Box<str>>,
}

impl Account {
    /// The characters of a name that are kept; the rest is replaced by one more, an ellipsis.
    pub const MAX_CHARACTERS: usize = 64;

    /// Names from the wire. Without a database, the login names none, or it was cut off.
    #[must_use]
    pub fn named(user: &[u8], database: Option<&[u8]>) -> Self {
        Self { user: name(user), database: database.map(name) }
    }

    /// May be empty: MySQL has anonymous users.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    #[must_use]
    pub fn database(&self) -> Option<&str> {
        self.database.as_deref()
    }
}

fn name(text: &[u8]) -> Box<str> {
    let mut name = printable(text, Account::MAX_CHARACTERS + 1);
    if let Some((end, _)) = name.char_indices().nth(Account::MAX_CHARACTERS) {
        name.truncate(end);
        name.push('…');
    }
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_and_cannot_change_what_surrounds_them() {
        let long = Account::named("é".repeat(64).as_bytes(), Some("é".repeat(65).as_bytes()));
        assert_eq!(long.user(), "é".repeat(64));
        assert_eq!(long.database(), Some(&*("é".repeat(64) + "…")));
        assert_eq!(Account::named(&vec![b'a'; 1 << 20], None).user().len(), 64 + '…'.len_utf8());
        let hostile = Account::named("a\n\u{1b}[2J\u{202e}\u{2028}b".as_bytes(), Some(b"\xff\xfe"));
        assert_eq!(hostile.user(), "a\u{fffd}\u{fffd}[2J\u{fffd}\u{fffd}b");
        assert_eq!(hostile.database(), Some("\u{fffd}\u{fffd}"));
        assert_eq!(Account::named(b"", None).user(), "");
    }
}
