//! Where the rate of a direction comes from: a number, a trace beside the scenario, a recording from a
//! folder of the user, or a generator.
//!
//! Recordings of real links may seldom be passed on, so a scenario can name one and, beside it, what
//! is generated where the user has no such folder.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::file::SettingsSection;
use super::value::positive_rate;
use super::{ScenarioError, invalid};
use crate::generate::{Direction, Draw, Kind};
use crate::netem::{Conditions, Rate};
use crate::trace::{Trace, TraceError};

/// How long a generated trace lasts where the scenario does not say how long it does.
const UNTOLD: Duration = Duration::from_secs(300);

/// Where traces lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Folders<'a> {
    /// Those that belong to the scenario.
    pub traces: &'a Path,
    /// Recordings, `NAME.mm.gz`; where there is none, links are generated.
    pub recordings: Option<&'a Path>,
}

impl<'a> From<&'a Path> for Folders<'a> {
    fn from(traces: &'a Path) -> Self {
        Self { traces, recordings: None }
    }
}

/// What a direction follows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TraceSource {
    /// A file of the scenario.
    File(PathBuf),
    /// A recording, by its name.
    Recorded(String),
    /// One generated.
    Generated(Kind),
}

impl fmt::Display for TraceSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Recorded(name) => write!(f, "recording {name}"),
            Self::Generated(kind) => write!(f, "generated {kind}"),
        }
    }
}

/// One direction of a link while its sections are read.
#[derive(Debug)]
pub(super) struct Way<'a> {
    place: &'a str,
    link: &'a str,
    direction: Direction,
    delays: Vec<(Duration, Duration)>,
    traces: Vec<(Duration, TraceSource)>,
}

impl<'a> Way<'a> {
    pub(super) fn new(
        place: &'a str,
        link: &'a str,
        direction: ropewalk_settings::Direction,
    ) -> Self {
        let direction = match direction {
            ropewalk_settings::Direction::Up => Direction::Up,
            ropewalk_settings::Direction::Down | ropewalk_settings::Direction::Both => {
                Direction::Down
            }
        };
        Self { place, link, direction, delays: Vec::new(), traces: Vec::new() }
    }

    /// Delay on top of the link's own, by moment; and what was followed.
    pub(super) fn finish(self) -> (Vec<(Duration, Duration)>, Vec<TraceSource>) {
        (self.delays, self.traces.into_iter().map(|(_, source)| source).collect())
    }

    /// From `at` on, another rate holds, and what an earlier trace did to the delay no more.
    fn begin_rate(&mut self, at: Duration) {
        self.traces.retain(|trace| trace.0 < at);
        self.delays.retain(|step| step.0 < at);
        if self.delays.last().is_some_and(|step| !step.1.is_zero()) {
            self.delays.push((at, Duration::ZERO));
        }
    }

    fn trace_error(&self, source: TraceError) -> ScenarioError {
        ScenarioError::Trace { place: self.place.to_owned(), source }
    }
}

/// Finds rates.
pub(super) struct Rates<'a> {
    folders: Folders<'a>,
    seed: u64,
    length: Duration,
    /// Those read so far: both directions, or many changes, often use the same.
    files: BTreeMap<PathBuf, Arc<Trace>>,
}

impl<'a> Rates<'a> {
    pub(super) fn new(folders: Folders<'a>, seed: u64, duration: Option<Duration>) -> Self {
        Self { folders, seed, length: duration.unwrap_or(UNTOLD), files: BTreeMap::new() }
    }

    /// Applies what a section says of the rate from `at` on.
    pub(super) fn apply(
        &mut self,
        way: &mut Way<'_>,
        at: Duration,
        settings: &SettingsSection,
        rate: &mut Rate,
    ) -> Result<(), ScenarioError> {
        let SettingsSection { rate_mbit, trace, recorded, generated, .. } = settings;
        let varied = recorded.is_some() || generated.is_some();
        let choices = [rate_mbit.is_some(), trace.is_some(), varied];
        if choices.into_iter().filter(|choice| *choice).count() > 1 {
            return Err(invalid(way.place, "either rate_mbit or trace or generated"));
        }
        if choices.contains(&true) {
            way.begin_rate(at);
        }
        if let Some(mbit) = *rate_mbit {
            *rate = Rate::Fixed(positive_rate(way.place, mbit)?);
        } else if let Some(path) = trace {
            *rate = Rate::Trace(self.file(way, self.folders.traces.join(path))?);
            way.traces.push((at, TraceSource::File(path.clone())));
        } else if let Some((name, folder)) = recorded.as_ref().zip(self.folders.recordings) {
            *rate = Rate::Trace(self.file(way, folder.join(format!("{name}.mm.gz")))?);
            way.traces.push((at, TraceSource::Recorded(name.clone())));
        } else if let Some(kind) = *generated {
            // Each recording has a stand-in of its own.
            let name = recorded.as_deref().unwrap_or(way.link);
            *rate = Rate::Trace(self.generate(way, at, kind, name)?);
            way.traces.push((at, TraceSource::Generated(kind)));
        } else if recorded.is_some() {
            let problem = "recorded needs a folder of recordings, or generated beside it";
            return Err(invalid(way.place, problem));
        }
        Ok(())
    }

    fn file(&mut self, way: &Way<'_>, path: PathBuf) -> Result<Arc<Trace>, ScenarioError> {
        if let Some(known) = self.files.get(&path) {
            return Ok(Arc::clone(known));
        }
        let trace = Trace::open(&path).map_err(|source| way.trace_error(source))?;
        let trace = Arc::new(trace);
        self.files.insert(path, Arc::clone(&trace));
        Ok(trace)
    }

    fn generate(
        &self,
        way: &mut Way<'_>,
        at: Duration,
        kind: Kind,
        name: &str,
    ) -> Result<Arc<Trace>, ScenarioError> {
        let (seed, direction, length) = (self.seed, way.direction, self.length);
        let draw = Draw { seed, link: name, direction, length };
        let generated = kind.generate(&draw).map_err(|source| way.trace_error(source))?;
        way.delays.extend(generated.delays.into_iter().map(|(since, delay)| (at + since, delay)));
        Ok(Arc::new(generated.trace))
    }
}

/// Adds what generated links have on top of their delay, from the moments on in which that changes.
pub(super) fn delayed(
    changes: Vec<(Duration, Conditions)>,
    delays: Vec<(Duration, Duration)>,
) -> Vec<(Duration, Conditions)> {
    let moments = changes.iter().map(|change| change.0).chain(delays.iter().map(|step| step.0));
    let mut moments: Vec<_> = moments.collect();
    moments.sort_unstable();
    let mut delays = delays.into_iter().peekable();
    let mut changes = changes.into_iter().peekable();
    let mut both = Vec::with_capacity(moments.len());
    let (mut extra, mut now) = (Duration::ZERO, None);
    for at in moments {
        if let Some((_, conditions)) = changes.next_if(|change| change.0 == at) {
            now = Some(conditions);
        } else if let Some((_, delay)) = delays.next_if(|step| step.0 == at) {
            extra = delay;
        }
        // A link that is generated has a change at the beginning: before it there is nothing to delay.
        if let Some(now) = &now {
            both.push((at, Conditions { delay: now.delay + extra, ..now.clone() }));
        }
    }
    both
}
