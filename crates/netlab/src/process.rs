//! Programs under test: started in a namespace, their output kept, waited for, stopped or killed.
//!
//! No child outlives the test: `setpriv --pdeathsig KILL` asks the kernel to end it with its
//! parent, even where the parent itself is killed, and dropping a [`Process`] ends it at once.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::error::LabError;
use crate::namespace::Namespace;

/// How often a condition is looked at; short against any time a test waits for.
const POLL: Duration = Duration::from_millis(10);
/// How much of a log an error shows.
const TAIL_LINES: usize = 15;

/// A running (or ended) program in a namespace. Dropped, it is killed.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `program` with `arguments` in `namespace`; both outputs go to `<folder>/<name>.log`,
    /// after what an earlier process of this name wrote.
    ///
    /// # Errors
    /// When the log cannot be opened, or `setpriv` cannot be started. A missing `program` shows
    /// as an early end.
    pub fn start<S: AsRef<OsStr>>(
        namespace: &Namespace,
        folder: &Path,
        name: &str,
        program: impl AsRef<OsStr>,
        arguments: &[S],
    ) -> Result<Self, LabError> {
        let log = folder.join(format!("{name}.log"));
        let open = || -> Result<File, LabError> {
            let opened = File::options().create(true).append(true).open(&log);
            opened.map_err(LabError::io(format!("opening {}", log.display())))
        };
        let mut command = bound_to_parent(program);
        command.args(arguments).stdin(Stdio::null()).stdout(open()?).stderr(open()?);
        let child = namespace.spawn(command)?;
        Ok(Self { name: name.to_owned(), child, log })
    }

    /// The process id, while it runs.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Everything it wrote until now.
    #[must_use]
    pub fn log(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The status it ended with, or `None` while it runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        // An error means that it was waited for already, which only this type does.
        self.child.try_wait().ok().flatten()
    }

    /// Waits until `ready` holds.
    ///
    /// # Errors
    /// When the process ends first, or `within` passes; both show the end of its log.
    pub fn wait_until(
        &mut self,
        what: &str,
        within: Duration,
        mut ready: impl FnMut() -> bool,
    ) -> Result<(), LabError> {
        let started = Instant::now();
        loop {
            if ready() {
                return Ok(());
            }
            if let Some(status) = self.ended() {
                return Err(LabError::EndedEarly {
                    name: self.name.clone(),
                    status: status.to_string(),
                    log: self.log.clone(),
                    tail: self.tail(),
                });
            }
            if started.elapsed() > within {
                return Err(self.too_late(what, within));
            }
            thread::sleep(POLL);
        }
    }

    /// Waits until the log holds `text`.
    ///
    /// # Errors
    /// As [`Process::wait_until`].
    pub fn wait_for_log(&mut self, text: &str, within: Duration) -> Result<(), LabError> {
        let log = self.log.clone();
        self.wait_until(&format!("`{text}` in its log"), within, || {
            std::fs::read(&log).is_ok_and(|b| String::from_utf8_lossy(&b).contains(text))
        })
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    /// [`LabError::TooLate`] when `within` passes.
    pub fn wait(&mut self, within: Duration) -> Result<ExitStatus, LabError> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.ended() {
                return Ok(status);
            }
            if started.elapsed() > within {
                return Err(self.too_late("its end", within));
            }
            thread::sleep(POLL);
        }
    }

    /// Asks it to end (SIGTERM) and waits.
    ///
    /// # Errors
    /// [`LabError::TooLate`] when it still runs after `within`; it is left running.
    pub fn stop(&mut self, within: Duration) -> Result<ExitStatus, LabError> {
        self.signal(Signal::TERM);
        self.wait(within)
    }

    /// Ends it without a chance to clean up (SIGKILL), and waits.
    pub fn kill(&mut self) {
        // Both fail only for a process that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends a signal, such as SIGHUP for a reload or SIGSTOP for a process that hangs. Not to be called for one that
    /// [`Process::ended`]: its id may be another's by now.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // Not yet waited for, so the id is still ours even if it has ended.
            let _ = kill_process(pid, signal);
        }
    }

    fn too_late(&self, what: &str, within: Duration) -> LabError {
        LabError::TooLate {
            what: format!("{}: {what}", self.name),
            seconds: within.as_secs_f64(),
            detail: format!("; the end of its log:\n{}", self.tail()),
        }
    }

    fn tail(&self) -> String {
        last_lines(&self.log(), TAIL_LINES).join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
impl Process {
    /// One that a test started itself.
    pub(crate) fn of(child: Child, log: PathBuf) -> Self {
        Self { name: "test".to_owned(), child, log }
    }
}

/// The last lines of a log.
pub(crate) fn last_lines(log: &str, count: usize) -> Vec<&str> {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(count)..].to_vec()
}

/// What a process has used.
#[derive(Clone, Copy, Default, Debug)]
pub struct Usage {
    /// On all processors, in seconds.
    pub cpu_seconds: f64,
    /// Memory, in KiB.
    pub resident_kib: u64,
    /// The most memory that it ever had, in KiB.
    pub peak_kib: u64,
}

impl Usage {
    /// Of one that runs; nothing of one that has ended.
    #[must_use]
    pub fn of(process: &Process) -> Self {
        /// `sysconf(_SC_CLK_TCK)` is 100 on every Linux that matters (time(7)).
        const TICKS_PER_SECOND: f64 = 100.0;
        let read = |file| {
            std::fs::read_to_string(format!("/proc/{}/{file}", process.id())).unwrap_or_default()
        };
        let stat = read("stat");
        // The name in parentheses may hold spaces; utime and stime are fields 14 and 15.
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let ticks: f64 = fields
            .split_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|field| field.parse::<f64>().ok())
            .sum();
        let status = read("status");
        let kib = |field: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field));
            let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
            kib.unwrap_or_default()
        };
        Self {
            cpu_seconds: ticks / TICKS_PER_SECOND,
            resident_kib: kib("VmRSS:"),
            peak_kib: kib("VmHWM:"),
        }
    }
}

/// A command that starts `program` and is ended by the kernel with the thread that starts it.
/// Arguments added go to the program.
pub fn bound_to_parent(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}
