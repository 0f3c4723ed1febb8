//! What a daemon gives up at its start: a fault in it then opens less of the machine to whoever finds it.
//!
//! | part | what is left |
//! | --- | --- |
//! | `files` | the files and folders that the daemon needs; programs that it starts (Landlock) |
//! | `calls` | the system calls that it and those programs need (seccomp) |
//! | `programs` | where those programs are, and what starts them |
//!
//! Both belong to a thread, and to all threads and programs that it starts later. So a daemon enters before it starts its first
//! thread; and what it gave up nobody gives back. Neither needs a right, and the daemon works without: a kernel that lacks one
//! of the two is said once, in the log and in the status. docs/SECURITY.md lists what is left.

#[cfg(target_os = "linux")]
mod calls;
#[cfg(target_os = "linux")]
mod files;
#[cfg(target_os = "linux")]
mod programs;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ropewalk_control::api::{Role, SandboxState, SandboxStatus};
use ropewalk_control::config::{ControlConfig, Source};
use ropewalk_control::folder::{self, Folder};
use ropewalk_control::runtime_folder;
use ropewalk_settings::Sandbox;

/// Which files a daemon needs, with all that is below those which are folders. What does not exist when the daemon enters stays
/// closed when it comes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// What is read.
    pub read: Vec<PathBuf>,
    /// Files that are read and written, and never replaced: settings of the kernel.
    pub write: Vec<PathBuf>,
    /// Devices that are read, written and controlled.
    pub devices: Vec<PathBuf>,
    /// Folders in which files are made, replaced and removed.
    pub keep: Vec<PathBuf>,
    /// Programs that are started, by name.
    pub programs: Vec<&'static str>,
}

/// Where a group's members stand, and where every name is looked up.
const ETC: &str = "/etc";

/// What every daemon reads, or a program that it starts: `nft` has names of protocols and services, and a loader with its list of
/// libraries.
const READ: [&str; 9] = [
    "/dev/urandom",
    // A daemon's own counters of interfaces.
    "/proc/self",
    "/proc/sys/net",
    "/etc/iproute2",
    "/etc/ld.so.cache",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/protocols",
    "/etc/services",
];

/// What every daemon writes: nothing, and the settings of the kernel that it changes, which are forwarding and what interfaces let
/// in (`ropewalk_link_io::forwarding`).
const WRITE: [&str; 4] = [
    "/dev/null",
    "/proc/sys/net/ipv4/ip_forward",
    "/proc/sys/net/ipv4/conf",
    "/proc/sys/net/ipv6/conf",
];

impl Needs {
    /// What each daemon needs: its config, `file`, and the files that it names, its control socket, its TUN, and `nft`.
    /// Folders that it would make later are made now.
    #[must_use]
    pub fn common(role: Role, file: &Path, control: &ControlConfig) -> Self {
        let mut needs = Self {
            read: READ.map(PathBuf::from).into(),
            write: WRITE.map(PathBuf::from).into(),
            devices: vec!["/dev/net/tun".into()],
            keep: Vec::new(),
            programs: vec!["nft"],
        };
        // What cannot be read now cannot be read again either.
        needs
            .read
            .extend(Source::read(file).map(|source| source.named_files()).unwrap_or_default());
        if control.group.is_some() {
            needs.read.push(ETC.into());
        }
        // A used invitation is removed there.
        needs.keep_beside(file, None);
        needs.keep_in(Path::new(runtime_folder(role)), 0o755);
        needs.keep_beside(&control.socket, Some(0o755));
        needs
    }

    /// Files are made, replaced and removed in this folder, which is made with this mode where it is missing.
    pub fn keep_in(&mut self, folder: &Path, mode: u32) {
        // Why it cannot be made is said by whoever needs it.
        drop(Folder::make(folder, mode));
        self.keep.push(folder.to_owned());
    }

    /// The same in the folder of a file; without a mode it is there.
    pub fn keep_beside(&mut self, file: &Path, mode: Option<u32>) {
        let Ok((folder, _)) = folder::split(file) else { return };
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        match mode {
            Some(mode) => self.keep_in(folder, mode),
            None => self.keep.push(folder.to_owned()),
        }
        // A name that is a link: what it leads to is replaced by whoever edits it.
        if let Ok(real) = file.canonicalize()
            && let Some(real) = real.parent()
        {
            self.read.push(real.to_owned());
        }
    }
}

/// What became of it, for the status.
static ENTERED: OnceLock<SandboxStatus> = OnceLock::new();

/// Gives up everything but `needs`, for good. To be called once, before the first thread is started.
pub fn enter(sandbox: Sandbox, needs: &Needs) {
    let status = match sandbox {
        Sandbox(false) => {
            tracing::warn!(
                "the sandbox is off (sandbox = false): a fault in this program opens all that its user may do"
            );
            SandboxStatus { files: SandboxState::Off, system_calls: SandboxState::Off }
        }
        Sandbox(true) => give_up(needs),
    };
    tracing::debug!("sandbox: files {}, system calls {}", status.files, status.system_calls);
    // A second one (in a test) changes nothing of the first.
    let _ = ENTERED.set(status);
}

/// Gives up every file but `needs`, for good, and no system call: for a helper that starts programs of others, which use what they
/// like. To be called once, before the first thread is started.
pub fn enter_files(sandbox: Sandbox, needs: &Needs) {
    #[cfg(target_os = "linux")]
    if sandbox.0 {
        tracing::debug!("sandbox of a helper: files {}", files::enter(needs));
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (sandbox, needs);
}

#[cfg(target_os = "linux")]
fn give_up(needs: &Needs) -> SandboxStatus {
    // The files first: no system call for that is left behind the other.
    SandboxStatus { files: files::enter(needs), system_calls: calls::enter() }
}

#[cfg(not(target_os = "linux"))]
fn give_up(_needs: &Needs) -> SandboxStatus {
    SandboxStatus { files: SandboxState::Unavailable, system_calls: SandboxState::Unavailable }
}

/// Whether files are closed to this process.
#[must_use]
pub fn closes_files() -> bool {
    let on = |state| matches!(state, SandboxState::On | SandboxState::Partly);
    status().is_some_and(|status| on(status.files))
}

/// What this process gave up; `None` where it has not [entered](enter).
#[must_use]
pub fn status() -> Option<SandboxStatus> {
    ENTERED.get().copied()
}
