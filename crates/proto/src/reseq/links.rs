//! The links of the tunnel as the resequencer sees them: which are waited for, and what follows from
//! all of them together.

use super::deadline::{ActiveClock, OneWayDelay};
use super::proof::{Claim, LinkOrder};
use crate::link::reordering::Tolerance;
use crate::time::{Duration, Instant, earliest};
use crate::units::LinkId;

/// Whether a link's packets are waited for.
#[derive(Clone, Copy, Debug)]
enum LinkPresence {
    Live,
    Down,
    /// It sends no more; what was under way is waited for until then.
    Leaving {
        /// One above the last local number it used.
        end: u64,
        until: Instant,
    },
}

#[derive(Debug)]
struct Tracked {
    id: LinkId,
    presence: LinkPresence,
    order: LinkOrder,
    delay: OneWayDelay,
    /// For how long packets of others waited for one that came on it.
    waited_for: Duration,
}

/// All links by which packets can still come; at most 256, since an id is a byte.
#[derive(Debug, Default)]
pub(super) struct Links {
    table: Vec<Tracked>,
    clock: ActiveClock,
    /// Global numbers that were proven lost by name and not yet taken.
    proven: Vec<u64>,
}

impl Links {
    /// Adds a link; one that is known already is live again and keeps what is known.
    pub(super) fn add(&mut self, id: LinkId, first_global: u64) {
        if let Some(link) = self.find(id) {
            link.presence = LinkPresence::Live;
            return;
        }
        let order = LinkOrder::new(first_global);
        let delay = OneWayDelay::new(self.clock.active());
        let waited_for = Duration::ZERO;
        self.table.push(Tracked { id, presence: LinkPresence::Live, order, delay, waited_for });
    }

    pub(super) fn set_up(&mut self, id: LinkId, up: bool) {
        if let Some(link) = self.find(id)
            && !matches!(link.presence, LinkPresence::Leaving { .. })
        {
            link.presence = if up { LinkPresence::Live } else { LinkPresence::Down };
        }
    }

    /// The link sends no more. With the number of its last datagram known, what is under way is
    /// awaited until `until`; else nothing is.
    pub(super) fn leave(&mut self, id: LinkId, end: Option<u64>, until: Instant) {
        match (end, self.find(id)) {
            (Some(end), Some(link)) => link.presence = LinkPresence::Leaving { end, until },
            _ => self.table.retain(|link| link.id != id),
        }
    }

    pub(super) fn set_tolerance(&mut self, id: LinkId, tolerance: Tolerance) {
        if let Some(link) = self.find(id) {
            link.order.set_tolerance(tolerance);
        }
    }

    pub(super) fn be_patient(&mut self, id: LinkId, until: Instant) {
        if let Some(link) = self.find(id) {
            link.order.be_patient(until);
        }
    }

    /// A datagram arrived after a delay.
    #[inline]
    pub(super) fn on_arrival(
        &mut self,
        now: Instant,
        id: LinkId,
        local: u64,
        claim: Claim,
        delay_us: i64,
    ) {
        self.clock.on_arrival(now);
        let Some(link) = self.table.iter_mut().find(|link| link.id == id) else { return };
        link.order.on_arrival(now, local, claim, &mut self.proven);
        link.delay.sample(now, self.clock.active(), delay_us);
    }

    /// Gives up missing local numbers that are beyond their link's tolerance, and links that have
    /// left.
    pub(super) fn mature(&mut self, now: Instant) {
        let mut leaving = false;
        for link in &mut self.table {
            link.order.mature(now, &mut self.proven);
            leaving |= matches!(link.presence, LinkPresence::Leaving { .. });
        }
        if !leaving {
            return;
        }
        self.table.retain(|link| match link.presence {
            LinkPresence::Leaving { end, until } => {
                now < until && !link.order.is_complete_below(end)
            }
            LinkPresence::Live | LinkPresence::Down => true,
        });
    }

    /// Whether a global number was proven lost by name and not yet taken.
    pub(super) fn has_proven(&self) -> bool {
        !self.proven.is_empty()
    }

    /// The next global number that was proven lost by name.
    pub(super) fn take_proven(&mut self) -> Option<u64> {
        self.proven.pop()
    }

    /// Nothing below this global number can still come on any link that is waited for; `None` if there
    /// is no such link: then nothing is proven.
    pub(super) fn floor(&self) -> Option<u64> {
        self.awaited().map(|link| link.order.floor()).min()
    }

    /// When time alone may prove something.
    pub(super) fn due(&self) -> Option<Instant> {
        self.table.iter().fold(None, |due, link| {
            let leaves = match link.presence {
                LinkPresence::Leaving { until, .. } => Some(until),
                LinkPresence::Live | LinkPresence::Down => None,
            };
            earliest(due, earliest(link.order.due(), leaves))
        })
    }

    /// The largest `D + 4 OWDVAR` of the links that are waited for and have delivered lately.
    pub(super) fn worst_us(&self) -> Option<i64> {
        self.awaited().filter_map(|link| link.delay.worst_us(&self.clock)).max()
    }

    /// OWDVAR of a link.
    pub(super) fn delay_variation(&self, id: LinkId) -> Option<Duration> {
        self.table.iter().find(|link| link.id == id)?.delay.variation()
    }

    /// Packets waited so long for one that came on it.
    pub(super) fn on_waited(&mut self, id: LinkId, time: Duration) {
        if let Some(link) = self.find(id) {
            link.waited_for += time;
        }
    }

    /// For how long packets waited for one that came on it.
    pub(super) fn waited_for(&self, id: LinkId) -> Duration {
        self.table.iter().find(|link| link.id == id).map_or(Duration::ZERO, |link| link.waited_for)
    }

    /// The largest difference between two links' smoothed delays.
    pub(super) fn delay_spread(&self) -> Duration {
        let delays = || self.table.iter().filter_map(|link| link.delay.smoothed_us());
        let spread = delays().max().unwrap_or(0).saturating_sub(delays().min().unwrap_or(0));
        Duration::from_micros(spread.unsigned_abs())
    }

    fn awaited(&self) -> impl Iterator<Item = &Tracked> {
        self.table.iter().filter(|link| !matches!(link.presence, LinkPresence::Down))
    }

    fn find(&mut self, id: LinkId) -> Option<&mut Tracked> {
        self.table.iter_mut().find(|link| link.id == id)
    }
}
