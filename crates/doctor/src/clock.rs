//! Whether the clock can be right. The tunnel itself bears a wrong one (PROTOCOL §6.3); invitations and monthly allowances
//! do not, and neither do the certificates of whoever uses the tunnel.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::finding::Finding;
use super::quoting;

/// What there is to judge.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    /// The clock's time.
    pub(super) now: SystemTime,
    /// The newest of our own files, and when it was written by this clock.
    pub(super) newest: Option<(PathBuf, SystemTime)>,
}

/// No clock is right that is before this program was made: 2026-01-01.
const MADE: Duration = Duration::from_secs(1_767_225_600);

/// Nobody runs this program so much later: a hundred years.
const LONG: Duration = Duration::from_secs(100 * 365 * 86_400);

/// A file that is newer than the clock by less was written while the clock was being set.
const SLACK: Duration = Duration::from_secs(120);

pub(super) fn look(files: &[&Path]) -> Facts {
    let written = files.iter().filter_map(|path| {
        let written = std::fs::metadata(path).and_then(|found| found.modified()).ok()?;
        Some((path.to_path_buf(), written))
    });
    Facts { now: SystemTime::now(), newest: written.max_by_key(|(_, written)| *written) }
}

pub(super) fn judge(facts: &Facts) -> Finding {
    let subject = "clock";
    let set = "sudo timedatectl set-ntp true";
    let shown = |time| humantime::format_rfc3339_seconds(time).to_string();
    let made = SystemTime::UNIX_EPOCH + MADE;
    if facts.now < made || facts.now > made + LONG {
        let found = format!("it says {}, which cannot be", shown(facts.now));
        return Finding::fail("clock.wrong", subject, found, set);
    }
    match &facts.newest {
        Some((path, written)) if *written > facts.now + SLACK => {
            let found = format!(
                "it says {}, and {} was written at {}: it is slow, or was fast then",
                shown(facts.now),
                path.display(),
                shown(*written)
            );
            Finding::fail("clock.behind", subject, found, set)
                .or(format!("sudo touch {}", quoting::file(path)))
                .advise("set it; where it is right now, the file's time is wrong:")
        }
        _ => {
            let found =
                format!("it says {}, and nothing shows that this is wrong", shown(facts.now));
            Finding::ok("clock", subject, found)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_cannot_be_right_is_told() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let now = 1_790_000_000;
        let table = [
            (now, None, "clock"),
            (now, Some(now - 1000), "clock"),
            (now, Some(now + 100), "clock"),
            (now, Some(now + 86_400), "clock.behind"),
            (0, None, "clock.wrong"),
            (1_700_000_000, None, "clock.wrong"),
            (9_000_000_000, None, "clock.wrong"),
        ];
        for (now, newest, id) in table {
            let newest = newest.map(|newest| (PathBuf::from("/etc/x"), at(newest)));
            assert_eq!(judge(&Facts { now: at(now), newest }).id, id);
        }
    }
}
