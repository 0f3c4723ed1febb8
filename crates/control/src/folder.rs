//! Files in folders that a less trusted user owns, as root reads and writes them.
//!
//! Each daemon runs as a user of its own, which owns its folders of configs, of state and below `/run/ropewalk`. Root works
//! there too (`sudo ropewalk join`, `client --purge`), and that user must not gain anything by what it puts there:
//!
//! | what it may put there | what root does |
//! | --- | --- |
//! | a symbolic link, as a file or as a folder on the way | refuses it: it may lead to anything of root's |
//! | a hard link | refuses a file of several names: the other may be root's |
//! | a FIFO, a device | refuses what is no regular file, without waiting for it |
//! | a file without end | reads no more than was asked for |
//! | another folder in the place of this one, meanwhile | stays in the one that it opened (`/proc/self/fd`) |
//!
//! What root makes there belongs to the folder's owner, who could not read it otherwise and could replace it anyway. All
//! of this is for root only: any other user has no rights to lend.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::{Component, Path, PathBuf};

use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
use rustix::fs::{
    CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat, fstat, fstatfs, mkdirat, openat,
    readlinkat,
};
use rustix::io::Errno;
use zeroize::Zeroizing;

/// Links on one path; the kernel follows no more either (`path_resolution(7)`).
const MAX_LINKS: usize = 40;

/// Others than the owner who may write.
const OTHERS_WRITE: u32 = 0o022;

/// In such a folder nobody renames or removes what is another's.
const STICKY: u32 = 0o1000;

/// A folder that was opened, and stays the same whatever happens to its name.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Where somebody beside root can change what is in it, or what its name leads to.
    held: Option<OwnedFd>,
}

impl Folder {
    /// Opens a folder; an empty path is the current one.
    ///
    /// # Errors
    /// What the system says; for root also a link on the way that somebody else could have put there.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::reach(path, None)
    }

    /// The same; folders that are missing are made with this mode.
    ///
    /// # Errors
    /// As [`Folder::open`].
    pub fn make(path: &Path, mode: u32) -> io::Result<Self> {
        Self::reach(path, Some(mode))
    }

    /// The folder of a file, and the file's name in it.
    ///
    /// # Errors
    /// As [`Folder::open`]; the path names no file.
    pub fn of(file: &Path) -> io::Result<(Self, &OsStr)> {
        let (folder, name) = split(file)?;
        Ok((Self::open(folder)?, name))
    }

    fn reach(path: &Path, make: Option<u32>) -> io::Result<Self> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        if !is_root() {
            if let Some(mode) = make {
                use std::os::unix::fs::DirBuilderExt as _;
                std::fs::DirBuilder::new().recursive(true).mode(mode).create(path)?;
            }
            return Ok(Self { path: path.to_owned(), held: None });
        }
        let way = Way::walk(path, make)?;
        if FileType::from_raw_mode(way.stat.st_mode) != FileType::Directory {
            return Err(Errno::NOTDIR.into());
        }
        let held = (way.others || others_write(&way.stat)).then_some(way.here);
        Ok(Self { path: path.to_owned(), held })
    }

    /// Whether somebody beside root can change what is in it: what is read there is not root's word. Always false for
    /// other users than root.
    #[must_use]
    pub const fn is_others(&self) -> bool {
        self.held.is_some()
    }

    /// A path to this folder for calls that take one.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        match &self.held {
            Some(held) => PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd())),
            None => self.path.clone(),
        }
    }

    /// A path to what has this name in it, for calls that do not follow a link there: to rename, to remove, to make again.
    #[must_use]
    pub fn at(&self, name: &OsStr) -> PathBuf {
        self.path().join(name)
    }

    /// Gives a file that this process has just made to the folder's owner, where this process is root's.
    ///
    /// # Errors
    /// What the system says.
    pub fn give(&self, new: &File) -> io::Result<()> {
        if !is_root() {
            return Ok(());
        }
        let folder = std::fs::metadata(self.path())?;
        if folder.uid() == new.metadata()?.uid() {
            return Ok(());
        }
        fchown(new, Some(folder.uid()), Some(folder.gid()))
    }

    /// Opens a file to be written, or makes it with this mode; its content stays.
    ///
    /// # Errors
    /// What the system says; for root in another's folder also what is no plain file of one name.
    pub fn open_or_make(&self, name: &OsStr, mode: u32) -> io::Result<File> {
        let path = self.at(name);
        match File::options().write(true).create_new(true).mode(mode).open(&path) {
            Ok(new) => {
                self.give(&new)?;
                Ok(new)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.open_to_write(name),
            Err(error) => Err(error),
        }
    }

    /// Opens a file that is there, to be written; its content stays.
    ///
    /// # Errors
    /// As [`Folder::open_or_make`], and where there is none.
    pub fn open_to_write(&self, name: &OsStr) -> io::Result<File> {
        let mut options = File::options();
        options.write(true);
        if self.is_others() {
            let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
            options.custom_flags(flags.bits().cast_signed());
        }
        let opened = options.open(self.at(name)).map_err(|error| match error.raw_os_error() {
            Some(code) if code == Errno::LOOP.raw_os_error() => link(),
            _ => error,
        })?;
        if self.is_others() {
            check(&fstat(&opened)?)?;
        }
        Ok(opened)
    }

    /// Waits until what was made, renamed or removed in it is on disk.
    ///
    /// # Errors
    /// What the system says.
    pub fn sync(&self) -> io::Result<()> {
        File::open(self.path())?.sync_all()
    }
}

/// What a file holds, and whose word it is.
#[derive(Debug)]
pub struct Content {
    /// The bytes; wiped when dropped, for it may be a key.
    pub bytes: Zeroizing<Vec<u8>>,
    /// Its permissions.
    pub mode: u32,
    /// Whether somebody beside root can write it, or put another in its place. Always false for other users than root.
    pub is_others: bool,
}

/// Bytes of the smallest buffer that a file is read into.
const LEAST_BUFFER: u64 = 1024;

/// Reads a file of at most `limit` bytes. What is read may be a secret: no copy of it is left in memory but the one that
/// is returned.
///
/// # Errors
/// What the system says, or it is longer; for root also what somebody else could have put there to mislead it: a link, what
/// is no regular file, a file of several names.
pub fn read(file: &Path, limit: u64) -> io::Result<Content> {
    let (mut opened, is_others) = open(file)?;
    let metadata = opened.metadata()?;
    // One byte more than the file is said to have: the end is seen without a larger buffer. What is no plain file says 0.
    let said = metadata.len().min(limit).max(LEAST_BUFFER);
    let mut bytes = Zeroizing::new(vec![0; usize::try_from(said).unwrap_or(0) + 1]);
    let mut len = 0;
    loop {
        match opened.read(&mut bytes[len..])? {
            0 => break,
            read => len += read,
        }
        if len as u64 > limit {
            let message = format!("it is longer than {limit} bytes");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
        }
        if len == bytes.len() {
            // The old buffer is wiped when it is dropped, which a vector that grows would not do.
            let mut larger = Zeroizing::new(vec![0; 2 * len]);
            larger[..len].copy_from_slice(&bytes);
            bytes = larger;
        }
    }
    bytes.truncate(len);
    Ok(Content { bytes, mode: metadata.mode() & 0o7777, is_others })
}

/// Opens a file to be read. Returns with it whether somebody beside root could have written it.
///
/// # Errors
/// As [`read`].
pub fn open(file: &Path) -> io::Result<(File, bool)> {
    if !is_root() {
        return Ok((File::open(file)?, false));
    }
    let way = Way::walk(file, None)?;
    if way.others {
        check(&way.stat)?;
    } else if !way.by_kernel && FileType::from_raw_mode(way.stat.st_mode) != FileType::RegularFile {
        return Err(no_file());
    }
    let is_others = way.others || others_write(&way.stat);
    // The same file, whatever stands at its name by now.
    let opened = File::open(format!("/proc/self/fd/{}", way.here.as_raw_fd()))?;
    Ok((opened, is_others))
}

/// Makes this process, where it is root's, one of the user who can write this file or put another in its place, for good:
/// then the file may say what is to be done. Nothing changes where only root can.
///
/// # Errors
/// The file cannot be looked at; more than one user can write it; the system refuses.
pub fn become_writer(file: &Path) -> io::Result<()> {
    if !is_root() {
        return Ok(());
    }
    let (folder, _) = split(file)?;
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let places = [Way::walk(folder, None)?.stat, Way::walk(file, None)?.stat];
    match places.iter().find(|stat| stat.st_uid != 0) {
        Some(stat) => {
            setgroups(&[])?;
            let (user, group) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
            setresgid(group, group, group)?;
            Ok(setresuid(user, user, user)?)
        }
        None if places.iter().any(others_write) => Err(refused(
            "others than its owner can write it, or its folder (chmod go-w FILE FOLDER), and root does not do what it says",
        )),
        None => Ok(()),
    }
}

/// Removes a file.
///
/// # Errors
/// What the system says, also that there is none; for root as [`Folder::open`].
pub fn remove(file: &Path) -> io::Result<()> {
    let (folder, name) = Folder::of(file)?;
    std::fs::remove_file(folder.at(name))
}

/// The folder of a file, and its name there.
///
/// # Errors
/// The path names no file.
pub fn split(file: &Path) -> io::Result<(&Path, &OsStr)> {
    match (file.parent(), file.file_name()) {
        (Some(folder), Some(name)) => Ok((folder, name)),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// How far a path was followed.
struct Way {
    /// What stands there, opened so that nothing can be done with it yet (`O_PATH`).
    here: OwnedFd,
    stat: Stat,
    /// Somebody beside root could have put it there.
    others: bool,
    /// A descriptor of this process led there (`/dev/stdin`): whoever gave it to us meant what it is.
    by_kernel: bool,
}

impl Way {
    /// Follows a path, part by part. A link is followed only where nobody but root can have put it.
    fn walk(path: &Path, make: Option<u32>) -> io::Result<Self> {
        let mut way = Self::begin(if path.is_absolute() { "/" } else { "." })?;
        let mut rest = parts(path);
        let mut links = 0;
        while let Some(name) = rest.pop_front() {
            let folder = way.stat;
            let next = match way.step(&name, OFlags::NOFOLLOW) {
                Err(Errno::NOENT) if make.is_some() => {
                    let mode = Mode::from_raw_mode(make.unwrap_or_default());
                    match mkdirat(&way.here, &name, mode) {
                        Ok(()) | Err(Errno::EXIST) => way.step(&name, OFlags::NOFOLLOW)?,
                        Err(error) => return Err(error.into()),
                    }
                }
                next => next?,
            };
            let stat = fstat(&next)?;
            let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
            way.others |= others_put(&folder, &stat);
            if !is_link {
                (way.here, way.stat, way.by_kernel) = (next, stat, false);
                continue;
            }
            links += 1;
            if way.others {
                return Err(link());
            }
            if links > MAX_LINKS {
                return Err(Errno::LOOP.into());
            }
            if fstatfs(&way.here)?.f_type == PROC_SUPER_MAGIC {
                let next = way.step(&name, OFlags::empty())?;
                (way.stat, way.here, way.by_kernel) = (fstat(&next)?, next, true);
                continue;
            }
            let target = readlinkat(&next, "", Vec::new())?;
            let target = Path::new(OsStr::from_bytes(target.as_bytes()));
            if target.is_absolute() {
                way = Self::begin("/")?;
            }
            let mut longer = parts(target);
            longer.append(&mut rest);
            rest = longer;
        }
        Ok(way)
    }

    fn begin(at: &str) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let here = openat(CWD, at, flags, Mode::empty())?;
        let stat = fstat(&here)?;
        Ok(Self { here, stat, others: false, by_kernel: false })
    }

    fn step(&self, name: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
        openat(&self.here, name, OFlags::PATH | OFlags::CLOEXEC | flags, Mode::empty())
    }
}

fn parts(path: &Path) -> VecDeque<OsString> {
    let named = path.components().filter(|part| !matches!(part, Component::RootDir));
    named.map(|part| part.as_os_str().to_owned()).collect()
}

/// Whether somebody beside root can write this file or folder.
fn others_write(stat: &Stat) -> bool {
    let by_group = stat.st_mode & OTHERS_WRITE == 0o020 && stat.st_gid == 0;
    stat.st_uid != 0 || stat.st_mode & OTHERS_WRITE != 0 && !by_group
}

/// Whether somebody beside root can have put this into that folder.
fn others_put(folder: &Stat, found: &Stat) -> bool {
    let is_kept = folder.st_uid == 0 && folder.st_mode & STICKY != 0 && found.st_uid == 0;
    others_write(folder) && !is_kept
}

/// A file from another's folder must be that and nothing else.
fn check(stat: &Stat) -> io::Result<()> {
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(no_file());
    }
    if stat.st_nlink != 1 {
        return Err(refused(
            "it has several names (hard links), and root does not touch such a file in another's folder",
        ));
    }
    Ok(())
}

fn link() -> io::Error {
    refused("there is a symbolic link on its path, and root follows none in another's folder")
}

fn no_file() -> io::Error {
    refused("it is no regular file")
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why.to_owned())
}

#[cfg(test)]
mod tests;
