//! The program under test: built here each time, so that what is measured is what the sources say. Cargo
//! decides what must be built; that the outcome is no older than any of its sources is held against it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// Builds `ropewalk` in `workspace` and returns where it is: cargo says, so that it is the one just built
/// or found fresh whatever the target folder.
///
/// # Errors
/// When it does not build, or is older than a source all the same (a clock that was set back).
pub fn build(workspace: &Path) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--release", "--locked", "-p", "ropewalk-cli"])
        .args(["--message-format", "json-render-diagnostics"])
        .current_dir(workspace)
        .stderr(Stdio::inherit())
        .output()
        .context("running cargo to build `ropewalk`")?;
    ensure!(output.status.success(), "`ropewalk` does not build; cargo says why above");
    let program = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == "ropewalk")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .context("cargo does not say where it put `ropewalk`")?;
    refuse_older(&program)?;
    Ok(program)
}

/// Whether the program is as new as what it is made of: cargo leaves that list beside it.
fn refuse_older(program: &Path) -> Result<()> {
    let built = modified(program)?;
    let list = program.with_extension("d");
    let text =
        fs::read_to_string(&list).with_context(|| format!("cannot read {}", list.display()))?;
    for source in sources(&text) {
        if modified(Path::new(&source))? > built {
            bail!("{} is older than {source}; remove it and try again", program.display());
        }
    }
    Ok(())
}

/// The files named in a list that cargo leaves: `program: file file`, spaces within a name escaped.
fn sources(list: &str) -> Vec<String> {
    const SPACE: &str = "\u{0}";
    let files = list.split_once(": ").map_or("", |(_, files)| files);
    let files = files.replace("\\ ", SPACE);
    files.split_whitespace().map(|file| file.replace(SPACE, " ")).collect()
}

fn modified(path: &Path) -> Result<SystemTime> {
    let time = path.metadata().and_then(|metadata| metadata.modified());
    time.with_context(|| format!("cannot look at {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_program_older_than_a_source_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str, age: u64| {
            let path = folder.path().join(name);
            let time = SystemTime::now() - Duration::from_secs(age);
            File::create(&path).unwrap().set_modified(time).unwrap();
            path
        };
        let (one, two) = (at("one.rs", 1000), at("the other.rs", 1000));
        let program = at("ropewalk", 500);
        let named = two.display().to_string().replace(' ', "\\ ");
        let list = format!("{}: {} {named}\n", program.display(), one.display());
        fs::write(folder.path().join("ropewalk.d"), list).unwrap();
        refuse_older(&program).unwrap();
        at("the other.rs", 0);
        let error = refuse_older(&program).unwrap_err().to_string();
        assert!(error.contains("is older than") && error.contains("the other.rs"), "{error}");
    }
}
