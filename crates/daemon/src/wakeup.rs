//! Which timer of the core woke a daemon: a line of the log at level `trace`, so that whoever wonders why an idle daemon
//! wakes can read it.

use ropewalk_proto::time::Instant;
use ropewalk_proto::timer::Wakeup;
use tracing::Level;

/// Says which timer is due, if the log is to say so; `poll` asks the core.
pub fn trace(now: Instant, poll: impl FnOnce() -> Option<Wakeup>) {
    if !tracing::enabled!(Level::TRACE) {
        return;
    }
    if let Some((at, timer)) = poll().filter(|(at, _)| *at <= now) {
        let late_us = now.since(at).as_micros();
        tracing::trace!(?timer, late_us, "woken by a timer");
    }
}
