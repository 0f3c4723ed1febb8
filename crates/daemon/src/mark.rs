//! "A daemon of this kind runs in this network namespace", said by a lock on a file.
//!
//! Two of a kind would take each other's rules for those of a crashed one. The file is closed to other
//! users, so that none of them can keep a daemon from starting. One file serves all network namespaces:
//! each has a byte of its own in it, at the number that the kernel gave the namespace. The lock belongs to
//! the open file (`F_OFD_SETLK`, `fcntl_locking(2)`), so the kernel gives it up with the process, however
//! that ends.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use ropewalk_control::api::Role;
use ropewalk_control::folder::Folder;
use ropewalk_control::runtime_folder;

/// The bits of a namespace's number that differ (the kernel counts from 0xf0000000), within what a file
/// offset holds on every machine.
const NUMBER_MASK: u64 = 0x3fff_ffff;

/// How often, and after which pauses, a lock that is held is asked for again: a daemon that was killed in the moment in
/// which it started a program (`nft`) holds it for some milliseconds more.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(50);

/// Says so for as long as it lives.
#[derive(Debug)]
#[must_use]
pub struct Mark {
    _locked: File,
}

/// Says "a daemon of this kind runs in this network namespace".
///
/// # Errors
/// Another one runs, or the file cannot be opened.
pub fn hold(role: Role) -> anyhow::Result<Mark> {
    hold_in(Path::new(runtime_folder(role)), role)
}

/// Whether a daemon of this kind runs in this network namespace; nothing is changed. Where that cannot be found out, it is
/// taken to run.
#[must_use]
pub fn is_held(role: Role) -> bool {
    is_held_in(Path::new(runtime_folder(role)), role)
}

fn is_held_in(folder: &Path, role: Role) -> bool {
    let opened = Folder::open(folder).and_then(|folder| folder.open_to_write(&name(role)));
    let file = match opened {
        Ok(file) => file,
        Err(error) => return error.kind() != std::io::ErrorKind::NotFound,
    };
    let Ok(mut byte) = own_byte() else { return true };
    let asked = fcntl(&file, FcntlArg::F_OFD_GETLK(&mut byte));
    asked.is_err() || i32::from(byte.l_type) != libc::F_UNLCK
}

fn name(role: Role) -> OsString {
    format!("{role}.lock").into()
}

/// The lock of this network namespace.
fn own_byte() -> anyhow::Result<libc::flock> {
    let namespace = std::fs::metadata("/proc/thread-self/ns/net")
        .context("cannot tell the network namespace (is /proc mounted?)")?;
    Ok(libc::flock {
        l_type: i16::try_from(libc::F_WRLCK)?,
        l_whence: i16::try_from(libc::SEEK_SET)?,
        l_start: (namespace.ino() & NUMBER_MASK).try_into()?,
        l_len: 1,
        l_pid: 0,
    })
}

fn hold_in(folder: &Path, role: Role) -> anyhow::Result<Mark> {
    let path = folder.join(name(role));
    let shown = path.display();
    let opened =
        Folder::make(folder, 0o755).and_then(|folder| folder.open_or_make(&name(role), 0o600));
    let file =
        opened.with_context(|| format!("cannot open {shown}, which says that a {role} runs"))?;
    let byte = own_byte()?;
    for _ in 0..TRIES {
        match fcntl(&file, FcntlArg::F_OFD_SETLK(&byte)) {
            Ok(_) => return Ok(Mark { _locked: file }),
            Err(Errno::EAGAIN | Errno::EACCES) => std::thread::sleep(PAUSE),
            Err(error) => return Err(error).with_context(|| format!("cannot lock {shown}")),
        }
    }
    bail!(
        "another ropewalk {role} runs on this host: stop it, or give this one a network \
         namespace of its own"
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use ropewalk_link_io::host::testing::Namespace;

    use super::*;

    #[test]
    fn one_of_each_kind_runs_and_the_next_when_it_has_ended() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("run");
        let first = hold_in(&folder, Role::Client).unwrap();
        let refused = hold_in(&folder, Role::Client).unwrap_err().to_string();
        assert!(refused.contains("another ropewalk client runs"), "{refused}");
        assert!(is_held_in(&folder, Role::Client) && !is_held_in(&folder, Role::Proxy));
        let _proxy = hold_in(&folder, Role::Proxy).unwrap();
        drop(first);
        assert!(!is_held_in(&folder, Role::Client) && is_held_in(&folder, Role::Proxy));
        let _second = hold_in(&folder, Role::Client).unwrap();
    }

    #[test]
    fn another_user_cannot_hold_it() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("run");
        let _mark = hold_in(&folder, Role::Client).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder) & 0o022, 0);
        assert_eq!(mode(&folder.join("client.lock")), 0o600);
    }

    #[test]
    fn each_network_namespace_has_one_of_its_own() {
        let (Some(one), Some(two)) = (Namespace::open(), Namespace::open()) else { return };
        let folder = tempfile::tempdir().unwrap();
        let hold = |namespace: &Namespace| {
            let folder = folder.path().to_owned();
            namespace.run(move || hold_in(&folder, Role::Client))
        };
        let _here = hold_in(folder.path(), Role::Client).unwrap();
        let _first = hold(&one).unwrap();
        let _second = hold(&two).unwrap();
        assert!(hold(&one).is_err());
        assert!(hold(&two).is_err());
    }
}
