//! Who may use the console over the listeners.

use ciphertoll_net::Peer;

/// The name of PgBouncer's console, as a database and as a user.
pub(crate) const CONSOLE: &str = "pgbouncer";

/// Who may use the console over the listeners. PgBouncer's `admin_users` and `stats_users`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsoleRules {
    pub admin_users: Vec<String>,
    pub stats_users: Vec<String>,
    pub own_uid: OwnUid,
}

/// Whether a client with the proxy's own UID may log in as the user `pgbouncer` without a password.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwnUid {
    #[default]
    NotSpecial,
    IsAdmin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// May use all commands.
    Admin,
    /// May use `SHOW`.
    Stats,
}

impl ConsoleRules {
    /// What this authenticated user may do.
    pub(crate) fn role(&self, user: &str, peer: Peer) -> Option<Role> {
        let is_named = |users: &[String]| users.iter().any(|known| known == user);
        if is_named(&self.admin_users) || user == CONSOLE && self.trusts(peer) {
            Some(Role::Admin)
        } else {
            is_named(&self.stats_users).then_some(Role::Stats)
        }
    }

    /// Whether this client may log in as `pgbouncer` without a password.
    pub(crate) fn trusts(&self, peer: Peer) -> bool {
        let own = nix::unistd::geteuid().as_raw();
        self.own_uid == OwnUid::IsAdmin && matches!(peer, Peer::Process { uid, .. } if uid == own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_those_of_the_lists_and_of_our_own_uid() {
        let own = nix::unistd::geteuid().as_raw();
        let process = |uid| Peer::Process { uid, pid: 1 };
        let mut rules = ConsoleRules {
            admin_users: vec!["root".to_owned()],
            stats_users: vec!["stats".to_owned(), "root".to_owned()],
            own_uid: OwnUid::NotSpecial,
        };
        assert_eq!(rules.role("root", process(own)), Some(Role::Admin));
        assert_eq!(rules.role("stats", process(own)), Some(Role::Stats));
        assert_eq!(rules.role("app", process(own)), None);
        assert_eq!(rules.role(CONSOLE, process(own)), None);
        rules.own_uid = OwnUid::IsAdmin;
        assert_eq!(rules.role(CONSOLE, process(own)), Some(Role::Admin));
        assert_eq!(rules.role(CONSOLE, process(own + 1)), None);
        assert_eq!(rules.role(CONSOLE, Peer::Address(([127, 0, 0, 1], 1).into())), None);
    }
}
