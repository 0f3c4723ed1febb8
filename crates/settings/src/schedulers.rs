//! The schedulers, and the settings of each.

use std::collections::BTreeMap;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::text::shown_as_written;

/// Which link takes the next packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SchedulerKind {
    /// The link on which it arrives first.
    #[default]
    Arrival,
    /// The link with the most room in its congestion window (Evensen et al.).
    FreeWindow,
    /// The links in turn: a baseline for comparison.
    RoundRobin,
    /// Weighted rounds, by told weights or by what others leave of each link (NATALIE).
    Natalie,
    /// Weighted rounds, by throughput and cost (BATCP).
    Batcp,
    /// Each flow on one link (SAFIRE).
    Safire,
}

impl SchedulerKind {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Arrival,
        Self::FreeWindow,
        Self::RoundRobin,
        Self::Natalie,
        Self::Batcp,
        Self::Safire,
    ];
}

/// `[tunnel.natalie]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NatalieSettings {
    /// Where the weights come from.
    pub weights: Weights,
    /// What the shares are shares of.
    pub count: Count,
    /// What happens when the link whose turn it is has no room.
    pub when_full: WhenFull,
}

/// `[tunnel.batcp]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BatcpSettings {
    /// Which reading of the paper's load formula.
    pub formula: Formula,
    /// What happens when the link whose turn it is has no room.
    pub when_full: WhenFull,
}

/// `[tunnel.safire]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SafireSettings {
    /// The constant of the paper's equation (1): finite, above zero; the paper sets it to one.
    pub k: f64,
    /// The links, by name, that packets to a destination may take; for others, all. At most [`Self::MAX_ROUTES`].
    pub routes: BTreeMap<IpNet, Vec<String>>,
}

impl SafireSettings {
    /// Most routes: the core has a bit for each.
    pub const MAX_ROUTES: usize = 64;
}

impl Default for SafireSettings {
    fn default() -> Self {
        Self { k: 1.0, routes: BTreeMap::new() }
    }
}

/// Where NATALIE's weights come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weights {
    /// From what others leave of each link.
    #[default]
    Auto,
    /// From `weight` of each link.
    Told,
}

/// What the shares of a round are shares of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Count {
    /// Packets.
    #[default]
    Packets,
    /// Bytes.
    Bytes,
}

/// What happens when the link whose turn it is has no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhenFull {
    /// The next link with room takes the turn.
    #[default]
    Pass,
    /// The packet waits for that link, as in the papers.
    Wait,
}

/// Which reading of BATCP's load formula.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Formula {
    /// The better link carries more.
    #[default]
    Prose,
    /// As printed: the worse link carries more.
    Literal,
}

shown_as_written!(SchedulerKind, Weights, Count, WhenFull, Formula);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheduler_is_shown_by_the_name_that_is_read() {
        for kind in SchedulerKind::ALL {
            let text = format!("scheduler = \"{kind}\"");
            let read: BTreeMap<String, SchedulerKind> = toml::from_str(&text).unwrap();
            assert_eq!(read["scheduler"], kind);
        }
    }
}
