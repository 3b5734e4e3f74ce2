//! Which users connect to which databases, as far as logins show it: of a connection, and of a pair.

use std::collections::BTreeMap;

use ciphertoll_wire::passive::Account;

use crate::memory::allocated;
use crate::observation::ObservedUser;

/// Users and databases of one connection that are told apart: one, unless a client of MySQL becomes another user.
const MAX_PER_CONNECTION: usize = 8;
/// Users and databases of a pair that are told apart.
pub(crate) const MAX_PER_PAIR: usize = 100;
/// Names of all pairs.
const MAX_NAME_BYTES: usize = 8 << 20;

/// The users of one connection.
#[derive(Debug, Default)]
pub(crate) struct ConnectionAccounts {
    kept: Vec<Account>,
    has_more: bool,
}

/// The connections of each user of a pair.
#[derive(Default)]
pub(crate) struct PairAccounts {
    kept: BTreeMap<Account, u64>,
    others: u64,
}

/// What is left for the names of all pairs.
pub(crate) struct NameRoom(usize);

impl Default for NameRoom {
    fn default() -> Self {
        Self(MAX_NAME_BYTES)
    }
}

impl ConnectionAccounts {
    pub(crate) fn add(&mut self, account: Account) {
        if self.kept.contains(&account) {
            return;
        }
        if self.kept.len() < MAX_PER_CONNECTION {
            // Most connections have one.
            self.kept.reserve_exact(1);
            self.kept.push(account);
        } else {
            self.has_more = true;
        }
    }

    /// Allocated memory, without its own.
    pub(crate) fn heap_bytes(&self) -> usize {
        allocated(self.kept.capacity() * size_of::<Account>())
            + self.kept.iter().map(name_bytes).sum::<usize>()
    }
}

impl PairAccounts {
    pub(crate) fn add(&mut self, connection: &ConnectionAccounts, room: &mut NameRoom) {
        let mut has_others = connection.has_more;
        for account in &connection.kept {
            if let Some(connections) = self.kept.get_mut(account) {
                *connections += 1;
                continue;
            }
            let bytes = size_of::<(Account, u64)>() + name_bytes(account);
            if self.kept.len() < MAX_PER_PAIR && bytes <= room.0 {
                room.0 -= bytes;
                self.kept.insert(account.clone(), 1);
            } else {
                has_others = true;
            }
        }
        self.others += u64::from(has_others);
    }

    /// Those with most connections first.
    pub(crate) fn users(&self) -> Vec<ObservedUser> {
        let user = |(account, connections): (&Account, &u64)| ObservedUser {
            user: account.user().to_owned(),
            database: account.database().map(str::to_owned),
            connections: *connections,
        };
        let mut users: Vec<_> = self.kept.iter().map(user).collect();
        users.sort_by_key(|user| std::cmp::Reverse(user.connections));
        users
    }

    /// Connections with users that are not told apart.
    pub(crate) fn others(&self) -> u64 {
        self.others
    }
}

fn name_bytes(account: &Account) -> usize {
    allocated(account.user().len()) + account.database().map_or(0, |database| allocated(database.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(users: impl IntoIterator<Item = String>) -> ConnectionAccounts {
        let mut connection = ConnectionAccounts::default();
        for user in users {
            connection.add(Account::named(user.as_bytes(), Some(b"shop")));
        }
        connection
    }

    #[test]
    fn users_are_counted_by_connections_and_the_most_frequent_comes_first() {
        let (mut pair, mut room) = (PairAccounts::default(), NameRoom::default());
        for users in [&["b"][..], &["a", "c", "a"], &["c"]] {
            pair.add(&connection(users.iter().map(|user| (*user).to_owned())), &mut room);
        }
        let users: Vec<_> = pair.users().into_iter().map(|user| (user.user, user.connections)).collect();
        assert_eq!(users, [("c".to_owned(), 2), ("a".to_owned(), 1), ("b".to_owned(), 1)]);
        assert_eq!(pair.others(), 0);
    }

    #[test]
    fn a_connection_a_pair_and_all_pairs_keep_so_many_names() {
        let many = |from: usize| connection((from..from + 20).map(|number| format!("user {number}")));
        assert!(many(0).kept.len() == MAX_PER_CONNECTION && many(0).has_more);
        let bytes = connection(["x".repeat(64)]).heap_bytes();
        assert!((64..512).contains(&bytes), "{bytes}");
        let mut room = NameRoom::default();
        let mut pairs: Vec<PairAccounts> = Vec::new();
        for pair in 0..2_000 {
            let mut accounts = PairAccounts::default();
            for number in 0..101 {
                let name = format!("{pair} {number} {}", "x".repeat(64));
                accounts.add(&connection([name]), &mut room);
            }
            pairs.push(accounts);
        }
        assert_eq!((pairs[0].users().len(), pairs[0].others()), (MAX_PER_PAIR, 1));
        assert_eq!((pairs[1_999].users().len(), pairs[1_999].others()), (0, 101));
        let kept: usize = pairs.iter().flat_map(|pair| pair.kept.keys()).map(name_bytes).sum();
        assert!(kept <= MAX_NAME_BYTES, "{kept}");
        // One that is known needs no room.
        pairs[0].add(&connection([format!("0 0 {}", "x".repeat(64))]), &mut room);
        assert_eq!((pairs[0].users()[0].connections, pairs[0].others()), (2, 1));
    }
}
