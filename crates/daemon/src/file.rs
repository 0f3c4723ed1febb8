//! Files that must survive a crash, and are only their owner's.

use std::fs::{DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use ropewalk_control::owner;
use tempfile::{NamedTempFile, PersistError};

/// Makes a new file with mode 600, as a whole. On return it is on disk.
///
/// # Errors
/// There is one of this name (`AlreadyExists`), which stays as it is; or what the system says.
pub fn create(file: &Path, content: &[u8]) -> io::Result<()> {
    write(file, content, |new| new.persist_noclobber(file))
}

/// Replaces a file as a whole, with mode 600: a crash leaves the old or the new one. On return it is on disk. Its folder
/// is made if it is missing, closed to others.
///
/// # Errors
/// What the system says; the old file is as it was then.
pub fn replace(file: &Path, content: &[u8]) -> io::Result<()> {
    write(file, content, |new| new.persist(file))
}

fn write(
    file: &Path,
    content: &[u8],
    persist: impl FnOnce(NamedTempFile) -> Result<File, PersistError>,
) -> io::Result<()> {
    let folder = file.parent().ok_or(io::ErrorKind::InvalidInput)?;
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    // It is made with mode 600.
    let mut new = NamedTempFile::new_in(folder)?;
    new.write_all(content)?;
    owner::like_folder(new.as_file(), folder)?;
    new.as_file().sync_all()?;
    persist(new).map_err(|error| error.error)?;
    // The rename itself is durable only with the folder.
    File::open(folder)?.sync_all()
}
