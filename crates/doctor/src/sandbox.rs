//! Whether a running daemon gave up what it does not need.

use std::path::Path;

use ropewalk_control::api::{Role, SandboxState, SandboxStatus};

use super::finding::Finding;
use super::fix::Change;

/// `file` is the daemon's config.
pub(super) fn judge(role: Role, file: &Path, status: SandboxStatus) -> Finding {
    let subject = "sandbox";
    if status.is_whole() {
        let found = "on: the daemon is closed to files and system calls that it does not need";
        return Finding::ok("sandbox", subject, found);
    }
    if status.files == SandboxState::Off {
        let found = "off (sandbox = false): a fault in the daemon opens all that its user may do";
        return Finding::warning("sandbox.off", subject, found)
            .edit(file, Change::Switch { key: "sandbox", on: true })
            .or(format!("sudo systemctl restart ropewalk-{role}"));
    }
    let found = format!("{status}: a newer kernel closes more to the daemon, which works without");
    Finding::note("sandbox.kernel", subject, found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;

    #[test]
    fn what_the_config_switched_off_is_warned_of_and_what_the_kernel_lacks_is_noted() {
        use SandboxState::{Off, On, Partly, Unavailable};
        for (files, system_calls, id, level) in [
            (On, On, "sandbox", Level::Ok),
            (Off, Off, "sandbox.off", Level::Warn),
            (Partly, On, "sandbox.kernel", Level::Note),
            (Unavailable, On, "sandbox.kernel", Level::Note),
            (On, Unavailable, "sandbox.kernel", Level::Note),
        ] {
            let status = SandboxStatus { files, system_calls };
            let found = judge(Role::Proxy, Path::new("/etc/x.toml"), status);
            assert_eq!((found.id, found.level), (id, level), "{status}");
        }
    }
}
