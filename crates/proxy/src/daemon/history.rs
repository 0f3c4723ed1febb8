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
    base: Base,
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
        let mut history = Self { recorder, counters, tun, ..Self::off() };
        history.read();
        history
    }

    /// None.
    #[must_use]
    pub const fn off() -> Self {
        let all = Counters { down: 0, up: 0 };
        let base = Base(None);
        Self { recorder: Recorder::off(), counters: None, tun: String::new(), base, all }
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
        self.read();
        let unix_ms = u64::try_from(unix.as_millis()).unwrap_or(u64::MAX);
        Sample { at: now, unix_ms, all: self.all, links: Vec::new() }
    }

    fn read(&mut self) {
        let tun = self.tun.as_str();
        let read = self.counters.as_mut().and_then(|counters| counters.read().ok());
        let found = read.and_then(|mut list| list.find(|(name, _)| *name == tun));
        if let Some((_, bytes)) = found {
            // The kernel sends what goes to clients.
            self.all = self.base.since(Counters { down: bytes.sent, up: bytes.received });
        }
    }
}

/// What the kernel had counted when it was first read: a TUN may be older than the proxy, and outlive it.
#[derive(Debug)]
struct Base(Option<Counters>);

impl Base {
    /// What has come since the start, from the counters as they are now. Smaller counters belong to a new TUN.
    fn since(&mut self, read: Counters) -> Counters {
        let base = self.0.get_or_insert(read);
        if read.down < base.down || read.up < base.up {
            *base = Counters::default();
        }
        Counters { down: read.down - base.down, up: read.up - base.up }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_tun_carried_before_the_proxy_began_does_not_count() {
        let counters = |down, up| Counters { down, up };
        let mut base = Base(None);
        assert_eq!(base.since(counters(9_000, 5_000)), counters(0, 0));
        assert_eq!(base.since(counters(9_100, 5_007)), counters(100, 7));
        // The TUN is a new one.
        for (read, what) in [((50, 6_000), "down"), ((10_000, 3), "up")] {
            let mut base = Base(Some(counters(9_000, 5_000)));
            let (down, up) = read;
            assert_eq!(base.since(counters(down, up)), counters(down, up), "fewer {what}");
            assert_eq!(base.since(counters(down + 1, up)), counters(down + 1, up));
        }
        let mut fresh = Base(None);
        assert_eq!(fresh.since(counters(0, 0)), counters(0, 0));
        assert_eq!(fresh.since(counters(20, 10)), counters(20, 10));
    }
}
