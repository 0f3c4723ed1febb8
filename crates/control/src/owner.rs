//! Whose the files are that root makes beside a daemon's.
//!
//! A daemon that runs as a user of its own could not read a key that `sudo ropewalk keygen` made with mode 600 in its
//! folder, nor a book of its clients that root changed while it did not run. So what root makes belongs to the owner of
//! the folder, who could replace it anyway.

use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::Path;

use nix::unistd::geteuid;

/// Gives a new file to the owner and group of its folder, where this process is root's.
///
/// # Errors
/// What the system says.
pub fn like_folder(new: &File, folder: &Path) -> io::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let folder = std::fs::metadata(folder)?;
    let own = new.metadata()?;
    if folder.uid() == own.uid() {
        return Ok(());
    }
    fchown(new, Some(folder.uid()), Some(folder.gid()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::chown;

    use ropewalk_netlab::privilege::skipped;

    #[test]
    fn what_root_makes_belongs_to_the_owner_of_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let path = folder.path().join(name);
            let file = File::create(&path).unwrap();
            like_folder(&file, folder.path()).unwrap();
            let made = path.metadata().unwrap();
            (made.uid(), made.gid())
        };
        let own = folder.path().metadata().unwrap();
        assert_eq!(make("own"), (own.uid(), own.gid()));
        if !geteuid().is_root() || chown(folder.path(), Some(65533), Some(65532)).is_err() {
            let name = "owner::tests::what_root_makes_belongs_to_the_owner_of_the_folder";
            return skipped(name, "only root gives files away");
        }
        assert_eq!(make("another's"), (65533, 65532));
    }
}
