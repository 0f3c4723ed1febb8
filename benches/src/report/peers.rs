//! What others reach, as `peers.toml` has it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::results::Traffic;

/// The whole file.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peers {
    /// `[[figures]]`
    #[serde(default)]
    pub figures: Vec<Figures>,
    /// `[[claims]]`
    #[serde(default)]
    pub claims: Vec<Claim>,
}

/// Figures of several peers for one experiment and traffic.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// Name of the experiment.
    pub experiment: String,
    /// What ran.
    pub traffic: Traffic,
    /// Which value it is.
    pub value: PeerValue,
    /// Who measured it, and how.
    pub source: String,
    /// Our series beside them, and what each is called there; only the default settings if absent.
    #[serde(default)]
    pub ours: BTreeMap<String, String>,
    /// The points that the README shows, by their labels; all if absent.
    #[serde(default)]
    pub short: Vec<String>,
    /// What we must reach, by the label of the point.
    #[serde(default)]
    pub goal: BTreeMap<String, f64>,
    /// `[[figures.peers]]`
    pub peers: Vec<Peer>,
}

/// What is told of peers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerValue {
    /// Of the sum of the links' rates at IP level.
    PercentOfSum,
    /// Of the sum of what the links carried one by one.
    PercentOfSingles,
    /// Payload in Mbit/s.
    GoodputMbit,
}

/// One of them.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// Whether it is in the picture.
    #[serde(default = "yes")]
    pub drawn: bool,
    /// Whether it is one of the links by itself, without a tunnel.
    #[serde(default)]
    pub alone: bool,
    /// By the label of the point.
    pub at: BTreeMap<String, f64>,
}

fn yes() -> bool {
    true
}

/// Something said in words.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Name of the experiment.
    pub experiment: String,
    /// Who says it.
    pub source: String,
    /// What.
    pub text: String,
}

impl Peers {
    /// Reads the file.
    ///
    /// # Errors
    /// When it cannot be read or makes no sense; with path, line and column.
    pub fn open(path: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        toml::from_str(&text).with_context(|| path.display().to_string())
    }

    /// What there is of an experiment with a traffic.
    #[must_use]
    pub fn of(&self, experiment: &str, traffic: Traffic) -> Option<&Figures> {
        self.figures
            .iter()
            .find(|figures| figures.experiment == experiment && figures.traffic == traffic)
    }

    /// What is said of an experiment.
    pub fn claims<'a>(&'a self, experiment: &'a str) -> impl Iterator<Item = &'a Claim> {
        self.claims.iter().filter(move |claim| claim.experiment == experiment)
    }
}

impl PeerValue {
    /// Its name in files of results.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PercentOfSum => "percent_of_sum",
            Self::PercentOfSingles => "percent_of_singles",
            Self::GoodputMbit => "goodput_mbit",
        }
    }

    /// One of them as it is drawn: in percent, of `sum_mbit` where it is no share.
    #[must_use]
    pub fn percent(self, value: f64, sum_mbit: f64) -> f64 {
        match self {
            Self::PercentOfSum | Self::PercentOfSingles => value,
            Self::GoodputMbit => 100.0 * value / sum_mbit,
        }
    }
}
