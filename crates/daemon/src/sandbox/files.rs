//! Files: what is not named is refused, by Landlock (`landlock(7)`).
//!
//! A rule belongs to a file or folder itself and not to its name: who replaces a file that was named alone makes one that is
//! closed. So what others replace while a daemon runs is named by its folder.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, PathBeneath, Ruleset, RulesetAttr as _, RulesetCreated,
    RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope, make_bitflags,
};
use ropewalk_control::api::SandboxState;
use rustix::fs::{CWD, Mode, OFlags, openat};

use super::{Needs, programs};

/// Linux 6.10 refuses all that is asked for of files, 6.12 signals to others. Older kernels refuse what they can.
const KNOWN: ABI = ABI::V6;

/// A folder whose rule is to last stays open: procfs forgets what nobody uses, and makes it again without the rule.
static HELD: OnceLock<Vec<OwnedFd>> = OnceLock::new();

/// Where procfs is.
const PROC: &str = "/proc";

/// Where abstract sockets are named (`sd_notify(3)`): then they stay open.
const SUPERVISOR: &str = "NOTIFY_SOCKET";

/// Closes every file but `needs`.
pub(super) fn enter(needs: &Needs) -> SandboxState {
    match restrict(needs) {
        Ok(RulesetStatus::FullyEnforced) => SandboxState::On,
        Ok(RulesetStatus::PartiallyEnforced) => SandboxState::Partly,
        Ok(RulesetStatus::NotEnforced) => {
            tracing::warn!(
                "this kernel closes no files to a program that asks for it (no Landlock): the daemon goes on without"
            );
            SandboxState::Unavailable
        }
        Err(error) => {
            tracing::warn!(
                "files cannot be closed to this program (Landlock): {error}; the daemon goes on without"
            );
            SandboxState::Unavailable
        }
    }
}

fn restrict(needs: &Needs) -> Result<RulesetStatus, RulesetError> {
    let mut ruleset =
        Ruleset::default().handle_access(AccessFs::from_all(KNOWN))?.scope(Scope::Signal)?;
    if !std::env::var_os(SUPERVISOR).is_some_and(|name| name.as_encoded_bytes().starts_with(b"@")) {
        ruleset = ruleset.scope(Scope::AbstractUnixSocket)?;
    }
    let mut ruleset = ruleset.create()?;
    let mut held = Vec::new();
    let run = programs::of(&needs.programs);
    let groups: [(&[PathBuf], BitFlags<AccessFs>); 6] = [
        (&needs.read, READ),
        (&needs.write, READ | make_bitflags!(AccessFs::{WriteFile | Truncate})),
        (&needs.devices, READ | make_bitflags!(AccessFs::{WriteFile | IoctlDev})),
        (&needs.keep, READ | KEEP),
        (&run.executed, READ | AccessFs::Execute),
        (&run.read, READ),
    ];
    for (paths, access) in groups {
        for path in paths {
            if (READ | KEEP).contains(access) && is_kept(path, &needs.keep) {
                continue;
            }
            // What is not there is not needed.
            let Ok(file) = open(path) else { continue };
            ruleset = allow(ruleset, &file, access)?;
            if path.starts_with(PROC) {
                held.push(file);
            }
        }
    }
    let status = ruleset.restrict_self()?;
    let _ = HELD.set(held);
    Ok(status.ruleset)
}

const READ: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir});

/// To make, replace and remove files, sockets and links, and folders for them.
const KEEP: BitFlags<AccessFs> = make_bitflags!(AccessFs::{
    WriteFile | Truncate | RemoveFile | RemoveDir | MakeReg | MakeSock | MakeSym | MakeDir
});

/// Whether a path leads into a folder in which files are replaced. It needs no rule of its own, and one would keep a file that was
/// replaced: its disk could not be made read-only while the daemon runs.
fn is_kept(path: &Path, keep: &[PathBuf]) -> bool {
    // Where it leads to: the rule of a link's folder says nothing of that.
    let Ok(real) = path.canonicalize() else { return false };
    let mut folders = keep.iter().filter_map(|folder| folder.canonicalize().ok());
    folders.any(|folder| real != folder && real.starts_with(folder))
}

fn open(path: &Path) -> rustix::io::Result<OwnedFd> {
    openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

fn allow(
    ruleset: RulesetCreated,
    file: &OwnedFd,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    let is_folder = file
        .try_clone()
        .and_then(|file| File::from(file).metadata())
        .is_ok_and(|found| found.is_dir());
    let access = if is_folder { access } else { access & AccessFs::from_file(KNOWN) };
    ruleset.add_rule(PathBeneath::new(file, access))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_replaced_in_its_folder_has_no_rule_that_would_keep_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let [kept, other] = ["kept", "other"].map(|name| folder.path().join(name));
        for folder in [&kept, &other] {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join("file"), "").unwrap();
        }
        std::os::unix::fs::symlink(other.join("file"), kept.join("link")).unwrap();
        std::os::unix::fs::symlink(&kept, folder.path().join("way")).unwrap();
        for (path, expected) in [
            (kept.join("file"), true),
            (folder.path().join("way/file"), true),
            (kept.clone(), false),
            (kept.join("missing"), false),
            (kept.join("link"), false),
            (kept.join("../other/file"), false),
            (other.join("file"), false),
        ] {
            assert_eq!(is_kept(&path, std::slice::from_ref(&kept)), expected, "{}", path.display());
        }
    }
}
