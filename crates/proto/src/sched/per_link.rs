//! What a scheduler remembers of each link, by its id.

use arrayvec::ArrayVec;

use super::LinkFacts;
use crate::config::MAX_LINKS;
use crate::units::LinkId;

/// A value for each link that was ever refreshed, until it is gone.
#[derive(Clone, Debug)]
pub(super) struct PerLink<T>(ArrayVec<(LinkId, T), MAX_LINKS>);

impl<T> Default for PerLink<T> {
    fn default() -> Self {
        Self(ArrayVec::new())
    }
}

impl<T: Copy> PerLink<T> {
    /// The link's value; `None`: it has not carried packets yet at any refresh.
    pub(super) fn of(&self, link: LinkId) -> Option<T> {
        self.0.iter().find(|(id, _)| *id == link).map(|(_, value)| *value)
    }

    /// Fresh values for the links that carry packets now, in their order. The others keep what they had; those that
    /// are gone are forgotten.
    pub(super) fn refresh(&mut self, links: &[LinkFacts], values: impl IntoIterator<Item = T>) {
        self.0.retain(|(id, _)| links.iter().any(|link| link.id == *id));
        let carrying = links.iter().filter(|link| link.carries);
        for (link, value) in carrying.zip(values) {
            match self.0.iter_mut().find(|(id, _)| *id == link.id) {
                Some((_, known)) => *known = value,
                // There are at most as many links as places.
                None => _ = self.0.try_push((link.id, value)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link: id, whether it carries packets.
    fn links(of: &[(u8, bool)]) -> Vec<LinkFacts> {
        let facts =
            |&(id, carries): &(u8, bool)| LinkFacts { carries, ..LinkFacts::unknown(LinkId(id)) };
        of.iter().map(facts).collect()
    }

    #[test]
    fn a_link_that_does_not_carry_keeps_its_value_and_one_that_is_gone_loses_it() {
        /// Links, the values of those that carry, and what is then known of the links 0 to 2.
        type Look<'a> = (&'a [(u8, bool)], &'a [i32], [Option<i32>; 3]);
        let table: [Look<'_>; 5] = [
            (&[(0, true), (1, true), (2, false)], &[10, 11], [Some(10), Some(11), None]),
            (&[(0, true), (1, false), (2, true)], &[20, 22], [Some(20), Some(11), Some(22)]),
            (&[(0, false), (2, true)], &[32], [Some(20), None, Some(32)]),
            (&[(0, true), (1, false), (2, true)], &[40, 42], [Some(40), None, Some(42)]),
            (&[], &[], [None; 3]),
        ];
        let mut known = PerLink::default();
        for (of, values, expected) in table {
            known.refresh(&links(of), values.iter().copied());
            assert_eq!([0, 1, 2].map(|id| known.of(LinkId(id))), expected, "after {of:?}");
        }
    }
}
