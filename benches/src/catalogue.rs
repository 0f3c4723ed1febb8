//! The experiments there are: one file each in a folder.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use ropewalk_netlab::scenario::Folders;

use crate::error::BadInput;
use crate::experiment::Experiment;

/// A folder of experiment files.
#[derive(Clone, Debug)]
pub struct Catalogue {
    folder: PathBuf,
    recordings: Option<PathBuf>,
    names: Vec<String>,
}

impl Catalogue {
    /// Looks into a folder of files; recorded links lie in another, if anywhere.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn open(folder: &Path, recordings: Option<&Path>) -> Result<Self> {
        let entries = std::fs::read_dir(folder)
            .with_context(|| BadInput(format!("cannot read the folder {}", folder.display())))?;
        let mut names: Vec<String> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
            .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
            .collect();
        names.sort_unstable();
        Ok(Self { folder: folder.to_owned(), recordings: recordings.map(Path::to_owned), names })
    }

    /// Those named, in that order; all where none is.
    ///
    /// # Errors
    /// [`BadInput`] for a name that does not exist, with the nearest one; and as [`Experiment::open`].
    pub fn choose(&self, names: &[String]) -> Result<Vec<Experiment>, BadInput> {
        let names = if names.is_empty() { &self.names } else { names };
        names.iter().map(|name| self.experiment(name)).collect()
    }

    /// Where traces lie.
    #[must_use]
    pub fn traces(&self) -> Folders<'_> {
        Folders { traces: &self.folder, recordings: self.recordings.as_deref() }
    }

    /// Where the file of an experiment is.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name).with_extension("toml")
    }

    fn experiment(&self, name: &str) -> Result<Experiment, BadInput> {
        if self.names.iter().any(|known| known == name) {
            return Experiment::open(&self.path(name), self.traces());
        }
        let nearness = |known: &&String| (strsim::jaro_winkler(known, name) * 1e6) as u64;
        let hint = match self.names.iter().max_by_key(nearness) {
            Some(nearest) => format!("did you mean `{nearest}`? `list` shows all"),
            None => format!("{} holds none", self.folder.display()),
        };
        Err(BadInput(format!("there is no experiment `{name}`; {hint}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Asked, Plan};
    use crate::results::Mode;

    #[test]
    fn every_experiment_of_the_project_can_be_planned() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
        let catalogue = Catalogue::open(&folder, None).unwrap();
        let experiments = catalogue.choose(&[]).unwrap();
        for experiment in experiments {
            for mode in Mode::ALL {
                let plan = Plan::new(experiment.clone(), Asked { mode, quick: false, seed: 1 });
                let jobs = plan.jobs();
                assert!(!jobs.is_empty(), "{}", experiment.name);
                // Those of one case differ in their seeds alone.
                for job in jobs.into_iter().filter(|job| job.run == 0) {
                    plan.scenario(job, catalogue.traces()).unwrap();
                }
                let ids: std::collections::BTreeSet<_> =
                    plan.cases.iter().map(|case| &case.id).collect();
                assert_eq!(ids.len(), plan.cases.len(), "{}", experiment.name);
            }
        }
    }
}
