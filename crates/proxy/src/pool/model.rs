//! What threads do with a pool that they share, without sockets: whatever comes to pass in whatever order, with letters that
//! take any time, nobody waits in the end while a connection could be had.
//!
//! Each step here is what the engine does between two looks into its box; the pool's own acts are the engine's.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::*;

const THREADS: usize = 3;

type Name = &'static str;
const KEYS: [Name; 2] = ["shop", "till"];

/// A connection, or a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Number(usize, u32);

impl Local for Number {
    fn thread(self) -> usize {
        self.0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Duty {
    Idle,
    Busy(Number),
    Kept(Number),
    Resetting,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Queued,
    Attached(Number),
    /// With the connection that it had last.
    Parked(Number),
}

#[derive(Debug)]
enum Letter {
    GiveBack(Number),
    Evict(Number, Name),
    Take(Name, Number),
}

/// Something comes to pass; of those to whom it could, the one at this place.
#[derive(Clone, Debug)]
enum Step {
    Comes(usize, usize),
    Leaves(usize),
    Rests(usize),
    Speaks(usize),
    IsReset(usize),
    IsKeptNoMore(usize),
    Breaks(usize),
    Opens(usize),
    IsNotOpened(usize),
    Reads(usize),
    IsLimited(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let any = 0..8_usize;
    prop_oneof![
        6 => (0..THREADS, 0..KEYS.len()).prop_map(|(thread, key)| Step::Comes(thread, key)),
        3 => any.clone().prop_map(Step::Leaves),
        3 => any.clone().prop_map(Step::Rests),
        3 => any.clone().prop_map(Step::Speaks),
        3 => any.clone().prop_map(Step::IsReset),
        1 => any.clone().prop_map(Step::IsKeptNoMore),
        1 => any.clone().prop_map(Step::Breaks),
        4 => any.clone().prop_map(Step::Opens),
        1 => any.clone().prop_map(Step::IsNotOpened),
        6 => (0..THREADS).prop_map(Step::Reads),
        1 => (1..5_usize).prop_map(Step::IsLimited),
    ]
}

struct World {
    pool: Pool<Name, Number, Number>,
    limit: usize,
    connections: BTreeMap<Number, (Name, Duty)>,
    clients: BTreeMap<Number, (Name, Stage)>,
    opening: Vec<(usize, Name)>,
    boxes: [VecDeque<Letter>; THREADS],
    /// Threads that look for those in want before they sleep. No others do.
    wanting: [bool; THREADS],
    next: u32,
    began: Instant,
}

/// One of those of which this holds.
fn pick<T>(
    from: &BTreeMap<Number, (Name, T)>,
    at: usize,
    holds: impl Fn(&T) -> bool,
) -> Option<(Number, Name)> {
    let all: Vec<_> = from.iter().filter(|(_, (_, what))| holds(what)).collect();
    let (number, (key, _)) = all.get(at % all.len().max(1))?;
    Some((**number, *key))
}

impl World {
    fn new(limit: usize) -> Self {
        Self {
            pool: Pool::new(limit),
            limit,
            connections: BTreeMap::new(),
            clients: BTreeMap::new(),
            opening: Vec::new(),
            boxes: Default::default(),
            wanting: [false; THREADS],
            next: 0,
            began: Instant::now(),
        }
    }

    fn number(&mut self, thread: usize) -> Number {
        self.next += 1;
        Number(thread, self.next)
    }

    fn set(&mut self, connection: Number, to: Duty) {
        if let Some((_, duty)) = self.connections.get_mut(&connection) {
            *duty = to;
        }
    }

    fn come_to_pass(&mut self, step: &Step) {
        match *step {
            Step::Comes(thread, key) => {
                let client = self.number(thread);
                self.queue(client, KEYS[key]);
            }
            Step::Leaves(at) => {
                if let Some((client, _)) = pick(&self.clients, at, |_| true) {
                    self.leave(client);
                }
            }
            Step::Rests(at) => self.rest(at),
            Step::Speaks(at) => self.speak(at),
            Step::IsReset(at) => {
                if let Some((connection, _)) = pick(&self.connections, at, |duty| *duty == Duty::Resetting) {
                    self.hand_over(connection);
                }
            }
            Step::IsKeptNoMore(at) => {
                let is_kept = |duty: &Duty| matches!(duty, Duty::Kept(_));
                if let Some((connection, key)) = pick(&self.connections, at, is_kept) {
                    self.keep_no_more(connection, key);
                }
            }
            Step::Breaks(at) => {
                if let Some((connection, _)) = pick(&self.connections, at, |_| true) {
                    self.close(connection);
                }
            }
            Step::Opens(at) => self.opened(at),
            Step::IsNotOpened(at) => self.not_opened(at),
            Step::Reads(thread) => self.read(thread),
            Step::IsLimited(limit) => {
                self.limit = limit;
                self.pool.set_limit(limit);
                self.wanting = [true; THREADS];
            }
        }
        for thread in 0..THREADS {
            while std::mem::take(&mut self.wanting[thread]) {
                self.relieve(thread);
            }
        }
        self.check();
    }

    fn queue(&mut self, client: Number, key: Name) {
        self.clients.insert(client, (key, Stage::Queued));
        match self.pool.ask(&key, client, self.began) {
            Asked::Take(connection) => self.attach(client, connection),
            asked => self.act(client.thread(), key, asked),
        }
    }

    fn attach(&mut self, client: Number, connection: Number) {
        assert_eq!(client.thread(), connection.thread());
        match self.clients.get_mut(&client) {
            Some((key, stage @ Stage::Queued)) => {
                assert_eq!(*key, self.connections[&connection].0);
                *stage = Stage::Attached(connection);
                self.set(connection, Duty::Busy(client));
            }
            _ => self.hand_over(connection),
        }
    }

    fn act(&mut self, thread: usize, key: Name, mut asked: Asked<Number>) {
        loop {
            match asked {
                Asked::Open => return self.opening.push((thread, key)),
                Asked::Fetch(connection) | Asked::Steal(connection) if connection.thread() == thread => {
                    return self.give_back_again(connection);
                }
                Asked::Fetch(connection) | Asked::Steal(connection) => {
                    return self.boxes[connection.thread()].push_back(Letter::GiveBack(connection));
                }
                Asked::Evict(connection) if connection.thread() == thread => {
                    self.close(connection);
                    self.pool.evicted(&key);
                    asked = self.pool.refill(&key, thread);
                }
                Asked::Evict(connection) => {
                    return self.boxes[connection.thread()].push_back(Letter::Evict(connection, key));
                }
                Asked::Take(_) | Asked::Wait => return,
            }
        }
    }

    fn relieve(&mut self, thread: usize) {
        while let Some(key) = self.pool.in_want() {
            match self.pool.refill(&key, thread) {
                Asked::Take(_) | Asked::Wait => return,
                asked => self.act(thread, key, asked),
            }
        }
    }

    fn give_back_again(&mut self, connection: Number) {
        let Some((key, duty)) = self.connections.get(&connection) else { return };
        if !self.pool.is_coming(key, connection) {
            return;
        }
        match duty {
            Duty::Idle => self.hand_over(connection),
            Duty::Kept(_) => self.steal(connection, key),
            Duty::Busy(_) | Duty::Resetting => {}
        }
    }

    /// Half of the clients can have a connection as it is.
    fn steal(&mut self, connection: Number, key: Name) {
        match self.pool.give_as_it_is(&key, connection, |client| client.1 % 2 == 0) {
            Some(client) => self.attach(client, connection),
            None => self.set(connection, Duty::Resetting),
        }
    }

    fn hand_over(&mut self, connection: Number) {
        let (key, _) = self.connections[&connection];
        if self.pool.is_over() {
            return self.close(connection);
        }
        self.set(connection, Duty::Idle);
        match self.pool.give_back(&key, connection) {
            None => self.wanting[connection.thread()] = true,
            Some(client) if client.thread() == connection.thread() => self.attach(client, connection),
            Some(client) => {
                self.connections.remove(&connection);
                self.boxes[client.thread()].push_back(Letter::Take(key, client));
            }
        }
    }

    fn read(&mut self, thread: usize) {
        match self.boxes[thread].pop_front() {
            None => {}
            Some(Letter::GiveBack(connection)) => self.give_back_again(connection),
            Some(Letter::Evict(connection, key)) => {
                if let Some((_, duty)) = self.connections.get(&connection) {
                    assert!(matches!(duty, Duty::Idle | Duty::Kept(_)), "somebody has what is evicted");
                    self.close(connection);
                }
                self.pool.evicted(&key);
                self.wanting[thread] = true;
            }
            Some(Letter::Take(key, client)) => {
                let connection = self.number(thread);
                self.connections.insert(connection, (key, Duty::Idle));
                self.attach(client, connection);
            }
        }
    }

    fn close(&mut self, connection: Number) {
        let Some((key, duty)) = self.connections.remove(&connection) else { return };
        if let Duty::Busy(client) = duty {
            self.clients.remove(&client);
        }
        self.pool.closed(&key, Some(connection));
        self.wanting[connection.thread()] = true;
    }

    fn leave(&mut self, client: Number) {
        let Some((key, stage)) = self.clients.remove(&client) else { return };
        match stage {
            Stage::Queued => self.pool.forget(&key, client),
            Stage::Attached(connection) => self.set(connection, Duty::Resetting),
            Stage::Parked(home) if self.is_kept_for(home, client) && self.pool.unkeep(&key, home) => {
                match self.pool.leave(&key, home) {
                    Kept::ForThoseThatWait => self.steal(home, key),
                    Kept::ForItsClient => self.wanting[home.thread()] = true,
                }
            }
            Stage::Parked(_) => {}
        }
    }

    fn is_kept_for(&self, home: Number, client: Number) -> bool {
        self.connections.get(&home).is_some_and(|(_, duty)| *duty == Duty::Kept(client))
    }

    fn keep_no_more(&mut self, connection: Number, key: Name) {
        if self.pool.unkeep(&key, connection) {
            self.set(connection, Duty::Resetting);
        }
    }

    fn rest(&mut self, at: usize) {
        let is_attached = |stage: &Stage| matches!(stage, Stage::Attached(_));
        let Some((client, key)) = pick(&self.clients, at, is_attached) else { return };
        let Some((_, stage)) = self.clients.get_mut(&client) else { return };
        if let Stage::Attached(connection) = *stage {
            *stage = Stage::Parked(connection);
            self.set(connection, Duty::Kept(client));
            match self.pool.keep(&key, connection) {
                Kept::ForThoseThatWait => self.steal(connection, key),
                Kept::ForItsClient => self.wanting[connection.thread()] = true,
            }
        }
    }

    fn speak(&mut self, at: usize) {
        let is_parked = |stage: &Stage| matches!(stage, Stage::Parked(_));
        let Some((client, key)) = pick(&self.clients, at, is_parked) else { return };
        match self.clients[&client].1 {
            Stage::Parked(home) if self.is_kept_for(home, client) && self.pool.unkeep(&key, home) => {
                self.clients.insert(client, (key, Stage::Attached(home)));
                self.set(home, Duty::Busy(client));
            }
            _ => self.queue(client, key),
        }
    }

    fn opened(&mut self, at: usize) {
        if self.opening.is_empty() {
            return;
        }
        let (thread, key) = self.opening.remove(at % self.opening.len());
        let connection = self.number(thread);
        self.connections.insert(connection, (key, Duty::Idle));
        self.pool.opened(&key);
        self.hand_over(connection);
    }

    fn not_opened(&mut self, at: usize) {
        if self.opening.is_empty() {
            return;
        }
        let (thread, key) = self.opening.remove(at % self.opening.len());
        self.pool.opened(&key);
        if let Some(client) = self.pool.first_waiting(&key) {
            self.leave(client);
        }
        self.pool.closed(&key, None);
        self.wanting[thread] = true;
    }

    /// The pool counts what there is.
    fn check(&self) {
        let moving = self.boxes.iter().flatten().filter(|letter| matches!(letter, Letter::Take(..)));
        let open = self.connections.len() + self.opening.len() + moving.count();
        assert_eq!(self.pool.open(), open);
        for (connection, (_, duty)) in &self.connections {
            if let Duty::Busy(client) = duty {
                assert_eq!(self.clients[client].1, Stage::Attached(*connection));
            }
        }
    }

    /// Goes on until nothing is on its way.
    fn settle(&mut self) {
        let is_reset = |duty: &Duty| *duty == Duty::Resetting;
        loop {
            let step = if let Some(thread) = (0..THREADS).find(|thread| !self.boxes[*thread].is_empty()) {
                Step::Reads(thread)
            } else if !self.opening.is_empty() {
                Step::Opens(0)
            } else if pick(&self.connections, 0, is_reset).is_some() {
                Step::IsReset(0)
            } else {
                return;
            };
            self.come_to_pass(&step);
        }
    }

    /// Nobody waits while a connection could be had.
    fn check_settled(&self) {
        let waits = self.clients.values().any(|(_, stage)| *stage == Stage::Queued);
        let is_free = |duty: &Duty| !matches!(duty, Duty::Busy(_));
        let free = pick(&self.connections, 0, is_free);
        assert!(!waits || free.is_none(), "{free:?} is free, and somebody waits");
        assert!(!waits || self.pool.open() >= self.limit, "one could be opened, and somebody waits");
    }
}

proptest! {
    #[test]
    fn nobody_waits_while_a_connection_could_be_had(
        limit in 1..4_usize,
        steps in proptest::collection::vec(step(), 1..80),
    ) {
        let mut world = World::new(limit);
        for step in &steps {
            let before = world.pool.open();
            world.come_to_pass(step);
            let after = world.pool.open();
            prop_assert!(after <= before.max(world.limit), "{after} connections of {}", world.limit);
        }
        world.settle();
        world.check_settled();
        // Whoever has one leaves, one after the other: the last one has had one, too.
        let mut left = world.clients.len();
        while let Some((client, _)) = pick(&world.clients, left, |stage| *stage != Stage::Queued) {
            world.leave(client);
            world.settle();
            world.check_settled();
            prop_assert_eq!(world.clients.len(), left - 1);
            left -= 1;
        }
        prop_assert_eq!(left, 0, "clients wait for ever");
    }
}
