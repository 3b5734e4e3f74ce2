//! Which number of the server's a client's own number stands for. A client is greeted before it has a server connection,
//! and so with a number of the proxy's; that is what other clients name who want its command to end.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ciphertoll_wire::mysql::relay;

use crate::dialect::Order;

/// Numbers from this one on are the proxy's, and as many: some drivers take them for signed. Servers count from 1 and do
/// not come so far.
pub(crate) const OWN: u32 = 1 << 30;

/// Shared by all sessions of a proxy.
// One thread uses them; another one makes the dialect of a reload.
#[derive(Clone, Debug, Default)]
pub struct Numbers(Arc<Mutex<Shared>>);

#[derive(Debug, Default)]
struct Shared {
    next: u32,
    clients: HashMap<u32, Target>,
}

#[derive(Debug)]
struct Target {
    /// None between transactions.
    server_number: Option<u32>,
    /// Commands on their way to the server that end something of this session.
    kills: usize,
    order: Arc<AtomicOrder>,
}

/// What is to become of a client that has no connection.
#[derive(Debug, Default)]
struct AtomicOrder(AtomicU8);

const NOTHING: u8 = 0;
const CANCEL: u8 = 1;
const END: u8 = 2;

/// A client under its number; nobody any more when dropped.
#[derive(Debug)]
pub(super) struct Listed {
    numbers: Numbers,
    number: u32,
    order: Arc<AtomicOrder>,
    /// Whom this session's own client has named, in commands that are not answered yet.
    named: Vec<u32>,
}

/// Who is meant by a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// Whoever has this number of the server's.
    Server(u32),
    /// One without a connection, who is told.
    Told,
    /// Nobody.
    Nobody,
}

impl AtomicOrder {
    /// Who is to end is not spared any more.
    fn give(&self, order: u8) {
        self.0.fetch_max(order, Ordering::AcqRel);
    }

    fn get(&self) -> Order {
        match self.0.load(Ordering::Acquire) {
            NOTHING => Order::None,
            CANCEL => Order::Cancel,
            _ => Order::End,
        }
    }

    fn forget_cancel(&self) {
        let _ = self.0.compare_exchange(CANCEL, NOTHING, Ordering::AcqRel, Ordering::Acquire);
    }
}

impl Numbers {
    /// The next client's number.
    pub fn draw(&self) -> u32 {
        let mut shared = self.shared();
        let number = shared.next;
        shared.next = number.wrapping_add(1);
        (number % OWN) | OWN
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There is a client with this number; its connection, if it has one, has `server_number`.
    pub(super) fn list(&self, number: u32, server_number: Option<u32>) -> Listed {
        let order = Arc::<AtomicOrder>::default();
        let target = Target { server_number, kills: 0, order: Arc::clone(&order) };
        self.shared().clients.insert(number, target);
        Listed { numbers: self.clone(), number, order, named: Vec::new() }
    }
}

impl Listed {
    /// The client has a connection with this number of the server's now, or none.
    pub(super) fn moves(&self, server_number: Option<u32>) {
        if let Some(target) = self.numbers.shared().clients.get_mut(&self.number) {
            target.server_number = server_number;
        }
    }

    /// Who is meant by the number of one whom this session's client wants to end.
    pub(super) fn name(&mut self, number: u32, what: relay::KillTarget) -> Named {
        let mut shared = self.numbers.shared();
        let Some(target) = shared.clients.get_mut(&number) else { return Named::Nobody };
        if let Some(server_number) = target.server_number {
            target.kills += 1;
            self.named.push(number);
            return Named::Server(server_number);
        }
        target.order.give(match what {
            relay::KillTarget::Query => CANCEL,
            relay::KillTarget::Connection => END,
        });
        Named::Told
    }

    /// What others want to become of this client, since it has had no connection.
    pub(super) fn order(&self) -> Order {
        self.order.get()
    }

    /// The client has nothing that could be cancelled, or that was.
    pub(super) fn forget_cancel(&self) {
        self.order.forget_cancel();
    }

    /// All that this session's client has said is answered: nothing of that is on its way any more.
    pub(super) fn all_answered(&mut self) {
        if self.named.is_empty() {
            return;
        }
        let mut shared = self.numbers.shared();
        for number in self.named.drain(..) {
            if let Some(target) = shared.clients.get_mut(&number) {
                target.kills = target.kills.saturating_sub(1);
            }
        }
    }

    /// Whether a command is on its way that ends something on this session's connection, and could hit its next client. If
    /// not, none is sent there any more: another thread's could be under way before the session is dropped.
    pub(super) fn is_named(&self) -> bool {
        let mut shared = self.numbers.shared();
        let Some(target) = shared.clients.get_mut(&self.number) else { return false };
        if target.kills == 0 {
            target.server_number = None;
        }
        target.kills > 0
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        // What its client has named and is not answered may still hit.
        self.numbers.shared().clients.remove(&self.number);
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
        let (target, mut killer) = (numbers.list(first, Some(11)), numbers.list(second, Some(12)));
        let what = relay::KillTarget::Query;
        assert_eq!((killer.name(first, what), killer.name(7, what)), (Named::Server(11), Named::Nobody));
        assert!(target.is_named() && !killer.is_named());
        killer.all_answered();
        assert!(!target.is_named());
        // It was asked whether others may have the connection: nobody names it any more.
        assert_eq!(killer.name(first, what), Named::Told);
        target.moves(Some(11));
        // One that is not answered may hit whenever it comes.
        assert_eq!(killer.name(first, what), Named::Server(11));
        drop(killer);
        assert!(target.is_named());
        drop(target);
        assert_eq!(numbers.list(second, Some(12)).name(first, what), Named::Nobody);
    }

    #[test]
    fn one_without_a_connection_is_told() {
        let numbers = Numbers::default();
        let (target, mut killer) = (numbers.list(OWN + 1, Some(11)), numbers.list(OWN + 2, Some(12)));
        target.moves(None);
        assert_eq!(target.order(), Order::None);
        assert_eq!(killer.name(OWN + 1, relay::KillTarget::Query), Named::Told);
        assert_eq!((target.order(), target.is_named()), (Order::Cancel, false));
        target.forget_cancel();
        assert_eq!(target.order(), Order::None);
        killer.name(OWN + 1, relay::KillTarget::Connection);
        killer.name(OWN + 1, relay::KillTarget::Query);
        target.forget_cancel();
        assert_eq!(target.order(), Order::End);
        target.moves(Some(13));
        assert_eq!(killer.name(OWN + 1, relay::KillTarget::Query), Named::Server(13));
    }
}
