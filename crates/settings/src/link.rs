//! What a person says of a link.

use serde::{Deserialize, Serialize};

use crate::text::shown_as_written;
use crate::{Bitrate, Cost, Importance};

/// Largest weight: beyond it nobody can mean a share.
const MAX_WEIGHT: f64 = 1e6;

/// What is said of a link to the end that sends on it: the part of the client's policy
/// ([`LinkPolicy`](crate::LinkPolicy)) for its direction, and what a proxy says itself (`[tunnel.link.NAME]`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinkTerms {
    /// Its share for `weights = "told"`, 0 (no packets on it) to a million; 1 if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    /// What it carries in the direction in which this end sends, such as `"20 Mbit/s"`. Schedulers use it instead of what
    /// is measured; it is no bound but for the controller `fixed`, which sends no more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Bitrate>,
    /// Most that this end sends on it, at IP level, such as `"20 Mbit/s"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<Bitrate>,
    /// What a gigabyte costs on it, such as `"5 EUR/GB"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// When it carries packets; always if nothing is said.
    #[serde(rename = "use", skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// How much throughput and cost matter on it, for `batcp`: shares of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub importance: Option<Importance>,
    /// Which way it carries packets; both if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
}

/// When a link carries packets, the least reluctant first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Usage {
    /// Always, as the scheduler says.
    #[default]
    Always,
    /// When the links that are always used have failed or are full.
    WhenNeeded,
    /// When all others have failed.
    Backup,
}

/// Which way a link carries packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Client to proxy.
    Up,
    /// Proxy to client.
    Down,
    /// One and the other.
    #[default]
    Both,
}

shown_as_written!(Usage, Direction);

impl Direction {
    /// Whether it means this one too.
    #[must_use]
    pub fn includes(self, direction: Self) -> bool {
        self == Self::Both || self == direction
    }
}

impl LinkTerms {
    /// Whether it makes sense as a whole.
    ///
    /// # Errors
    /// What does not.
    pub(crate) fn check(&self) -> Result<(), String> {
        if let Some(weight) = self.weight
            && !(0.0..=MAX_WEIGHT).contains(&weight)
        {
            return Err(format!("weight = {weight} is no number from 0 to {MAX_WEIGHT}"));
        }
        Ok(())
    }

    /// These terms beside those of the link's owner: what is said here counts, else what the owner says. Of two bounds and
    /// of two uses the stricter counts.
    #[must_use]
    pub fn beside(&self, owner: &Self) -> Self {
        Self {
            weight: self.weight.or(owner.weight),
            rate: self.rate.or(owner.rate),
            max: self.max.into_iter().chain(owner.max).min(),
            cost: self.cost.clone().or_else(|| owner.cost.clone()),
            usage: self.usage.max(owner.usage),
            importance: self.importance.or(owner.importance),
            direction: self.direction.filter(|way| *way != Direction::Both).or(owner.direction),
        }
    }
}
