//! Congestion control of one link, behind one small trait.
//!
//! A controller sees acknowledgements, losses, marks and round-trip samples of one link and answers
//! with a window in datagrams. It owns no timer and retransmits nothing. Every event but
//! [`window`](Controller::window) does nothing by default, so that the simplest controller is a
//! number.

use crate::time::{Duration, Instant};
use crate::units::Bitrate;

/// What a report newly confirmed.
#[derive(Clone, Copy, Debug)]
pub struct AckSample {
    /// Datagrams in the window newly confirmed by this report.
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
}

/// What a report showed to be lost, or a mark that stands for a loss.
#[derive(Clone, Copy, Debug)]
pub struct LossSample {
    /// Datagrams newly declared lost (or marked).
    pub datagrams: u32,
    /// Highest local number among them.
    pub largest: u64,
    /// The next local number to be sent: everything below it was sent before the reaction.
    pub next: u64,
    /// Datagrams in flight before they were declared lost.
    pub prior_in_flight: u32,
}

/// The congestion window of one link.
pub trait Controller {
    /// Datagrams that may be in flight.
    fn window(&self) -> u32;

    /// How fast datagrams may leave; `None`: as fast as the window allows.
    fn pacing_rate(&self) -> Option<Bitrate> {
        None
    }

    /// A datagram in the window was sent; `in_flight` counts it.
    fn on_sent(&mut self, _now: Instant, _number: u64, _in_flight: u32) {}

    /// A report confirmed datagrams.
    fn on_ack(&mut self, _now: Instant, _sample: &AckSample) {}

    /// A report proved datagrams lost.
    fn on_loss(&mut self, _now: Instant, _sample: &LossSample) {}

    /// A report counted new congestion marks.
    fn on_ecn(&mut self, _now: Instant, _sample: &LossSample) {}

    /// The retransmission timeout passed with nothing confirmed; all in flight counts as lost.
    fn on_timeout(&mut self, _now: Instant, _sample: &LossSample) {}
}
