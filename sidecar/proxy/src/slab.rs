//! Values with IDs. An ID is never valid for a later value in the same slot.

use crate::pool::WorkerBound;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Id {
    /// Unique among the values of all workers at a time.
    pub(crate) index: usize,
    /// The worker that has the value.
    thread: u32,
    generation: u32,
}

impl WorkerBound for Id {
    fn thread(self) -> usize {
        self.thread as usize
    }

    fn slot(self) -> usize {
        self.index
    }
}

pub(crate) struct Slab<T> {
    slots: Vec<SlabSlot<T>>,
    free: Vec<usize>,
    /// Removed since [`Slab::settle`]: events of the same wait may still refer to their values.
    freed: Vec<usize>,
    count: usize,
    thread: usize,
    /// Low bits of an index, which contain the number of the worker.
    thread_bits: u32,
}

/// Some IDs, and the slot from which to continue; `None` after the last slot.
pub(crate) struct IdsFrom {
    pub(crate) ids: Vec<Id>,
    pub(crate) next: Option<usize>,
}

struct SlabSlot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self::of_thread(0, 1)
    }
}

impl<T> Slab<T> {
    /// The slab of one worker. Workers share no indexes.
    pub(crate) fn of_thread(thread: usize, threads: usize) -> Self {
        let (free, freed) = (Vec::new(), Vec::new());
        let thread_bits = threads.next_power_of_two().trailing_zeros();
        Self { slots: Vec::new(), free, freed, count: 0, thread, thread_bits }
    }

    fn id(&self, at: usize, generation: u32) -> Id {
        Id { index: at << self.thread_bits | self.thread, thread: self.thread as u32, generation }
    }

    fn slot_mut(&mut self, id: Id) -> Option<&mut SlabSlot<T>> {
        let slot = self.slots.get_mut(id.index >> self.thread_bits)?;
        (slot.generation == id.generation && id.thread() == self.thread).then_some(slot)
    }

    pub(crate) fn insert(&mut self, value: T) -> Id {
        self.count += 1;
        let index = self.free.pop().unwrap_or(self.slots.len());
        if index == self.slots.len() {
            self.slots.push(SlabSlot { generation: 0, value: None });
        }
        let slot = &mut self.slots[index];
        slot.value = Some(value);
        let generation = slot.generation;
        self.id(index, generation)
    }

    pub(crate) fn get_mut(&mut self, id: Id) -> Option<&mut T> {
        self.slot_mut(id)?.value.as_mut()
    }

    pub(crate) fn get(&self, id: Id) -> Option<&T> {
        let slot = self.slots.get(id.index >> self.thread_bits)?;
        slot.value.as_ref().filter(|_| slot.generation == id.generation && id.thread() == self.thread)
    }

    pub(crate) fn remove(&mut self, id: Id) -> Option<T> {
        let value = self.slot_mut(id)?.value.take();
        if value.is_some() {
            self.free_slot(id);
        }
        value
    }

    /// Drops a value where it is: some are large.
    pub(crate) fn discard(&mut self, id: Id) {
        if let Some(slot) = self.slot_mut(id)
            && slot.value.is_some()
        {
            slot.value = None;
            self.free_slot(id);
        }
    }

    fn free_slot(&mut self, id: Id) {
        let at = id.index >> self.thread_bits;
        self.slots[at].generation = self.slots[at].generation.wrapping_add(1);
        self.freed.push(at);
        self.count -= 1;
    }

    /// The ID of the value that has this index now.
    pub(crate) fn at(&self, index: usize) -> Option<Id> {
        self.at_slot(index >> self.thread_bits)
    }

    fn at_slot(&self, at: usize) -> Option<Id> {
        let slot = self.slots.get(at)?;
        slot.value.as_ref().map(|_| self.id(at, slot.generation))
    }

    /// Allows the slots of removed values to be used again.
    pub(crate) fn settle(&mut self) {
        if !self.freed.is_empty() {
            self.free.append(&mut self.freed);
        }
    }

    /// IDs of the values in so many slots from this one on.
    pub(crate) fn ids_from(&self, from: usize, slots: usize) -> IdsFrom {
        let end = from.saturating_add(slots).min(self.slots.len());
        let ids = (from..end).filter_map(|at| self.at_slot(at)).collect();
        IdsFrom { ids, next: (end < self.slots.len()).then_some(end) }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.value.as_ref())
    }

    /// IDs of all values, which may be removed during iteration.
    pub(crate) fn ids(&self) -> Vec<Id> {
        (0..self.slots.len()).filter_map(|at| self.at_slot(at)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_not_used_again_before_it_is_settled() {
        let mut slab = Slab::default();
        let first = slab.insert('a');
        assert_eq!(slab.remove(first), Some('a'));
        let second = slab.insert('b');
        assert_ne!(first.index, second.index);
        slab.settle();
        let third = slab.insert('c');
        assert_eq!(first.index, third.index);
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.remove(first), None);
        slab.discard(first);
        assert_eq!(slab.at(third.index), Some(third));
        assert_eq!((slab.len(), slab.ids().len()), (2, 2));
        slab.discard(third);
        assert_eq!((slab.get(third), slab.len()), (None, 1));
    }

    #[test]
    fn workers_share_no_indexes_and_accept_only_their_own_ids() {
        let mut slabs = [Slab::of_thread(0, 2), Slab::of_thread(1, 2)];
        let ids: Vec<Id> = (0..4).map(|at| slabs[at % 2].insert(at)).collect();
        assert_eq!(ids.iter().map(|id| id.index).collect::<Vec<_>>(), [0, 1, 2, 3]);
        for (at, id) in ids.iter().enumerate() {
            assert_eq!((id.thread(), slabs[at % 2].at(id.index)), (at % 2, Some(*id)));
            assert_eq!((slabs[at % 2].get(*id), slabs[(at + 1) % 2].get(*id)), (Some(&at), None));
        }
        assert_eq!(slabs[1].ids(), [ids[1], ids[3]]);
    }
}
