//! Congestion control of one link, behind one small trait.
//!
//! A controller sees acknowledgements, losses, marks and round-trip samples of one link and answers
//! with a window in datagrams, one with several packets counting once for each. It owns no timer and retransmits nothing. Every event but
//! [`window`](Controller::window) does nothing by default, so that the simplest controller is a
//! number.

use ropewalk_settings::{Bitrate, ControllerKind};

use crate::time::{Duration, Instant};

mod ccid2;
mod fixed;
mod model;
mod path_model;

pub use ccid2::Ccid2;
pub use fixed::Fixed;
pub use model::Model;
pub use path_model::{PathLimit, PathModel};

/// For how long it is remembered what a link had that left: as long as a window that nothing tested is believed (RFC 7661 §4.3). A device that
/// is plugged again or a driver that starts again is back within seconds; who is away for longer may be in another network.
pub(crate) const KNOWN_FOR: Duration = Duration::from_secs(5 * 60);

/// The share of what it had with which a link goes on that was away (RFC 9959).
const AGAIN: f64 = 0.5;

/// No window grows past this. 32,768 full datagrams are 4 Gbit/s at 100 ms; the sender's memory of
/// what is in flight is bounded by it.
pub const MAX_WINDOW: u32 = *ControllerKind::WINDOW.end();

/// What a report newly confirmed.
#[derive(Clone, Copy, Debug)]
pub struct AckSample {
    /// Datagrams in the window newly confirmed by this report; one with several packets is as many.
    pub datagrams: u32,
    /// Their bytes (outer UDP payload).
    pub bytes: u64,
    /// Highest local number confirmed by this report.
    pub largest: u64,
    /// Datagrams in flight before this report was applied.
    pub prior_in_flight: u32,
    /// Whether the sender was held back by the window (not by a lack of packets) when the newest
    /// confirmed datagram was sent (RFC 7661).
    pub window_limited: bool,
    /// Round-trip time of the newest confirmed datagram, without the receiver's report delay.
    pub rtt: Option<Duration>,
    /// How fast the path delivered what was confirmed, where that could be measured.
    pub delivery: Option<DeliverySample>,
    /// When the newest of them arrived, if it is the newest of all.
    pub arrival: Option<ArrivalSample>,
    /// The next local number to be sent.
    pub next: u64,
    /// Datagrams in flight now.
    pub in_flight: u32,
    /// How long those that others overtook are waited for: so long they are in flight, though what was sent after them is not.
    pub lateness: Duration,
}

/// When a datagram arrived by the receiver's clock, whose epoch is unknown, and what had arrived until then.
///
/// A report says how long before it was sealed the largest number had come, and its header says when that was: so no
/// report carries a stamp of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArrivalSample {
    /// When it arrived, µs.
    pub at_us: i64,
    /// When it was sent, by our clock.
    pub sent_at: Instant,
    /// Bytes at IP level that arrived since the datagram before, of which was known when this one was sent.
    pub bytes: u64,
    /// The longer of the times over which they were sent and over which they arrived.
    pub interval: Duration,
    /// All bytes that arrived on the link so far.
    pub total: u64,
    /// Whether the window or the pacing held the sender back then.
    pub held_back: bool,
}

impl ArrivalSample {
    /// One-way delay in µs, from an epoch that never changes: only differences say something.
    #[must_use]
    pub fn one_way_us(&self) -> i64 {
        self.at_us.saturating_sub(i64::try_from(self.sent_at.as_micros()).unwrap_or(i64::MAX))
    }
}

/// How fast a path delivered, over about one round trip (draft-cheng-iccrg-delivery-rate-estimation).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeliverySample {
    /// Bytes at IP level that arrived in `interval`.
    pub bytes: u64,
    /// The longer of the time over which they were sent and the time over which they were confirmed.
    pub interval: Duration,
    /// Whether the window or the pacing, not a lack of packets, held the sender back: only then does the
    /// rate say what the path can carry.
    pub held_back: bool,
}

impl DeliverySample {
    /// The rate of the sample.
    #[must_use]
    pub fn rate(&self) -> Bitrate {
        Bitrate::from_bytes_in(self.bytes, self.interval)
    }
}

/// What a report showed to be lost, or a mark that stands for a loss.
#[derive(Clone, Copy, Debug)]
pub struct LossSample {
    /// Datagrams newly declared lost (or marked); of the lost one with several packets is as many.
    pub datagrams: u32,
    /// Highest local number among them. Of marks only the number is known: the lowest that one of them can
    /// have.
    pub largest: u64,
    /// The next local number to be sent: everything below it was sent before the reaction.
    pub next: u64,
    /// Datagrams in flight before they were declared lost.
    pub prior_in_flight: u32,
}

/// What a controller knew of a link that left: where the link comes back, it is a new one for both ends, and its controller
/// may begin with a part of that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownPath {
    /// What the path carried, at IP level.
    pub rate: Bitrate,
    /// The round trip without a queue.
    pub trip: Duration,
    /// By how much delays varied by themselves.
    pub noise: Duration,
    /// Until when this is worth a try.
    pub until: Instant,
    /// Whether the peer is where it was: else the path may be another one, of which the rate says nothing before it is
    /// measured again.
    pub is_same_way: bool,
}

/// The congestion window of one link.
pub trait Controller {
    /// Datagrams that may be in flight.
    fn window(&self) -> u32;

    /// How fast datagrams may leave; `None`: as fast as the window allows.
    fn pacing_rate(&self) -> Option<Bitrate> {
        None
    }

    /// Below this window growth is fast (slow start); `None`: there is no such threshold (yet).
    fn slow_start_threshold(&self) -> Option<u32> {
        None
    }

    /// Whether the window is below that threshold, or there is none yet.
    fn is_opening(&self) -> bool {
        false
    }

    /// What it believes of the path, if it models it.
    fn path_model(&self) -> Option<PathModel> {
        None
    }

    /// By how much it believes that delays vary by themselves, if it models the path: what
    /// [`path_model`](Self::path_model) says, for who asks of every packet.
    fn delay_noise(&self) -> Option<Duration> {
        None
    }

    /// How much it believes that the path carries, if it models it: at times more or less than that leaves.
    fn believed_rate(&self) -> Option<Bitrate> {
        None
    }

    /// What the controller of the same link may begin with if it leaves at this moment and comes back; `None`: nothing.
    fn known_path(&self, _now: Instant) -> Option<KnownPath> {
        None
    }

    /// The link is a new one, and one of its name had this when it left.
    fn on_known_path(&mut self, _known: KnownPath) {}

    /// Nothing was sent for long: gives back memory that only matters while something is.
    fn release_memory(&mut self) {}

    /// A person said what the link carries, at IP level; `None`: nobody knows.
    fn on_rate_told(&mut self, _rate: Option<Bitrate>) {}

    /// What is lost here is sent again over the tunnel's links: the senders of its packets do not hear of it, and do not slow
    /// down.
    fn on_repaired(&mut self) {}

    /// A datagram in the window was sent; `in_flight` counts it.
    fn on_sent(&mut self, _now: Instant, _number: u64, _in_flight: u32) {}

    /// A report confirmed datagrams.
    fn on_ack(&mut self, _now: Instant, _sample: &AckSample) {}

    /// A report proved datagrams lost.
    fn on_loss(&mut self, _now: Instant, _sample: &LossSample) {}

    /// A report confirmed so many datagrams that had been proven lost: they were only late.
    fn on_late(&mut self, _now: Instant, _datagrams: u32) {}

    /// A report counted new congestion marks.
    fn on_ecn(&mut self, _now: Instant, _sample: &LossSample) {}

    /// The retransmission timeout passed with nothing confirmed; all in flight counts as lost.
    fn on_timeout(&mut self, _now: Instant, _sample: &LossSample) {}

    /// Nothing was in flight or sent for `idle`, which is longer than `rto`, and now something will
    /// be: what the window was worth is old news.
    fn on_idle(&mut self, _now: Instant, _idle: Duration, _rto: Duration) {}

    /// The link answers again after an outage; nothing is in flight.
    fn on_return(&mut self, _now: Instant) {}
}

/// One of the controllers, without a heap allocation or a virtual call for each report.
#[derive(Clone, Debug)]
pub enum AnyController {
    /// RFC 4341.
    Ccid2(Ccid2),
    /// A constant window.
    Fixed(Fixed),
    /// A model of the path.
    Model(Box<Model>),
}

impl AnyController {
    /// A controller of this kind that knows nothing of a path on which `first` is the first number: what
    /// becomes of lower ones says nothing of it.
    #[must_use]
    pub fn new(kind: ControllerKind, first: u64) -> Self {
        match kind {
            ControllerKind::Ccid2 => Self::Ccid2(Ccid2::from_number(first)),
            ControllerKind::Model => Self::Model(Box::new(Model::from_number(first))),
            ControllerKind::Fixed(window) => Self::Fixed(Fixed::new(window)),
        }
    }
}

/// Hands a call to whichever controller it is.
macro_rules! dispatch {
    ($self:ident, $method:ident($($argument:expr),*)) => {
        match $self {
            Self::Ccid2(controller) => controller.$method($($argument),*),
            Self::Fixed(controller) => controller.$method($($argument),*),
            Self::Model(controller) => controller.$method($($argument),*),
        }
    };
}

impl Controller for AnyController {
    fn window(&self) -> u32 {
        dispatch!(self, window())
    }

    fn pacing_rate(&self) -> Option<Bitrate> {
        dispatch!(self, pacing_rate())
    }

    fn slow_start_threshold(&self) -> Option<u32> {
        dispatch!(self, slow_start_threshold())
    }

    fn is_opening(&self) -> bool {
        dispatch!(self, is_opening())
    }

    fn path_model(&self) -> Option<PathModel> {
        dispatch!(self, path_model())
    }

    fn delay_noise(&self) -> Option<Duration> {
        dispatch!(self, delay_noise())
    }

    fn believed_rate(&self) -> Option<Bitrate> {
        dispatch!(self, believed_rate())
    }

    fn known_path(&self, now: Instant) -> Option<KnownPath> {
        dispatch!(self, known_path(now))
    }

    fn on_known_path(&mut self, known: KnownPath) {
        dispatch!(self, on_known_path(known));
    }

    fn release_memory(&mut self) {
        dispatch!(self, release_memory());
    }

    fn on_repaired(&mut self) {
        dispatch!(self, on_repaired());
    }

    fn on_rate_told(&mut self, rate: Option<Bitrate>) {
        dispatch!(self, on_rate_told(rate));
    }

    fn on_sent(&mut self, now: Instant, number: u64, in_flight: u32) {
        dispatch!(self, on_sent(now, number, in_flight));
    }

    fn on_ack(&mut self, now: Instant, sample: &AckSample) {
        dispatch!(self, on_ack(now, sample));
    }

    fn on_loss(&mut self, now: Instant, sample: &LossSample) {
        dispatch!(self, on_loss(now, sample));
    }

    fn on_late(&mut self, now: Instant, datagrams: u32) {
        dispatch!(self, on_late(now, datagrams));
    }

    fn on_ecn(&mut self, now: Instant, sample: &LossSample) {
        dispatch!(self, on_ecn(now, sample));
    }

    fn on_timeout(&mut self, now: Instant, sample: &LossSample) {
        dispatch!(self, on_timeout(now, sample));
    }

    fn on_idle(&mut self, now: Instant, idle: Duration, rto: Duration) {
        dispatch!(self, on_idle(now, idle, rto));
    }

    fn on_return(&mut self, now: Instant) {
        dispatch!(self, on_return(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fixed_window_never_moves() {
        let mut controller = AnyController::new(ControllerKind::Fixed(7), 0);
        let loss = LossSample { datagrams: 5, largest: 9, next: 12, prior_in_flight: 7 };
        controller.on_loss(Instant::ZERO, &loss);
        controller.on_ecn(Instant::ZERO, &loss);
        controller.on_timeout(Instant::ZERO, &loss);
        assert_eq!((controller.window(), controller.slow_start_threshold()), (7, None));
        assert_eq!((controller.pacing_rate(), controller.path_model()), (None, None));
    }

    #[test]
    fn a_link_of_known_rate_is_paced_and_has_no_window() {
        let mut controller = AnyController::new(ControllerKind::Fixed(7), 0);
        let rate = Some(Bitrate::from_mbps(5));
        controller.on_rate_told(rate);
        assert_eq!((controller.window(), controller.pacing_rate()), (MAX_WINDOW, rate));
        controller.on_rate_told(None);
        assert_eq!((controller.window(), controller.pacing_rate()), (7, None));
    }
}
