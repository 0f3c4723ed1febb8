//! The sending half of a connection: what is sent when, and again.
//!
//! An acknowledgement passes, in this order: what it says of each segment ([`mod@ack`]); what follows from it
//! for losses and the window ([`recovery`], [`undo`]); what may be sent now ([`transmit`]). Three
//! timers ([`timers`]) act when no acknowledgement comes. Segments are counted, as in Linux: the window is a
//! number of them.

mod ack;
mod recovery;
mod timers;
mod transmit;
mod undo;

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use arrayvec::ArrayVec;
use ropewalk_proto::time::Instant;

use super::cubic::Cubic;
use super::rack::Rack;
use super::rtt::RttEstimator;
use super::scoreboard::Scoreboard;
use super::segment::SACK_RANGES;
use timers::Timer;

/// The first window, in segments (RFC 6928).
const INITIAL_WINDOW: u32 = 10;
/// Before the first loss slow start has no end.
const NO_THRESHOLD: u32 = u32::MAX;
/// How far out of order, in segments, something may come before anything was seen.
const REORDERING: u32 = 3;

/// What the peer said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ack {
    /// The next byte it expects.
    pub(crate) number: u64,
    /// How many bytes from there on it takes.
    pub(crate) window: u64,
    /// Our clock as it saw it last, in milliseconds.
    pub(crate) echo: u32,
    /// Ranges that came out of order, or twice.
    pub(crate) sacks: ArrayVec<Range<u64>, SACK_RANGES>,
    /// Whether it came with data.
    pub(crate) with_data: bool,
}

/// How the sender stands to losses; each is worse than the one before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum State {
    /// Nothing is missing.
    Open,
    /// Something came out of order.
    Disorder,
    /// The window is being reduced without a repair.
    Reducing,
    /// Losses are being repaired.
    Recovery,
    /// A timeout told of the losses.
    Loss,
}

/// What the sender did so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SenderStats {
    /// Segments sent, repetitions included.
    pub segments: u64,
    /// Segments sent again.
    pub retransmissions: u64,
    /// Repetitions that the receiver told to have been needless.
    pub needless: u64,
    /// Times that losses were found without a timeout.
    pub recoveries: u64,
    /// Reductions of the window that turned out to be needless and were taken back.
    pub undone: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Tail loss probes.
    pub probes: u64,
}

/// The sending half of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    /// Payload of a full segment, in bytes.
    mss: u64,
    /// The first byte not acknowledged, the next one to send, and the end of what there is.
    una: u64,
    nxt: u64,
    end: u64,
    /// The peer's window, now and at most.
    window: u64,
    max_window: u64,
    board: Scoreboard,
    rtt: RttEstimator,
    rack: Rack,
    cubic: Cubic,
    state: State,
    /// The state ends when this byte is acknowledged.
    high: u64,
    cwnd: u32,
    ssthresh: u32,
    /// What they were before a reduction that may turn out to be needless.
    prior_cwnd: u32,
    prior_ssthresh: Option<u32>,
    /// Since the reduction began.
    prr_delivered: u32,
    prr_out: u32,
    /// Where a reduction began that may be undone, and how many repetitions of it were not proven needless;
    /// `None` before the first one.
    undo_from: Option<u64>,
    undo_left: Option<u32>,
    /// The clock at the first repetition.
    repair_began: Option<u32>,
    /// Segments known to have come, and thought lost, in all.
    delivered: u64,
    lost: u64,
    reordering: u32,
    reordering_seen: bool,
    duplicates: u64,
    /// The end of a tail loss probe's flight, and whether it repeated something.
    probe_end: Option<u64>,
    probe_again: bool,
    /// A timeout may be proven needless (RFC 5682).
    frto: bool,
    timeouts_in_a_row: u32,
    /// Whether the window was full in the last flight, that flight's size and its end.
    window_limits: bool,
    flight: u32,
    flight_end: u64,
    timer: Option<(Timer, Instant)>,
    timeout: Duration,
    echo: u32,
    out: VecDeque<Range<u64>>,
    stats: SenderStats,
}

impl Sender {
    /// Sends segments of up to `mss` bytes to a peer that takes `window` bytes.
    pub(crate) fn new(mss: u64, window: u64) -> Self {
        let rtt = RttEstimator::new();
        Self {
            mss,
            una: 0,
            nxt: 0,
            end: 0,
            window,
            max_window: window,
            board: Scoreboard::default(),
            timeout: rtt.timeout(),
            rtt,
            rack: Rack::new(),
            cubic: Cubic::new(),
            state: State::Open,
            high: 0,
            cwnd: INITIAL_WINDOW,
            ssthresh: NO_THRESHOLD,
            prior_cwnd: 0,
            prior_ssthresh: None,
            prr_delivered: 0,
            prr_out: 0,
            undo_from: None,
            undo_left: None,
            repair_began: None,
            delivered: 1,
            lost: 0,
            reordering: REORDERING,
            reordering_seen: false,
            duplicates: 0,
            probe_end: None,
            probe_again: false,
            frto: false,
            timeouts_in_a_row: 0,
            window_limits: false,
            flight: 0,
            flight_end: 0,
            timer: None,
            echo: 0,
            out: VecDeque::new(),
            stats: SenderStats::default(),
        }
    }

    /// The round trip of the handshake.
    pub(crate) fn shook_hands(&mut self, now: Instant, rtt: Duration) {
        self.rtt.at_least(rtt);
        self.rtt.measured(rtt, 0, 0);
        self.timeout = self.rtt.timeout();
        self.cubic.hystart.begin_round(now, 0);
    }

    /// The application has this many more bytes.
    pub(crate) fn write(&mut self, now: Instant, bytes: u64) {
        self.end = self.end.saturating_add(bytes);
        self.send_new(now, false);
    }

    /// What the peer said. What may be sent then is ready for [`Self::poll_transmit`].
    pub(crate) fn handle_ack(&mut self, now: Instant, ack: &Ack) {
        if ack.number <= self.nxt {
            self.echo = ack.echo;
            self.take_ack(now, ack);
            self.send_new(now, false);
        }
    }

    /// Packets are larger than the path takes: full segments have `mss` bytes now.
    pub(crate) fn handle_mss(&mut self, now: Instant, mss: u64) {
        if mss < self.mss {
            self.mss = mss;
            self.lose_too_large(now);
        }
    }

    /// The next timer.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.timer.map(|(_, at)| at)
    }

    /// The first byte not acknowledged.
    pub(crate) const fn acknowledged(&self) -> u64 {
        self.una
    }

    /// The end of what was sent.
    pub(crate) const fn sent(&self) -> u64 {
        self.nxt
    }

    /// The next bytes to send.
    pub(crate) fn poll_transmit(&mut self) -> Option<Range<u64>> {
        self.out.pop_front()
    }

    /// All bytes that there were are acknowledged.
    pub(crate) const fn is_done(&self) -> bool {
        self.una == self.end
    }

    pub(crate) const fn stats(&self) -> SenderStats {
        self.stats
    }

    /// Whether losses are being repaired.
    pub(crate) fn is_repairing(&self) -> bool {
        self.state >= State::Recovery
    }

    /// The congestion window, in segments.
    pub(crate) const fn cwnd(&self) -> u32 {
        self.cwnd
    }

    /// Where slow start ends, in segments; `None` before anything limited it.
    pub(crate) fn ssthresh(&self) -> Option<u32> {
        Some(self.ssthresh).filter(|threshold| *threshold != NO_THRESHOLD)
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.board.in_flight()
    }

    pub(crate) const fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    const fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    const fn is_reducing(&self) -> bool {
        matches!(self.state, State::Reducing | State::Recovery)
    }
}

#[cfg(test)]
mod tests;
