//! The file of results: `results/throughput/throughput.json`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::NAME;
use super::contender::Kind;
use super::load::Values;
use crate::results::{Machine, Spread, rounded};

/// The version of this format.
pub const SCHEMA: u32 = 1;

/// Everything of one call.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Figures {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Shorter and fewer runs than planned: for a look, not for figures.
    pub quick: bool,
    /// Of the code that ran.
    pub commit: String,
    /// Whether that code had changes that no commit has.
    pub dirty: bool,
    /// Of the run. Year, month, day.
    pub date: String,
    /// What it ran on.
    pub machine: Machine,
    /// How often each was measured.
    pub repetitions: usize,
    /// In the order in which they took turns.
    pub contenders: Vec<Measured>,
    /// What had to hold, and whether it did.
    pub checks: Vec<Check>,
}

/// What was measured of one contender.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// In tables.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Over how many links.
    pub links: u8,
    /// Through address translation.
    pub nat: bool,
    /// Why there is nothing, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// Each repetition.
    pub runs: Vec<Values>,
    /// Over the repetitions.
    pub summary: BTreeMap<String, Spread>,
}

/// Something that had to hold.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Check {
    /// What, in words.
    pub what: String,
    /// At least this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    /// At most this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
    /// The median over repetitions, where it could be measured.
    pub measured: Option<f64>,
    /// Whether that is within the bounds.
    pub ok: bool,
}

impl Measured {
    /// With its summary.
    #[must_use]
    pub fn with_summary(mut self) -> Self {
        let mut all: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for run in &mut self.runs {
            run.values_mut().for_each(|value| *value = rounded(*value));
        }
        for (name, value) in self.runs.iter().flatten() {
            all.entry(name).or_default().push(*value);
        }
        self.summary = all
            .into_iter()
            .filter_map(|(name, values)| Some((name.to_owned(), Spread::of(values)?)))
            .collect();
        self
    }
}

impl Figures {
    /// Where the file is, in the folder of all results.
    #[must_use]
    pub fn path(folder: &Path) -> PathBuf {
        folder.join(NAME).join("throughput.json")
    }

    /// A contender by name, if it was measured.
    #[must_use]
    pub fn of(&self, name: &str) -> Option<&Measured> {
        self.contenders.iter().find(|one| one.name == name)
    }

    /// Writes the file, whole or not at all.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, folder: &Path) -> Result<PathBuf> {
        let path = Self::path(folder);
        let mut text = serde_json::to_string_pretty(self).context("results as JSON")?;
        text.push('\n');
        let part = path.with_extension("part");
        fs::create_dir_all(folder.join(NAME))
            .and_then(|()| fs::write(&part, text))
            .and_then(|()| fs::rename(&part, &path))
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// Reads the file; `None` where there is none.
    ///
    /// # Errors
    /// When it cannot be read or has another format; with its path.
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        let path = Self::path(folder);
        if !path.exists() {
            return Ok(None);
        }
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let figures: Self = serde_json::from_str(&text)
            .with_context(|| format!("{} is no file of throughput results", path.display()))?;
        ensure!(
            figures.schema == SCHEMA,
            "{} has format {} and this program reads {SCHEMA}: run it again",
            path.display(),
            figures.schema
        );
        Ok(Some(figures))
    }
}
