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
mod tests;
