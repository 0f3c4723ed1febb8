//! A table by number, for numbers that lie near each other, as those of a window do.
//!
//! A number's place is its remainder by the size of the table, which doubles where two meet: so it becomes no larger than twice what
//! the numbers in it span, and to find one takes no search. What belongs to the numbers lies apart, as much as there is.

/// A table's size at first.
const LEAST: usize = 64;

/// What belongs to some numbers.
#[derive(Debug)]
pub(super) struct ByNumber<T> {
    /// One more than the place in `entries`; 0: no number is here. As many as a power of two, or none.
    index: Vec<u32>,
    entries: Vec<Option<(u64, T)>>,
    /// Places of `entries` without one.
    free: Vec<u32>,
}

impl<T> Default for ByNumber<T> {
    fn default() -> Self {
        Self { index: Vec::new(), entries: Vec::new(), free: Vec::new() }
    }
}

impl<T> ByNumber<T> {
    /// How many numbers there are.
    #[inline]
    pub(super) const fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// What belongs to this number.
    #[inline]
    pub(super) fn get(&self, number: u64) -> Option<&T> {
        let entry = self.entries.get(self.find(number)?)?.as_ref();
        entry.filter(|(known, _)| *known == number).map(|(_, value)| value)
    }

    /// The same, to change it.
    #[inline]
    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let place = self.find(number)?;
        let entry = self.entries.get_mut(place)?.as_mut();
        entry.filter(|(known, _)| *known == number).map(|(_, value)| value)
    }

    /// Whether the number is here.
    #[inline]
    pub(super) fn contains(&self, number: u64) -> bool {
        self.get(number).is_some()
    }

    /// Notes what belongs to a number, in place of what did.
    #[inline]
    pub(super) fn insert(&mut self, number: u64, value: T) {
        if let Some(known) = self.get_mut(number) {
            *known = value;
            return;
        }
        // Whoever is in its place is another number.
        while self.index.is_empty() || self.find(number).is_some() {
            self.grow();
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX)
        });
        let at = self.remainder(number);
        if let (Some(entry), Some(index)) =
            (self.entries.get_mut(place as usize), self.index.get_mut(at))
        {
            (*entry, *index) = (Some((number, value)), place + 1);
        }
    }

    /// Takes a number out.
    #[inline]
    pub(super) fn remove(&mut self, number: u64) -> Option<T> {
        let place = self.find(number)?;
        let (_, value) = self.entries.get_mut(place)?.take_if(|(known, _)| *known == number)?;
        let at = self.remainder(number);
        if let Some(index) = self.index.get_mut(at) {
            self.free.push(*index - 1);
            *index = 0;
        }
        Some(value)
    }

    /// All that is here, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.entries.iter().flatten().map(|(number, value)| (*number, value))
    }

    /// The same, taken out.
    pub(super) fn into_values(self) -> impl Iterator<Item = T> {
        self.entries.into_iter().flatten().map(|(_, value)| value)
    }

    /// Where a number with this remainder is; perhaps another.
    #[inline]
    fn find(&self, number: u64) -> Option<usize> {
        let place = *self.index.get(self.remainder(number))?;
        Some(place.checked_sub(1)? as usize)
    }

    #[inline]
    fn remainder(&self, number: u64) -> usize {
        let mask = (self.index.len() as u64).wrapping_sub(1);
        usize::try_from(number & mask).unwrap_or(usize::MAX)
    }

    /// Doubles the table. Numbers that were apart stay so.
    fn grow(&mut self) {
        let size = (2 * self.index.len()).max(LEAST);
        self.index = vec![0; size];
        for place in 0..self.entries.len() {
            let Some(Some((number, _))) = self.entries.get(place) else { continue };
            let at = self.remainder(*number);
            if let Some(index) = self.index.get_mut(at) {
                *index = u32::try_from(place + 1).unwrap_or(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn it_knows_what_an_ordered_map_knows() {
        for seed in 0..20 {
            let mut rng = StdRng::seed_from_u64(seed);
            let (mut table, mut map) = (ByNumber::default(), BTreeMap::new());
            let span = [10, 100, 5_000][rng.random_range(0..3)];
            for step in 0..5_000_u64 {
                let number = step + rng.random_range(0..span);
                match rng.random_range(0..3) {
                    0 => assert_eq!(table.remove(number), map.remove(&number), "seed {seed}"),
                    1 => {
                        table.insert(number, step);
                        map.insert(number, step);
                    }
                    _ => {
                        assert_eq!(table.get(number), map.get(&number), "seed {seed}");
                        assert_eq!(table.get_mut(number), map.get_mut(&number), "seed {seed}");
                    }
                }
                // What leaves a window is taken out of its table.
                if let Some(old) = step.checked_sub(1) {
                    assert_eq!(table.remove(old), map.remove(&old), "seed {seed}");
                }
                assert_eq!(table.len(), map.len(), "seed {seed}");
            }
            let mut all: Vec<_> = table.iter().map(|(number, value)| (number, *value)).collect();
            all.sort_unstable();
            assert!(all.into_iter().eq(map.into_iter()), "seed {seed}");
            let most = usize::try_from(span).unwrap().next_power_of_two().max(LEAST) * 2;
            assert!(table.index.len() <= most, "seed {seed}: {}", table.index.len());
        }
    }

    #[test]
    fn a_few_numbers_far_apart_cost_a_table_and_no_more() {
        let mut table = ByNumber::default();
        for number in [7, 7 + 64, 7 + 16_000] {
            table.insert(number, number);
        }
        assert_eq!((table.len(), table.entries.len()), (3, 3));
        assert!(table.index.len() <= 16_384);
        assert_eq!(
            [7, 71, 16_007, 8].map(|number| table.contains(number)),
            [true, true, true, false]
        );
    }
}
