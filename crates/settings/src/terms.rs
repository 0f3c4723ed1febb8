//! What is said of a link, complete: for one end, with what follows from it and with defaults.

use crate::{Bitrate, Direction, Importance, LinkPolicy, LinkTerms, Usage};

/// The shares of throughput and cost on a link that is not always used: the paper's example of one that is avoided
/// (Amezcua Valdovinos et al. 2017 §3.5).
const AVOIDED: Importance = Importance { throughput: 0.1, cost: 0.9 };

/// And on one of which only a price is told: it matters as much as the throughput.
const PRICED: Importance = Importance { throughput: 0.5, cost: 0.5 };

/// The price of a gigabyte, of whatever unit, on a link that is not always used and whose price nobody told: as
/// long as it is higher than the others' it says what the use says.
const DEAR: f64 = 10.0;

/// What the end that sends reckons with on a link.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Terms {
    /// Its share for told weights: finite, not negative; 0: no packets on it.
    pub weight: f64,
    /// What it carries, if that is told.
    pub rate: Option<Bitrate>,
    /// Most that this end sends on it, if that is bounded.
    pub max: Option<Bitrate>,
    /// When it carries packets.
    pub usage: Usage,
    /// Price of a gigabyte, in one unit for all links: finite, not negative.
    pub cost: f64,
    /// How much throughput and cost matter on it.
    pub importance: Importance,
    /// Whether this end sends packets on it; reports and the like go on it all the same.
    pub carries: bool,
}

impl Terms {
    /// What was `told` of a link means this to the end that `sends` this way.
    #[must_use]
    pub fn new(told: &LinkTerms, sends: Direction) -> Self {
        let cost = told.cost.as_ref().map(|cost| cost.amount);
        let usage = told.usage.unwrap_or_default();
        let (importance, assumed) = match (told.importance, usage) {
            (Some(importance), _) => (importance, 0.0),
            (None, Usage::WhenNeeded | Usage::Backup) => (AVOIDED, DEAR),
            (None, Usage::Always) if cost.is_some() => (PRICED, 0.0),
            (None, Usage::Always) => (Importance::default(), 0.0),
        };
        Self {
            weight: told.weight.unwrap_or(1.0),
            rate: told.rate,
            max: told.max,
            usage,
            cost: cost.unwrap_or(assumed),
            importance,
            carries: told.direction.is_none_or(|way| way.includes(sends)),
        }
    }

    /// What the link's owner says, and what this end says of its `own`, mean this to the end that `sends` this way. Both
    /// must let it carry packets.
    #[must_use]
    pub fn agreed(own: Option<&LinkTerms>, policy: &LinkPolicy, sends: Direction) -> Self {
        let of_owner = policy.terms(sends);
        let Some(own) = own else { return Self::new(&of_owner, sends) };
        let carries = Self::new(own, sends).carries && Self::new(&of_owner, sends).carries;
        Self { carries, ..Self::new(&own.beside(&of_owner), sends) }
    }
}

impl Default for Terms {
    /// Of a link of which nothing is said.
    fn default() -> Self {
        Self::new(&LinkTerms::default(), Direction::Both)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_for_one_direction_carries_packets_only_that_way() {
        let table = [
            (None, true, true),
            (Some(Direction::Both), true, true),
            (Some(Direction::Up), true, false),
            (Some(Direction::Down), false, true),
        ];
        for (direction, up, down) in table {
            let told = LinkTerms { direction, ..LinkTerms::default() };
            let carries =
                [Direction::Up, Direction::Down].map(|sends| Terms::new(&told, sends).carries);
            assert_eq!(carries, [up, down], "{direction:?}");
        }
    }
}
