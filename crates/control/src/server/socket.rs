//! The file of the control socket: made with the right mode, and removed by the one who made it.

use std::ffi::OsString;
use std::fs::{File, Metadata, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::geteuid;
use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::folder::{self, Folder};

/// Owner and group may talk, nobody else.
const SOCKET_MODE: u32 = 0o660;

/// How often, and after which pauses, somebody who answers is asked again: a daemon that was killed in the moment in which
/// it started a program (`nft`) lives on in that for some milliseconds, until it becomes the other program.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(50);

/// Why a control socket cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another daemon answers at this socket.
    #[error(
        "another daemon answers at {} already: stop it first",
        socket.display()
    )]
    InUse {
        /// The socket.
        socket: PathBuf,
    },
    /// There is a file of this name that is no socket.
    #[error("{} exists and is no socket: give another [control] socket", socket.display())]
    NotASocket {
        /// The file.
        socket: PathBuf,
    },
    /// The socket cannot be made.
    #[error("cannot {what} the control socket {}: {source}", socket.display())]
    Socket {
        /// What failed: make, open to the group, ...
        what: &'static str,
        /// The socket.
        socket: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The page cannot be served there.
    #[error(
        "cannot serve the page at {address}: {source} (`web` in [control] says where; give another port if another \
         program has this one)"
    )]
    Web {
        /// Where.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// No thread or runtime can be started for the server.
    #[error("cannot start the control server: {source}")]
    Start {
        /// What the system said.
        source: io::Error,
    },
}

/// A bound socket; dropped, it removes its file if that is still its own.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) listener: UnixListener,
    folder: Folder,
    name: OsString,
    /// Device and inode of the file.
    identity: (u64, u64),
}

impl Bound {
    /// Makes the socket, of this group and mode 0660, in place of that of a dead daemon.
    pub(super) fn new(path: &Path, group: u32) -> Result<Self, BindError> {
        let failed =
            |what| move |source| BindError::Socket { what, socket: path.to_path_buf(), source };
        let (parent, name) = folder::split(path).map_err(failed("make"))?;
        let folder = Folder::make(parent, 0o755).map_err(failed("make the folder of"))?;
        let place = folder.at(name);
        refuse_if_used(&place, path)?;

        let mut new = name.to_owned();
        new.push(".new");
        let new = folder.at(&new);
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("make")(error));
            }
            Ok(()) | Err(_) => {}
        }
        let listener = UnixListener::bind(&new).map_err(failed("make"))?;
        let opened = open_to_group(&new, group)
            .and_then(|metadata| listener.set_nonblocking(true).map(|()| metadata))
            .and_then(|metadata| std::fs::rename(&new, &place).map(|()| metadata));
        match opened {
            Ok(metadata) => {
                let identity = (metadata.dev(), metadata.ino());
                Ok(Self { listener, folder, name: name.to_owned(), identity })
            }
            Err(error) => {
                drop(std::fs::remove_file(&new));
                Err(failed("open to its group")(error))
            }
        }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let path = self.folder.at(&self.name);
        let own = std::fs::symlink_metadata(&path)
            .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.identity);
        if own && let Err(error) = std::fs::remove_file(&path) {
            tracing::debug!(socket = %path.display(), %error, "the control socket stays");
        }
    }
}

/// Opens the socket that this process has just made to its group. It is held meanwhile: in a folder of another user
/// something else may stand at its name by now.
fn open_to_group(path: &Path, group: u32) -> io::Result<Metadata> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = File::from(openat(CWD, path, flags, Mode::empty())?);
    let made = held.metadata()?;
    if !made.file_type().is_socket() || made.uid() != geteuid().as_raw() {
        return Err(io::Error::other("another program put something in its place"));
    }
    let held = format!("/proc/self/fd/{}", held.as_raw_fd());
    // The group first: the mode must not open the socket to another one for a moment.
    if made.gid() != group {
        chown(&held, None, Some(group))?;
    }
    std::fs::set_permissions(held, Permissions::from_mode(SOCKET_MODE))?;
    Ok(made)
}

/// A file of that name must be a socket at which nobody answers.
fn refuse_if_used(place: &Path, path: &Path) -> Result<(), BindError> {
    let socket = path.to_path_buf();
    match std::fs::symlink_metadata(place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(BindError::Socket { what: "look at", socket, source }),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(BindError::NotASocket { socket });
        }
        Ok(_) => {}
    }
    for _ in 0..TRIES {
        match UnixStream::connect(place) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            // It answers, or it exists and will not tell: both mean that it is not ours to replace.
            Ok(_) | Err(_) => std::thread::sleep(PAUSE),
        }
    }
    Err(BindError::InUse { socket })
}
