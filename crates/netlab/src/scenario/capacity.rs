//! What one direction could carry, second by second: beside this the goodput of a run is told.

use std::time::Duration;

use ropewalk_proto::time::Instant;
use ropewalk_settings::Bitrate;

use super::Course;
use crate::netem::{Conditions, Rate};
use crate::trace::OPPORTUNITY_MBIT;

/// Conditions from a moment of the scenario on.
struct Stretch<'a> {
    from: Instant,
    conditions: &'a Conditions,
    /// When its trace began.
    origin: Instant,
}

impl Course {
    /// Whether what it can carry is another at some time than at the beginning, or others send on it.
    #[must_use]
    pub fn varies(&self) -> bool {
        let first = &self.initial;
        let mut conditions = self.changes.iter().map(|(_, conditions)| conditions).chain([first]);
        conditions.any(|now| {
            now.background != Bitrate::default()
                || now.rate != first.rate
                || now.policer != first.policer
                || now.cut != first.cut
        })
    }

    /// Capacity in each of so many seconds from a moment of the scenario on, without what others send, Mbit/s at
    /// IP level; infinite where nothing limits.
    #[must_use]
    pub fn capacity(&self, since: Duration, seconds: u32) -> Vec<f64> {
        let stretches = self.stretches();
        let end_of = |index: usize| stretches.get(index + 1).map(|next| next.from);
        let mut capacity = Vec::new();
        for second in 0..seconds {
            let from = Instant::ZERO + since + Duration::from_secs(second.into());
            let to = from + Duration::from_secs(1);
            let parts = stretches.iter().enumerate().map(|(index, stretch)| {
                let end = end_of(index).unwrap_or(to).clamp(from, to);
                let begin = stretch.from.clamp(from, to);
                if begin < end { stretch.megabits(begin, end) } else { 0.0 }
            });
            capacity.push(parts.sum());
        }
        capacity
    }

    fn stretches(&self) -> Vec<Stretch<'_>> {
        let first =
            Stretch { from: Instant::ZERO, conditions: &self.initial, origin: Instant::ZERO };
        let mut stretches = vec![first];
        for (at, conditions) in &self.changes {
            let from = Instant::ZERO + *at;
            let before = stretches.last().map(|last| (&last.conditions.rate, last.origin));
            // The same trace goes on where it is.
            let origin = before.filter(|(rate, _)| **rate == conditions.rate).map_or(from, |b| b.1);
            stretches.push(Stretch { from, conditions, origin });
        }
        stretches
    }
}

impl Stretch<'_> {
    fn megabits(&self, from: Instant, to: Instant) -> f64 {
        if self.conditions.cut.is_some() {
            return 0.0;
        }
        let seconds = to.since(from).as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "rates are far below 2^52 bit/s")]
        let of = |rate: Bitrate| rate.as_bps() as f64 / 1e6 * seconds;
        let whole = match &self.conditions.rate {
            Rate::Unlimited => f64::INFINITY,
            Rate::Fixed(rate) => of(*rate),
            #[expect(clippy::cast_precision_loss, reason = "a second has few opportunities")]
            Rate::Trace(trace) => {
                trace.count_between(self.origin, from, to) as f64 * OPPORTUNITY_MBIT
            }
        };
        let policed = self.conditions.policer.map_or(f64::INFINITY, |policer| of(policer.rate));
        (whole.min(policed) - of(self.conditions.background)).max(0.0)
    }
}
