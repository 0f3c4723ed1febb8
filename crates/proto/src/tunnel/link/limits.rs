//! What kept a link from carrying more of what this end sends, and for how long each thing did.
//!
//! Looked at once for each batch: a few comparisons for each link. What was found then counts until the next look.

use crate::time::{Duration, Instant};

/// What keeps a link from carrying more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Limit {
    /// No packet waits for a link.
    #[default]
    Demand,
    /// Packets wait, and its window is full.
    Window,
    /// Packets wait, and its window has room, but its pace (what it was told to carry, or what others leave of it) has
    /// none.
    Pace,
    /// The same, where the pace is the most that its owner lets this end send.
    Cap,
    /// Packets wait, and it has room: the scheduler wants them on others.
    Turn,
    /// It carries no packets: it is not up, rests, or is for the other direction.
    Off,
}

impl Limit {
    /// All of them, in the order of [`Limits::at`].
    pub const ALL: [Self; 6] =
        [Self::Demand, Self::Window, Self::Pace, Self::Cap, Self::Turn, Self::Off];
}

/// How long each thing was the limit of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    present: Limit,
    since: Instant,
    spent: [Duration; Limit::ALL.len()],
}

impl Limits {
    pub(super) const fn new(now: Instant) -> Self {
        Self { present: Limit::Off, since: now, spent: [Duration::ZERO; Limit::ALL.len()] }
    }

    /// From now on this is the limit.
    pub(super) fn note(&mut self, now: Instant, limit: Limit) {
        if limit != self.present {
            self.spent = self.at(now);
            (self.present, self.since) = (limit, now);
        }
    }

    /// How long each was the limit until `now`, since the link was made, in the order of [`Limit::ALL`].
    #[must_use]
    pub fn at(&self, now: Instant) -> [Duration; Limit::ALL.len()] {
        let mut spent = self.spent;
        spent[self.present as usize] += now.since(self.since);
        spent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_has_the_time_until_the_next_and_the_last_until_now() {
        let at = Instant::from_millis;
        let mut limits = Limits::new(at(1000));
        for (ms, limit) in [
            (1010, Limit::Demand),
            (1030, Limit::Window),
            (1060, Limit::Window),
            (1100, Limit::Cap),
            (1101, Limit::Demand),
        ] {
            limits.note(at(ms), limit);
        }
        let spent = limits.at(at(1201));
        let expected =
            [(Limit::Off, 10), (Limit::Demand, 120), (Limit::Window, 70), (Limit::Cap, 1)];
        for (place, limit) in Limit::ALL.iter().enumerate() {
            assert_eq!(*limit as usize, place);
            let ms = expected.iter().find(|(of, _)| of == limit).map_or(0, |(_, ms)| *ms);
            assert_eq!(spent[place], Duration::from_millis(ms), "{limit:?}");
        }
        assert_eq!(limits.at(at(1201)), spent, "asking changes nothing");
    }
}
