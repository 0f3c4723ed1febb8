//! The states of a link, and how it is asked whether it lives.
//!
//! | state | leaves when | to |
//! | --- | --- | --- |
//! | `Joining` | client: `JoinAck` came; proxy: the path is proven | `Up` |
//! | `Up` | nothing confirmed for 1 s and 3 RTO while something waits for it | `Down` |
//! | `Down` | something sent since was confirmed | `Up` |
//!
//! A link that is `Up` carries packets once its path MTU is known, or [`SETTLE`] after it came up (or moved to the other
//! family): it *settles*.

use crate::link::mtu::{PathMtu, State as MtuState};
use crate::link::sender::LinkSender;
use crate::time::{Duration, Instant, earliest};

/// A link is down when nothing was confirmed for this long (and three RTO).
const DEAD_AFTER: Duration = Duration::from_secs(1);
/// Time between probes of a link that is down.
const PROBE_INTERVAL: Duration = Duration::from_millis(500);
/// The same in the first [`LATELY`]: most that go come back soon, and what has no other link waits for it.
const EARLY_PROBE_INTERVAL: Duration = Duration::from_millis(100);
/// How long a link is down lately.
const LATELY: Duration = Duration::from_secs(10);
/// The same on a metered link that has been down for [`METERED_PATIENCE`].
const METERED_PROBE_INTERVAL: Duration = Duration::from_secs(5);
/// When a dead metered link is given less attention.
const METERED_PATIENCE: Duration = Duration::from_secs(600);
/// How long the proxy probes a link that is down: behind a NAT only the client can open it again, and it
/// probes by itself once it has noticed.
const PROXY_PATIENCE: Duration = Duration::from_secs(60);
/// First interval between attempts to join; doubles up to [`JOIN_RETRY_MAX`].
const JOIN_RETRY: Duration = Duration::from_millis(250);
/// Longest interval between attempts to join.
const JOIN_RETRY_MAX: Duration = Duration::from_secs(1);
/// How long a fresh link waits for its first path MTU before it carries packets all the same: a search
/// takes two or three round trips.
const SETTLE: Duration = Duration::from_secs(1);

/// The states of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkState {
    /// Not taken by the peer yet.
    Joining,
    /// Alive.
    Up,
    /// Does not answer.
    Down,
}

/// What a link that gets no answer has to ask again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Retry {
    Join,
    Ping,
}

/// Where a link stands in its life.
#[derive(Clone, Copy, Debug)]
pub(in crate::tunnel) struct Life {
    state: LinkState,
    since: Instant,
    /// When a join or a probe is repeated.
    retry_at: Option<Instant>,
    /// Between two attempts to join.
    retry_interval: Duration,
    /// Pings sent in doubt since something was last confirmed.
    nudges: u32,
    /// Since when it waits for its path MTU: since it came up, or its path moved to the other family.
    settling_since: Instant,
    /// [`SETTLE`] has passed since then.
    settled: bool,
}

impl Life {
    /// A link that is joining; with `retry` this end asks again.
    pub(super) fn joining(now: Instant, retry: bool) -> Self {
        Self {
            state: LinkState::Joining,
            since: now,
            retry_at: retry.then(|| now + JOIN_RETRY),
            retry_interval: JOIN_RETRY,
            nudges: 0,
            settling_since: now,
            settled: false,
        }
    }

    /// The present state.
    pub(in crate::tunnel) const fn state(&self) -> LinkState {
        self.state
    }

    /// Since when it is in this state.
    pub(in crate::tunnel) const fn since(&self) -> Instant {
        self.since
    }

    /// Whether the link is up.
    pub(in crate::tunnel) fn is_up(&self) -> bool {
        self.state == LinkState::Up
    }

    /// Whether the link is down.
    pub(in crate::tunnel) fn is_down(&self) -> bool {
        self.state == LinkState::Down
    }

    /// Enters a state.
    pub(super) fn enter(&mut self, now: Instant, state: LinkState) {
        (self.state, self.since) = (state, now);
        self.restart_settling(now);
        self.retry_interval = PROBE_INTERVAL;
        self.retry_at = (state == LinkState::Down).then_some(now);
    }

    /// The path MTU has to be found once more before the link carries packets.
    pub(super) const fn restart_settling(&mut self, now: Instant) {
        (self.settling_since, self.settled) = (now, false);
    }

    /// Whether a link that is up may carry packets.
    pub(super) fn has_settled(&self, now: Instant, mtu: &PathMtu) -> bool {
        is_known(mtu) || now >= self.settling_since + SETTLE
    }

    /// When the link carries packets although its path MTU search has not ended.
    fn settles_at(&self, mtu: &PathMtu) -> Option<Instant> {
        let waiting = self.is_up() && !self.settled && !is_known(mtu);
        waiting.then_some(self.settling_since + SETTLE)
    }

    /// Notes that the time to wait for the search is over: its timer has had its effect.
    pub(super) fn settle_by_time(&mut self, now: Instant, mtu: &PathMtu) {
        self.settled |= self.settles_at(mtu).is_some_and(|at| at <= now);
    }

    /// Something was confirmed: there is no doubt.
    pub(in crate::tunnel) const fn on_confirmed(&mut self) {
        self.nudges = 0;
    }

    /// When it will be down unless something is confirmed.
    fn dead_at(&self, sender: &LinkSender) -> Option<Instant> {
        if !self.is_up() {
            return None;
        }
        Some(sender.unanswered_since()? + DEAD_AFTER.max(sender.rtt().base_rto() * 3))
    }

    /// Whether nothing was confirmed for too long.
    pub(super) fn is_dead(&self, now: Instant, sender: &LinkSender) -> bool {
        self.dead_at(sender).is_some_and(|at| at <= now)
    }

    /// When to ask again because something is unanswered: a single lost datagram must not take a link down.
    fn nudge_at(&self, sender: &LinkSender) -> Option<Instant> {
        if !self.is_up() {
            return None;
        }
        let patience = sender.rtt().base_rto() * self.nudges.saturating_add(1);
        Some(sender.unanswered_since()? + patience)
    }

    /// Whether it is time to ask again, in doubt.
    pub(super) fn nudge(&mut self, now: Instant, sender: &LinkSender) -> bool {
        let due = self.nudge_at(sender).is_some_and(|at| at <= now);
        self.nudges += u32::from(due);
        due
    }

    /// Whether a join, or a probe of a link that is down, is due.
    pub(super) fn is_retry_due(&self, now: Instant) -> bool {
        self.retry_at.is_some_and(|at| at <= now)
    }

    /// What to ask again where no answer came. `accepted`: the peer opened the link.
    pub(super) fn retry(&mut self, now: Instant, accepted: bool, metered: bool) -> Option<Retry> {
        let down_for = now.since(self.since);
        let (retry, interval) = match self.state {
            LinkState::Joining => {
                self.retry_interval = (self.retry_interval * 2).min(JOIN_RETRY_MAX);
                (Retry::Join, self.retry_interval)
            }
            LinkState::Down if accepted && down_for >= PROXY_PATIENCE => {
                self.retry_at = None;
                return None;
            }
            LinkState::Down if metered && down_for >= METERED_PATIENCE => {
                (Retry::Ping, METERED_PROBE_INTERVAL)
            }
            LinkState::Down if down_for < LATELY => (Retry::Ping, EARLY_PROBE_INTERVAL),
            LinkState::Down => (Retry::Ping, PROBE_INTERVAL),
            LinkState::Up => {
                self.retry_at = None;
                return None;
            }
        };
        self.retry_at = Some(now + interval);
        Some(retry)
    }

    /// The next attempt is made at once.
    pub(super) const fn retry_now(&mut self, now: Instant) {
        self.retry_at = Some(now);
    }

    /// The earliest of its timers.
    pub(super) fn poll_timeout(&self, sender: &LinkSender, mtu: &PathMtu) -> Option<Instant> {
        let doubts = earliest(self.dead_at(sender), self.nudge_at(sender));
        earliest(earliest(self.settles_at(mtu), self.retry_at), doubts)
    }
}

/// Whether the path MTU search has had its first result.
fn is_known(mtu: &PathMtu) -> bool {
    matches!(mtu.state(), MtuState::Complete | MtuState::Error)
}
