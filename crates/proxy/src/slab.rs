//! Things with numbers that are given again, but never so that one is taken for another.

/// Where a thing is, and which of those that have been there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Id {
    pub(crate) index: usize,
    generation: u32,
}

pub(crate) struct Slab<T> {
    places: Vec<Place<T>>,
    free: Vec<usize>,
    /// Freed since [`Slab::settle`]: events of the same wait may still tell of who was there.
    freed: Vec<usize>,
    count: usize,
}

struct Place<T> {
    generation: u32,
    thing: Option<T>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new(), freed: Vec::new(), count: 0 }
    }
}

impl<T> Slab<T> {
    pub(crate) fn insert(&mut self, thing: T) -> Id {
        self.count += 1;
        let index = self.free.pop().unwrap_or(self.places.len());
        if index == self.places.len() {
            self.places.push(Place { generation: 0, thing: None });
        }
        let place = &mut self.places[index];
        place.thing = Some(thing);
        Id { index, generation: place.generation }
    }

    pub(crate) fn get_mut(&mut self, id: Id) -> Option<&mut T> {
        let place = self.places.get_mut(id.index)?;
        if place.generation == id.generation { place.thing.as_mut() } else { None }
    }

    pub(crate) fn get(&self, id: Id) -> Option<&T> {
        let place = self.places.get(id.index)?;
        if place.generation == id.generation { place.thing.as_ref() } else { None }
    }

    pub(crate) fn remove(&mut self, id: Id) -> Option<T> {
        let place = self.places.get_mut(id.index).filter(|place| place.generation == id.generation)?;
        let thing = place.thing.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.freed.push(id.index);
        self.count -= 1;
        Some(thing)
    }

    /// Who is at this place now.
    pub(crate) fn at(&self, index: usize) -> Option<Id> {
        let place = self.places.get(index)?;
        place.thing.as_ref().map(|_| Id { index, generation: place.generation })
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
        (0..self.places.len()).filter_map(|index| self.at(index)).collect()
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
}
