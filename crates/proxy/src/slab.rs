//! Things with numbers that are given again, but never so that one is taken for another.

use crate::pool::Local;

/// Where a thing is, and which of those that have been there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Id {
    /// No two things of all threads have the same at a time.
    pub(crate) index: usize,
    /// Whose it is.
    thread: u32,
    generation: u32,
}

impl Local for Id {
    fn thread(self) -> usize {
        self.thread as usize
    }
}

pub(crate) struct Slab<T> {
    places: Vec<Place<T>>,
    free: Vec<usize>,
    /// Freed since [`Slab::settle`]: events of the same wait may still tell of who was there.
    freed: Vec<usize>,
    count: usize,
    thread: usize,
    /// From one of this thread's numbers to its next.
    step: usize,
}

struct Place<T> {
    generation: u32,
    thing: Option<T>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self::of_thread(0, 1)
    }
}

impl<T> Slab<T> {
    /// That of one thread of so many: what another one has, has other numbers.
    pub(crate) fn of_thread(thread: usize, threads: usize) -> Self {
        let (free, freed) = (Vec::new(), Vec::new());
        Self { places: Vec::new(), free, freed, count: 0, thread, step: threads.max(1) }
    }

    fn id(&self, at: usize, generation: u32) -> Id {
        Id { index: at * self.step + self.thread, thread: self.thread as u32, generation }
    }

    fn place(&self, id: Id) -> Option<&Place<T>> {
        let place = self.places.get(id.index / self.step)?;
        (place.generation == id.generation && id.thread() == self.thread).then_some(place)
    }

    fn place_mut(&mut self, id: Id) -> Option<&mut Place<T>> {
        let place = self.places.get_mut(id.index / self.step)?;
        (place.generation == id.generation && id.thread() == self.thread).then_some(place)
    }

    pub(crate) fn insert(&mut self, thing: T) -> Id {
        self.count += 1;
        let index = self.free.pop().unwrap_or(self.places.len());
        if index == self.places.len() {
            self.places.push(Place { generation: 0, thing: None });
        }
        let place = &mut self.places[index];
        place.thing = Some(thing);
        let generation = place.generation;
        self.id(index, generation)
    }

    pub(crate) fn get_mut(&mut self, id: Id) -> Option<&mut T> {
        self.place_mut(id)?.thing.as_mut()
    }

    pub(crate) fn get(&self, id: Id) -> Option<&T> {
        self.place(id)?.thing.as_ref()
    }

    pub(crate) fn remove(&mut self, id: Id) -> Option<T> {
        let place = self.place_mut(id)?;
        let thing = place.thing.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.freed.push(id.index / self.step);
        self.count -= 1;
        Some(thing)
    }

    /// Who has this number now.
    pub(crate) fn at(&self, index: usize) -> Option<Id> {
        self.at_place(index / self.step)
    }

    fn at_place(&self, at: usize) -> Option<Id> {
        let place = self.places.get(at)?;
        place.thing.as_ref().map(|_| self.id(at, place.generation))
    }

    /// Lets places be used again that were freed.
    pub(crate) fn settle(&mut self) {
        self.free.append(&mut self.freed);
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Those that there are, which may be removed while they are gone through.
    pub(crate) fn ids(&self) -> Vec<Id> {
        (0..self.places.len()).filter_map(|at| self.at_place(at)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_not_given_again_before_all_have_heard() {
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
        assert_eq!(slab.at(third.index), Some(third));
        assert_eq!((slab.len(), slab.ids().len()), (2, 2));
    }

    #[test]
    fn threads_share_no_numbers_and_take_none_of_another_for_their_own() {
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
