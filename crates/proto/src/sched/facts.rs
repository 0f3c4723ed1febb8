//! What is known of the links beyond their room: facts, of which each scheduler makes what it needs.
//!
//! They change far more slowly than packets leave, so they are looked at now and then ([`Scheduler::refresh`]), while a
//! [`LinkView`] is taken for every packet.
//!
//! [`Scheduler::refresh`]: super::Scheduler::refresh
//! [`LinkView`]: super::LinkView

use arrayvec::{ArrayString, ArrayVec};
use ropewalk_settings::{Bitrate, Importance, Terms};

use crate::config::MAX_LINKS;
use crate::time::Duration;
use crate::units::LinkId;
use crate::wire::frame::MAX_NAME;

/// What is known of a link, in the direction in which this end sends. Rates are at IP level. What was told is from
/// [`Terms`], the rest is measured ([`Sensing`](crate::link::sensing::Sensing)).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinkFacts {
    /// The link.
    pub id: LinkId,
    /// Its name, as the wire carries it.
    pub name: ArrayString<MAX_NAME>,
    /// Whether the scheduler may send packets on it now.
    pub carries: bool,
    /// Its share beside the others', as told: finite, not negative.
    pub weight_told: f64,
    /// What it carries, if that was told.
    pub rate_told: Option<Bitrate>,
    /// Price of a gigabyte, in one unit for all links: finite, not negative.
    pub cost: f64,
    /// How much throughput and cost matter on it.
    pub importance: Importance,
    /// What it carries at most: as told, else as measured.
    pub capacity: Option<Bitrate>,
    /// What of the capacity is there for this tunnel, filtered.
    pub available: Option<Bitrate>,
    /// What it delivers for this tunnel, filtered, kB/s.
    pub throughput: Option<f64>,
    /// What others leave of a told rate; `None`: no rate was told, or nobody else was counted.
    pub yielding_rate: Option<Bitrate>,
    /// One-way delay without a queue, µs, from an epoch that all links share.
    pub one_way_us: Option<i64>,
    /// By how much delays vary by themselves, µs: a flow waits for the latest of its packets.
    pub varies_us: i64,
    /// By how much longer packets of a flow that keeps it busy wait for those that it lost or that vary, µs.
    pub held_up_us: i64,
    /// All that it loses, also what may have been more than it carries and is not certain to have been.
    pub losses: Losses,
    /// What it carries by its pace or its window, bytes a second.
    pub rate: u64,
    /// Whether nobody knows yet how much that is: it is still being found.
    pub opening: bool,
    /// Its smoothed round-trip time.
    pub srtt: Option<Duration>,
    /// Share of recent datagrams lost, 0 to 1.
    pub loss: f64,
    /// Share lost that is more than a burst of losses, 0 to 1.
    pub lasting_loss: f64,
}

/// What a link loses, and what that costs a flow.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Losses {
    /// Of the datagrams lately sent, 0 to 1.
    pub share: f64,
    /// How much longer what comes behind a lost packet waits, until that was missed and has come again, µs.
    pub repair_us: i64,
    /// The same in the mean, of a flow that keeps the link busy, µs.
    pub held_up_us: i64,
}

impl Losses {
    /// Nothing was lost.
    pub const NONE: Self = Self { share: 0.0, repair_us: 0, held_up_us: 0 };
}

impl LinkFacts {
    /// A link that carries packets, and of which nothing was told or measured.
    #[must_use]
    pub fn unknown(id: LinkId) -> Self {
        let terms = Terms::default();
        Self {
            one_way_us: None,
            varies_us: 0,
            held_up_us: 0,
            losses: Losses::NONE,
            rate: 0,
            opening: false,
            id,
            name: ArrayString::new(),
            carries: true,
            weight_told: terms.weight,
            rate_told: terms.rate,
            cost: terms.cost,
            importance: terms.importance,
            capacity: None,
            available: None,
            throughput: None,
            yielding_rate: None,
            srtt: None,
            loss: 0.0,
            lasting_loss: 0.0,
        }
    }
}

/// Those that carry packets now.
pub(super) fn carrying(links: &[LinkFacts]) -> ArrayVec<LinkFacts, MAX_LINKS> {
    links.iter().filter(|link| link.carries).take(MAX_LINKS).copied().collect()
}
