//! Which link carries the next packet: a pure decision over read-only views of the links.
//!
//! A scheduler never sees the machine, only [`LinkView`]s, so that it can be tested with a table. It
//! may remember whose turn it is; it owns no timer and drops nothing: what happens when no link has
//! room is the tunnel's policy ([`WhenClosed`]).

pub mod batcp;
mod config;
mod free_window;
pub mod natalie;
mod round_robin;
pub mod safire;
mod weighted;

pub use config::{
    BatcpConfig, NatalieConfig, Route, SafireConfig, SchedulerConfig, Terms, UnknownScheduler,
    Weights,
};
pub use free_window::FreeWindow;
pub use round_robin::RoundRobin;
pub use safire::{Life, Safire};
pub use weighted::{Count, Weighted, WhenFull};

use crate::packet::{FiveTuple, FlowKey, PacketView};
use crate::time::Instant;
use crate::units::LinkId;

/// What a scheduler may know of a link that is up.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinkView {
    /// The link.
    pub id: LinkId,
    /// Datagrams its congestion window has room for.
    pub room: u32,
    /// Its share beside the others' in a weighted round: finite, not negative; 0: none.
    pub weight: f64,
    /// What one TCP flow can reach on it, bit/s ([`safire::alpha`]); `None`: unknown.
    pub alpha: Option<f64>,
    /// Which destinations may use it: a bit for each route ([`safire::Routes`]).
    pub routes: u64,
}

impl LinkView {
    /// A link of which nothing but its room is known, for every destination.
    #[must_use]
    pub const fn new(id: LinkId, room: u32) -> Self {
        Self { id, room, weight: 1.0, alpha: None, routes: u64::MAX }
    }
}

/// The next packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketMeta {
    /// Bytes of the inner packet.
    pub len: usize,
    /// Its flow.
    pub flow: FlowKey,
    /// Where it comes from and goes, for people, and its destination for routes.
    pub tuple: FiveTuple,
    /// What it says of its flow.
    pub life: Life,
}

impl PacketMeta {
    /// What schedulers look at in a packet.
    #[must_use]
    pub fn new(packet: &PacketView<'_>) -> Self {
        let tuple = packet.five_tuple();
        Self { len: packet.bytes().len(), flow: tuple.key(), tuple, life: Life::of(packet) }
    }

    /// A packet of which nothing but its length is known.
    #[must_use]
    pub const fn of_len(len: usize) -> Self {
        Self { len, flow: FlowKey(0), tuple: FiveTuple::UNKNOWN, life: Life::Goes }
    }
}

/// A scheduler's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pick {
    /// Send on the link with this index in the views.
    Send(usize),
    /// Nothing but the link with this index will do, and it has no room: the packet waits for it.
    Wait(usize),
    /// No link has room.
    Blocked,
}

/// A packet scheduler.
pub trait Scheduler {
    /// Chooses a link for `packet` among `links`, in the order of their ids. The same question again
    /// has the same answer.
    fn pick(&mut self, now: Instant, packet: &PacketMeta, links: &[LinkView]) -> Pick;

    /// The packet went on `link`, or into its queue.
    fn on_sent(&mut self, _now: Instant, _packet: &PacketMeta, _link: LinkId) {}
}

/// What happens to a packet when no link has room.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WhenClosed {
    /// It waits, at most as long as the queue's bound.
    #[default]
    Queue,
    /// It is dropped (seed 004, Algorithm 1, lines 5 to 8).
    Drop,
}

/// Any scheduler, without a virtual call on the hot path.
#[derive(Clone, Debug)]
pub enum AnyScheduler {
    /// [`FreeWindow`].
    FreeWindow(FreeWindow),
    /// [`RoundRobin`].
    RoundRobin(RoundRobin),
    /// [`Weighted`]: NATALIE's and BATCP's.
    Weighted(Box<Weighted>),
    /// [`Safire`].
    Safire(Box<Safire>),
}

impl Scheduler for AnyScheduler {
    fn pick(&mut self, now: Instant, packet: &PacketMeta, links: &[LinkView]) -> Pick {
        match self {
            Self::FreeWindow(scheduler) => scheduler.pick(now, packet, links),
            Self::RoundRobin(scheduler) => scheduler.pick(now, packet, links),
            Self::Weighted(scheduler) => scheduler.pick(now, packet, links),
            Self::Safire(scheduler) => scheduler.pick(now, packet, links),
        }
    }

    fn on_sent(&mut self, now: Instant, packet: &PacketMeta, link: LinkId) {
        match self {
            Self::FreeWindow(scheduler) => scheduler.on_sent(now, packet, link),
            Self::RoundRobin(scheduler) => scheduler.on_sent(now, packet, link),
            Self::Weighted(scheduler) => scheduler.on_sent(now, packet, link),
            Self::Safire(scheduler) => scheduler.on_sent(now, packet, link),
        }
    }
}

#[cfg(test)]
pub(crate) fn views(rooms: &[u32]) -> Vec<LinkView> {
    (0..).zip(rooms).map(|(id, room)| LinkView::new(LinkId(id), *room)).collect()
}

/// Has a full packet go where the scheduler says.
#[cfg(test)]
pub(crate) fn send(scheduler: &mut impl Scheduler, links: &[LinkView]) -> Pick {
    let packet = PacketMeta::of_len(1400);
    let pick = scheduler.pick(Instant::ZERO, &packet, links);
    if let Pick::Send(index) | Pick::Wait(index) = pick {
        scheduler.on_sent(Instant::ZERO, &packet, links[index].id);
    }
    pick
}
