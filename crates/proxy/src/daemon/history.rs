//! What is remembered of this proxy: what all its clients carry together, as the kernel counts at the TUN.
//!
//! The workers would have to be asked for the same, which costs as much as a status of all clients. The kernel counts packets that
//! cross the TUN joined as one, with one header: up to 4 % less than the clients' packets have.

use ropewalk_control::api::{EventKind, HistoryStatus};
use ropewalk_control::server;
use ropewalk_daemon::history::{Counters, Recorder, Sample};
use ropewalk_link_io::counters::InterfaceCounters;
use ropewalk_proto::time::{Duration, Instant};
use ropewalk_settings::HistoryDays;

/// Remembers it.
#[derive(Debug)]
pub struct History {
    recorder: Recorder,
    /// `None`: this system does not tell.
    counters: Option<InterfaceCounters>,
    tun: String,
    /// What was last read of the TUN; it counts on when that is away for a moment.
    all: Counters,
}

impl History {
    /// What this TUN carries from now on, told to `recorder`.
    #[must_use]
    pub fn new(recorder: Recorder, tun: &str) -> Self {
        let counters = InterfaceCounters::open().inspect_err(|error| {
            tracing::warn!("the history does not know what is carried: {error}");
        });
        let (counters, tun) = (counters.ok(), tun.to_owned());
        Self { recorder, counters, tun, all: Counters::default() }
    }

    /// None.
    #[must_use]
    pub const fn off() -> Self {
        let all = Counters { down: 0, up: 0 };
        Self { recorder: Recorder::off(), counters: None, tun: String::new(), all }
    }

    /// Looks, if it is time; `unix` reads the wall clock, time since 1970.
    pub(super) fn look(&mut self, now: Instant, unix: impl FnOnce() -> Duration) {
        if self.recorder.is_due(now) {
            let seen = self.seen(now, unix());
            self.recorder.look(seen);
        }
    }

    /// When the loop is to turn although nothing goes.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.recorder.poll_timeout()
    }

    /// The config was read again.
    pub(super) fn reloaded(&mut self, now: Instant, unix: Duration, days: HistoryDays, text: &str) {
        let seen = self.seen(now, unix);
        self.recorder.keep(days, seen);
        self.recorder.note(now, EventKind::ConfigReloaded, None, text);
    }

    /// The proxy was told to stop.
    pub(super) fn stop(&mut self, now: Instant, unix: Duration) {
        let seen = self.seen(now, unix);
        self.recorder.stop(seen);
    }

    /// Somebody asks.
    pub(super) fn ask(&mut self, now: Instant, unix: Duration, asked: server::Command) {
        let seen = self.seen(now, unix);
        self.recorder.ask(asked, seen);
    }

    /// How it is kept.
    pub(super) fn status(&self) -> HistoryStatus {
        self.recorder.status()
    }

    fn seen(&mut self, now: Instant, unix: Duration) -> Sample {
        let tun = self.tun.as_str();
        let read = self.counters.as_mut().and_then(|counters| counters.read().ok());
        let found = read.and_then(|mut list| list.find(|(name, _)| *name == tun));
        if let Some((_, bytes)) = found {
            // The kernel sends what goes to clients.
            self.all = Counters { down: bytes.sent, up: bytes.received };
        }
        let unix_ms = u64::try_from(unix.as_millis()).unwrap_or(u64::MAX);
        Sample { at: now, unix_ms, all: self.all, links: Vec::new() }
    }
}
