//! Steps of time: what was carried is kept in fine ones for an hour, in coarser ones for a day and a month, and by the calendar.
//!
//! | steps | of | slots | for |
//! | --- | --- | --- | --- |
//! | fine | 10 s | 400 | the last hour: a call that stuttered a moment ago |
//! | minutes | 1 min | 1,500 | the last day: an evening on the train |
//! | quarters | 15 min | 3,000 | a month: which link is worth its price |
//! | days | a day of the calendar | 32 | what a provider bills |
//!
//! An hour, a day and a month have 360, 1,440 and 2,976 such steps, about as many as a graph has columns. The few slots beyond hold
//! the step that is not over, and what a clock that is set back by some minutes would otherwise take from the oldest ones.

use std::collections::BTreeMap;

use super::record;

/// Lengths of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Steps {
    Fine,
    Minutes,
    Quarters,
    /// They begin at midnight of this machine's time zone, and are numbered as if that was UTC.
    Days,
}

impl Steps {
    /// All lengths, in the order in which they stand in the file.
    pub(super) const ALL: [Self; 4] = [Self::Fine, Self::Minutes, Self::Quarters, Self::Days];

    /// Those of which rates are shown.
    pub(super) const RATES: [Self; 3] = [Self::Fine, Self::Minutes, Self::Quarters];

    /// Seconds of a step.
    pub(super) const fn seconds(self) -> u64 {
        match self {
            Self::Fine => 10,
            Self::Minutes => 60,
            Self::Quarters => 900,
            Self::Days => 86_400,
        }
    }

    /// Steps that are kept.
    pub(super) const fn slots(self) -> u64 {
        match self {
            Self::Fine => 400,
            Self::Minutes => 1500,
            Self::Quarters => 3000,
            Self::Days => 32,
        }
    }

    /// The finest steps that are kept for so many seconds.
    pub(super) const fn finest_for(seconds: u64) -> Self {
        match seconds {
            0..=3600 => Self::Fine,
            3601..=86_400 => Self::Minutes,
            _ => Self::Quarters,
        }
    }
}

/// What one link, or all together, carried in one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cell {
    /// Milliseconds of the step in which it was there and observed.
    pub(super) covered_ms: u32,
    /// Bytes, proxy to client.
    pub(super) down: u64,
    /// Bytes, client to proxy.
    pub(super) up: u64,
    /// Mean round-trip time, microseconds.
    pub(super) rtt_us: Option<u32>,
    /// Mean share of datagrams lost, millionths.
    pub(super) lost_ppm: Option<u32>,
}

impl Cell {
    /// More of the same step.
    pub(super) fn add(&mut self, more: &Self) {
        let weights = [self.covered_ms, more.covered_ms];
        self.rtt_us = mean([self.rtt_us, more.rtt_us], weights);
        self.lost_ppm = mean([self.lost_ppm, more.lost_ppm], weights);
        self.covered_ms = self.covered_ms.saturating_add(more.covered_ms);
        self.down = self.down.saturating_add(more.down);
        self.up = self.up.saturating_add(more.up);
    }
}

/// The mean of what is known of two values.
fn mean(values: [Option<u32>; 2], weights: [u32; 2]) -> Option<u32> {
    let [Some(one), Some(other)] = values else { return values[1].or(values[0]) };
    let [weight, other_weight] = weights.map(u128::from);
    let all = weight + other_weight;
    if all == 0 {
        return Some(other);
    }
    let sum = u128::from(one) * weight + u128::from(other) * other_weight;
    u32::try_from(sum / all).ok()
}

/// What everything carried in one step, by the name of the link; all together have none.
pub(super) type Moment = BTreeMap<String, Cell>;

/// Puts more of one step to what is known of it.
pub(super) fn add_to(moment: &mut Moment, more: &Moment) {
    for (name, cell) in more {
        moment.entry(name.clone()).or_default().add(cell);
    }
}

/// Steps of one length, by their first second.
pub(super) type Series = BTreeMap<u64, Moment>;

/// Steps of all lengths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tables([Series; Steps::ALL.len()]);

impl Tables {
    /// Those of one length.
    pub(super) fn of(&self, steps: Steps) -> &Series {
        &self.0[steps as usize]
    }

    /// The same to be changed.
    pub(super) fn of_mut(&mut self, steps: Steps) -> &mut Series {
        &mut self.0[steps as usize]
    }

    /// More of one step.
    pub(super) fn add(&mut self, steps: Steps, start: u64, name: &str, more: &Cell) {
        let moment = self.of_mut(steps).entry(start).or_default();
        match moment.get_mut(name) {
            Some(cell) => cell.add(more),
            None => drop(moment.insert(name.to_owned(), *more)),
        }
    }

    /// Keeps no more than the file has room for: of each length the newest steps, and of each step the links of its record.
    pub(super) fn bound(&mut self) {
        for steps in Steps::ALL {
            let series = self.of_mut(steps);
            while series.len() as u64 > steps.slots() {
                series.pop_first();
            }
            series.values_mut().for_each(record::trim);
        }
    }

    /// Keeps the steps that this is true of.
    pub(super) fn retain(&mut self, is_kept: impl Fn(Steps, u64) -> bool) {
        for steps in Steps::ALL {
            self.of_mut(steps).retain(|start, _| is_kept(steps, *start));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_answered_in_the_finest_steps_that_last_so_long() {
        let table = [
            (60, Steps::Fine),
            (3600, Steps::Fine),
            (3601, Steps::Minutes),
            (86_400, Steps::Minutes),
            (86_401, Steps::Quarters),
            (31 * 86_400, Steps::Quarters),
        ];
        for (seconds, expected) in table {
            let steps = Steps::finest_for(seconds);
            assert_eq!(steps, expected, "{seconds}");
            assert!(steps.seconds() * (steps.slots() - 1) >= seconds, "{seconds}: too few");
        }
    }

    #[test]
    fn bytes_add_up_and_means_weigh_by_time() {
        let cell =
            |covered_ms, rtt_us, lost_ppm| Cell { covered_ms, down: 5, up: 7, rtt_us, lost_ppm };
        let mut sum = cell(1000, Some(20_000), None);
        sum.add(&cell(3000, Some(40_000), Some(500)));
        assert_eq!((sum.covered_ms, sum.down, sum.up), (4000, 10, 14));
        assert_eq!((sum.rtt_us, sum.lost_ppm), (Some(35_000), Some(500)));
        sum.add(&cell(0, None, None));
        assert_eq!((sum.rtt_us, sum.lost_ppm), (Some(35_000), Some(500)), "nothing new is known");
        let most = Cell {
            covered_ms: u32::MAX,
            down: u64::MAX,
            up: 0,
            rtt_us: Some(u32::MAX),
            lost_ppm: None,
        };
        let mut sum = most;
        sum.add(&most);
        assert_eq!(sum, most, "nothing overflows");
    }

    #[test]
    fn of_too_many_steps_the_oldest_go() {
        let mut tables = Tables::default();
        for start in 0..2 * Steps::Minutes.slots() {
            tables.add(Steps::Minutes, start * 60, "wlan", &Cell::default());
        }
        tables.bound();
        let kept = tables.of(Steps::Minutes);
        assert_eq!(kept.len() as u64, Steps::Minutes.slots());
        assert_eq!(kept.first_key_value().map(|(start, _)| *start), Some(1500 * 60));
        assert!(tables.of(Steps::Fine).is_empty());
    }

    #[test]
    fn of_too_many_links_those_stay_that_a_record_holds() {
        let mut tables = Tables::default();
        for n in 0..64 {
            let cell = Cell { down: n, ..Cell::default() };
            tables.add(Steps::Fine, 10, &format!("wwan{n:02}"), &cell);
        }
        tables.add(Steps::Fine, 10, "", &Cell::default());
        tables.bound();
        let kept = &tables.of(Steps::Fine)[&10];
        let written = record::read_step(&record::step(10, kept)).unwrap();
        assert_eq!(written, Some((10, kept.clone())));
        assert!(kept.contains_key("") && kept.contains_key("wwan63") && kept.len() < 16);
    }
}
