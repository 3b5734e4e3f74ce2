//! User and database of a login, as a part of pool keys.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::{Arc, LazyLock};

/// Cheap to clone, to compare and to hash. The hash of the names, which clients choose, is computed once. It is keyed
/// at random, so that clients cannot choose names with equal hashes.
#[derive(Clone, Debug)]
pub(crate) struct LoginNames(Arc<Names>);

#[derive(Debug, PartialEq, Eq)]
struct Names {
    hash: u64,
    user: Box<str>,
    database: Option<Box<str>>,
}

static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl LoginNames {
    pub(crate) fn new(user: &str, database: Option<&str>) -> Self {
        let hash = HASHER.hash_one((user, database));
        Self(Arc::new(Names { hash, user: user.into(), database: database.map(Into::into) }))
    }

    pub(crate) fn user(&self) -> &str {
        &self.0.user
    }

    pub(crate) fn database(&self) -> Option<&str> {
        self.0.database.as_deref()
    }
}

impl PartialEq for LoginNames {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Eq for LoginNames {}

impl Hash for LoginNames {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_are_equal_wherever_they_come_from() {
        let hash = |names: &LoginNames| RandomState::hash_one(&HASHER, names);
        let names = LoginNames::new("app", Some("shop"));
        let again = LoginNames::new("app", Some("shop"));
        assert_eq!((&names, hash(&names)), (&again, hash(&again)));
        for (user, database) in [("app", None), ("app", Some("till")), ("apps", Some("hop"))] {
            assert_ne!(names, LoginNames::new(user, database));
        }
    }
}
