//! What stands in an experiment file. Links and settings of the tunnel are the sections of a scenario
//! file (`ropewalk_netlab::scenario`); `benches/README.md` explains the others by example.

use std::collections::BTreeMap;

use ropewalk_netlab::scenario::file::{LinkSection, TunnelSection};
use serde::Deserialize;
use toml::Spanned;

use crate::results::{Mode, Traffic};

/// The whole file.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExperimentFile {
    /// For a heading.
    pub title: String,
    /// Whose experiment it is: paper and section, or where it was published.
    pub source: String,
    /// What it shows, in one sentence.
    pub shows: String,
    /// What varies from point to point.
    pub axis: String,
    /// What runs through the tunnel, one after the other.
    pub traffic: Vec<Traffic>,
    /// Whether there is a ping beside the traffic.
    #[serde(default = "yes")]
    pub ping: bool,
    /// What UDP sends, payload in Mbit/s; the sum of the links' rates if absent.
    pub offered_mbit: Option<f64>,
    /// Or in percent of that sum.
    pub offered_percent_of_sum: Option<f64>,
    /// Whether links are judged one by one: beside each load stand the figures of its link ([`crate::link_figures`]), and
    /// there are tables only, without pictures and series by the second.
    #[serde(default)]
    pub one_by_one: bool,
    /// In virtual time.
    pub simulated: Effort,
    /// On the kernel.
    pub real: Effort,
    /// What the links of all points have in common.
    #[serde(default)]
    pub links: Vec<LinkSection>,
    /// `[[points]]`
    pub points: Vec<Spanned<PointSection>>,
    /// `[[groups]]`: each has all points.
    #[serde(default)]
    pub groups: Vec<GroupSection>,
    /// Whether pictures show what came second by second.
    #[serde(default)]
    pub by_second: bool,
    /// `[[series]]`
    pub series: Vec<SeriesSection>,
    /// `[[checks]]`
    #[serde(default)]
    pub checks: Vec<Spanned<CheckSection>>,
}

fn yes() -> bool {
    true
}

/// How much is run in a mode.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Effort {
    /// How often.
    pub runs: usize,
    /// How long; where points have `bytes`, at most.
    pub seconds: f64,
    /// Only these points, by label.
    pub points: Option<Vec<Spanned<String>>>,
    /// Only these series.
    pub series: Option<Vec<Spanned<String>>>,
    /// Only this traffic.
    pub traffic: Option<Vec<Spanned<Traffic>>>,
}

/// One place on the axis.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PointSection {
    /// For people; once in the file.
    pub label: String,
    /// For a picture.
    pub value: f64,
    /// TCP carries so many bytes of payload and ends; for `seconds` if absent.
    pub bytes: Option<u64>,
    /// So often one after the other, where the traffic is fetches; once if absent.
    pub times: Option<u16>,
    /// Over so many connections at once, which share the bytes; as many as the series has if absent.
    pub at_once: Option<u16>,
    /// So many downloads with cubic beside a call; none if absent.
    pub downloads: Option<u16>,
    /// And so many uploads.
    pub uploads: Option<u16>,
    /// How long a run is here; as everywhere if absent. A quick one is as short as any.
    pub seconds: Option<f64>,
    /// What UDP sends here, payload in Mbit/s; as everywhere if absent.
    pub offered_mbit: Option<f64>,
    /// Who comes after a tenth of the time and shares the first link from then on.
    pub company: Option<Company>,
    /// What its links have beyond those in common, by name; others are added.
    #[serde(default)]
    pub links: Vec<LinkSection>,
}

/// One download of others, beside the tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Company {
    /// As it is, with cubic.
    TcpCubic,
    /// As it is, with BBR.
    TcpBbr,
    /// With cubic, through a second tunnel like the first.
    Tunnel,
}

/// Points that have something in common, with a picture of their own.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupSection {
    /// Once in the file; it begins the labels of its points.
    pub label: String,
    /// What its links have beyond those in common, by name; what a point says of them wins.
    #[serde(default)]
    pub links: Vec<LinkSection>,
}

/// One curve.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeriesSection {
    /// Once in the file.
    pub name: String,
    /// Which links it uses.
    #[serde(default)]
    pub uses: Uses,
    /// Of those, only these, by name.
    pub links: Option<Vec<String>>,
    /// Over how many connections at once TCP's bytes go, as a download manager's; 1 if absent.
    #[serde(default = "one_flow")]
    pub flows: u16,
    /// With this traffic only.
    pub traffic: Option<Vec<Traffic>>,
    /// At these points only, by label.
    pub points: Option<Vec<String>>,
    /// How the tunnel is set; the daemons' default if absent.
    #[serde(default)]
    pub tunnel: TunnelSection,
    /// Weights of links by name, of which each is tried; those that carried most count.
    #[serde(default)]
    pub weights: Vec<BTreeMap<String, f64>>,
}

fn one_flow() -> u16 {
    1
}

/// Which links a series uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Uses {
    /// All of the point.
    #[default]
    All,
    /// One like the first, with the rates of all of them.
    OneOfTheSum,
    /// Each alone; the one that carried most counts.
    BestAlone,
}

/// What must hold in each case that it is about.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckSection {
    /// Of this series.
    pub series: String,
    /// With this traffic only.
    pub traffic: Option<Traffic>,
    /// At these points only.
    pub points: Option<Vec<String>>,
    /// In this mode only.
    pub mode: Option<Mode>,
    /// Which value: its median over the runs.
    pub value: String,
    /// At least this.
    pub at_least: Option<f64>,
    /// At least what this other series has at the same point with the same traffic.
    pub at_least_series: Option<String>,
    /// Or this share of it; all if absent.
    pub share: Option<f64>,
    /// At most this.
    pub at_most: Option<f64>,
    /// Whether the worst run counts in place of the median.
    #[serde(default)]
    pub each_run: bool,
}

impl Effort {
    /// Whether a point is run.
    #[must_use]
    pub fn has_point(&self, label: &str) -> bool {
        chosen(self.points.as_deref(), |point| point == label)
    }

    /// Whether a series is run.
    #[must_use]
    pub fn has_series(&self, name: &str) -> bool {
        chosen(self.series.as_deref(), |series| series == name)
    }

    /// Whether this traffic is run.
    #[must_use]
    pub fn has_traffic(&self, traffic: Traffic) -> bool {
        chosen(self.traffic.as_deref(), |other| *other == traffic)
    }
}

impl SeriesSection {
    /// Whether it is run at this point.
    #[must_use]
    pub fn has_point(&self, label: &str) -> bool {
        self.points.as_ref().is_none_or(|only| only.iter().any(|point| point == label))
    }

    /// Whether it is run with this traffic.
    #[must_use]
    pub fn has_traffic(&self, traffic: Traffic) -> bool {
        self.traffic.as_ref().is_none_or(|only| only.contains(&traffic))
    }
}

/// Whether one is meant, or there is no choice.
fn chosen<T>(names: Option<&[Spanned<T>]>, is_meant: impl Fn(&T) -> bool) -> bool {
    names.is_none_or(|names| names.iter().any(|name| is_meant(name.get_ref())))
}
