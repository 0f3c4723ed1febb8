//! Files that must survive a crash, and are only their owner's.
//!
//! All of this waits for the disk: a packet loop has it done by a [`Writer`](crate::writer::Writer).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::{Path, PathBuf};

use ropewalk_control::folder::{self, Folder};
use tempfile::{Builder, NamedTempFile, PersistError};

/// Bytes that are written at once of a file that is made piece by piece.
const BUFFER: usize = 64 << 10;

/// Makes a new file with mode 600, as a whole. On return it is on disk.
///
/// # Errors
/// There is one of this name (`AlreadyExists`), which stays as it is; or what the system says.
pub fn create(file: &Path, content: &[u8]) -> io::Result<()> {
    write(file, |out| out.write_all(content), NamedTempFile::persist_noclobber)
}

/// Replaces a file as a whole, with mode 600: a crash leaves the old or the new one. On return it is on disk. Its folder
/// is made if it is missing, closed to others.
///
/// # Errors
/// What the system says; the old file is as it was then.
pub fn replace(file: &Path, content: &[u8]) -> io::Result<()> {
    replace_with(file, |out| out.write_all(content))
}

/// The same with what `content` writes, which need not be in memory as a whole.
///
/// # Errors
/// As [`replace`], or what `content` says.
pub fn replace_with(
    file: &Path,
    content: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
) -> io::Result<()> {
    write(file, content, NamedTempFile::persist)
}

/// Replaces a file that is there as a whole: the new one has its owner and mode. On return it is on disk.
///
/// # Errors
/// As [`replace`]; there is no such file.
pub fn rewrite(file: &Path, content: &[u8]) -> io::Result<()> {
    let (folder, name) = Folder::of(file)?;
    let known = std::fs::symlink_metadata(folder.at(name))?;
    if !known.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "this is no regular file"));
    }
    let owner = (known.uid(), known.gid());
    let whole = |out: &mut dyn io::Write| out.write_all(content);
    write(file, whole, |new, place| {
        let like_it = || {
            let made = new.as_file().metadata()?;
            if (made.uid(), made.gid()) != owner {
                fchown(new.as_file(), Some(owner.0), Some(owner.1))?;
            }
            // After the change of the owner, which takes bits away.
            new.as_file().set_permissions(known.permissions())
        };
        match like_it() {
            Ok(()) => new.persist(place),
            Err(error) => Err(PersistError { error, file: new }),
        }
    })
}

/// Removes what a process that was killed while it wrote this file left beside it. To be called by the only one who writes it.
///
/// # Errors
/// What the system says; a folder that is missing holds nothing.
pub fn sweep(file: &Path) -> io::Result<()> {
    let (folder, name) = folder::split(file)?;
    sweep_of(folder, &beginning(name))
}

/// The same for all files in `folder` whose name begins so.
///
/// # Errors
/// As [`sweep`].
pub fn sweep_of(folder: &Path, beginning: &OsStr) -> io::Result<()> {
    let missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let folder = match Folder::open(folder) {
        Err(error) if missing(&error) => return Ok(()),
        folder => folder?,
    };
    let list = match std::fs::read_dir(folder.path()) {
        Err(error) if missing(&error) => return Ok(()),
        list => list?,
    };
    for entry in list {
        let name = entry?.file_name();
        if name.as_encoded_bytes().starts_with(beginning.as_encoded_bytes()) {
            std::fs::remove_file(folder.at(&name))?;
        }
    }
    Ok(())
}

/// How the name of a file that is not finished begins.
fn beginning(name: &OsStr) -> OsString {
    let mut beginning = OsString::from(".");
    beginning.push(name);
    beginning.push(".new-");
    beginning
}

fn write(
    file: &Path,
    content: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
    persist: impl FnOnce(NamedTempFile, PathBuf) -> Result<File, PersistError>,
) -> io::Result<()> {
    let (folder, name) = folder::split(file)?;
    let folder = Folder::make(folder, 0o700)?;
    // It is made with mode 600.
    let mut new = Builder::new().prefix(&beginning(name)).tempfile_in(folder.path())?;
    let mut out = BufWriter::with_capacity(BUFFER, new.as_file_mut());
    content(&mut out)?;
    out.flush()?;
    drop(out);
    folder.give(new.as_file())?;
    new.as_file().sync_all()?;
    persist(new, folder.at(name)).map_err(|error| error.error)?;
    // The rename itself is durable only with the folder.
    folder.sync()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_rewritten_keeps_its_mode_and_one_that_is_missing_is_not_made() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("client.toml");
        assert!(rewrite(&file, b"new").is_err());
        std::fs::write(&file, "old").unwrap();
        for mode in [0o600, 0o640, 0o644] {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            rewrite(&file, b"new").unwrap();
            assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, mode);
            assert_eq!(std::fs::read(&file).unwrap(), b"new");
        }
        let link = folder.path().join("link.toml");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(rewrite(&link, b"other").is_err());
        assert_eq!(std::fs::read(&file).unwrap(), b"new");
    }

    #[test]
    fn a_file_that_is_made_piece_by_piece_is_there_as_a_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("fleet.json");
        let pieces = |count: usize, result: io::Result<()>| {
            replace_with(&file, |out| {
                (0..count).try_for_each(|_| out.write_all(&[b'x'; 1000]))?;
                result
            })
        };
        pieces(200, Ok(())).unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), [b'x'; 200_000]);
        assert!(pieces(300, Err(io::ErrorKind::InvalidData.into())).is_err());
        assert_eq!(std::fs::read(&file).unwrap().len(), 200_000, "the old one stays");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "and nothing beside it");
    }

    #[test]
    fn what_a_kill_left_of_a_file_is_swept_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("leases.json");
        replace(&file, b"old").unwrap();
        for name in
            [".leases.json.new-Ab12", ".leases.json.new-", ".peers.json.new-Ab12", ".leases.json"]
        {
            std::fs::write(folder.path().join(name), "half").unwrap();
        }
        sweep(&file).unwrap();
        let list = std::fs::read_dir(folder.path()).unwrap();
        let mut names: Vec<_> = list.map(|one| one.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, [".leases.json", ".peers.json.new-Ab12", "leases.json"]);
        assert_eq!(std::fs::read(&file).unwrap(), b"old");
        sweep(&folder.path().join("nowhere/leases.json")).unwrap();
    }
}
