//! Bytes by link as a provider counts them: both ways, with IP and UDP headers, by the name of the link, over links
//! that leave and come again.

use std::collections::BTreeMap;

use arrayvec::ArrayString;

use ropewalk_settings::shortened;

use crate::wire::frame::MAX_NAME;

/// Names that are remembered. A client chooses its links' names: beyond it the one with the fewest bytes is
/// forgotten.
const MAX_NAMES: usize = 64;

/// Bytes of datagrams with IP and UDP headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Metered {
    /// From this end.
    pub sent: u64,
    /// To this end, as far as they were authentic.
    pub received: u64,
}

impl Metered {
    /// Both ways.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.sent.saturating_add(self.received)
    }
}

/// Bytes by link.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ledger(BTreeMap<ArrayString<MAX_NAME>, Metered>);

impl Ledger {
    /// More bytes of the link of this name.
    pub fn add(&mut self, name: ArrayString<MAX_NAME>, more: Metered) {
        let known = self.0.entry(name).or_default();
        known.sent = known.sent.saturating_add(more.sent);
        known.received = known.received.saturating_add(more.received);
        if self.0.len() > MAX_NAMES {
            let fewest = self.0.iter().min_by_key(|(_, metered)| metered.bytes());
            if let Some(fewest) = fewest.map(|(name, _)| *name) {
                self.0.remove(&fewest);
            }
        }
    }

    /// What another counted, too.
    pub(crate) fn merge(&mut self, other: &Self) {
        other.iter().for_each(|(name, metered)| self.add(*name, *metered));
    }

    /// The bytes of the link of this name, of which the wire may carry only the beginning.
    #[must_use]
    pub fn of(&self, name: &str) -> Metered {
        self.0.get(&shortened(name)).copied().unwrap_or_default()
    }

    /// The bytes of each link, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&ArrayString<MAX_NAME>, &Metered)> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_name_add_up_and_too_many_names_cost_the_smallest() {
        let mut ledger = Ledger::default();
        let metered = |sent, received| Metered { sent, received };
        ledger.add(shortened("lte"), metered(1000, 2000));
        let mut other = Ledger::default();
        other.add(shortened("lte"), metered(1, u64::MAX));
        ledger.merge(&other);
        for n in 1..=MAX_NAMES as u64 {
            ledger.add(shortened(&format!("wan{n}")), metered(n, 0));
        }
        let kept: Vec<_> = ledger.iter().collect();
        assert_eq!(kept.len(), MAX_NAMES);
        assert_eq!(ledger.of("lte"), metered(1001, u64::MAX));
        assert_eq!(kept[0], (&shortened("lte"), &metered(1001, u64::MAX)));
        assert!(kept.iter().all(|(name, _)| name.as_str() != "wan1"));
    }
}
