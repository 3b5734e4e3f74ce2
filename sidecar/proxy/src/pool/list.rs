//! Doubly linked lists over one table. A member is found by its slot, so every operation takes constant time and
//! hashes nothing, and memory is allocated only for new slots. A member is in one list at most.

/// An ID of something that belongs to one worker.
pub trait WorkerBound: Copy + Eq {
    fn thread(self) -> usize;

    /// A small number that no other value of the same type has at the same time.
    fn slot(self) -> usize;
}

/// Lists of members `M`, each with a value.
pub(super) struct Lists<M, V> {
    /// By slot.
    nodes: Vec<Option<Node<M, V>>>,
    ends: Vec<ListEnds>,
    unused: Vec<ListId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ListId(usize);

#[derive(Clone, Copy)]
struct Node<M, V> {
    member: M,
    value: V,
    list: ListId,
    before: Option<usize>,
    after: Option<usize>,
}

#[derive(Clone, Copy, Default)]
struct ListEnds {
    first: Option<usize>,
    last: Option<usize>,
    length: usize,
}

impl<M, V> Default for Lists<M, V> {
    fn default() -> Self {
        Self { nodes: Vec::new(), ends: Vec::new(), unused: Vec::new() }
    }
}

impl<M: WorkerBound, V: Copy> Lists<M, V> {
    pub(super) fn create(&mut self) -> ListId {
        self.unused.pop().unwrap_or_else(|| {
            self.ends.push(ListEnds::default());
            ListId(self.ends.len() - 1)
        })
    }

    /// Allows an empty list to be created again.
    pub(super) fn discard(&mut self, list: ListId) {
        debug_assert_eq!(self.len(list), 0, "members would be lost");
        self.unused.push(list);
    }

    pub(super) fn len(&self, list: ListId) -> usize {
        self.ends[list.0].length
    }

    /// Adds a member at the end, after removing it from the list that it is in.
    pub(super) fn push_back(&mut self, list: ListId, member: M, value: V) {
        self.remove(member);
        let before = self.ends[list.0].last;
        self.insert(Node { member, value, list, before, after: None });
    }

    /// Adds a member at the front, after removing it from the list that it is in.
    pub(super) fn push_front(&mut self, list: ListId, member: M, value: V) {
        self.remove(member);
        let after = self.ends[list.0].first;
        self.insert(Node { member, value, list, before: None, after });
    }

    fn insert(&mut self, node: Node<M, V>) {
        let slot = node.member.slot();
        self.link(node.list, node.before, Some(slot), node.after);
        self.ends[node.list.0].length += 1;
        if self.nodes.len() <= slot {
            self.nodes.resize_with(slot + 1, || None);
        }
        self.nodes[slot] = Some(node);
    }

    /// Makes `node`, or nothing, the only member between two neighbours.
    fn link(&mut self, list: ListId, before: Option<usize>, node: Option<usize>, after: Option<usize>) {
        match before.and_then(|slot| self.nodes[slot].as_mut()) {
            Some(neighbour) => neighbour.after = node.or(after),
            None => self.ends[list.0].first = node.or(after),
        }
        match after.and_then(|slot| self.nodes[slot].as_mut()) {
            Some(neighbour) => neighbour.before = node.or(before),
            None => self.ends[list.0].last = node.or(before),
        }
    }

    fn node(&self, member: M) -> Option<&Node<M, V>> {
        self.nodes.get(member.slot())?.as_ref().filter(|node| node.member == member)
    }

    pub(super) fn contains(&self, list: ListId, member: M) -> bool {
        self.node(member).is_some_and(|node| node.list == list)
    }

    /// Removes a member from the list that it is in.
    pub(super) fn remove(&mut self, member: M) -> Option<(ListId, V)> {
        let Node { value, list, before, after, .. } = *self.node(member)?;
        self.nodes[member.slot()] = None;
        self.link(list, before, None, after);
        self.ends[list.0].length -= 1;
        Some((list, value))
    }

    /// Removes a member if it is in this list.
    pub(super) fn remove_from(&mut self, list: ListId, member: M) -> bool {
        self.contains(list, member) && self.remove(member).is_some()
    }

    pub(super) fn first(&self, list: ListId) -> Option<(M, V)> {
        self.at(self.ends[list.0].first)
    }

    pub(super) fn last(&self, list: ListId) -> Option<(M, V)> {
        self.at(self.ends[list.0].last)
    }

    pub(super) fn iter(&self, list: ListId) -> impl Iterator<Item = (M, V)> {
        let after = |(member, _): &(M, V)| self.at(self.node(*member)?.after);
        std::iter::successors(self.first(list), after)
    }

    fn at(&self, slot: Option<usize>) -> Option<(M, V)> {
        self.nodes[slot?].as_ref().map(|node| (node.member, node.value))
    }
}

/// Connections in the order in which they were added, of each worker and overall.
#[derive(Default)]
pub(super) struct Connections {
    /// The list of each worker.
    threads: Vec<ListId>,
    count: usize,
}

/// The value of a member is its place in the order of all connections.
pub(super) type ConnectionLists<S> = Lists<S, u64>;

impl Connections {
    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn push<S: WorkerBound>(&mut self, lists: &mut ConnectionLists<S>, server: S, order: u64) {
        while self.threads.len() <= server.thread() {
            self.threads.push(lists.create());
        }
        lists.push_back(self.threads[server.thread()], server, order);
        self.count += 1;
    }

    pub(super) fn contains<S: WorkerBound>(&self, lists: &ConnectionLists<S>, server: S) -> bool {
        self.threads.get(server.thread()).is_some_and(|list| lists.contains(*list, server))
    }

    pub(super) fn remove<S: WorkerBound>(&mut self, lists: &mut ConnectionLists<S>, server: S) -> bool {
        let own = self.threads.get(server.thread());
        let was_member = own.is_some_and(|list| lists.remove_from(*list, server));
        self.count -= usize::from(was_member);
        was_member
    }

    /// The newest connection of this worker.
    pub(super) fn newest_of<S: WorkerBound>(
        &self,
        lists: &ConnectionLists<S>,
        thread: usize,
    ) -> Option<(S, u64)> {
        lists.last(*self.threads.get(thread)?)
    }

    /// Takes the newest connection of all workers.
    pub(super) fn take_newest<S: WorkerBound>(&mut self, lists: &mut ConnectionLists<S>) -> Option<S> {
        let newest = self.threads.iter().filter_map(|list| lists.last(*list)).max_by_key(|(_, order)| *order);
        newest.map(|(server, _)| server).filter(|server| self.remove(lists, *server))
    }

    /// Takes the oldest connection of this worker, or of all workers if it has none: one of the first `until`.
    pub(super) fn take_oldest<S: WorkerBound>(
        &mut self,
        lists: &mut ConnectionLists<S>,
        thread: usize,
        until: u64,
    ) -> Option<S> {
        let first = |list: &ListId| lists.first(*list).filter(|(_, order)| *order <= until);
        let of_all = || self.threads.iter().filter_map(first).min_by_key(|(_, order)| *order);
        let oldest = self.threads.get(thread).and_then(first).or_else(of_all);
        oldest.map(|(server, _)| server).filter(|server| self.remove(lists, *server))
    }

    /// Whether there is a connection of the first `until`.
    pub(super) fn has_until<S: WorkerBound>(&self, lists: &ConnectionLists<S>, until: u64) -> bool {
        self.threads.iter().filter_map(|list| lists.first(*list)).any(|(_, order)| order <= until)
    }

    /// Allows the lists, which must be empty, to be used for another key.
    pub(super) fn discard<S: WorkerBound>(self, lists: &mut ConnectionLists<S>) {
        self.threads.into_iter().for_each(|list| lists.discard(list));
    }
}

#[cfg(test)]
mod tests;
