//! What a person says of a link.

use serde::{Deserialize, Serialize};

use crate::text::shown_as_written;
use crate::{Bitrate, Cost, Importance};

/// Largest weight: beyond it nobody can mean a share.
const MAX_WEIGHT: f64 = 1e6;

/// `[tunnel.link.NAME]`: what is said of a link.
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
    /// What a gigabyte costs on it, such as `"5 EUR/GB"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// When it is used.
    #[serde(rename = "use", skip_serializing_if = "Option::is_none")]
    pub preference: Option<Preference>,
    /// What throughput and cost matter on it: shares of one, in place of `use`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub importance: Option<Importance>,
    /// Which way it carries packets; both if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
}

/// When a link is used, in words: what becomes of it in BATCP's weights stands in `docs/SCHEDULING.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preference {
    /// Preferred.
    First,
    /// As good as any.
    Also,
    /// For what the others cannot carry.
    WhenNeeded,
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

shown_as_written!(Preference, Direction);

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
        if self.preference.is_some() && self.importance.is_some() {
            return Err("`use` and `importance` say the same in two ways: remove one".to_owned());
        }
        Ok(())
    }
}
