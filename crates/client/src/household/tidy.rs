//! What a client that crashed left: a helper that has not heard of it yet, a `dnsmasq` whose helper was killed, too, and their
//! files.
//!
//! They are known by the folder of their files, which stands in their arguments and has the number of the network namespace in
//! its name. To be called where no client runs in this namespace, and before the sandbox, out of which no signal gets.

use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};

use super::folders;

/// How long they may take to end by themselves, as a helper does whose client is gone; and then when they are told to.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often it is looked.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Ends what a crashed client left in this network namespace, and removes its files.
///
/// # Errors
/// Something does not end, or may not be ended by this user; or its files cannot be removed.
pub(crate) fn tidy() -> anyhow::Result<()> {
    for folder in folders()? {
        // Who has ended in order left nothing.
        if folder.symlink_metadata().is_ok() {
            end_all(&folder, PATIENCE)?;
            remove(&folder)?;
        }
    }
    Ok(())
}

fn remove(folder: &Path) -> anyhow::Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error)
            .with_context(|| format!("cannot remove {}, which a client left", folder.display())),
        _ => Ok(()),
    }
}

/// Ends all processes that have this folder in their arguments.
fn end_all(folder: &Path, patience: Duration) -> anyhow::Result<()> {
    for signal in [None, Some(Signal::TERM), Some(Signal::KILL)] {
        let until = Instant::now() + patience;
        for process in processes(folder) {
            if let Some(signal) = signal {
                // One that has ended meanwhile is what is wanted; one of another user's is told of below.
                let _ = kill_process(process, signal);
            }
        }
        while !processes(folder).is_empty() {
            if Instant::now() > until {
                break;
            }
            sleep(LOOK_INTERVAL);
        }
    }
    let left = processes(folder).into_iter().map(|process| process.as_raw_nonzero().to_string());
    let left = left.collect::<Vec<_>>().join(" ");
    anyhow::ensure!(
        left.is_empty(),
        "a dnsmasq that an earlier client started does not end: `sudo kill -9 {left}` ends it"
    );
    Ok(())
}

/// The processes that have this folder, or a file in it, in their arguments.
fn processes(folder: &Path) -> Vec<Pid> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let own = i32::try_from(std::process::id()).ok();
    let others = numbers.filter(|number| Some(*number) != own);
    let has_it = |number: &i32| {
        let arguments = std::fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        arguments.split(|byte| *byte == 0).any(|argument| names(argument, folder))
    };
    others.filter(has_it).filter_map(Pid::from_raw).collect()
}

/// Whether an argument is the folder, or the option that names a config in it.
fn names(argument: &[u8], folder: &Path) -> bool {
    let folder = folder.as_os_str().as_bytes();
    let file = argument.strip_prefix(b"--conf-file=").and_then(|file| file.strip_prefix(folder));
    argument == folder || file.is_some_and(|file| file.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn only_arguments_of_ours_name_the_folder() {
        let folder = Path::new("/run/ropewalk/lan-7");
        for (argument, expected) in [
            ("/run/ropewalk/lan-7", true),
            ("--conf-file=/run/ropewalk/lan-7/lan0.conf", true),
            ("--conf-file=/run/ropewalk/lan-77/lan0.conf", false),
            ("/run/ropewalk/lan-7/lan0.leases", false),
            ("", false),
        ] {
            assert_eq!(names(argument.as_bytes(), folder), expected, "{argument}");
        }
    }

    #[test]
    fn what_has_the_folder_in_its_arguments_ends_whether_it_wants_to_or_not() {
        let folder = tempfile::tempdir().unwrap();
        let script = "trap '' TERM; while :; do sleep 0.05; done";
        let mut stubborn =
            Command::new("sh").args(["-c", script, "sh"]).arg(folder.path()).spawn().unwrap();
        let mut other = Command::new("sleep").arg("60").spawn().unwrap();
        while processes(folder.path()).is_empty() {
            sleep(LOOK_INTERVAL);
        }
        // A child stays until it is waited for, and has no arguments then.
        end_all(folder.path(), Duration::from_millis(200)).unwrap();
        assert!(!stubborn.wait().unwrap().success());
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
