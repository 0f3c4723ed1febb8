//! Which scheduler, with its settings, and what a person says of each link: what a configuration names and
//! what may be changed on a running tunnel.

use std::fmt;
use std::str::FromStr;

use ipnet::IpNet;

use super::batcp::{Formula, Importance};
use super::safire::DEFAULT_K;
use super::{Count, WhenFull};
use crate::units::Bitrate;

/// A scheduler and its settings. Parsing a name gives its defaults.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum SchedulerConfig {
    /// [`super::FreeWindow`].
    #[default]
    FreeWindow,
    /// [`super::RoundRobin`].
    RoundRobin,
    /// Weighted round-robin by told or sensed weights ([`super::natalie`]).
    Natalie(NatalieConfig),
    /// Weighted round-robin by throughput and cost ([`super::batcp`]).
    Batcp(BatcpConfig),
    /// Flow routing ([`super::safire`]).
    Safire(SafireConfig),
}

/// NATALIE's settings.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct NatalieConfig {
    /// What the shares are shares of.
    pub count: Count,
    /// What happens when the link whose turn it is has no room.
    pub when_full: WhenFull,
    /// Where the weights come from.
    pub weights: Weights,
}

/// Where NATALIE's weights come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Weights {
    /// From what is sensed of the links.
    #[default]
    Auto,
    /// From [`Terms::weight`].
    Told,
}

/// BATCP's settings.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct BatcpConfig {
    /// Which reading of the paper's load formula.
    pub formula: Formula,
    /// What happens when the link whose turn it is has no room.
    pub when_full: WhenFull,
}

/// SAFIRE's settings.
#[derive(Clone, PartialEq, Debug)]
pub struct SafireConfig {
    /// The `k` of its equation (1): finite, above zero.
    pub k: f64,
    /// Destinations that have links of their own, at most [`super::safire::MAX_ROUTES`].
    pub routes: Vec<Route>,
}

impl Default for SafireConfig {
    fn default() -> Self {
        Self { k: DEFAULT_K, routes: Vec::new() }
    }
}

/// A destination and the links that packets to it may take.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// The destination.
    pub prefix: IpNet,
    /// The links, by name.
    pub links: Vec<String>,
}

/// What a person says of a link.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Terms {
    /// Its share for [`Weights::Told`]: finite, not negative; 0: no packets on it.
    pub weight: f64,
    /// What it carries, if that is told.
    pub rate: Option<Bitrate>,
    /// Price of a gigabyte, in one unit for all links: finite, not negative.
    pub cost: f64,
    /// What throughput and cost matter on it.
    pub importance: Importance,
    /// Whether this end sends packets on it; reports and the like go on it all the same.
    pub carries: bool,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            weight: 1.0,
            rate: None,
            cost: 0.0,
            importance: Importance::default(),
            carries: true,
        }
    }
}

impl SchedulerConfig {
    /// All of them, with their defaults.
    #[must_use]
    pub fn all() -> [Self; 5] {
        [
            Self::FreeWindow,
            Self::RoundRobin,
            Self::Natalie(NatalieConfig::default()),
            Self::Batcp(BatcpConfig::default()),
            Self::Safire(SafireConfig::default()),
        ]
    }
}

impl fmt::Display for SchedulerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FreeWindow => "free-window",
            Self::RoundRobin => "round-robin",
            Self::Natalie(_) => "natalie",
            Self::Batcp(_) => "batcp",
            Self::Safire(_) => "safire",
        })
    }
}

/// No scheduler has this name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no scheduler is called `{0}`")]
pub struct UnknownScheduler(pub String);

impl FromStr for SchedulerConfig {
    type Err = UnknownScheduler;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::all()
            .into_iter()
            .find(|config| config.to_string() == name)
            .ok_or_else(|| UnknownScheduler(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheduler_is_found_by_the_name_it_shows() {
        for config in SchedulerConfig::all() {
            assert_eq!(config.to_string().parse(), Ok(config));
        }
        assert!("freewindow".parse::<SchedulerConfig>().is_err());
    }
}
