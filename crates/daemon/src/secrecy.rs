//! What keeps a daemon's keys in its memory: no core dumps, no debugger but root's, no swap.
//!
//! There is one copy of the private key ([`PrivateKey`](ropewalk_settings::PrivateKey)). Nothing here is needed for the
//! daemon to work, so what a system refuses is logged and no error.

use rustix::io::Errno;
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// From now on this process leaves no core dump, and users other than root can neither trace it nor read its memory, though
/// they be the daemon's own. Programs that it starts are as others. To be called before a key is read.
///
/// The process's files in `/proc` belong to root then.
pub fn forbid_dumps() {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    // The systemd units set this limit, and let nobody change it.
    if let Err(error) = setrlimit(Resource::Core, none) {
        tracing::debug!(%error, "the limit of core dumps stays as it is");
    }
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "core dumps cannot be switched off: one would hold the private key");
    }
}

/// What the process has in memory now, its keys among it, is not swapped out. To be called when they are read, before the
/// large buffers are there. Needs CAP_IPC_LOCK or a limit (`LimitMEMLOCK=` of the unit) above the size of the program.
pub fn lock_memory() {
    match mlockall(MlockAllFlags::CURRENT | MlockAllFlags::ONFAULT) {
        Ok(()) => {}
        Err(Errno::NOMEM | Errno::PERM | Errno::AGAIN) => {
            tracing::debug!("the limit of locked memory is too low: keys may be swapped out");
        }
        Err(error) => tracing::debug!(%error, "memory cannot be locked: keys may be swapped out"),
    }
}
