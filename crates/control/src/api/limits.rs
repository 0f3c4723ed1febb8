//! What keeps a link from carrying more.

use serde::{Deserialize, Serialize};

/// How long each thing kept a link from carrying more of what this end sends, since the link joined: one of them at any
/// time. What was so over a span is the difference of two documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LimitTimes {
    /// No packet waited for a link.
    pub no_demand_s: f64,
    /// Packets waited, and its congestion window was full.
    pub window_s: f64,
    /// Packets waited, and its pace had no room: what it was told to carry, or what others leave of that.
    pub pace_s: f64,
    /// The same, where the pace is `max_up` or `max_down`.
    pub cap_s: f64,
    /// Packets waited, and it had room: the scheduler wanted them on others.
    pub turn_s: f64,
    /// It carried no packets: it was not up, was kept back, or is for the other direction.
    pub off_s: f64,
}

impl LimitTimes {
    /// All of them together: since the link joined.
    #[must_use]
    pub fn total(&self) -> f64 {
        let Self { no_demand_s, window_s, pace_s, cap_s, turn_s, off_s } = self;
        no_demand_s + window_s + pace_s + cap_s + turn_s + off_s
    }
}
