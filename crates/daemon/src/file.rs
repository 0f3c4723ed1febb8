//! Files that must survive a crash.

use std::fs::{DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

/// Replaces a file as a whole: a crash leaves the old or the new one. Its folder is made if it is missing, closed to
/// others.
///
/// # Errors
/// What the system says; the old file is as it was then.
pub fn replace(file: &Path, content: &[u8]) -> io::Result<()> {
    let folder = file.parent().ok_or(io::ErrorKind::InvalidInput)?;
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut new = tempfile::NamedTempFile::new_in(folder)?;
    new.write_all(content)?;
    new.as_file().sync_all()?;
    new.persist(file).map_err(|error| error.error)?;
    // The rename itself is durable only with the folder.
    File::open(folder)?.sync_all()
}
