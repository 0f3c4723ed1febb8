//! What stands at the place of `/etc/resolv.conf`: looked at, and written as a whole or, where it cannot be replaced, in
//! place.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown, symlink};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// How the name of a file begins that takes the place of this one when it is finished.
pub(super) const NEW: &str = ".resolv.conf.ropewalk-";

/// Bytes of the longest file that is kept: far beyond what a resolver reads.
const MAX_BYTES: u64 = 64 * 1024;

/// What stands, or stood, at the file's place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub(super) enum Place {
    Absent,
    Symlink {
        target: PathBuf,
    },
    File {
        /// Each byte as one character, so that any bytes survive and text stays readable.
        content: String,
        mode: u32,
        uid: u32,
        gid: u32,
    },
}

/// What became of writing it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Written {
    /// It stands there, and its folder is on disk.
    Whole,
    /// The file there cannot be replaced, perhaps be written: nothing was changed.
    Fixed,
}

impl Place {
    /// What stands there; `None`: a folder, a device, or too long.
    pub(super) fn look(place: &Path) -> io::Result<Option<Self>> {
        let found = match std::fs::symlink_metadata(place) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(Self::Absent)),
            Err(error) => return Err(error),
        };
        if found.is_symlink() {
            return Ok(Some(Self::Symlink { target: std::fs::read_link(place)? }));
        }
        let mut bytes = Vec::new();
        if found.is_file() {
            File::open(place)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
        }
        if !found.is_file() || bytes.len() as u64 > MAX_BYTES {
            return Ok(None);
        }
        let content = bytes.into_iter().map(char::from).collect();
        let mode = found.mode() & 0o7777;
        Ok(Some(Self::File { content, mode, uid: found.uid(), gid: found.gid() }))
    }

    /// Puts it there as a whole, where that can be.
    pub(super) fn put(&self, place: &Path) -> io::Result<Written> {
        let folder = place.parent().unwrap_or(Path::new("/"));
        match self {
            Self::Absent => std::fs::remove_file(place)?,
            Self::Symlink { target } => replace_by_link(place, folder, target)?,
            Self::File { content, mode, uid, gid } => {
                match replace(place, folder, &bytes(content), *mode, (*uid, *gid)) {
                    Err(error) if is_fixed(&error) => return Ok(Written::Fixed),
                    done => done?,
                }
            }
        }
        File::open(folder)?.sync_all()?;
        Ok(Written::Whole)
    }

    /// Writes its text over that of the file that stands there.
    pub(super) fn put_in_place(&self, place: &Path) -> io::Result<()> {
        match self {
            Self::File { content, .. } => write_in_place(place, &bytes(content)),
            Self::Absent | Self::Symlink { .. } => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }

    /// Whether it is a file of this text.
    pub(super) fn is(&self, text: &str) -> bool {
        matches!(self, Self::File { content, .. } if content == text)
    }

    /// Whether programs read the same there.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File { content: one, .. }, Self::File { content: other, .. }) => one == other,
            _ => self == other,
        }
    }
}

/// The bytes of a content; what is no byte (a record that was tampered with) becomes a question mark.
fn bytes(content: &str) -> Vec<u8> {
    content.chars().map(|character| u8::try_from(character).unwrap_or(b'?')).collect()
}

fn replace(
    file: &Path,
    folder: &Path,
    content: &[u8],
    mode: u32,
    (uid, gid): (u32, u32),
) -> io::Result<()> {
    let mut new = tempfile::Builder::new().prefix(NEW).tempfile_in(folder)?;
    new.write_all(content)?;
    let now = new.as_file().metadata()?;
    if (now.uid(), now.gid()) != (uid, gid) {
        // Everybody reads it all the same.
        let _ = fchown(new.as_file(), Some(uid), Some(gid));
    }
    new.as_file().set_permissions(Permissions::from_mode(mode))?;
    new.as_file().sync_all()?;
    new.persist(file).map(drop).map_err(|error| error.error)
}

fn replace_by_link(file: &Path, folder: &Path, target: &Path) -> io::Result<()> {
    let new = tempfile::Builder::new().prefix(NEW).make_in(folder, |path| symlink(target, path))?;
    new.persist(file).map(drop).map_err(|error| error.error)
}

/// Whether the file is one that cannot be replaced, and perhaps written.
fn is_fixed(error: &io::Error) -> bool {
    use io::ErrorKind::{CrossesDevices, PermissionDenied, ReadOnlyFilesystem, ResourceBusy};
    [CrossesDevices, PermissionDenied, ReadOnlyFilesystem, ResourceBusy].contains(&error.kind())
}

fn write_in_place(file: &Path, content: &[u8]) -> io::Result<()> {
    // What a link leads to is not recorded.
    if std::fs::symlink_metadata(file)?.is_symlink() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut file = OpenOptions::new().write(true).truncate(true).open(file)?;
    file.write_all(content)?;
    file.sync_all()
}
