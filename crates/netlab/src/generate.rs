//! Rates that vary as those of real radio links do, from a seed: what stands in for recordings, which
//! may not be shipped.
//!
//! A [`Kind`] is a [`model::Model`] with numbers from published recordings. Every 20 ms the rate of a
//! direction is
//!
//! ```text
//! median * share of the direction * fading * interval * interruptions,   at most the ceiling
//! ```
//!
//! - fading: log-normal, with a coherence time ([`fading`]);
//! - interval: a level for each of the 15 s for which Starlink assigns satellites ([`interval`]);
//! - interruptions: handovers, weaker cells, holes in the coverage ([`interruption`]).
//!
//! Packets then leave as a Poisson process of that rate ([`delivery`]), as in Winstein, Sivaraman and
//! Balakrishnan, "Stochastic Forecasts Achieve High Throughput and Low Delay over Cellular Networks"
//! (NSDI 2013). What comes out is a [`Trace`] like a recorded one, and where satellites change, how the
//! delay changes with them. Interruptions and satellites are the same for both directions of a link.

pub mod delivery;
pub mod fading;
pub mod interruption;
pub mod interval;
pub mod model;
pub mod summary;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use ring::digest::{Context, SHA256};
use serde::Deserialize;

use self::delivery::Delivery;
use self::fading::Fading;
use self::interruption::Interrupted;
use self::interval::Interval;
use crate::trace::{Trace, TraceError};

/// For how long a rate stays as it is: the step of the model of NSDI 2013, section 3.1.
pub const TICK: Duration = Duration::from_millis(20);

/// The longest trace: an hour, at the highest rate well within what a [`Trace`] holds.
pub const LONGEST: Duration = Duration::from_secs(3600);

/// A kind of link. [`model`] has the numbers and where they come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub enum Kind {
    /// LTE in a city, standing still.
    #[serde(rename = "lte-still")]
    LteStill,
    /// LTE in a moving car.
    #[serde(rename = "lte-driving")]
    LteDriving,
    /// 5G in a moving car, falling back to something slower where it ends.
    #[serde(rename = "5g")]
    FiveG,
    /// A wireless LAN in the pocket of somebody who walks out of its range and back.
    #[serde(rename = "wlan-walking")]
    WlanWalking,
    /// Starlink on the roof of a moving car.
    #[serde(rename = "starlink")]
    Starlink,
    /// The third generation in a bus or train.
    #[serde(rename = "hspa")]
    Hspa,
    /// An HSPA modem at home, seen from an upload.
    #[serde(rename = "hspa-modem")]
    HspaModem,
}

/// Which way packets go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the user.
    Up,
    /// To the user.
    Down,
}

/// What decides a trace: the same four give the same trace.
#[derive(Clone, Copy, Debug)]
pub struct Draw<'a> {
    /// Of the scenario.
    pub seed: u64,
    /// Name of the link, or of the recording in whose place it is: those of one scenario differ.
    pub link: &'a str,
    /// Which way.
    pub direction: Direction,
    /// Length of one round; after it the rate begins again.
    pub length: Duration,
}

/// What came out.
#[derive(Clone, PartialEq, Debug)]
pub struct Generated {
    /// When packets can leave.
    pub trace: Trace,
    /// Delay on top of the link's own, one way, from a moment on; ascending, empty where it is constant.
    pub delays: Vec<(Duration, Duration)>,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::LteStill,
        Self::LteDriving,
        Self::FiveG,
        Self::WlanWalking,
        Self::Starlink,
        Self::Hspa,
        Self::HspaModem,
    ];

    /// As in scenario files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LteStill => "lte-still",
            Self::LteDriving => "lte-driving",
            Self::FiveG => "5g",
            Self::WlanWalking => "wlan-walking",
            Self::Starlink => "starlink",
            Self::Hspa => "hspa",
            Self::HspaModem => "hspa-modem",
        }
    }

    /// A link of this kind.
    ///
    /// # Errors
    /// When the length is no more than a moment, or so long that the trace would be too large.
    pub fn generate(self, draw: &Draw<'_>) -> Result<Generated, TraceError> {
        let model = self.model();
        let mut fading = Fading::new(&model.fading, draw.rng(self, Part::Fading));
        let mut delivery = Delivery::new(draw.rng(self, Part::Delivery));
        let mut surroundings = draw.rng(self, Part::Surroundings);
        let mut interrupted: Vec<_> = model.interruptions.iter().map(Interrupted::new).collect();
        let mut satellites = draw.rng(self, Part::Satellites);
        let mut interval = model.intervals.map(|of| Interval::new(of, &mut satellites));
        let share = match draw.direction {
            Direction::Down => 1.0,
            Direction::Up => model.uplink,
        };

        let mut delays = Vec::new();
        let mut at = Duration::ZERO;
        while at < draw.length.min(LONGEST) {
            let mut factor = fading.next_factor();
            for interruption in &mut interrupted {
                factor *= interruption.next_factor(&mut surroundings);
            }
            if let Some(interval) = &mut interval {
                if let Some(delay) = interval.begins(at, &mut satellites) {
                    delays.push((at, delay));
                }
                factor *= interval.factor(at);
            }
            let mbit = (model.median_mbit * factor).min(model.ceiling_mbit) * share;
            delivery.advance(at, mbit);
            at += TICK;
        }
        Ok(Generated { trace: delivery.finish(at)?, delays })
    }
}

/// What has random numbers of its own, so that one part does not move another.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// Of one direction.
    Fading,
    /// Of one direction.
    Delivery,
    /// Of both directions together.
    Surroundings,
    /// Of both directions together.
    Satellites,
}

impl Draw<'_> {
    fn rng(&self, kind: Kind, part: Part) -> SmallRng {
        let direction = match part {
            Part::Fading | Part::Delivery => Some(self.direction),
            Part::Surroundings | Part::Satellites => None,
        };
        let mut context = Context::new(&SHA256);
        context.update(&self.seed.to_be_bytes());
        context.update(format!("{kind} {part:?} {direction:?} {}", self.link).as_bytes());
        let seed = context
            .finish()
            .as_ref()
            .iter()
            .take(8)
            .fold(0, |seed: u64, &byte| seed << 8 | u64::from(byte));
        SmallRng::seed_from_u64(seed)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// No kind has this name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no link `{name}`; there are {}", Kind::ALL.map(Kind::as_str).join(", "))]
pub struct UnknownKind {
    name: String,
}

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<Self, UnknownKind> {
        let found = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        found.ok_or_else(|| UnknownKind { name: text.to_owned() })
    }
}

#[cfg(test)]
mod tests;
