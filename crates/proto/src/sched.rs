//! Which link carries the next packet: a pure decision over read-only views of the links.
//!
//! A scheduler never sees the machine, so that it can be tested with a table. For every packet it sees [`LinkView`]s of the
//! links that can carry it; now and then it is told what is known of all links ([`LinkFacts`]), and makes of these facts
//! what it needs. It may remember whose turn it is; it owns no timer and drops nothing: what happens when no link has
//! room is the tunnel's policy ([`WhenClosed`](ropewalk_settings::WhenClosed)).
//!
//! A new scheduler is one file, a name among the settings ([`SchedulerKind`]), and one line in the list of
//! [`AnyScheduler`].

mod arrival;
mod batcp;
mod facts;
mod free_window;
mod natalie;
mod per_link;
mod round_robin;
pub mod safire;
mod weighted;

pub use arrival::{SoonestArrival, soonest};
pub use batcp::Batcp;
pub use facts::{LinkFacts, Losses};
pub use free_window::FreeWindow;
pub use natalie::Natalie;
pub use round_robin::RoundRobin;
pub use safire::{Life, Safire};
pub use weighted::Weighted;

use ropewalk_settings::{Bitrate, SchedulerKind, Scheduling};

use crate::packet::{FiveTuple, FlowKey, PacketView};
use crate::queue::Demand;
use crate::time::{Duration, Instant};
use crate::units::LinkId;

/// A rate that is only the beginning is taken to double so often at most: from what a connection may send at first to the highest rates
/// is ten times, and some of them have passed.
const MOST_DOUBLINGS: u64 = 8;

/// What is known of a link for each packet: what changes as packets leave. It is copied often, so it is small.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkView {
    /// The link.
    pub id: LinkId,
    /// Datagrams its congestion window has room for.
    pub room: u32,
    /// When a packet that leaves as soon as it may would arrive, µs, from an epoch that all links share; `None`: unknown,
    /// the greatest: perhaps never.
    pub arrives_us: Option<i64>,
    /// By how much longer packets of a flow that keeps the link busy wait for those that it lost, µs.
    pub held_up_us: i64,
    /// What the link carries, bytes a second; 0: unknown.
    pub rate: u64,
    /// That is only the beginning: it doubles in this time, µs, until the link is full.
    pub doubles_us: Option<i64>,
}

impl LinkView {
    /// What it delivers within so many µs, bytes.
    #[must_use]
    pub fn delivers(&self, within_us: i64) -> u64 {
        let within = u64::try_from(within_us).unwrap_or(0);
        let steadily = self.rate.saturating_mul(within) / 1_000_000;
        let Some(double) = self.doubles_us.and_then(|us| u64::try_from(us).ok()) else {
            return steadily;
        };
        // The mean of what doubles n times is (2^n - 1) / (n ln 2) of the first.
        let doublings = within.checked_div(double).unwrap_or(0).min(MOST_DOUBLINGS);
        match doublings {
            0 => steadily,
            doublings => steadily.saturating_mul(((1 << doublings) - 1) * 13) / (9 * doublings),
        }
    }
}

impl LinkView {
    /// A link of which only the room is known.
    #[must_use]
    pub const fn of_room(id: LinkId, room: u32) -> Self {
        Self { id, room, arrives_us: None, held_up_us: 0, rate: 0, doubles_us: None }
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
    /// Bytes that wait in the tunnel's queue, this packet included: of its flow where flows take turns there, else of all.
    pub backlog: usize,
    /// Flows that take turns in the tunnel's queue; at least 1.
    pub backlogged_flows: usize,
    /// Bytes of its flow that its receiver lets be on their way, where it lets no more now; else the largest number.
    pub most_under_way: u32,
}

impl PacketMeta {
    /// What schedulers look at in a packet.
    #[must_use]
    pub fn new(packet: &PacketView<'_>) -> Self {
        let tuple = packet.five_tuple();
        Self {
            len: packet.bytes().len(),
            flow: tuple.key(),
            tuple,
            life: Life::of(packet),
            backlog: 0,
            backlogged_flows: 1,
            most_under_way: u32::MAX,
        }
    }

    /// A packet of which nothing but its length is known.
    #[must_use]
    pub const fn of_len(len: usize) -> Self {
        Self {
            len,
            flow: FlowKey(0),
            tuple: FiveTuple::UNKNOWN,
            life: Life::Goes,
            backlog: 0,
            backlogged_flows: 1,
            most_under_way: u32::MAX,
        }
    }
}

/// A scheduler's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pick {
    /// Send on the link with this index in the views.
    Send(usize),
    /// Send on the link with this index the packet behind so many bytes of its flow's: there it arrives in its turn. Where none
    /// may overtake others, the next one.
    SendBehind(usize, usize),
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

    /// What is known of all links of the tunnel, in the order of their ids, those too that carry no packets now: told again
    /// every 100 ms while packets go, and before the first packet after something was told by a person.
    fn refresh(&mut self, _links: &[LinkFacts]) {}

    /// The most that this end shall send on `link`, by the last refresh; `None`: the scheduler sets no bound.
    fn pace(&self, _link: LinkId) -> Option<Bitrate> {
        None
    }

    /// The link that a packet waits for although another may have room; `None`: it goes where there is room. For people.
    fn awaited(&self, _packet: &PacketMeta, _links: &[LinkView]) -> Option<Awaited> {
        None
    }

    /// Whether it looks at when packets arrive ([`LinkView::arrives_us`], [`LinkView::rate`]): else that is not worked out.
    fn looks_at_arrivals(&self) -> bool {
        false
    }

    /// For how much longer than is set packets may wait, by the last refresh: what the schedule needs.
    fn allowance(&self) -> Duration {
        Duration::ZERO
    }

    /// What it needs of the tunnel's queue, by the last refresh. `None`: it needs nothing of it, and flows take no turns
    /// there.
    fn demand(&self) -> Option<Demand> {
        None
    }

    /// What it makes of `link`, for people.
    fn share(&self, _link: LinkId) -> LinkShare {
        LinkShare::default()
    }
}

/// Which link a packet waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Awaited {
    /// Where it arrives first.
    pub link: LinkId,
    /// By how much later it would arrive on the soonest of those that have room; `None`: none has, or nobody knows.
    pub later: Option<Duration>,
}

/// What a scheduler makes of a link, as far as it asks for it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct LinkShare {
    /// Its share beside the others' in a weighted round; `None`: nothing was weighed yet.
    pub weight: Option<f64>,
    /// What flow routing expects one TCP flow to reach on it, bit/s; `None`: unknown.
    pub alpha: Option<f64>,
    /// Active flows that flow routing has on it.
    pub flows: Option<u32>,
}

/// Makes [`AnyScheduler`] of a list: the name of a scheduler among the settings, its type as it is held, and how it is built
/// from the settings.
macro_rules! schedulers {
    (|$now:ident, $settings:ident| $($name:ident($held:ty) => $new:expr,)*) => {
        /// Any scheduler, without a virtual call on the hot path.
        #[derive(Clone, Debug)]
        pub enum AnyScheduler {
            $(#[doc = concat!("`", stringify!($name), "`.")] $name($held),)*
        }

        impl AnyScheduler {
            /// A fresh scheduler as these settings have it.
            #[must_use]
            pub fn new($now: Instant, $settings: &Scheduling) -> Self {
                match $settings.scheduler {
                    $(SchedulerKind::$name => Self::$name($new),)*
                }
            }
        }

        impl Scheduler for AnyScheduler {
            fn pick(&mut self, now: Instant, packet: &PacketMeta, links: &[LinkView]) -> Pick {
                match self {
                    $(Self::$name(scheduler) => scheduler.pick(now, packet, links),)*
                }
            }

            fn on_sent(&mut self, now: Instant, packet: &PacketMeta, link: LinkId) {
                match self {
                    $(Self::$name(scheduler) => scheduler.on_sent(now, packet, link),)*
                }
            }

            fn refresh(&mut self, links: &[LinkFacts]) {
                match self {
                    $(Self::$name(scheduler) => scheduler.refresh(links),)*
                }
            }

            fn pace(&self, link: LinkId) -> Option<Bitrate> {
                match self {
                    $(Self::$name(scheduler) => scheduler.pace(link),)*
                }
            }

            fn awaited(&self, packet: &PacketMeta, links: &[LinkView]) -> Option<Awaited> {
                match self {
                    $(Self::$name(scheduler) => scheduler.awaited(packet, links),)*
                }
            }

            fn looks_at_arrivals(&self) -> bool {
                match self {
                    $(Self::$name(scheduler) => scheduler.looks_at_arrivals(),)*
                }
            }

            fn allowance(&self) -> Duration {
                match self {
                    $(Self::$name(scheduler) => scheduler.allowance(),)*
                }
            }

            fn demand(&self) -> Option<Demand> {
                match self {
                    $(Self::$name(scheduler) => scheduler.demand(),)*
                }
            }

            fn share(&self, link: LinkId) -> LinkShare {
                match self {
                    $(Self::$name(scheduler) => scheduler.share(link),)*
                }
            }
        }
    };
}

schedulers! { |now, settings|
    FreeWindow(FreeWindow) => FreeWindow,
    Arrival(Box<SoonestArrival>) => Box::default(),
    RoundRobin(RoundRobin) => RoundRobin::default(),
    Natalie(Box<Natalie>) => Box::new(Natalie::new(&settings.natalie)),
    Batcp(Box<Batcp>) => Box::new(Batcp::new(&settings.batcp)),
    Safire(Box<Safire>) => Box::new(Safire::new(now, &settings.safire)),
}

#[cfg(test)]
pub(crate) fn views(rooms: &[u32]) -> Vec<LinkView> {
    (0..).zip(rooms).map(|(id, room)| LinkView::of_room(LinkId(id), *room)).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_scheduler_sends_where_there_is_no_room_or_no_link() {
        for kind in SchedulerKind::ALL {
            for rooms in [&[][..], &[0], &[0, 0, 0]] {
                let mut scheduler = AnyScheduler::new(Instant::ZERO, &kind.into());
                let pick = scheduler.pick(Instant::ZERO, &PacketMeta::of_len(1), &views(rooms));
                assert!(!matches!(pick, Pick::Send(_)), "{kind} with {rooms:?}: {pick:?}");
            }
        }
    }
}
