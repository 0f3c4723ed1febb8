//! The results of one experiment in both modes, as one thing.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::results::{Case, Mode, Point, Results, Spread, Traffic};

/// The file beside an experiment's results that says what they show and what limits them.
pub const FINDINGS: &str = "findings.md";

/// An experiment with what ran of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Both {
    /// Of its folder.
    pub name: String,
    /// Virtual time first; never empty.
    pub results: Vec<Results>,
    /// What people found in them, in Markdown: written by hand into [`FINDINGS`].
    pub findings: Option<String>,
}

/// A place in the tables: one curve at one point with one traffic.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Place<'a> {
    /// What ran.
    pub traffic: Traffic,
    /// Where on the axis.
    pub point: &'a Point,
    /// Which curve.
    pub series: &'a str,
}

impl Both {
    /// All experiments that have results, by name.
    ///
    /// # Errors
    /// When a file cannot be read; with its path.
    pub fn read_all(folder: &Path) -> Result<Vec<Self>> {
        let mut all = Vec::new();
        for path in folders(folder)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let mut results = Vec::new();
            for mode in Mode::ALL {
                let file = Results::path(folder, &name, mode);
                if file.exists() {
                    results.push(Results::read(&file)?);
                }
            }
            if !results.is_empty() {
                let findings = read_findings(&path.join(FINDINGS))?;
                all.push(Self { name, results, findings });
            }
        }
        Ok(all)
    }

    /// What ran in a mode.
    #[must_use]
    pub fn mode(&self, mode: Mode) -> Option<&Results> {
        self.results.iter().find(|results| results.mode == mode)
    }

    /// For a heading.
    #[must_use]
    pub fn title(&self) -> &str {
        self.results.first().map_or(&self.name, |results| &results.title)
    }

    /// All cases with their modes, as they stand in the files.
    pub fn cases(&self) -> impl Iterator<Item = (Mode, &Case)> {
        self.results
            .iter()
            .flat_map(|results| results.cases.iter().map(|case| (results.mode, case)))
    }

    /// What ran, in the order in which it first appears.
    #[must_use]
    pub fn traffics(&self) -> Vec<Traffic> {
        distinct(self.cases().map(|(_, case)| case.traffic))
    }

    /// The points of a traffic, in the same order.
    #[must_use]
    pub fn points(&self, traffic: Traffic) -> Vec<&Point> {
        distinct(self.of(traffic).map(|(_, case)| &case.point))
    }

    /// The groups of these points, in the same order; `None` for points that belong to none.
    #[must_use]
    pub fn groups(&self, traffic: Traffic) -> Vec<Option<&str>> {
        distinct(self.points(traffic).into_iter().map(|point| point.group.as_deref()))
    }

    /// The points of one of them.
    #[must_use]
    pub fn points_of(&self, traffic: Traffic, group: Option<&str>) -> Vec<&Point> {
        let mut points = self.points(traffic);
        points.retain(|point| point.group.as_deref() == group);
        points
    }

    /// The curves of a traffic, in the same order.
    #[must_use]
    pub fn series(&self, traffic: Traffic) -> Vec<&str> {
        distinct(self.of(traffic).map(|(_, case)| case.series.as_str()))
    }

    /// Every place of a traffic, point by point.
    #[must_use]
    pub fn places(&self, traffic: Traffic) -> Vec<Place<'_>> {
        let mut places = Vec::new();
        for point in self.points(traffic) {
            for series in self.series(traffic) {
                let place = Place { traffic, point, series };
                if Mode::ALL.into_iter().any(|mode| self.case(mode, place).is_some()) {
                    places.push(place);
                }
            }
        }
        places
    }

    /// What ran there in a mode.
    #[must_use]
    pub fn case(&self, mode: Mode, place: Place<'_>) -> Option<&Case> {
        self.mode(mode)?.cases.iter().find(|case| {
            case.traffic == place.traffic
                && case.point.label == place.point.label
                && case.series == place.series
        })
    }

    /// A value there, over the runs.
    #[must_use]
    pub fn spread(&self, mode: Mode, place: Place<'_>, value: &str) -> Option<Spread> {
        self.case(mode, place)?.summary.get(value).copied()
    }

    fn of(&self, traffic: Traffic) -> impl Iterator<Item = (Mode, &Case)> {
        self.cases().filter(move |(_, case)| case.traffic == traffic)
    }
}

/// The folders in a folder, by name; none where it is absent.
///
/// # Errors
/// When it cannot be read.
pub fn folders(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut folders = entries(folder)?;
    folders.retain(|path| path.is_dir());
    Ok(folders)
}

/// Everything in a folder, by name; nothing where it is absent.
///
/// # Errors
/// When it cannot be read.
pub fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let read = || format!("cannot read {}", folder.display());
    let listing = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        listing => listing.with_context(read)?,
    };
    let paths = listing.map(|entry| entry.map(|entry| entry.path()));
    let mut paths: Vec<PathBuf> = paths.collect::<Result<_, _>>().with_context(read)?;
    paths.sort();
    Ok(paths)
}

pub(super) fn read_findings(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for one in all {
        if !distinct.contains(&one) {
            distinct.push(one);
        }
    }
    distinct
}
