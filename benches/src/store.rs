//! What is finished of an experiment that is under way: one file, one line for each run, added as they end,
//! so that a run that was interrupted or killed goes on where it was.
//!
//! The first line says what the runs belong to ([`Basis`]). A file of another basis is begun afresh, so
//! that figures of different code are never mixed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::results::{Mode, Run};

/// What must be the same for runs to belong together.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Basis {
    /// Of the experiment.
    pub name: String,
    /// Where it runs.
    pub mode: Mode,
    /// One short run of each case.
    pub quick: bool,
    /// What the seeds begin with.
    pub seed: u64,
    /// Of the code.
    pub commit: String,
    /// Hash of the experiment file and of the programs that run, for code that no commit has.
    pub code: String,
}

/// A line after the first.
#[derive(Serialize, Deserialize)]
struct Line {
    key: String,
    run: Run,
}

/// The runs that are finished.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    file: File,
    runs: BTreeMap<String, Run>,
}

impl Store {
    /// Opens the file of an experiment in `folder`; with `fresh` without what is in it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn open(folder: &Path, basis: &Basis, fresh: bool) -> Result<Self> {
        let path = folder.join(format!("{}-{}.jsonl", basis.name, basis.mode.as_str()));
        let what = || format!("cannot write {}", path.display());
        let text =
            if fresh { String::new() } else { fs::read_to_string(&path).unwrap_or_default() };
        let runs = read(&text, basis);
        fs::create_dir_all(folder).with_context(what)?;
        let mut file = File::create(&path).with_context(what)?;
        // Written again whole: the last line of a killed run may be half a line.
        writeln!(file, "{}", serde_json::to_string(basis)?).with_context(what)?;
        let mut store = Self { path, file, runs: BTreeMap::new() };
        for (key, run) in runs {
            store.add(key, run)?;
        }
        Ok(store)
    }

    /// A finished run.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Run> {
        self.runs.get(key)
    }

    /// A run is finished.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn add(&mut self, key: String, run: Run) -> Result<()> {
        let line = Line { key, run };
        writeln!(self.file, "{}", serde_json::to_string(&line)?)
            .with_context(|| format!("cannot write {}", self.path.display()))?;
        self.runs.insert(line.key, line.run);
        Ok(())
    }

    /// The experiment is complete and its results are written.
    pub fn remove(self) {
        // One that stays is of the same basis: its runs would be the same again.
        let _ = fs::remove_file(&self.path);
    }
}

fn read(text: &str, basis: &Basis) -> BTreeMap<String, Run> {
    let mut lines = text.lines();
    let same = |line| serde_json::from_str::<Basis>(line).is_ok_and(|found| found == *basis);
    if !lines.next().is_some_and(same) {
        return BTreeMap::new();
    }
    let lines = lines.map_while(|line| serde_json::from_str::<Line>(line).ok());
    lines.map(|line| (line.key, line.run)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn basis() -> Basis {
        Basis {
            name: "ev0".into(),
            mode: Mode::Real,
            quick: false,
            seed: 1,
            commit: "abc".into(),
            code: "1f".into(),
        }
    }

    fn run(goodput: f64) -> Run {
        Run {
            seed: 1,
            void: None,
            values: [("goodput_mbit".to_owned(), goodput)].into(),
            per_second: BTreeMap::new(),
            flow_mbit: Vec::new(),
            drops: BTreeMap::new(),
            share_percent: BTreeMap::new(),
            congestion_control: None,
        }
    }

    #[test]
    fn what_was_finished_before_a_kill_is_there_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(folder.path(), &basis(), false).unwrap();
        store.add("a".into(), run(1.5)).unwrap();
        store.add("b".into(), run(2.5)).unwrap();
        let path = store.path.clone();
        drop(store);
        // The last line was being written.
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() - 5]).unwrap();
        let mut store = Store::open(folder.path(), &basis(), false).unwrap();
        assert_eq!((store.get("a"), store.get("b")), (Some(&run(1.5)), None));
        store.add("b".into(), run(3.5)).unwrap();
        let store = Store::open(folder.path(), &basis(), false).unwrap();
        assert_eq!(store.get("b"), Some(&run(3.5)));
        store.remove();
        assert!(!path.exists());
    }

    #[test]
    fn runs_of_another_seed_commit_or_length_are_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let others = [
            Basis { seed: 2, ..basis() },
            Basis { commit: "def".into(), ..basis() },
            Basis { code: "2e".into(), ..basis() },
            Basis { quick: true, ..basis() },
        ];
        for other in others {
            Store::open(folder.path(), &basis(), true).unwrap().add("a".into(), run(1.0)).unwrap();
            let store = Store::open(folder.path(), &other, false).unwrap();
            assert_eq!(store.get("a"), None, "{other:?}");
        }
    }

    #[test]
    fn a_fresh_start_forgets() {
        let folder = tempfile::tempdir().unwrap();
        Store::open(folder.path(), &basis(), false).unwrap().add("a".into(), run(1.0)).unwrap();
        assert_eq!(Store::open(folder.path(), &basis(), true).unwrap().get("a"), None);
    }
}
