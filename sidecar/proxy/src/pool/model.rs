//! A model of workers that share a pool, without sockets: after any events in any order, with messages that
//! take any time, no client waits for more than a second while it could be given a connection within all limits, a user
//! without a connection gets the next one that another user releases, a user who has no more connections than another one
//! keeps those that it has used within a second, and no client of a paused key is given one.
//!
//! Each step is what a worker does between two reads of its mailbox; the operations of the pool are the real
//! ones.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use proptest::prelude::*;

use super::*;

mod limits;
mod pauses;

const THREADS: usize = 3;

type Name = &'static str;
const KEYS: [Name; 4] = ["app@shop", "app@till", "web@shop", "web@mart"];
const USERS: [Name; 2] = ["app", "web"];
const DATABASES: [Name; 2] = ["shop", "mart"];

/// A connection, or a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Number(usize, u32);

impl WorkerBound for Number {
    fn thread(self) -> usize {
        self.0
    }

    fn slot(self) -> usize {
        self.1 as usize
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServerState {
    Idle,
    Busy(Number),
    Kept(Number),
    Resetting,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientState {
    Queued,
    Active(Number),
    /// With the connection that it used last.
    Parked(Number),
}

#[derive(Debug)]
enum WorkerMessage {
    ReleaseReserved(Number),
    Evict(Number, Name),
    TakeServer(Name, Number),
    /// Exactly these keys are paused, by the rule with this number.
    Pause(u64, BTreeSet<Name>),
}

/// An event. The number selects one of the workers, clients or connections to which it can happen.
type Event = (&'static str, EventHandler, usize);
type EventHandler = fn(&mut Model, usize);

fn event() -> impl Strategy<Value = Event> {
    let weighted: [(u32, &str, EventHandler); 15] = [
        (6, "a client connects", Model::connect),
        (3, "a client disconnects", Model::disconnect_any),
        (3, "a transaction ends", Model::end_transaction),
        (3, "a transaction begins", Model::begin_transaction),
        (3, "a reset is done", Model::reset_done),
        (1, "the time for keeping a connection is over", Model::expire_kept),
        (1, "a connection breaks", Model::break_any),
        (4, "a connect is done", Model::connect_done),
        (1, "a connect fails", Model::connect_fails),
        (6, "a message is read", Model::read_message),
        (1, "the limit changes", Model::set_limit),
        (1, "the limits of users and databases change", Model::set_groups),
        (1, "a key is paused", Model::pause),
        (1, "a key is resumed", Model::resume),
        (6, "time passes", Model::pass_time),
    ];
    let kinds = weighted.map(|(weight, name, happens)| (weight, Just((name, happens)).boxed()));
    let kind = proptest::strategy::Union::new_weighted(kinds.to_vec());
    (kind, 0..48_usize).prop_map(|((name, happens), at)| (name, happens, at))
}

struct Model {
    pool: ConnectionPool<Name, Number, Number>,
    limit: usize,
    groups: GroupLimits,
    connections: BTreeMap<Number, (Name, ServerState)>,
    clients: BTreeMap<Number, (Name, ClientState)>,
    opening: Vec<(usize, Name)>,
    mailboxes: [VecDeque<WorkerMessage>; THREADS],
    /// Workers that must look for unserved clients before they sleep.
    check_unserved: [bool; THREADS],
    /// The latest rule that was sent, the one that the pool has, and the one that each worker has read.
    pauses: BTreeSet<Name>,
    pauses_of_pool: (u64, BTreeSet<Name>),
    pauses_read: [BTreeSet<Name>; THREADS],
    next: u32,
    /// The connection that is returned has just been opened.
    is_new: bool,
    now: Instant,
    /// Since when connections are available.
    available_since: BTreeMap<Number, Instant>,
}

/// Selects one of those for which `holds` is true.
fn pick<T>(
    from: &BTreeMap<Number, (Name, T)>,
    at: usize,
    holds: impl Fn(&T) -> bool,
) -> Option<(Number, Name)> {
    let all: Vec<_> = from.iter().filter(|(_, (_, what))| holds(what)).collect();
    let (number, (key, _)) = all.get(at % all.len().max(1))?;
    Some((**number, *key))
}

impl Model {
    fn new(limit: usize) -> Self {
        Self {
            pool: ConnectionPool::new(limit),
            limit,
            groups: GroupLimits::default(),
            connections: BTreeMap::new(),
            clients: BTreeMap::new(),
            opening: Vec::new(),
            mailboxes: Default::default(),
            check_unserved: [false; THREADS],
            pauses: BTreeSet::new(),
            pauses_of_pool: (0, BTreeSet::new()),
            pauses_read: Default::default(),
            next: 0,
            is_new: false,
            now: Instant::now(),
            available_since: BTreeMap::new(),
        }
    }

    fn new_number(&mut self, thread: usize) -> Number {
        self.next += 1;
        Number(thread, self.next)
    }

    fn set(&mut self, connection: Number, to: ServerState) {
        if let Some((_, state)) = self.connections.get_mut(&connection) {
            *state = to;
            self.available_since.insert(connection, self.now);
        }
    }

    fn pass_time(&mut self, at: usize) {
        self.now += Duration::from_millis(50 * (1 + at as u64 % 10));
        self.check_unserved[at % THREADS] |= self.pool.tick(self.now);
    }

    fn apply(&mut self, (_, happens, at): Event) {
        happens(self, at);
        for thread in 0..THREADS {
            while std::mem::take(&mut self.check_unserved[thread]) {
                self.serve_waiting(thread);
            }
        }
        self.check();
    }

    fn connect(&mut self, at: usize) {
        let client = self.new_number(at % THREADS);
        self.queue(client, KEYS[at / THREADS % KEYS.len()]);
    }

    fn disconnect_any(&mut self, at: usize) {
        if let Some((client, _)) = pick(&self.clients, at, |_| true) {
            self.disconnect(client);
        }
    }

    fn reset_done(&mut self, at: usize) {
        if let Some((connection, _)) = pick(&self.connections, at, |state| *state == ServerState::Resetting) {
            self.return_to_pool(connection);
        }
    }

    fn break_any(&mut self, at: usize) {
        if let Some((connection, _)) = pick(&self.connections, at, |_| true) {
            self.close(connection);
        }
    }

    fn queue(&mut self, client: Number, key: Name) {
        self.clients.insert(client, (key, ClientState::Queued));
        // Half of the clients accept a connection that was not reset, and half of these can use it.
        let acceptable = if client.1.is_multiple_of(2) { Acceptable::Any } else { Acceptable::Reset };
        let action = self.pool.acquire(&key, client, acceptable, self.now);
        if action != PoolAction::Wait {
            self.check_not_paused(key);
        }
        match action {
            PoolAction::TakeUnreset(connection) if client.1.is_multiple_of(4) => {
                self.pool.wait_for(&key, connection, client, self.now);
                self.set(connection, ServerState::Resetting);
            }
            PoolAction::Take(connection) | PoolAction::TakeUnreset(connection) => {
                self.assign(client, connection);
            }
            action => self.apply_action(client.thread(), key, action),
        }
    }

    fn assign(&mut self, client: Number, connection: Number) {
        assert_eq!(client.thread(), connection.thread());
        match self.clients.get_mut(&client) {
            Some((key, state @ ClientState::Queued)) => {
                assert_eq!(*key, self.connections[&connection].0);
                *state = ClientState::Active(connection);
                self.set(connection, ServerState::Busy(client));
            }
            _ => self.return_to_pool(connection),
        }
    }

    fn apply_action(&mut self, thread: usize, key: Name, mut action: PoolAction<Number>) {
        loop {
            if let PoolAction::Evict(connection) = action {
                self.check_evictable(connection, key);
            }
            match action {
                PoolAction::Open => {
                    self.check_not_paused(key);
                    return self.opening.push((thread, key));
                }
                PoolAction::Release(connection) if connection.thread() == thread => {
                    return self.release_reserved(connection);
                }
                PoolAction::Release(connection) => {
                    return self.mailboxes[connection.thread()]
                        .push_back(WorkerMessage::ReleaseReserved(connection));
                }
                PoolAction::Evict(connection) if connection.thread() == thread => {
                    self.close(connection);
                    self.pool.eviction_done(&key);
                    action = self.pool.next_action(&key, thread);
                }
                PoolAction::Evict(connection) => {
                    return self.mailboxes[connection.thread()]
                        .push_back(WorkerMessage::Evict(connection, key));
                }
                PoolAction::Yield => {
                    self.check_unserved[thread] = true;
                    return;
                }
                PoolAction::Take(_) | PoolAction::TakeUnreset(_) | PoolAction::Wait => return,
            }
        }
    }

    /// A connection of a user who has no more connections than the user of `key` was not used for a second.
    fn check_evictable(&self, connection: Number, key: Name) {
        let victim = self.connections[&connection].0.user();
        // With the evictions that workers have not read yet.
        let evictions = self.mailboxes.iter().flatten().filter_map(|message| match message {
            WorkerMessage::Evict(from, to) => {
                Some((self.connections.get(from).map(|(key, _)| key.user()), to.user()))
            }
            _ => None,
        });
        let evictions: Vec<_> = evictions.collect();
        let share = |user: &str| {
            let coming = evictions.iter().filter(|(_, to)| *to == user).count();
            let leaving = evictions.iter().filter(|(from, _)| *from == Some(user)).count();
            self.open_of_user(user) + coming - leaving
        };
        let (own, other) = (share(key.user()), share(victim));
        let unused = self.now - self.available_since[&connection];
        assert!(
            victim == key.user() || own == 0 || other > own || unused >= Duration::from_secs(1),
            "closed after {unused:?} for a user with {own} connections, of one with {other}"
        );
    }

    fn serve_waiting(&mut self, thread: usize) {
        while let Some(key) = self.pool.unserved_key() {
            match self.pool.next_action(&key, thread) {
                PoolAction::Wait => return,
                PoolAction::Yield => panic!("{key} is first, and yields"),
                action => self.apply_action(thread, key, action),
            }
        }
    }

    fn release_reserved(&mut self, connection: Number) {
        let Some((key, state)) = self.connections.get(&connection) else { return };
        if !self.pool.is_reserved(key, connection) {
            return;
        }
        match state {
            ServerState::Idle => self.return_to_pool(connection),
            ServerState::Kept(_) => self.reassign_kept(connection, key),
            ServerState::Busy(_) | ServerState::Resetting => {}
        }
    }

    fn kept(&mut self, connection: Number, key: Name, is_kept: bool) {
        if is_kept {
            self.check_unserved[connection.thread()] = true;
        } else {
            self.reassign_kept(connection, key);
        }
    }

    /// Half of the clients can use a connection that was not reset.
    fn reassign_kept(&mut self, connection: Number, key: Name) {
        match self.pool.assign_unreset(&key, connection, |client| client.1 % 2 == 0) {
            Some(client) => {
                self.check_not_paused(key);
                self.assign(client, connection);
            }
            None => self.set(connection, ServerState::Resetting),
        }
    }

    fn return_to_pool(&mut self, connection: Number) {
        let (key, _) = self.connections[&connection];
        if self.pool.is_over_limit(&key) || self.pauses_read[connection.thread()].contains(key) {
            return self.close(connection);
        }
        let is_needed = self.is_new
            && self.clients.values().any(|(of, state)| *of == key && *state == ClientState::Queued);
        let is_passed_over = !is_needed && self.is_passed_over(key);
        self.set(connection, ServerState::Idle);
        let released = self.pool.release(&key, connection);
        assert!(!is_passed_over || matches!(released, Released::Replaced(_)), "{key}: {released:?}");
        match released {
            Released::Idle => {}
            Released::Assigned(_) => self.check_not_paused(key),
            Released::Replaced(next) => self.check_not_paused(next),
        }
        match released {
            Released::Idle => self.check_unserved[connection.thread()] = true,
            Released::Assigned(client) if client.thread() == connection.thread() => {
                self.assign(client, connection);
            }
            Released::Assigned(client) => {
                self.connections.remove(&connection);
                self.mailboxes[client.thread()].push_back(WorkerMessage::TakeServer(key, client));
            }
            Released::Replaced(next) => {
                assert_ne!(next.user(), key.user());
                self.connections.remove(&connection);
                self.opening.push((connection.thread(), next));
                // There may be room within the limits of its user and its database.
                self.check_unserved[connection.thread()] = true;
            }
        }
    }

    fn read_message(&mut self, at: usize) {
        let thread = at % THREADS;
        match self.mailboxes[thread].pop_front() {
            None => {}
            Some(WorkerMessage::ReleaseReserved(connection)) => self.release_reserved(connection),
            Some(WorkerMessage::Evict(connection, key)) => {
                if let Some((_, state)) = self.connections.get(&connection) {
                    assert!(
                        matches!(state, ServerState::Idle | ServerState::Kept(_)),
                        "an evicted connection is in use"
                    );
                    self.close(connection);
                }
                self.pool.eviction_done(&key);
                self.check_unserved[thread] = true;
            }
            Some(WorkerMessage::TakeServer(key, client)) => {
                let connection = self.new_number(thread);
                self.connections.insert(connection, (key, ServerState::Idle));
                self.assign(client, connection);
            }
            Some(WorkerMessage::Pause(version, pauses)) => self.read_pauses(thread, version, pauses),
        }
    }

    fn close(&mut self, connection: Number) {
        let Some((key, state)) = self.connections.remove(&connection) else { return };
        if let ServerState::Busy(client) = state {
            self.clients.remove(&client);
        }
        self.pool.closed(&key, Some(connection));
        self.check_unserved[connection.thread()] = true;
    }

    fn disconnect(&mut self, client: Number) {
        let Some((key, state)) = self.clients.remove(&client) else { return };
        match state {
            ClientState::Queued => self.pool.leave_queue(&key, client),
            ClientState::Active(connection) => self.set(connection, ServerState::Resetting),
            ClientState::Parked(last_server) if self.is_kept_for(last_server, client) => {
                if let Some(is_kept) = self.pool.orphan(&key, last_server) {
                    self.kept(last_server, key, is_kept);
                }
            }
            ClientState::Parked(_) => {}
        }
    }

    fn is_kept_for(&self, last_server: Number, client: Number) -> bool {
        self.connections.get(&last_server).is_some_and(|(_, state)| *state == ServerState::Kept(client))
    }

    fn expire_kept(&mut self, at: usize) {
        let is_kept = |state: &ServerState| matches!(state, ServerState::Kept(_));
        if let Some((connection, key)) = pick(&self.connections, at, is_kept)
            && self.pool.take_kept(&key, connection)
        {
            self.set(connection, ServerState::Resetting);
        }
    }

    fn end_transaction(&mut self, at: usize) {
        let is_active = |state: &ClientState| matches!(state, ClientState::Active(_));
        let Some((client, key)) = pick(&self.clients, at, is_active) else { return };
        let Some((_, state)) = self.clients.get_mut(&client) else { return };
        if let ClientState::Active(connection) = *state {
            *state = ClientState::Parked(connection);
            self.set(connection, ServerState::Kept(client));
            let is_kept = self.pool.keep(&key, connection);
            self.kept(connection, key, is_kept);
        }
    }

    fn begin_transaction(&mut self, at: usize) {
        let is_parked = |state: &ClientState| matches!(state, ClientState::Parked(_));
        let Some((client, key)) = pick(&self.clients, at, is_parked) else { return };
        match self.clients[&client].1 {
            ClientState::Parked(last_server)
                if self.is_kept_for(last_server, client) && self.pool.resume_kept(&key, last_server) =>
            {
                self.check_not_paused(key);
                self.clients.insert(client, (key, ClientState::Active(last_server)));
                self.set(last_server, ServerState::Busy(client));
            }
            _ => self.queue(client, key),
        }
    }

    fn take_opening(&mut self, at: usize) -> Option<(usize, Name)> {
        let count = self.opening.len();
        (count > 0).then(|| self.opening.remove(at % count))
    }

    fn connect_done(&mut self, at: usize) {
        let Some((thread, key)) = self.take_opening(at) else { return };
        let connection = self.new_number(thread);
        self.connections.insert(connection, (key, ServerState::Idle));
        self.pool.opened(&key);
        self.is_new = true;
        self.return_to_pool(connection);
        self.is_new = false;
    }

    fn connect_fails(&mut self, at: usize) {
        let Some((thread, key)) = self.take_opening(at) else { return };
        self.pool.opened(&key);
        if let Some(client) = self.pool.pop_waiting(&key) {
            self.disconnect(client);
        }
        self.pool.closed(&key, None);
        self.check_unserved[thread] = true;
    }

    /// The pool's count is right.
    fn check(&self) {
        let is_moving = |message: &&WorkerMessage| matches!(message, WorkerMessage::TakeServer(..));
        let moving = self.mailboxes.iter().flatten().filter(is_moving);
        let open = self.connections.len() + self.opening.len() + moving.count();
        assert_eq!(self.pool.open(), open);
        for (connection, (_, state)) in &self.connections {
            if let ServerState::Busy(client) = state {
                assert_eq!(self.clients[client].1, ClientState::Active(*connection));
            }
        }
    }

    /// Runs until nothing is pending, for so long that all unused connections count as unused.
    fn settle(&mut self) {
        let until = self.now + Duration::from_secs(2);
        loop {
            let event: Event =
                if let Some(thread) = self.mailboxes.iter().position(|mailbox| !mailbox.is_empty()) {
                    ("read", Self::read_message, thread)
                } else if !self.opening.is_empty() {
                    ("connected", Self::connect_done, 0)
                } else if self.connections.values().any(|(_, state)| *state == ServerState::Resetting) {
                    ("reset", Self::reset_done, 0)
                } else if self.now < until {
                    ("time passes", Self::pass_time, 4)
                } else {
                    return;
                };
            self.apply(event);
        }
    }

    /// No client waits while a connection is free or could be opened, unless its key is paused. A paused key has only the
    /// connections that clients still use.
    fn check_settled(&self) {
        for (key, _) in self
            .clients
            .values()
            .filter(|(key, state)| *state == ClientState::Queued && !self.pauses.contains(key))
        {
            assert!(!self.has_room(key), "a connection could be opened, and a client of {key} waits");
            assert!(!self.can_make_room(key), "a connection is unused, and a client of {key} waits");
        }
        let is_free = |state: &ServerState| !matches!(state, ServerState::Busy(_));
        for key in &self.pauses {
            let used = self.connections.values().filter(|(of, _)| of == key);
            let used =
                used.inspect(|(_, state)| assert!(!is_free(state), "{key} is paused, and has {state:?}"));
            assert_eq!(self.pool.open_of(|of| of == key), used.count());
        }
    }
}

proptest! {
    #[test]
    fn no_client_waits_while_a_connection_is_available(
        limit in 1..4_usize,
        events in proptest::collection::vec(event(), 1..80),
    ) {
        let mut model = Model::new(limit);
        for event in events {
            let (before, changes_limits) = (model.surplus(), event.0.starts_with("the limit"));
            model.apply(event);
            let is_within = model.surplus().iter().zip(&before).all(|(after, before)| after <= before);
            prop_assert!(is_within || changes_limits, "more connections than permitted: {:?}", model.surplus());
        }
        model.settle();
        model.check_settled();
        // Nothing is reserved for a user that has no clients any more.
        for limit in model.groups.users.values_mut().chain(model.groups.databases.values_mut()) {
            limit.warm = 0;
        }
        model.apply(("the limits change", |model, _| model.apply_limits(), 0));
        model.settle();
        model.check_settled();
        model.pauses.clear();
        model.send_pauses();
        model.settle();
        model.check_settled();
        // All clients with a connection leave, one after the other: each of the others gets one.
        let mut left = model.clients.len();
        while let Some((client, _)) = pick(&model.clients, left, |state| *state != ClientState::Queued) {
            model.disconnect(client);
            model.settle();
            model.check_settled();
            prop_assert_eq!(model.clients.len(), left - 1);
            left -= 1;
        }
        prop_assert_eq!(left, 0, "clients wait for ever");
    }
}
