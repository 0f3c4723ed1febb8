//! What is searched for every packet: a map in which a search costs the same whatever it holds.

#![expect(clippy::disallowed_types, reason = "its hash is fixed: the order is that of every run")]

use std::collections::HashMap;

use foldhash::fast::FixedState;

/// A hash map without a random state. Whoever chooses its keys could make them collide: they are our own draws, or
/// what the proxy's owner lets in.
pub(super) type Table<K, V> = HashMap<K, V, FixedState>;
