//! The file of results: `results/EXPERIMENT/simulated.json` and `real.json`.
//!
//! The bytes of a simulated one follow from commit and seed alone, so it names the commit's date and no
//! machine. Every number is [`rounded`], so that files stay readable and differences small.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use ropewalk_settings::Direction;
use serde::{Deserialize, Serialize};

/// The version of this format.
pub const SCHEMA: u32 = 1;

/// Where an experiment ran.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The core, in virtual time.
    Simulated,
    /// The daemons, on a real kernel.
    Real,
}

impl Mode {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Simulated, Self::Real];

    /// As in names of files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Simulated => "simulated",
            Self::Real => "real",
        }
    }
}

/// What the application does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Traffic {
    /// Full packets at a constant rate.
    Udp,
    /// One download with cubic.
    TcpCubic,
    /// One download with BBR.
    TcpBbr,
    /// One upload with cubic.
    TcpCubicUp,
    /// One upload with BBR.
    TcpBbrUp,
    /// Downloads with cubic, one after the other.
    Fetches,
    /// A call, both ways.
    Call,
}

impl Traffic {
    /// As in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::TcpCubic => "tcp-cubic",
            Self::TcpBbr => "tcp-bbr",
            Self::TcpCubicUp => "tcp-cubic-up",
            Self::TcpBbrUp => "tcp-bbr-up",
            Self::Fetches => "fetches",
            Self::Call => "call",
        }
    }

    /// Which way its data go.
    pub const fn direction(self) -> Direction {
        match self {
            Self::Udp | Self::TcpCubic | Self::TcpBbr | Self::Fetches | Self::Call => {
                Direction::Down
            }
            Self::TcpCubicUp | Self::TcpBbrUp => Direction::Up,
        }
    }

    /// Whether it is judged by what it carries, and not by times.
    pub const fn is_bulk(self) -> bool {
        !matches!(self, Self::Fetches | Self::Call)
    }
}

/// One experiment in one mode.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The name of its scenario file.
    pub experiment: String,
    /// For a heading.
    pub title: String,
    /// Whose experiment it is.
    pub source: String,
    /// Where it ran.
    pub mode: Mode,
    /// Shorter and fewer runs than planned: for a look, not for figures.
    pub quick: bool,
    /// Of the code that ran.
    pub commit: String,
    /// Whether that code had changes that no commit has.
    pub dirty: bool,
    /// Simulated: of the commit; real: of the run. Year, month, day.
    pub date: String,
    /// What the seeds of the runs begin with.
    pub seed: u64,
    /// Of a real run.
    pub machine: Option<Machine>,
    /// Whether pictures show what came second by second.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_second: bool,
    /// Whether links are judged one by one, by tables only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_by_one: bool,
    /// In the order of the scenario file.
    pub cases: Vec<Case>,
}

/// What a real run ran on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// Its model.
    pub cpu: String,
    /// Cores this program may use.
    pub cores: usize,
    /// Release of Linux.
    pub kernel: String,
    /// Its distribution.
    pub os: String,
}

/// One point of one curve: the same thing, run several times.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Case {
    /// Once in the file.
    pub id: String,
    /// Its place on the axis.
    pub point: Point,
    /// Its curve.
    pub series: String,
    /// What ran through it.
    pub traffic: Traffic,
    /// Bytes of payload of a run, where it ends with them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Those used, in the direction of the traffic.
    pub links: Vec<LinkSummary>,
    /// What all links of the point carry together, Mbit/s at IP level; also where only one is used.
    pub sum_mbit: f64,
    /// The most payload that the links used can carry for this traffic, Mbit/s.
    pub limit_mbit: f64,
    /// Length of a run; of one that ends with its bytes, the longest.
    pub seconds: f64,
    /// How many runs the plan has.
    pub planned_runs: usize,
    /// Those done, by number.
    pub runs: Vec<Run>,
    /// What was tried, where the best of several counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tried: Vec<Tried>,
    /// Over the runs that are not void.
    pub summary: BTreeMap<String, Spread>,
    /// What had to hold, and whether it did.
    pub checks: Vec<Checked>,
}

/// A place on the one axis of an experiment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Point {
    /// What varies.
    pub axis: String,
    /// For people.
    pub label: String,
    /// For a picture.
    pub value: f64,
    /// Points of one group have a picture of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

/// One of several choices of a series.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Tried {
    /// A link alone, or weights.
    pub name: String,
    /// Its goodput, Mbit/s; absent where all runs are void.
    pub goodput_mbit: Option<Spread>,
    /// Whether it is the one that counts.
    pub best: bool,
}

/// A link in one direction, as it is at the beginning.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LinkSummary {
    /// Its name.
    pub name: String,
    /// At IP level; the mean of a rate that varies.
    pub rate_mbit: f64,
    /// Both ways.
    pub rtt_ms: f64,
    /// Mean share of packets lost, 0 to 1.
    pub loss: f64,
    /// Standard deviation of the delay.
    pub jitter_ms: f64,
    /// The trace of a rate that varies: a recording, or of which kind it is generated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follows: Option<String>,
}

/// What came of one run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Run {
    /// What decided losses, jitter and the moment of the start.
    pub seed: u64,
    /// Why nothing may be concluded from it, if so.
    pub void: Option<String>,
    /// By name (`benches/README.md`); absent where not measured.
    pub values: BTreeMap<String, f64>,
    /// By name, one figure for each second; of the first run of a case only.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub per_second: BTreeMap<String, Vec<f64>>,
    /// Mbit/s of each connection, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flow_mbit: Vec<f64>,
    /// Packets dropped, by reason: in the tunnel, or `link_...` on the links in the direction of the traffic.
    pub drops: BTreeMap<String, u64>,
    /// Of the bytes that came, by the link that carried them.
    pub share_percent: BTreeMap<String, f64>,
    /// Read back from the socket of the sender.
    pub congestion_control: Option<String>,
}

/// How a value is spread over runs.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Spread {
    /// The middle one; of an even number the mean of the middle two.
    pub median: f64,
    /// The smallest.
    pub lowest: f64,
    /// The largest.
    pub highest: f64,
}

impl Spread {
    /// Of values in any order; `None` where there are none.
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_unstable_by(f64::total_cmp);
        let (lowest, highest) = (*values.first()?, *values.last()?);
        let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Self { median: rounded(f64::midpoint(low, high)), lowest, highest })
    }
}

/// A check with its outcome.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Checked {
    /// Which value.
    pub value: String,
    /// At least this.
    pub at_least: Option<f64>,
    /// At most this.
    pub at_most: Option<f64>,
    /// The median of the runs, or the worst one where every run must hold; absent where all are void.
    pub measured: Option<f64>,
    /// Whether it is within the bounds.
    pub ok: bool,
}

/// A number as it stands in files: four decimals.
pub fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

impl Results {
    /// Where the file of an experiment is, in the folder of all.
    pub fn path(folder: &Path, experiment: &str, mode: Mode) -> PathBuf {
        folder.join(experiment).join(mode.as_str()).with_extension("json")
    }

    /// Writes the file, whole or not at all.
    pub fn write(&self, folder: &Path) -> Result<PathBuf> {
        let path = Self::path(folder, &self.experiment, self.mode);
        let mut text = serde_json::to_string_pretty(self).context("results as JSON")?;
        text.push('\n');
        let part = path.with_extension("part");
        fs::create_dir_all(folder.join(&self.experiment))
            .and_then(|()| fs::write(&part, text))
            .and_then(|()| fs::rename(&part, &path))
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read or has another format; with its path.
    pub fn read(path: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let results: Self = serde_json::from_str(&text)
            .with_context(|| format!("{} is no file of results", path.display()))?;
        ensure!(
            results.schema == SCHEMA,
            "{} has format {} and this program reads {SCHEMA}: run the experiment again",
            path.display(),
            results.schema
        );
        Ok(results)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results() -> Results {
        Results {
            schema: SCHEMA,
            experiment: "ev0".into(),
            title: "An experiment".into(),
            source: "nobody".into(),
            mode: Mode::Simulated,
            quick: true,
            commit: "abc".into(),
            dirty: false,
            date: "2026-01-02".into(),
            seed: 1,
            machine: None,
            by_second: false,
            one_by_one: false,
            cases: Vec::new(),
        }
    }

    #[test]
    fn what_is_written_is_read_back_and_nothing_else_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = results().write(folder.path()).unwrap();
        assert_eq!(path, folder.path().join("ev0/simulated.json"));
        assert_eq!(Results::read(&path).unwrap(), results());
        assert_eq!(fs::read_dir(folder.path().join("ev0")).unwrap().count(), 1);
    }

    #[test]
    fn another_format_is_refused_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let path = Results { schema: 9, ..results() }.write(folder.path()).unwrap();
        let text = Results::read(&path).unwrap_err().to_string();
        assert!(text.contains("format 9") && text.contains("run the experiment again"), "{text}");
    }

    #[test]
    fn a_spread_has_the_middle_and_the_ends() {
        let of = |values: &[f64]| Spread::of(values.to_vec());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[3.0, 1.0, 2.0]), Some(Spread { median: 2.0, lowest: 1.0, highest: 3.0 }));
        assert_eq!(of(&[1.0, 2.0, 4.0, 9.0]).map(|s| s.median), Some(3.0));
    }
}
