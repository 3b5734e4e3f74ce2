//! Which number of the server's a client's own number stands for. A client is greeted before it has a server connection,
//! and so with a number of the proxy's; that is what other clients name who want its command to end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Numbers from this one on are the proxy's. Servers count from 1 and do not come so far.
pub(crate) const OWN: u32 = 1 << 31;

/// Shared by all sessions of a proxy.
// One thread uses them; another one makes the dialect of a reload.
#[derive(Clone, Debug, Default)]
pub struct Numbers(Arc<Mutex<Shared>>);

#[derive(Debug, Default)]
struct Shared {
    next: u32,
    sessions: HashMap<u32, Target>,
}

#[derive(Debug)]
struct Target {
    server_number: u32,
    /// Commands on their way to the server that end something of this session.
    kills: usize,
}

/// A session under its client's number; none any more when dropped.
#[derive(Debug)]
pub(super) struct Listed {
    numbers: Numbers,
    number: u32,
    /// Whom this session's own client has named, in commands that are not answered yet.
    named: Vec<u32>,
}

impl Numbers {
    /// The next client's number.
    pub fn draw(&self) -> u32 {
        let mut shared = self.shared();
        let number = shared.next;
        shared.next = number.wrapping_add(1);
        number | OWN
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session begins of the client with this number, on the connection that has `server_number`.
    pub(super) fn list(&self, number: u32, server_number: u32) -> Listed {
        self.shared().sessions.insert(number, Target { server_number, kills: 0 });
        Listed { numbers: self.clone(), number, named: Vec::new() }
    }
}

impl Listed {
    /// The server's number for a client that this session's client wants to end; none if that has no session.
    pub(super) fn name(&mut self, number: u32) -> Option<u32> {
        let mut shared = self.numbers.shared();
        let target = shared.sessions.get_mut(&number)?;
        target.kills += 1;
        self.named.push(number);
        Some(target.server_number)
    }

    /// All that this session's client has said is answered: nothing of that is on its way any more.
    pub(super) fn all_answered(&mut self) {
        let mut shared = self.numbers.shared();
        for number in self.named.drain(..) {
            if let Some(target) = shared.sessions.get_mut(&number) {
                target.kills = target.kills.saturating_sub(1);
            }
        }
    }

    /// Whether a command is on its way that ends something on this session's connection, and could hit its next client.
    pub(super) fn is_named(&self) -> bool {
        self.numbers.shared().sessions.get(&self.number).is_some_and(|target| target.kills > 0)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        // What its client has named and is not answered may still hit.
        self.numbers.shared().sessions.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_named_as_long_as_that_is_not_answered() {
        let numbers = Numbers::default();
        let (first, second) = (numbers.draw(), numbers.draw());
        assert!(first >= OWN && second >= OWN && first != second);
        let (target, mut killer) = (numbers.list(first, 11), numbers.list(second, 12));
        assert_eq!((killer.name(first), killer.name(7)), (Some(11), None));
        assert!(target.is_named() && !killer.is_named());
        killer.all_answered();
        assert!(!target.is_named());
        // One that is not answered may hit whenever it comes.
        assert_eq!(killer.name(first), Some(11));
        drop(killer);
        assert!(target.is_named());
        drop(target);
        assert_eq!(numbers.list(second, 12).name(first), None);
    }
}
