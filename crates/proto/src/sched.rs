//! Which link carries the next packet: a pure decision over read-only views of the links.
//!
//! A scheduler never sees the machine, only [`LinkView`]s, so that it can be tested with a table. It
//! may remember whose turn it is; it owns no timer and drops nothing: what happens when no link has
//! room is the tunnel's policy ([`WhenClosed`]).

mod free_window;
mod round_robin;

use std::fmt;
use std::str::FromStr;

pub use free_window::FreeWindow;
pub use round_robin::RoundRobin;

use crate::time::Instant;
use crate::units::LinkId;

/// What a scheduler may know of a link that is up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkView {
    /// The link.
    pub id: LinkId,
    /// Datagrams its congestion window has room for.
    pub room: u32,
}

/// The next packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketMeta {
    /// Bytes of the inner packet.
    pub len: usize,
}

/// A scheduler's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pick {
    /// Send on the link with this index in the views.
    Send(usize),
    /// No link has room.
    Blocked,
}

/// A packet scheduler.
pub trait Scheduler {
    /// Chooses a link for `packet` among `links`, in the order of their ids.
    fn pick(&mut self, now: Instant, packet: &PacketMeta, links: &[LinkView]) -> Pick;
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

/// The schedulers by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SchedulerKind {
    /// [`FreeWindow`].
    #[default]
    FreeWindow,
    /// [`RoundRobin`].
    RoundRobin,
}

impl SchedulerKind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::FreeWindow, Self::RoundRobin];

    /// A fresh scheduler of this kind.
    #[must_use]
    pub fn build(self) -> AnyScheduler {
        match self {
            Self::FreeWindow => AnyScheduler::FreeWindow(FreeWindow),
            Self::RoundRobin => AnyScheduler::RoundRobin(RoundRobin::default()),
        }
    }
}

impl fmt::Display for SchedulerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FreeWindow => "free-window",
            Self::RoundRobin => "round-robin",
        })
    }
}

/// No scheduler has this name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no scheduler is called `{0}`")]
pub struct UnknownScheduler(pub String);

impl FromStr for SchedulerKind {
    type Err = UnknownScheduler;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.to_string() == name)
            .ok_or_else(|| UnknownScheduler(name.to_owned()))
    }
}

/// Any scheduler, without a box on the hot path.
#[derive(Clone, Debug)]
pub enum AnyScheduler {
    /// [`FreeWindow`].
    FreeWindow(FreeWindow),
    /// [`RoundRobin`].
    RoundRobin(RoundRobin),
}

impl Scheduler for AnyScheduler {
    fn pick(&mut self, now: Instant, packet: &PacketMeta, links: &[LinkView]) -> Pick {
        match self {
            Self::FreeWindow(scheduler) => scheduler.pick(now, packet, links),
            Self::RoundRobin(scheduler) => scheduler.pick(now, packet, links),
        }
    }
}

#[cfg(test)]
pub(crate) fn views(rooms: &[u32]) -> Vec<LinkView> {
    (0..).zip(rooms).map(|(id, room)| LinkView { id: LinkId(id), room: *room }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheduler_is_found_by_the_name_it_shows() {
        for kind in SchedulerKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert!("freewindow".parse::<SchedulerKind>().is_err());
    }

    #[test]
    fn no_scheduler_sends_where_there_is_no_room_or_no_link() {
        for kind in SchedulerKind::ALL {
            for rooms in [&[][..], &[0], &[0, 0, 0]] {
                let pick = kind.build().pick(Instant::ZERO, &PacketMeta { len: 1 }, &views(rooms));
                assert_eq!(pick, Pick::Blocked, "{kind} with {rooms:?}");
            }
        }
    }
}
