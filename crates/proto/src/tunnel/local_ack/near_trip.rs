//! How long it takes to hear from a near end: the least of what was seen at the opening, and whenever it could send nothing until it
//! was told that it may. A machine that is busy makes each of them longer, never shorter.

use super::segment::{Segment, beyond};
use crate::time::{Duration, Instant};

/// What a near end is to answer.
#[derive(Clone, Copy, Debug)]
struct Asked {
    at: Instant,
    /// By what lies beyond this; `None`: by whatever it says.
    edge: Option<u32>,
}

/// The round trip to one near end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NearTrip {
    asked: Option<Asked>,
    /// Of all times: a near end that had nothing to send answers late, and for long there may be no other answer.
    least: Option<Duration>,
}

impl NearTrip {
    /// The least that was seen.
    pub(super) const fn least(&self) -> Option<Duration> {
        self.least
    }

    /// The near end hears something of the opening, and answers at once.
    pub(super) fn ask(&mut self, now: Instant) {
        self.asked = Some(Asked { at: now, edge: None });
    }

    /// The same once more, if it has not answered.
    pub(super) fn ask_again(&mut self, now: Instant) {
        self.asked = self.asked.map(|asked| Asked { at: now, ..asked });
    }

    /// It hears that it may send what lies beyond `edge`, and could send nothing before.
    pub(super) fn ask_beyond(&mut self, now: Instant, edge: u32) {
        self.asked.get_or_insert(Asked { at: now, edge: Some(edge) });
    }

    /// It says something. What lies before the edge may have been on its way already.
    pub(super) fn on_near(&mut self, now: Instant, segment: &Segment) {
        let answers =
            |asked: &mut Asked| asked.edge.is_none_or(|edge| beyond(segment.end(), edge) > 0);
        if let Some(asked) = self.asked.take_if(answers) {
            let took = now.since(asked.at);
            self.least = Some(self.least.map_or(took, |before| before.min(took)));
        }
    }
}
