//! Places by a key that stands with the entries.

use std::hash::{BuildHasher as _, Hash};

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use crate::LEAST;

/// Finds the place of an entry by its key, without a copy of the key: 5 bytes for each place, of which 44 to 88 % are in use.
///
/// Its hash is fixed, so that it is the same in every run. Whoever chooses the keys could make them collide: they are to be our own draws, or
/// what the proxy's owner lets in.
#[derive(Clone, Debug, Default)]
pub struct Index(HashTable<u32>);

impl Index {
    /// How many places there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The place of the entry with this key. `has_key` says whether the entry at a place has it.
    pub fn find<K: Hash + ?Sized>(&self, key: &K, has_key: impl Fn(u32) -> bool) -> Option<u32> {
        self.0.find(hash(key), |place| has_key(*place)).copied()
    }

    /// The entry with this key stands at `place`, and no other has the key. `key_at` says which key the entry at a place has: a table that
    /// grows asks for those that it has.
    pub fn insert<K: Hash>(&mut self, key: &K, place: u32, key_at: impl Fn(u32) -> Option<K>) {
        // Every place of the table has an entry. One without would not be found any more.
        let hash_at = |place: &u32| key_at(*place).map_or(0, |key| hash(&key));
        self.0.insert_unique(hash(key), place, hash_at);
    }

    /// The entry with this key is found no more. Returns its place.
    pub fn remove<K: Hash + ?Sized>(
        &mut self,
        key: &K,
        has_key: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let found = self.0.find_entry(hash(key), |place| has_key(*place));
        found.ok().map(|entry| entry.remove().0)
    }

    /// Gives memory back where less than a quarter of it is used. `key_at` as with [`insert`](Self::insert). It costs nothing where none is
    /// given back, so that it may follow each removal.
    pub fn shrink<K: Hash>(&mut self, key_at: impl Fn(u32) -> Option<K>) {
        // Not its `capacity`, which removals make smaller.
        let buckets = self.0.num_buckets();
        if buckets <= LEAST || self.0.len() >= buckets / 4 {
            return;
        }
        let hash_at = |place: &u32| key_at(*place).map_or(0, |key| hash(&key));
        self.0.shrink_to(2 * self.0.len(), hash_at);
    }

    /// Nothing is found any more.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

fn hash<K: Hash + ?Sized>(key: &K) -> u64 {
    FixedState::default().hash_one(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_which_little_is_used_gives_memory_back_and_finds_what_is_left() {
        // The entries stand at the places of their keys.
        let key_at = |place: u32| Some(u64::from(place));
        let mut index = Index::default();
        for place in 0..10_000 {
            index.insert(&u64::from(place), place, key_at);
        }
        let full = index.0.num_buckets();
        for place in 0..9_990 {
            assert_eq!(index.remove(&u64::from(place), |at| at == place), Some(place));
            index.shrink(key_at);
            let buckets = index.0.num_buckets();
            assert!(buckets <= LEAST.max(8 * index.len()), "{buckets} for {}", index.len());
        }
        assert!(index.0.num_buckets() <= LEAST && full >= 10_000);
        for place in 0..10_000 {
            let found = index.find(&u64::from(place), |at| at == place);
            assert_eq!(found, (place >= 9_990).then_some(place));
        }
    }
}
