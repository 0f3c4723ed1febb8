//! What one direction of a link is like.

use std::time::Duration;

use ropewalk_settings::Bitrate;

use super::Policer;
use crate::loss::Loss;
use crate::queue::{QueueLimit, Rate};

/// What a link does to packets. May be changed at any time.
#[derive(Clone, PartialEq, Debug)]
pub struct Conditions {
    /// How fast the link transmits.
    pub rate: Rate,
    /// One way, apart from queue and transmission.
    pub delay: Duration,
    /// Standard deviation of the delay, which is distributed normally and never below zero.
    pub jitter: Duration,
    /// With it, no packet overtakes its predecessor: one that would waits for it. Jitter then delays
    /// more than `delay` in the mean.
    pub keep_order: bool,
    /// What is lost at random.
    pub loss: Loss,
    /// How much may wait for a transmitter with a rate.
    pub queue: QueueLimit,
    /// What others send over the same queue where there is a rate, in full packets whose gaps vary at random by half.
    /// They lose nothing for our sake, so that what is there for us is the rate less this.
    pub background: Bitrate,
    /// What drops packets behind the transmitter; nothing if absent.
    pub policer: Option<Policer>,
    /// Which ECN-capable packets are marked.
    pub marking: Marking,
    /// The largest packet at IP level that passes, in bytes.
    pub mtu: u32,
    /// Whether the link is cut.
    pub cut: Option<Cut>,
}

impl Default for Conditions {
    /// A perfect cable: no limit of rate, no delay, no loss, packets of any size.
    fn default() -> Self {
        Self {
            rate: Rate::Unlimited,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            keep_order: true,
            loss: Loss::None,
            queue: QueueLimit::default(),
            background: Bitrate::default(),
            policer: None,
            marking: Marking::default(),
            mtu: u32::MAX,
            cut: None,
        }
    }
}

impl Conditions {
    /// What passes in the long run, at IP level; `None` if unlimited.
    #[must_use]
    pub fn mean_rate(&self) -> Option<Bitrate> {
        self.rate.mean().into_iter().chain(self.policer.map(|policer| policer.rate)).min()
    }
}

/// When an ECN-capable packet gets the mark CE (RFC 3168).
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Marking {
    /// If it waited longer than this for its turn (as `ce_threshold` of Linux's `fq_codel`).
    pub above: Option<Duration>,
    /// And at random with this probability.
    pub probability: f64,
}

/// An outage. Nobody is told: no error, no ICMP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// What arrives is lost; what waits or is under way is still delivered.
    Arrivals,
    /// What waits or is under way is lost too.
    Everything,
}
