//! Entries that stand side by side.

use std::hash::Hash;

use crate::{Index, LEAST, Rows};

/// A map whose entries stand side by side. One that is removed leaves its place to the next that comes; all others stay where they are, so
/// that a [part](Self::part) after the other can be looked through while the map changes.
///
/// So memory is given back by itself only behind the last entry, and that of the table as soon as less than a quarter of it is used. Where
/// entries have gone from everywhere, [`compact`](Self::compact) is to be called, which moves those that are left.
#[derive(Clone, Debug)]
pub struct DenseMap<K, T> {
    entries: Rows<Option<(K, T)>>,
    index: Index,
    /// The places at which nothing stands, and some that were given back. All of it is used up before a place is added, so that none
    /// that was given back is taken for one that was added later.
    free: Vec<u32>,
}

impl<K, T> Default for DenseMap<K, T> {
    fn default() -> Self {
        Self { entries: Rows::default(), index: Index::default(), free: Vec::new() }
    }
}

impl<K: Copy + Eq + Hash, T> DenseMap<K, T> {
    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The place of the entry with this key, as long as it is there.
    #[must_use]
    pub fn place(&self, key: &K) -> Option<u32> {
        self.index.find(key, |place| has_key(&self.entries, place, key))
    }

    /// The entry at a place.
    #[must_use]
    pub fn at(&self, place: u32) -> Option<(&K, &T)> {
        let (key, value) = entry(&self.entries, place)?;
        Some((key, value))
    }

    /// The value of this key.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<&T> {
        let (_, value) = entry(&self.entries, self.place(key)?)?;
        Some(value)
    }

    /// The value of this key, to be changed.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut T> {
        let place = usize::try_from(self.place(key)?).ok()?;
        let (_, value) = self.entries.get_mut(place)?.as_mut()?;
        Some(value)
    }

    /// Whether there is an entry with this key.
    #[must_use]
    pub fn contains_key(&self, key: &K) -> bool {
        self.place(key).is_some()
    }

    /// Puts an entry in, and returns the value that its key had before.
    ///
    /// # Panics
    /// When there are 2^32 entries, which no memory holds.
    pub fn insert(&mut self, key: K, value: T) -> Option<T> {
        if let Some(known) = self.get_mut(&key) {
            return Some(std::mem::replace(known, value));
        }
        let place = self.free_place();
        let Self { entries, index, .. } = self;
        index.insert(&key, place, |place| entry(entries, place).map(|(key, _)| *key));
        if let Some(free) = usize::try_from(place).ok().and_then(|place| entries.get_mut(place)) {
            *free = Some((key, value));
        }
        None
    }

    /// Takes an entry out, and returns its value.
    pub fn remove(&mut self, key: &K) -> Option<T> {
        let Self { entries, index, free } = self;
        let place = index.remove(key, |place| has_key(entries, place, key))?;
        free.push(place);
        let (_, value) = entries.get_mut(usize::try_from(place).ok()?)?.take()?;
        self.give_back();
        Some(value)
    }

    /// For how many entries there are places.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    /// Puts the entries together where they have less than a quarter of the places, and gives the others back. Returns whether it did. **Then
    /// they stand at other places**, in the same order: whoever remembers places has to ask for them again, and nobody may be looking
    /// through one part after the other. It costs as much as it takes to put the entries in, and comes once for many that were removed.
    pub fn compact(&mut self) -> bool {
        let Self { entries, index, free } = self;
        if entries.len() <= LEAST || index.len() >= entries.len() / 4 {
            return false;
        }
        *entries = std::mem::take(entries).into_iter().filter(Option::is_some).collect();
        *free = Vec::new();
        *index = Index::default();
        for (place, (key, _)) in (0..).zip(entries.iter().flatten()) {
            index.insert(key, place, |place| entry(entries, place).map(|(key, _)| *key));
        }
        true
    }

    /// A place at which nothing stands.
    fn free_place(&mut self) -> u32 {
        while let Some(place) = self.free.pop() {
            if usize::try_from(place).is_ok_and(|place| place < self.entries.len()) {
                return place;
            }
        }
        self.entries.push(None);
        u32::try_from(self.entries.len() - 1).expect("fewer entries than 2^32")
    }

    /// Gives back what can be without moving an entry. A removal costs no more by it than the entries that came before it did.
    fn give_back(&mut self) {
        let Self { entries, index, free } = self;
        while entries.last().is_some_and(Option::is_none) {
            entries.pop();
        }
        let places = entries.len();
        if free.len() > LEAST.max(places) {
            free.retain(|place| usize::try_from(*place).is_ok_and(|place| place < places));
            free.shrink_to_fit();
        }
        index.shrink(|place| entry(entries, place).map(|(key, _)| *key));
    }

    /// All entries, in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &T)> {
        self.entries.iter().flatten().map(|(key, value)| (key, value))
    }

    /// All entries, whose values are to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut T)> {
        self.entries.iter_mut().flatten().map(|(key, value)| (&*key, value))
    }

    /// All keys.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    /// All values.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.iter().map(|(_, value)| value)
    }

    /// The entries at so many places, at least one, from one place on, and the place to go on from, if there is one. Whoever goes from part
    /// to part meets every entry that is there all the time, whatever is changed meanwhile.
    pub fn part(
        &self,
        from: usize,
        places: usize,
    ) -> (impl Iterator<Item = (&K, &T)>, Option<usize>) {
        let end = from.saturating_add(places.max(1)).min(self.entries.len());
        let part = (from..end).filter_map(|place| self.entries.get(place)?.as_ref());
        let next = (end < self.entries.len()).then_some(end);
        (part.map(|(key, value)| (key, value)), next)
    }
}

fn entry<K, T>(entries: &Rows<Option<(K, T)>>, place: u32) -> Option<&(K, T)> {
    entries.get(usize::try_from(place).ok()?)?.as_ref()
}

fn has_key<K: Eq, T>(entries: &Rows<Option<(K, T)>>, place: u32, key: &K) -> bool {
    entry(entries, place).is_some_and(|(known, _)| known == key)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_holds_what_a_tree_holds(changes in vec((any::<bool>(), 0..64_u8), 0..512)) {
            let (mut map, mut tree) = (DenseMap::default(), BTreeMap::new());
            for (value, (insert, key)) in (0..).zip(changes) {
                let (was, expected) = match insert {
                    true => (map.insert(key, value), tree.insert(key, value)),
                    false => (map.remove(&key), tree.remove(&key)),
                };
                prop_assert_eq!(was, expected);
                prop_assert_eq!((map.len(), map.is_empty()), (tree.len(), tree.is_empty()));
            }
            for key in 0..64 {
                prop_assert_eq!(map.get(&key), tree.get(&key));
                prop_assert_eq!(map.contains_key(&key), tree.contains_key(&key));
                let at = map.place(&key).and_then(|place| map.at(place));
                prop_assert_eq!(at, tree.get_key_value(&key));
            }
            let all: BTreeMap<_, _> = map.iter().map(|(key, value)| (*key, *value)).collect();
            prop_assert_eq!(all, tree);
        }

        #[test]
        fn it_holds_what_a_tree_holds_and_little_memory_when_many_come_and_go(
            changes in vec((0..4_u8, 0..2048_u32, 0..1024_u32), 0..24)
        ) {
            let (mut map, mut tree) = (DenseMap::default(), BTreeMap::new());
            for (kind, first, count) in changes {
                let place = map.place(&first);
                for key in first..first + count {
                    let (was, expected) = match kind {
                        0 => (map.insert(key, first), tree.insert(key, first)),
                        1 => (map.remove(&key), tree.remove(&key)),
                        // From everywhere.
                        _ => {
                            let key = key * 509 % 4096;
                            (map.remove(&key), tree.remove(&key))
                        }
                    };
                    prop_assert_eq!(was, expected);
                    let places = map.entries.len();
                    prop_assert!(map.capacity() <= LEAST.max(4 * places + 3), "{places}");
                    prop_assert!(map.entries.last().is_none_or(Option::is_some));
                }
                if tree.contains_key(&first) && kind > 0 {
                    prop_assert_eq!(map.place(&first), place, "whoever stays does not move");
                }
                if kind == 3 {
                    map.compact();
                    prop_assert!(map.entries.len() <= LEAST.max(4 * map.len() + 3));
                }
                prop_assert_eq!(map.len(), tree.len());
                for key in (0..4096).step_by(7) {
                    prop_assert_eq!(map.get(&key), tree.get(&key));
                }
            }
            let all: BTreeMap<_, _> = map.iter().map(|(key, value)| (*key, *value)).collect();
            prop_assert_eq!(all, tree);
        }

        #[test]
        fn whoever_goes_from_part_to_part_meets_all_that_stay(places in 2..9_usize, gone in 0..32_u32) {
            let mut map: DenseMap<u32, u32> = DenseMap::default();
            for key in 0..32 {
                map.insert(key, key);
            }
            let (mut met, mut from, mut come) = (Vec::new(), Some(0), 100..);
            while let Some(place) = from {
                let (part, next) = map.part(place, places);
                met.extend(part.map(|(key, _)| *key));
                from = next;
                // One goes, and one comes with each part, to its place or to the end.
                map.remove(&gone);
                if let Some(key) = come.next() {
                    map.insert(key, key);
                }
                prop_assert!(met.len() < 200, "it does not end");
            }
            for key in (0..32).filter(|key| *key != gone) {
                prop_assert_eq!(met.iter().filter(|met| **met == key).count(), 1);
            }
        }
    }

    /// With so many entries.
    fn map_of(entries: u32) -> DenseMap<u32, [u64; 4]> {
        let mut map = DenseMap::default();
        for key in 0..entries {
            map.insert(key, [0; 4]);
        }
        map
    }

    #[test]
    fn memory_behind_the_last_entry_is_given_back_and_nobody_moves() {
        let mut map = map_of(100_000);
        for key in (1000..100_000).rev() {
            map.remove(&key);
            assert!(map.capacity() <= 4 * map.len() + 3, "{} for {}", map.capacity(), map.len());
        }
        assert!((1000..1000 + 256).contains(&map.capacity()), "{}", map.capacity());
        // No more than there are places, and what a list has more as it grows.
        assert!(map.free.len() <= 1000 && map.free.capacity() <= 1024);
        for key in 0..1000 {
            assert_eq!(map.place(&key), Some(key));
        }
        // The last of all goes last.
        let mut map = map_of(100_000);
        for key in 0..100_000 {
            assert_eq!(map.place(&99_999), Some(99_999));
            map.remove(&key);
        }
        assert!(map.is_empty() && map.capacity() <= LEAST && map.free.is_empty());
        map.insert(7, [7; 4]);
        assert_eq!((map.place(&7), map.get(&7)), (Some(0), Some(&[7; 4])));
    }

    #[test]
    fn memory_between_entries_is_given_back_when_they_may_move() {
        let mut map = map_of(100_000);
        assert!(!map.compact(), "all of it is used");
        for key in (0..100_000).filter(|key| key % 100 != 99) {
            map.remove(&key);
        }
        assert!(map.capacity() >= 100_000);
        for key in (99..100_000).step_by(100) {
            assert_eq!(map.place(&key), Some(key));
        }
        assert!(map.compact() && !map.compact());
        assert_eq!((map.len(), map.entries.len(), map.free.capacity()), (1000, 1000, 0));
        assert!(map.capacity() < 4000, "{}", map.capacity());
        assert!(map.keys().copied().eq((99..100_000).step_by(100)), "in the order of before");
        for (place, key) in (0..).zip((99..100_000).step_by(100)) {
            assert_eq!(map.place(&key), Some(place));
        }
        map.insert(1, [1; 4]);
        assert_eq!(map.place(&1), Some(1000));
    }

    #[test]
    fn places_are_used_again_and_a_value_is_changed_where_it_stands() {
        let mut map = DenseMap::default();
        for key in 0..1000_u32 {
            map.insert(key, [0_u64; 4]);
        }
        for round in 0..10 {
            for key in 0..1000 {
                assert_eq!(map.remove(&(key + 1000 * round)), Some([0; 4]));
                map.insert(key + 1000 * (round + 1), [0; 4]);
            }
        }
        assert_eq!((map.len(), map.entries.len(), map.free.len()), (1000, 1000, 0));
        let place = map.place(&10_500);
        map.get_mut(&10_500).unwrap()[0] = 7;
        map.iter_mut().for_each(|(_, value)| value[1] = 1);
        assert_eq!(map.get(&10_500), Some(&[7, 1, 0, 0]));
        assert_eq!(map.place(&10_500), place);
        assert_eq!((map.values().count(), map.keys().count()), (1000, 1000));
    }
}
