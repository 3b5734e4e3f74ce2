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

/// A client that logs in to the console.
#[derive(Clone, Debug)]
pub struct ConsoleLogin {
    pub(crate) user: String,
    pub(crate) proof: LoginProof,
}

/// How a client has shown who it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LoginProof {
    /// As every client of its listener.
    #[default]
    Authentication,
    /// By the proxy's own UID, and by nothing else.
    OwnUid,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// May use all commands.
    Admin,
    /// May use `SHOW`.
    Stats,
}

/// The error for a user without a role.
pub(crate) fn not_allowed(user: &str) -> String {
    format!("not allowed: \"{user}\" may not use the console")
}

impl ConsoleRules {
    /// What a client from this peer may do.
    pub(crate) fn role(&self, login: &ConsoleLogin, peer: Peer) -> Option<Role> {
        let is_named =
            |users: &[String]| login.proof == LoginProof::Authentication && users.contains(&login.user);
        if is_named(&self.admin_users) || login.user == CONSOLE && self.trusts(peer) {
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
        let login = |user: &str, proof| ConsoleLogin { user: user.to_owned(), proof };
        let authenticated = |user| login(user, LoginProof::Authentication);
        let by_uid = login(CONSOLE, LoginProof::OwnUid);
        assert_eq!(rules.role(&authenticated("root"), process(own)), Some(Role::Admin));
        assert_eq!(rules.role(&authenticated("stats"), process(own)), Some(Role::Stats));
        assert_eq!(rules.role(&authenticated("app"), process(own)), None);
        assert_eq!(rules.role(&authenticated(CONSOLE), process(own)), None);
        rules.own_uid = OwnUid::IsAdmin;
        for login in [&authenticated(CONSOLE), &by_uid] {
            assert_eq!(rules.role(login, process(own)), Some(Role::Admin));
            assert_eq!(rules.role(login, process(own + 1)), None);
            assert_eq!(rules.role(login, Peer::Address(([127, 0, 0, 1], 1).into())), None);
        }
        // Who is only trusted is nobody when the trust ends.
        rules.admin_users.push(CONSOLE.to_owned());
        rules.own_uid = OwnUid::NotSpecial;
        assert_eq!(rules.role(&authenticated(CONSOLE), process(own)), Some(Role::Admin));
        assert_eq!(rules.role(&by_uid, process(own)), None);
    }
}
