//! A list whose entries never move as it grows.

use std::ops::{Index, IndexMut};

use crate::LEAST;

/// Entries of one chunk: some 25 kB of them, which the allocator takes from the system and gives back in small pieces.
const CHUNK: usize = 256;

/// A list in chunks. One that is one piece of memory is copied into another of twice its length again and again as it grows: with a million
/// entries for a tenth of a second at once, up to half of it is empty, and the pieces before it are often not given back to the system.
#[derive(Clone, Debug)]
pub struct Rows<T> {
    /// All are full but the last one, and none is empty.
    chunks: Vec<Vec<T>>,
}

impl<T> Default for Rows<T> {
    fn default() -> Self {
        Self { chunks: Vec::new() }
    }
}

impl<T> Rows<T> {
    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.chunks.split_last().map_or(0, |(last, full)| full.len() * CHUNK + last.len())
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// For how many entries there is memory.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.chunks.iter().map(Vec::capacity).sum()
    }

    /// The entry at this place.
    #[must_use]
    pub fn get(&self, place: usize) -> Option<&T> {
        self.chunks.get(place / CHUNK)?.get(place % CHUNK)
    }

    /// The entry at this place, to be changed.
    pub fn get_mut(&mut self, place: usize) -> Option<&mut T> {
        self.chunks.get_mut(place / CHUNK)?.get_mut(place % CHUNK)
    }

    /// The last entry.
    #[must_use]
    pub fn last(&self) -> Option<&T> {
        self.chunks.last()?.last()
    }

    /// Puts an entry behind all others.
    pub fn push(&mut self, entry: T) {
        match self.chunks.last_mut() {
            Some(last) if last.len() < CHUNK => last.push(entry),
            // The first one grows with its entries: most lists are short.
            None => self.chunks.push(vec![entry]),
            Some(_) => {
                let mut next = Vec::with_capacity(CHUNK);
                next.push(entry);
                self.chunks.push(next);
            }
        }
    }

    /// Takes the last entry out, and gives memory back.
    pub fn pop(&mut self) -> Option<T> {
        let last = self.chunks.last_mut()?;
        let entry = last.pop();
        if last.is_empty() {
            self.chunks.pop();
        } else if last.capacity() > LEAST && last.len() < last.capacity() / 4 {
            last.shrink_to(2 * last.len());
        }
        entry
    }

    /// All entries, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten()
    }

    /// All entries, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.chunks.iter_mut().flatten()
    }
}

impl<T> IntoIterator for Rows<T> {
    type Item = T;
    type IntoIter = std::iter::Flatten<std::vec::IntoIter<Vec<T>>>;

    /// All entries; the memory of each chunk is given back once its last one was taken.
    fn into_iter(self) -> Self::IntoIter {
        self.chunks.into_iter().flatten()
    }
}

impl<T> Extend<T> for Rows<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, entries: I) {
        entries.into_iter().for_each(|entry| self.push(entry));
    }
}

impl<T> FromIterator<T> for Rows<T> {
    fn from_iter<I: IntoIterator<Item = T>>(entries: I) -> Self {
        let mut rows = Self::default();
        rows.extend(entries);
        rows
    }
}

impl<T> Index<usize> for Rows<T> {
    type Output = T;

    /// # Panics
    /// Where there is no entry.
    fn index(&self, place: usize) -> &T {
        self.get(place).expect("an entry at this place")
    }
}

impl<T> IndexMut<usize> for Rows<T> {
    /// # Panics
    /// Where there is no entry.
    fn index_mut(&mut self, place: usize) -> &mut T {
        self.get_mut(place).expect("an entry at this place")
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_holds_what_a_vector_holds(changes in vec((any::<bool>(), 0..700_usize), 0..16)) {
            let (mut rows, mut list) = (Rows::default(), Vec::new());
            for (grow, by) in changes {
                for number in 0..by {
                    if grow {
                        rows.push(number);
                        list.push(number);
                    } else {
                        prop_assert_eq!(rows.pop(), list.pop());
                    }
                    prop_assert_eq!((rows.len(), rows.last()), (list.len(), list.last()));
                }
                prop_assert_eq!(rows.is_empty(), list.is_empty());
                prop_assert!(rows.iter().eq(&list));
                for place in (0..list.len() + 2).step_by(3) {
                    prop_assert_eq!(rows.get(place), list.get(place));
                }
                if let Some(place) = list.len().checked_sub(1) {
                    (rows[place / 2], list[place / 2]) = (7, 7);
                    prop_assert_eq!(rows[place / 2], list[place / 2]);
                }
                rows.iter_mut().for_each(|entry| *entry += 1);
                list.iter_mut().for_each(|entry| *entry += 1);
            }
            prop_assert!(rows.clone().into_iter().eq(list.clone()));
            prop_assert!(list.iter().copied().collect::<Rows<_>>().into_iter().eq(list));
        }
    }

    #[test]
    fn entries_stay_where_they_are_and_little_more_memory_is_taken_than_they_need() {
        let mut rows = Rows::default();
        rows.extend(0..CHUNK);
        let before: Vec<*const usize> = rows.iter().map(std::ptr::from_ref).collect();
        for number in CHUNK..100_000 {
            rows.push(number);
            assert!(rows.capacity() < rows.len() + CHUNK);
        }
        assert!(rows.iter().take(CHUNK).map(std::ptr::from_ref).eq(before));
    }

    #[test]
    fn memory_is_given_back_as_entries_go() {
        let mut rows: Rows<usize> = (0..10_000).collect();
        while rows.pop().is_some() {
            assert!(rows.capacity() <= LEAST.max(4 * rows.len() + 3), "{}", rows.len());
            assert!(rows.capacity() <= rows.len() + CHUNK);
        }
        assert_eq!(rows.capacity(), 0);
    }
}
