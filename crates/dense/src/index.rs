//! Places by a key that stands with the entries.

use std::hash::{BuildHasher as _, Hash};

use foldhash::fast::FixedState;
use hashbrown::HashTable;

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

    /// Nothing is found any more.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

fn hash<K: Hash + ?Sized>(key: &K) -> u64 {
    FixedState::default().hash_one(key)
}
