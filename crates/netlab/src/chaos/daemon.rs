//! A daemon under upheaval: started again as a supervisor would, its log and its memory watched.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit};
use toml::Table;

use super::shortened;
use crate::deployment::Deployment;
use crate::error::LabError;
use crate::namespace::Namespace;
use crate::process::{Process, Usage};

/// What systemd waits before it starts a daemon again (`RestartSec=` of the units).
const RESTART: Duration = Duration::from_secs(2);
/// How long a daemon may take to end in order.
const ENDS: Duration = Duration::from_secs(15);
/// How much of a line of a log is told.
const LINE: usize = 300;

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
    /// Its descriptors' limit before ours.
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
        let ended = self.process.as_mut().and_then(Process::ended);
        Ok(ended.map(|status| {
            self.restart_at = Some(Instant::now() + RESTART);
            format!("the {} ended by itself: {status}", self.role)
        }))
    }

    pub(super) fn signal(&self, signal: Signal) {
        if let Some(process) = self.process.as_ref().filter(|_| !self.killed) {
            process.signal(signal);
        }
    }

    /// Lets it open no more files than it has open, or as many as before.
    pub(super) fn limit_files(&mut self, limited: bool) -> Result<(), LabError> {
        let Some(id) = self.id().filter(|_| !self.killed) else { return Ok(()) };
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

    fn id(&self) -> Option<Pid> {
        let id = self.process.as_ref()?.id();
        Pid::from_raw(i32::try_from(id).ok()?)
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
