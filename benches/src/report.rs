//! Tables and pictures, drawn from the files of results, what people found in them (`findings.md`) and the
//! figures of others (`peers.toml`).
//!
//! Everything that is drawn follows from those files alone, to the byte, so that a check can tell whether
//! what is committed is what they say. What a table leaves out is nowhere hidden: checks that failed,
//! runs that were void, cases that only ran in virtual time and results that differ between the two
//! are said before anything else.

pub mod both;
pub mod checks;
pub mod markdown;
pub mod overview;
pub mod page;
pub mod peers;
pub mod picture;
pub mod throughput;
pub mod values;

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::{Context, Result};

use self::both::Both;
use self::peers::Peers;
use crate::throughput::NAME;
use crate::throughput::figures::Figures;

/// Files by path.
type Files = BTreeMap<PathBuf, String>;

/// What is read, and where the results of it belong.
#[derive(Clone, Debug)]
pub struct Folders {
    /// The results; tables and pictures lie beside them.
    pub results: PathBuf,
    /// The figures of others.
    pub peers: PathBuf,
    /// A README with the two [markers](overview::BEGIN), for the most telling table and picture.
    pub readme: Option<PathBuf>,
}

/// Draws everything; returns the files that were not as they are to be.
///
/// # Errors
/// When results or peers cannot be read, or nothing can be written.
pub fn write(folders: &Folders) -> Result<Vec<PathBuf>> {
    let files = draw(folders)?;
    let stale = differing(folders, &files)?;
    for path in &stale {
        match files.get(path) {
            Some(content) => fs::create_dir_all(path.parent().unwrap_or(path))
                .and_then(|()| fs::write(path, content)),
            None => fs::remove_file(path),
        }
        .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(stale)
}

/// The files that [`write()`] would change.
///
/// # Errors
/// When results, peers or what is drawn cannot be read.
pub fn check(folders: &Folders) -> Result<Vec<PathBuf>> {
    differing(folders, &draw(folders)?)
}

fn draw(folders: &Folders) -> Result<Files> {
    let experiments = Both::read_all(&folders.results)?;
    let peers = Peers::open(&folders.peers)?;
    let mut files = Files::new();
    for experiment in &experiments {
        let folder = folders.results.join(&experiment.name);
        let pictures = picture::all(experiment, &peers)?;
        files.insert(folder.join("README.md"), page::page(experiment, &peers, &pictures));
        for picture in pictures {
            files.insert(folder.join(picture.file), picture.svg);
        }
    }
    let mut index = overview::index(&experiments);
    if let Some(figures) = Figures::read(&folders.results)? {
        let folder = folders.results.join(NAME);
        let findings = both::read_findings(&folder.join(both::FINDINGS))?;
        let pictures = picture::load::pictures(&figures)?;
        files.insert(folder.join("README.md"), throughput::page(&figures, &pictures, findings));
        files.extend(pictures.into_iter().map(|(_, file, svg)| (folder.join(file), svg)));
        index += &throughput::line(&figures);
    }
    files.insert(folders.results.join("README.md"), index);
    if let Some(readme) = &folders.readme {
        let text = fs::read_to_string(readme)
            .with_context(|| format!("cannot read {}", readme.display()))?;
        let block = overview::most_telling(&experiments, &peers)?;
        let text = overview::replaced(&text, &block)
            .with_context(|| format!("{} cannot show results", readme.display()))?;
        files.insert(readme.clone(), text);
    }
    Ok(files)
}

/// Files that are otherwise or absent, and pictures that nothing draws any more.
fn differing(folders: &Folders, files: &Files) -> Result<Vec<PathBuf>> {
    let mut differing = Vec::new();
    for (path, content) in files {
        let there = match fs::read_to_string(path) {
            Ok(there) => Some(there),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        };
        if there.as_ref() != Some(content) {
            differing.push(path.clone());
        }
    }
    for folder in both::folders(&folders.results)? {
        for path in both::entries(&folder)? {
            let drawn = path.extension().is_some_and(|extension| extension == "svg");
            if drawn && !files.contains_key(&path) {
                differing.push(path);
            }
        }
    }
    differing.sort();
    Ok(differing)
}

#[cfg(test)]
mod tests;
