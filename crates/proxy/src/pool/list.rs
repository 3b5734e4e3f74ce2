//! Lists with an index: constant time to find and remove a member.

use std::collections::HashMap;
use std::hash::Hash;

use super::WorkerBound;

/// An ordered map: a doubly linked list whose links are keys.
pub(super) struct LinkedMap<K, V> {
    nodes: HashMap<K, Node<K, V>>,
    first: Option<K>,
    last: Option<K>,
}

struct Node<K, V> {
    value: V,
    before: Option<K>,
    after: Option<K>,
}

impl<K, V> Default for LinkedMap<K, V> {
    fn default() -> Self {
        Self { nodes: HashMap::new(), first: None, last: None }
    }
}

impl<K: Copy + Eq + Hash, V: Copy> LinkedMap<K, V> {
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Adds a member at the end, or moves it there.
    pub(super) fn push_back(&mut self, key: K, value: V) {
        self.remove(key);
        let before = self.last.replace(key);
        match before.and_then(|last| self.nodes.get_mut(&last)) {
            Some(last) => last.after = Some(key),
            None => self.first = Some(key),
        }
        self.nodes.insert(key, Node { value, before, after: None });
    }

    /// Adds a member at the front, or moves it there.
    pub(super) fn push_front(&mut self, key: K, value: V) {
        self.remove(key);
        let after = self.first.replace(key);
        match after.and_then(|first| self.nodes.get_mut(&first)) {
            Some(first) => first.before = Some(key),
            None => self.last = Some(key),
        }
        self.nodes.insert(key, Node { value, before: None, after });
    }

    pub(super) fn remove(&mut self, key: K) -> Option<V> {
        let Node { value, before, after } = self.nodes.remove(&key)?;
        match before.and_then(|before| self.nodes.get_mut(&before)) {
            Some(node) => node.after = after,
            None => self.first = after,
        }
        match after.and_then(|after| self.nodes.get_mut(&after)) {
            Some(node) => node.before = before,
            None => self.last = before,
        }
        Some(value)
    }

    pub(super) fn first(&self) -> Option<(K, V)> {
        self.member(self.first)
    }

    pub(super) fn last(&self) -> Option<(K, V)> {
        self.member(self.last)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (K, V)> {
        let after = |(key, _): &(K, V)| self.member(self.nodes.get(key)?.after);
        std::iter::successors(self.first(), after)
    }

    fn member(&self, key: Option<K>) -> Option<(K, V)> {
        key.and_then(|key| Some((key, self.nodes.get(&key)?.value)))
    }
}

/// Connections in the order in which they were added, of each worker and overall.
pub(super) struct Connections<S> {
    /// With numbers that give the overall order.
    threads: Vec<LinkedMap<S, u64>>,
    next: u64,
}

impl<S> Default for Connections<S> {
    fn default() -> Self {
        Self { threads: Vec::new(), next: 0 }
    }
}

impl<S: WorkerBound> Connections<S> {
    pub(super) fn is_empty(&self) -> bool {
        self.threads.iter().all(LinkedMap::is_empty)
    }

    pub(super) fn push(&mut self, server: S) {
        let thread = server.thread();
        if self.threads.len() <= thread {
            self.threads.resize_with(thread + 1, LinkedMap::default);
        }
        self.threads[thread].push_back(server, self.next);
        self.next += 1;
    }

    pub(super) fn remove(&mut self, server: S) -> bool {
        self.threads.get_mut(server.thread()).is_some_and(|own| own.remove(server).is_some())
    }

    pub(super) fn take_newest_of(&mut self, thread: usize) -> Option<S> {
        let (server, _) = self.threads.get(thread)?.last()?;
        self.remove(server).then_some(server)
    }

    /// Takes the newest connection of all workers.
    pub(super) fn take_newest(&mut self) -> Option<S> {
        let newest = self.threads.iter().filter_map(LinkedMap::last).max_by_key(|(_, number)| *number);
        newest.map(|(server, _)| server).filter(|server| self.remove(*server))
    }

    /// Takes the oldest connection of this worker, or of all workers if it has none.
    pub(super) fn take_oldest(&mut self, thread: usize) -> Option<S> {
        let of_all = || self.threads.iter().filter_map(LinkedMap::first).min_by_key(|(_, number)| *number);
        let oldest = self.threads.get(thread).and_then(LinkedMap::first).or_else(of_all);
        oldest.map(|(server, _)| server).filter(|server| self.remove(*server))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The remainder of the number is the worker.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    struct TestServer(u8);

    impl WorkerBound for TestServer {
        fn thread(self) -> usize {
            usize::from(self.0 % 3)
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        PushBack(u8),
        PushFront(u8),
        Remove(u8),
        TakeNewestOf(usize),
        TakeNewest,
        TakeOldest(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..12_u8).prop_map(Step::PushBack),
            1 => (0..12_u8).prop_map(Step::PushFront),
            3 => (0..12_u8).prop_map(Step::Remove),
            1 => (0..4_usize).prop_map(Step::TakeNewestOf),
            1 => Just(Step::TakeNewest),
            1 => (0..4_usize).prop_map(Step::TakeOldest),
        ]
    }

    /// The same operations on a vector.
    #[derive(Default)]
    struct Naive(Vec<TestServer>);

    impl Naive {
        fn remove(&mut self, server: TestServer) -> bool {
            let before = self.0.len();
            self.0.retain(|other| *other != server);
            self.0.len() < before
        }

        fn take_newest_of(&mut self, thread: usize) -> Option<TestServer> {
            self.0.iter().rposition(|server| server.thread() == thread).map(|at| self.0.remove(at))
        }

        fn take_oldest(&mut self, thread: usize) -> Option<TestServer> {
            let near = self.0.iter().position(|server| server.thread() == thread).unwrap_or_default();
            (!self.0.is_empty()).then(|| self.0.remove(near))
        }
    }

    proptest! {
        #[test]
        fn connections_behave_like_a_naive_list(steps in proptest::collection::vec(step(), 1..100)) {
            let (mut connections, mut naive) = (Connections::default(), Naive::default());
            for step in steps {
                match step {
                    Step::PushBack(number) | Step::PushFront(number) => {
                        connections.push(TestServer(number));
                        naive.remove(TestServer(number));
                        naive.0.push(TestServer(number));
                    }
                    Step::Remove(number) => {
                        prop_assert_eq!(connections.remove(TestServer(number)), naive.remove(TestServer(number)));
                    }
                    Step::TakeNewestOf(thread) => {
                        prop_assert_eq!(connections.take_newest_of(thread), naive.take_newest_of(thread));
                    }
                    Step::TakeNewest => prop_assert_eq!(connections.take_newest(), naive.0.pop()),
                    Step::TakeOldest(thread) => {
                        prop_assert_eq!(connections.take_oldest(thread), naive.take_oldest(thread));
                    }
                }
                prop_assert_eq!(connections.is_empty(), naive.0.is_empty());
            }
        }

        #[test]
        fn a_linked_map_behaves_like_a_naive_list(steps in proptest::collection::vec(step(), 1..100)) {
            let (mut map, mut naive) = (LinkedMap::default(), Vec::new());
            for (value, step) in steps.into_iter().enumerate() {
                match step {
                    Step::PushBack(key) => {
                        map.push_back(key, value);
                        naive.retain(|(other, _)| *other != key);
                        naive.push((key, value));
                    }
                    Step::PushFront(key) => {
                        map.push_front(key, value);
                        naive.retain(|(other, _)| *other != key);
                        naive.insert(0, (key, value));
                    }
                    Step::Remove(key) => {
                        let at = naive.iter().position(|(other, _)| *other == key);
                        prop_assert_eq!(map.remove(key), at.map(|at| naive.remove(at).1));
                    }
                    Step::TakeNewestOf(_) | Step::TakeNewest | Step::TakeOldest(_) => {}
                }
                prop_assert_eq!(map.iter().collect::<Vec<_>>(), naive.clone());
                prop_assert_eq!((map.first(), map.last()), (naive.first().copied(), naive.last().copied()));
                prop_assert_eq!((map.len(), map.is_empty()), (naive.len(), naive.is_empty()));
            }
        }
    }
}
