//! Where a report is written: a new file that only its owner reads.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::Path;

use anyhow::Context as _;
use ropewalk_control::folder::Folder;

use crate::exit::Failure;

/// Only the owner reads and writes it.
const MODE: u32 = 0o600;

/// Writes a new file. One that is there, or a link, is left as it is.
///
/// # Errors
/// The file is there already, or cannot be made or written; what was made of it is removed.
pub(crate) fn write(file: &Path, text: &str) -> Result<(), Failure> {
    let shown = file.display();
    let made = Folder::of(file).and_then(|(folder, name)| {
        let mut options = OpenOptions::new();
        let made = options.write(true).create_new(true).mode(MODE).open(folder.at(name))?;
        Ok((folder, name, made))
    });
    let (folder, name, mut made) = match made {
        Ok(made) => made,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(Failure::Failed(anyhow::anyhow!(
                "{shown} exists and stays as it is: name another file with --output"
            )));
        }
        Err(error) => {
            return Err(anyhow::Error::new(error)
                .context(format!("cannot write {shown} (--output names another file)"))
                .into());
        }
    };
    let written = hand_over(&folder, &made)
        .and_then(|()| made.write_all(text.as_bytes()))
        .and_then(|()| made.sync_all());
    if written.is_err() {
        // Half a report would be taken for a whole one.
        drop(std::fs::remove_file(folder.at(name)));
    }
    written.with_context(|| format!("cannot write {shown}")).map_err(Failure::from)
}

/// A file that root makes belongs to who is to send it: the owner of the folder, else who called root by sudo.
fn hand_over(folder: &Folder, made: &File) -> io::Result<()> {
    folder.give(made)?;
    let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    match (number("SUDO_UID"), number("SUDO_GID")) {
        (Some(user), Some(group)) if made.metadata()?.uid() == 0 => {
            fchown(made, Some(user), Some(group))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_a_new_file_for_its_owner_and_replaces_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("report.md");
        write(&file, "one\n").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "one\n");
        assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        let again = write(&file, "two\n").unwrap_err().to_string();
        assert!(again.contains("exists and stays as it is"), "{again}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "one\n");
        // What a link leads to is neither written nor made.
        for target in ["report.md", "elsewhere.md"] {
            let link = folder.path().join(format!("link-to-{target}"));
            std::os::unix::fs::symlink(folder.path().join(target), &link).unwrap();
            assert!(write(&link, "three\n").is_err(), "{target}");
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "one\n");
        assert!(!folder.path().join("elsewhere.md").exists());
        let nowhere = write(&folder.path().join("no/such/report.md"), "x").unwrap_err();
        assert!(nowhere.to_string().contains("--output names another file"), "{nowhere}");
    }
}
