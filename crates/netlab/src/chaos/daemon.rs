//! A daemon under upheaval: started again as a supervisor would, its log and its memory watched.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit};
use toml::Table;

use super::shortened;
use crate::deployment::Deployment;
use crate::error::LabError;
use crate::namespace::Namespace;
use crate::process::{Process, Usage, last_lines};

/// What systemd waits before it starts a client again (`RestartSec=` of its unit); it starts a proxy after 1 s.
const RESTART: Duration = Duration::from_secs(2);
/// How long a daemon may take to end in order.
const ENDS: Duration = Duration::from_secs(15);
/// How much of a line of a log is told.
const LINE: usize = 300;
/// How many lines of its log are told of a daemon that ended by itself.
const LAST: usize = 5;

/// One of the two.
#[derive(Debug)]
pub(super) struct Daemon {
    /// `client` or `proxy`.
    pub(super) role: &'static str,
    /// Of its config, its socket and its log.
    pub(super) name: &'static str,
    config: Table,
    /// What it is started through.
    through: Vec<String>,
    process: Option<Process>,
    /// Whether it is meant to be down.
    killed: bool,
    restart_at: Option<Instant>,
    /// Bytes of its log that were read.
    read: usize,
    /// Its descriptors' limit before ours, of the process that runs now.
    limit: Option<Rlimit>,
    /// Memory in KiB after the warm-up, at most since, and now.
    pub(super) memory: Memory,
}

/// Resident memory, in KiB.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Memory {
    /// After the warm-up.
    pub warm_kib: u64,
    /// The most after a calm.
    pub most_kib: u64,
    /// After the last calm.
    pub last_kib: u64,
}

impl Daemon {
    pub(super) fn new(
        role: &'static str,
        name: &'static str,
        config: Table,
        through: Vec<String>,
    ) -> Self {
        Self {
            role,
            name,
            config,
            through,
            process: None,
            killed: false,
            restart_at: None,
            read: 0,
            limit: None,
            memory: Memory::default(),
        }
    }

    pub(super) fn config(&mut self) -> &mut Table {
        &mut self.config
    }

    /// Starts it, and returns at once.
    pub(super) fn start(
        &mut self,
        deployment: &Deployment,
        namespace: &Namespace,
        before: &[&str],
    ) -> Result<(), LabError> {
        let through: Vec<&str> =
            before.iter().copied().chain(self.through.iter().map(String::as_str)).collect();
        // The old one is gone, or goes now.
        self.process = None;
        let started =
            deployment.start_through(&through, namespace, self.role, self.name, &self.config);
        self.process = Some(started?);
        (self.killed, self.restart_at, self.limit) = (false, None, None);
        Ok(())
    }

    /// Ends it as a crash would.
    pub(super) fn kill(&mut self) {
        self.killed = true;
        if let Some(process) = &mut self.process {
            process.kill();
        }
    }

    /// Whether it was killed, and not started since.
    pub(super) const fn is_killed(&self) -> bool {
        self.killed
    }

    /// Starts it again if it ended although nobody killed it, after the supervisor's pause. What it ended with, once.
    pub(super) fn supervise(
        &mut self,
        deployment: &Deployment,
        namespace: &Namespace,
    ) -> Result<Option<String>, LabError> {
        if self.killed {
            return Ok(None);
        }
        if let Some(at) = self.restart_at {
            if at <= Instant::now() {
                self.start(deployment, namespace, &[])?;
            }
            return Ok(None);
        }
        Ok(self.ended())
    }

    /// What it ended with, if it did by itself.
    fn ended(&mut self) -> Option<String> {
        let process = self.process.as_mut()?;
        let status = process.ended()?;
        let log = process.log();
        // The limit was of this process.
        (self.restart_at, self.limit) = (Some(Instant::now() + RESTART), None);
        let last = last_lines(&log, LAST).into_iter().map(|line| shortened(line, LINE));
        let last = last.collect::<Vec<_>>().join(" | ");
        Some(format!("the {} ended by itself: {status}; its log ends: {last}", self.role))
    }

    /// Its process, where nobody killed it, and it is not known to have ended by itself: the id of one that was waited for is
    /// nobody's, or another's.
    fn running(&self) -> Option<&Process> {
        self.process.as_ref().filter(|_| !self.killed && self.restart_at.is_none())
    }

    pub(super) fn signal(&self, signal: Signal) {
        if let Some(process) = self.running() {
            process.signal(signal);
        }
    }

    /// Lets it open no more files than it has open, or as many as before. One that is down is left alone: it starts without a
    /// limit of ours.
    pub(super) fn limit_files(&mut self, limited: bool) -> Result<(), LabError> {
        // One that ended by itself a moment ago has no list of files: `supervise` tells of it.
        if self.process.as_mut().and_then(Process::ended).is_some() {
            return Ok(());
        }
        let Some(id) = self.running().and_then(id) else { return Ok(()) };
        let limit = match (limited, self.limit.take()) {
            (true, _) => {
                let open = fs::read_dir(format!("/proc/{}/fd", id.as_raw_nonzero()));
                let open = open.map_err(LabError::io("counting a daemon's files"))?.count();
                // As it inherited it from here.
                let maximum = getrlimit(Resource::Nofile).maximum;
                Rlimit { current: Some(open as u64), maximum }
            }
            (false, Some(before)) => before,
            (false, None) => return Ok(()),
        };
        let before = prlimit(Some(id), Resource::Nofile, limit);
        let before =
            before.map_err(|errno| LabError::io("limiting a daemon's files")(errno.into()))?;
        self.limit = limited.then_some(before);
        Ok(())
    }

    /// What its log has that must not be there, since the last question.
    pub(super) fn complaints(&mut self) -> Vec<String> {
        let Some(process) = &self.process else { return Vec::new() };
        let log = process.log();
        let new = log.get(self.read..).unwrap_or(&log);
        let complaints = new
            .lines()
            .filter(|line| line.contains("panicked at") || line.contains(" ERROR "))
            .map(|line| format!("the {}'s log: {}", self.role, shortened(line, LINE)))
            .collect();
        self.read = log.len();
        complaints
    }

    /// Reads what it has in memory; `None` while it does not run.
    pub(super) fn weigh(&mut self) -> Option<u64> {
        let kib = Usage::of(self.process.as_ref()?).resident_kib;
        if kib == 0 {
            return None;
        }
        self.memory.most_kib = self.memory.most_kib.max(kib);
        self.memory.last_kib = kib;
        Some(kib)
    }

    /// Ends it in order.
    pub(super) fn stop(&mut self) -> Result<(), LabError> {
        let Some(process) = &mut self.process else { return Ok(()) };
        let status = process.stop(ENDS)?;
        if !status.success() {
            return Err(LabError::Unsupported(format!("the {} ended with {status}", self.role)));
        }
        Ok(())
    }
}

fn id(process: &Process) -> Option<Pid> {
    Pid::from_raw(i32::try_from(process.id()).ok()?)
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread;

    use super::*;

    #[test]
    fn a_daemon_that_ends_by_itself_under_a_limit_is_told_with_its_last_words_and_then_left_alone()
    {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("client0.log");
        fs::write(&log, "ready\nToo many open files\n").unwrap();
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let mut daemon = Daemon::new("client", "client0", Table::new(), Vec::new());
        daemon.process = Some(Process::of(child, log));
        daemon.limit_files(true).unwrap();
        assert!(daemon.limit.is_some() && daemon.ended().is_none());
        daemon.signal(Signal::KILL);
        let begun = Instant::now();
        let told = loop {
            if let Some(told) = daemon.ended() {
                break told;
            }
            assert!(begun.elapsed() < ENDS, "it does not end");
            thread::sleep(Duration::from_millis(10));
        };
        assert!(told.starts_with("the client ended by itself"), "{told}");
        assert!(told.ends_with("ready | Too many open files"), "{told}");
        // The upheaval is taken back before the supervisor starts it again.
        daemon.limit_files(false).unwrap();
        daemon.limit_files(true).unwrap();
        assert!(daemon.limit.is_none());
    }
}
