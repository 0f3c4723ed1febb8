//! Entries that stand side by side.

use std::hash::Hash;

use crate::Index;

/// A map whose entries stand side by side. One that is removed leaves its place to the next that comes; all others stay where they are, so
/// that a [part](Self::part) after the other can be looked through while the map changes.
#[derive(Clone, Debug)]
pub struct DenseMap<K, T> {
    entries: Vec<Option<(K, T)>>,
    index: Index,
    /// The places at which nothing stands.
    free: Vec<u32>,
}

impl<K, T> Default for DenseMap<K, T> {
    fn default() -> Self {
        Self { entries: Vec::new(), index: Index::default(), free: Vec::new() }
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
        let place = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            u32::try_from(self.entries.len() - 1).expect("fewer entries than 2^32")
        });
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
        Some(value)
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
        let part = self.entries.get(from..end).unwrap_or_default();
        let next = (end < self.entries.len()).then_some(end);
        (part.iter().flatten().map(|(key, value)| (key, value)), next)
    }
}

fn entry<K, T>(entries: &[Option<(K, T)>], place: u32) -> Option<&(K, T)> {
    entries.get(usize::try_from(place).ok()?)?.as_ref()
}

fn has_key<K: Eq, T>(entries: &[Option<(K, T)>], place: u32, key: &K) -> bool {
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
