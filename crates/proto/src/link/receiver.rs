//! The receiving side of one link: what arrived, and when the peer is told.
//!
//! A report is due
//!
//! 1. at once (at the end of the batch) when a datagram shows a new gap, fills one, or carries a congestion
//!    mark; on a link known to reorder, gaps are ordinary and wait for the other rules;
//! 2. when enough full datagrams arrived: the *ratio*, RFC 4341's Ack Ratio. It is a quarter of what came
//!    within 25 ms, but at least 2, and at most 11,000 bytes: a report alone takes about 90 bytes with IP and
//!    UDP, so that at high rates it costs 0.8 %. Small datagrams count by their number instead, from 8 to 32, and
//!    small packets that share one as if each had one: the peer's window, which counts them so, opens as soon;
//! 3. else 25 ms after the first datagram that was not reported, or a quarter of that while the ratio is
//!    above 2. When this fires before the ratio was reached, the peer's window is smaller than the ratio
//!    (RFC 4341 §6.1.2 limits the ratio to half the window): the ratio falls to what came, and rises by one
//!    in every 25 ms;
//!
//! and in no case more than once in a batch. Only datagrams that *elicit* a report count: a datagram that
//! carries nothing but a report does not, or two ends would talk about reports for ever. So in a flow of one
//! direction the receiver's reports are never confirmed, until one of them asks to be
//! ([`wants_elicit`](LinkReceiver::wants_elicit)).

use super::received::{Placement, Received, Report};
use super::reordering::{Reordering, Tolerance};
use super::rtt::MAX_REPORT_DELAY;
use ropewalk_settings::ControllerKind;

use crate::time::{Duration, Instant};
use crate::units::LinkId;
use crate::wire::frame::bitmap_len;

/// Bytes that count as one full datagram: a little less than the 1,200 of the narrowest path in use
/// (`link::mtu`), so that two nearly full ones are two on any. Smaller ones count by their share of it.
const FULL_SIZE: u64 = 1100;

/// RFC 4341's Ack Ratio at low rates.
const MIN_RATIO: u32 = 2;

/// The largest number of full datagrams on which one report is made (rule 2): the fewest with which a
/// report of 90 bytes stays below 1 %, and one to spare for its ranges.
const MAX_FULL: u64 = 10;

/// The smallest and largest number of small datagrams on which one report is made. Eight datagrams of 100
/// bytes cost as much as one report; less would be most of the traffic. Thirty-two is half a batch.
const SMALL: (u32, u32) = (8, 32);

/// Reports in a period of [`MAX_REPORT_DELAY`] that rule 2 aims at: the peer's window opens in four steps
/// and not in one burst.
const REPORTS_PER_PERIOD: u32 = 4;

/// Unconfirmed ranges from which a report asks to be confirmed within a round trip: half of what a report
/// holds.
const MANY_RANGES: usize = 16;

/// Bytes that arrive for each byte of a bitmap before the next report: with them a bitmap costs 1.25 % at most.
const BYTES_PER_BITMAP_BYTE: u64 = 80;

/// How often a report asks to be confirmed at the least, while there is something to confirm: as often as a
/// link that receives has to send anyway (PROTOCOL §7.1).
const ELICIT_INTERVAL: Duration = Duration::from_millis(500);

/// An authentic datagram that arrived for the first time.
#[derive(Clone, Copy, Debug)]
pub struct NumberedDatagram {
    /// Its local number.
    pub number: u64,
    /// Bytes of outer UDP payload.
    pub size: u32,
    /// What in it is to be reported: its packets, or something else that counts as one. Nothing: it carries only a report.
    pub eliciting: u32,
    /// Whether it was marked on this link: outer ECN is CE, and it was not sent so.
    pub ce: bool,
}

/// Names a report that was sent, to confirm it by ([`LinkReceiver::on_report_confirmed`]). The low bits of a
/// counter; fits in the tag of the datagram that carries the report, on whatever link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReportToken(pub u32);

/// Totals of the receiving side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReceiverStats {
    /// Datagrams that arrived.
    pub datagrams: u64,
    /// Their bytes (outer UDP payload).
    pub bytes: u64,
    /// Of these with a congestion mark.
    pub ce: u64,
    /// Of these overtaken by others.
    pub late: u64,
    /// Numbers seen twice (the replay window keeps them away; a few may pass a key change).
    pub duplicates: u64,
    /// Reports sent.
    pub reports: u64,
    /// Ranges forgotten before the peer confirmed them.
    pub forgotten_ranges: u64,
    /// One above the largest number that arrived: so many datagrams were sent by then.
    pub next: u64,
}

/// Notes what arrives on one link and says when to report it.
#[derive(Clone, Debug)]
pub struct LinkReceiver {
    link: LinkId,
    received: Received,
    reordering: Reordering,
    pending: Pending,
    pace: Pace,
    /// When a report last asked to be confirmed, or was.
    last_elicit: Instant,
    stats: ReceiverStats,
}

/// Eliciting datagrams that no report has told of.
#[derive(Clone, Copy, Debug, Default)]
struct Pending {
    /// When the first of them arrived.
    since: Option<Instant>,
    datagrams: u32,
    bytes: u64,
    /// Something happened that the peer should know at once.
    urgent: bool,
    /// The batch ended with enough of them; when it did.
    due: Option<Instant>,
}

impl LinkReceiver {
    /// A link on which nothing has arrived; its first datagram has the number `first`.
    #[must_use]
    pub fn new(link: LinkId, first: u64) -> Self {
        Self {
            link,
            received: Received::new(first),
            reordering: Reordering::default(),
            pending: Pending::default(),
            pace: Pace::default(),
            last_elicit: Instant::ZERO,
            stats: ReceiverStats::default(),
        }
    }

    /// The same for a link whose controller is of this kind.
    #[must_use]
    pub fn with_controller(mut self, kind: ControllerKind) -> Self {
        self.follow_controller(kind);
        self
    }

    /// The controller of the link is of this kind from now on.
    pub fn follow_controller(&mut self, kind: ControllerKind) {
        if kind == ControllerKind::Model {
            self.received.forgive();
        }
    }

    /// An authentic datagram arrived. Call [`end_of_batch`](Self::end_of_batch) after the last one of those
    /// that were received together.
    pub fn on_datagram(&mut self, now: Instant, arrival: NumberedDatagram) -> Placement {
        let placement = self.received.insert(now, arrival.number);
        self.stats.datagrams += 1;
        self.stats.bytes += u64::from(arrival.size);
        self.stats.ce += u64::from(arrival.ce);
        // Where gaps are ordinary, none is told of at once.
        let news = match placement {
            Placement::Next => false,
            Placement::Ahead => !self.reorders(now),
            Placement::Late { distance, lateness } => {
                let news = !self.reorders(now);
                self.stats.late += 1;
                self.reordering.on_late(now, distance, lateness);
                news
            }
            Placement::Forgotten => {
                self.stats.late += 1;
                false
            }
            Placement::Duplicate => {
                self.stats.duplicates += 1;
                false
            }
        };
        if arrival.eliciting > 0 {
            self.pace.on_datagram(now, arrival.eliciting);
            self.pending.since.get_or_insert(now);
            self.pending.datagrams += arrival.eliciting;
            self.pending.bytes += u64::from(arrival.size);
            self.pending.urgent |= arrival.ce || news;
        }
        placement
    }

    /// The peer asks for a report at once.
    pub fn demand(&mut self, now: Instant) {
        self.pending.since.get_or_insert(now);
        self.pending.urgent = true;
    }

    /// All datagrams that were received together are in: decides once for all of them.
    pub fn end_of_batch(&mut self, now: Instant) {
        if self.pending.urgent || self.pace.suffices(&self.pending) {
            self.pending.due.get_or_insert(now);
        }
    }

    /// The report that is due, if one is. It stays due until [`report_sent`](Self::report_sent).
    #[must_use]
    pub fn poll_report(&self, now: Instant) -> Option<Report> {
        let due = self.poll_timeout().is_some_and(|deadline| deadline <= now);
        due.then(|| self.report(now)).flatten()
    }

    /// A report for a datagram that leaves anyway and has room for it, if there is something new to tell.
    #[must_use]
    pub fn poll_ride(&self, now: Instant) -> Option<Report> {
        self.pending.since.and_then(|_| self.report(now))
    }

    /// When [`poll_report`](Self::poll_report) should be asked next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.pending.due.or_else(|| self.pending.since.map(|since| since + self.pace.patience()))
    }

    /// `report` was sealed and leaves. Its lowest ranges may have been cut off for lack of room, but not all.
    /// Remember the token with the datagram that carries it.
    pub fn report_sent(&mut self, now: Instant, report: &Report) -> ReportToken {
        if self.pending.due.is_none() && self.poll_timeout().is_some_and(|deadline| deadline <= now)
        {
            self.pace.on_short(self.pending.datagrams);
        }
        self.pending = Pending::default();
        self.pace.bitmap = bitmap_len(&report.ranges) as u64;
        self.stats.reports += 1;
        // The low bits are enough: see `on_report_confirmed`.
        #[expect(clippy::cast_possible_truncation, reason = "the token is the low half")]
        let low = self.received.on_reported(&report.ranges) as u32;
        ReportToken(low)
    }

    /// The peer confirmed the datagram that carried this report (`report_sent` on this receiver gave the
    /// token). An unknown token confirms at most what was really sent.
    pub fn on_report_confirmed(&mut self, now: Instant, token: ReportToken) {
        let epoch = self.received.epoch();
        #[expect(clippy::cast_possible_truncation, reason = "compared with the low half")]
        let age = (epoch as u32).wrapping_sub(token.0);
        if let Some(confirmed) = epoch.checked_sub(u64::from(age)) {
            self.received.on_confirmed(confirmed);
            self.last_elicit = now;
        }
    }

    /// Whether the report that leaves now should elicit a report itself (carry a ping), so that it is
    /// confirmed: every 500 ms while there is something unconfirmed, and every round trip while that is
    /// much.
    #[must_use]
    pub fn wants_elicit(&self, now: Instant, srtt: Duration) -> bool {
        let interval = match self.received.unconfirmed() {
            0 => return false,
            1..MANY_RANGES => ELICIT_INTERVAL,
            _ => srtt.clamp(MAX_REPORT_DELAY, ELICIT_INTERVAL),
        };
        now.since(self.last_elicit) >= interval
    }

    /// Whether the peer may not know yet of numbers beneath a gap. Of those above the highest gap every report tells.
    #[must_use]
    pub fn has_unconfirmed_gaps(&self) -> bool {
        self.received.has_unconfirmed_gaps()
    }

    /// The report that leaves now does elicit a report.
    pub fn on_elicit(&mut self, now: Instant) {
        self.last_elicit = now;
    }

    /// By how much datagrams overtake each other on this link.
    #[must_use]
    pub fn reordering(&self, now: Instant) -> Tolerance {
        self.reordering.tolerance(now)
    }

    /// Whether they do.
    fn reorders(&self, now: Instant) -> bool {
        self.reordering(now) != Tolerance::default()
    }

    /// The largest number that arrived.
    #[must_use]
    pub fn largest(&self) -> Option<u64> {
        self.received.largest()
    }

    /// Totals.
    #[must_use]
    pub fn stats(&self) -> ReceiverStats {
        ReceiverStats {
            forgotten_ranges: self.received.forgotten(),
            next: self.largest().map_or(0, |largest| largest.saturating_add(1)),
            ..self.stats
        }
    }

    fn report(&self, now: Instant) -> Option<Report> {
        let ranges = self.received.ranges();
        if ranges.is_empty() {
            return None;
        }
        let delay = now.since(self.received.largest_at());
        #[expect(clippy::cast_possible_truncation, reason = "the count is told modulo 2^32")]
        let ce_count = self.stats.ce as u32;
        let delay_us = u32::try_from(delay.as_micros()).unwrap_or(u32::MAX);
        Some(Report { link: self.link, delay_us, ce_count, ranges })
    }
}

/// How many datagrams one report is made on: rule 2 and 3 of the module.
#[derive(Clone, Debug)]
struct Pace {
    ratio: u32,
    /// The present period of [`MAX_REPORT_DELAY`] and the datagrams in it.
    period: Instant,
    count: u32,
    /// Bytes of the last report's bitmap.
    bitmap: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { ratio: MIN_RATIO, period: Instant::ZERO, count: 0, bitmap: 0 }
    }
}

impl Pace {
    fn on_datagram(&mut self, now: Instant, eliciting: u32) {
        if now >= self.period + MAX_REPORT_DELAY {
            let wanted = (self.count / REPORTS_PER_PERIOD).clamp(MIN_RATIO, SMALL.1);
            // Falls at once, rises slowly; after a pause it starts again.
            let paused = now >= self.period + MAX_REPORT_DELAY * 2;
            self.ratio = if paused { MIN_RATIO } else { wanted.min(self.ratio + 1) };
            (self.period, self.count) = (now, 0);
        }
        self.count = self.count.saturating_add(eliciting);
    }

    /// Whether so much is pending that a report is due.
    fn suffices(&self, pending: &Pending) -> bool {
        let full = u64::from(self.ratio).min(MAX_FULL) * FULL_SIZE;
        let enough = pending.bytes >= full || pending.datagrams >= self.ratio.max(SMALL.0);
        enough && pending.bytes >= self.bitmap * BYTES_PER_BITMAP_BYTE
    }

    /// How long the first pending datagram waits for others.
    fn patience(&self) -> Duration {
        if self.ratio > MIN_RATIO {
            MAX_REPORT_DELAY / REPORTS_PER_PERIOD
        } else {
            MAX_REPORT_DELAY
        }
    }

    /// Patience ended with fewer datagrams than the ratio.
    fn on_short(&mut self, datagrams: u32) {
        self.ratio = self.ratio.min(datagrams.max(MIN_RATIO));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::wire::cursor::Writer;
    use crate::wire::frame::emit_report;

    const FULL: u32 = 1450;
    const MS: Duration = Duration::from_millis(1);

    fn at(micros: u64) -> Instant {
        Instant::from_micros(1_000_000 + micros)
    }

    fn receiver() -> LinkReceiver {
        LinkReceiver::new(LinkId(3), 0)
    }

    fn full(number: u64) -> NumberedDatagram {
        NumberedDatagram { number, size: FULL, eliciting: 1, ce: false }
    }

    fn arrive(receiver: &mut LinkReceiver, now: Instant, arrival: NumberedDatagram) -> bool {
        receiver.on_datagram(now, arrival);
        receiver.end_of_batch(now);
        receiver.poll_report(now).is_some()
    }

    fn report(receiver: &mut LinkReceiver, now: Instant) -> ReportToken {
        let report = receiver.poll_report(now).expect("a report is due");
        receiver.report_sent(now, &report)
    }

    #[test]
    fn a_lone_datagram_is_reported_after_25_ms_with_its_delay() {
        let mut receiver = receiver();
        assert!(!arrive(&mut receiver, at(0), full(0)));
        assert_eq!(receiver.poll_timeout(), Some(at(25_000)));
        assert_eq!(receiver.poll_report(at(24_999)), None);
        let report = receiver.poll_report(at(25_100)).unwrap();
        assert_eq!((report.link, report.delay_us), (LinkId(3), 25_100));
        receiver.report_sent(at(25_100), &report);
        assert_eq!(receiver.poll_timeout(), None);
    }

    #[test]
    fn at_low_rates_every_second_full_datagram_is_reported() {
        let mut receiver = receiver();
        for pair in 0..50 {
            assert!(!arrive(&mut receiver, at(pair * 20_000), full(pair * 2)));
            let now = at(pair * 20_000 + 10_000);
            assert!(arrive(&mut receiver, now, full(pair * 2 + 1)));
            report(&mut receiver, now);
        }
    }

    #[test]
    fn at_high_rates_reports_cost_less_than_one_percent() {
        // 100 Mbit/s, batches of 1 to 8 datagrams, for a second.
        let mut receiver = receiver();
        let (mut number, mut reports, mut longest) = (0, 0u64, 0);
        let mut unreported = 0;
        while number < 8_300 {
            let batch = 1 + number % 8;
            let now = at(number * 120);
            for _ in 0..batch {
                receiver.on_datagram(now, full(number));
                number += 1;
            }
            unreported += batch;
            receiver.end_of_batch(now);
            if receiver.poll_report(now).is_some() {
                report(&mut receiver, now);
                longest = longest.max(unreported);
                (reports, unreported) = (reports + 1, 0);
            }
        }
        // A report with one range is 90 bytes with IP and UDP. The first periods are the slow ones.
        let (cost, data) = (reports * 90, number * u64::from(FULL + 28));
        assert!(cost * 100 < data, "{cost} of {data} bytes");
        assert!(longest <= 16, "{longest} datagrams in one report");
    }

    #[test]
    fn on_a_link_that_reorders_far_a_number_costs_a_bit() {
        // 100 Mbit/s of which every datagram is overtaken by up to 400 others, for half a second.
        let mut receiver = receiver().with_controller(ControllerKind::Model);
        let (mut cost, mut data, mut longest) = (0, 0u64, 0);
        let mut told = VecDeque::new();
        for step in 0..4_000 {
            let now = at(step * 120);
            let number = if step % 2 == 0 { step + 400 } else { step };
            receiver.on_datagram(now, full(number));
            receiver.end_of_batch(now);
            data += u64::from(FULL + 28);
            if let Some(due) = receiver.poll_report(now) {
                longest = longest.max(due.ranges.len());
                let mut bytes = [0; 1024];
                let mut writer = Writer::new(&mut bytes);
                emit_report(&mut writer, &due).unwrap();
                cost += 60 + writer.len() as u64;
                told.push_back((now + 50 * MS, receiver.report_sent(now, &due)));
            }
            while let Some((_, token)) = told.pop_front_if(|(known_at, _)| *known_at <= now) {
                receiver.on_report_confirmed(now, token);
            }
        }
        assert!(longest > 100, "{longest} ranges");
        assert_eq!(receiver.stats().forgotten_ranges, 0);
        // Half of these reports name ranges, which is the dearer half.
        assert!(cost * 1000 < data * 18, "{cost} of {data} bytes");
    }

    #[test]
    fn one_batch_is_one_report() {
        let mut receiver = receiver();
        for number in 0..64 {
            receiver.on_datagram(at(0), full(number * 2));
            assert_eq!(receiver.poll_report(at(0)), None, "the batch is not over");
        }
        receiver.end_of_batch(at(0));
        report(&mut receiver, at(0));
        assert_eq!(receiver.poll_report(at(1_000_000)), None);
    }

    #[test]
    fn small_datagrams_are_reported_by_their_number() {
        let mut receiver = receiver();
        let small = |number| NumberedDatagram { size: 100, ..full(number) };
        for number in 0..7 {
            assert!(!arrive(&mut receiver, at(number), small(number)));
        }
        assert!(arrive(&mut receiver, at(7), small(7)));
    }

    #[test]
    fn a_gap_its_filling_and_a_mark_are_reported_at_once() {
        let mut receiver = receiver();
        assert!(!arrive(&mut receiver, at(0), full(0)));
        assert!(arrive(&mut receiver, at(1), full(2)), "a gap");
        report(&mut receiver, at(1));
        assert!(!arrive(&mut receiver, at(2), full(3)), "no new gap");
        assert!(arrive(&mut receiver, at(3), NumberedDatagram { ce: true, ..full(4) }), "a mark");
        assert_eq!(receiver.poll_report(at(3)).unwrap().ce_count, 1);
        report(&mut receiver, at(3));
        assert!(arrive(&mut receiver, at(4), full(1)), "the gap filled");
    }

    #[test]
    fn on_a_link_known_to_reorder_a_gap_waits() {
        let mut receiver = receiver();
        for number in [0, 2, 1] {
            arrive(&mut receiver, at(number), full(number));
        }
        report(&mut receiver, at(3));
        assert_eq!(receiver.reordering(at(3)).distance, 1);
        assert!(!arrive(&mut receiver, at(4), full(4)));
        assert!(arrive(&mut receiver, at(5), full(5)), "two full ones are due all the same");
    }

    #[test]
    fn a_report_elicits_no_report() {
        let mut receiver = receiver();
        for number in 0..100 {
            let only_report = NumberedDatagram { eliciting: 0, size: 60, ..full(number * 2) };
            assert!(!arrive(&mut receiver, at(number), only_report));
        }
        assert_eq!(receiver.poll_timeout(), None);
        assert_eq!(receiver.poll_ride(at(100)), None);
        assert!(!arrive(&mut receiver, at(200), full(199)));
        assert_eq!(receiver.poll_ride(at(200)).unwrap().ranges.len(), 32);
    }

    #[test]
    fn a_lost_report_is_repeated_until_confirmed() {
        let mut receiver = receiver();
        for number in [0, 2, 4] {
            arrive(&mut receiver, at(number), full(number));
        }
        report(&mut receiver, at(10));
        arrive(&mut receiver, at(11), full(6));
        assert_eq!(receiver.poll_report(at(11)).unwrap().ranges.len(), 4);
        let token = report(&mut receiver, at(12));
        receiver.on_report_confirmed(at(13), token);
        arrive(&mut receiver, at(14), full(8));
        assert_eq!(receiver.poll_report(at(14)).unwrap().ranges.len(), 1);
    }

    #[test]
    fn a_token_never_given_confirms_nothing() {
        let mut receiver = receiver();
        arrive(&mut receiver, at(0), full(0));
        arrive(&mut receiver, at(0), full(2));
        report(&mut receiver, at(0));
        for token in [2, 100, u32::MAX] {
            receiver.on_report_confirmed(at(1), ReportToken(token));
            arrive(&mut receiver, at(1), full(4));
            assert_eq!(receiver.poll_ride(at(1)).unwrap().ranges.len(), 3);
        }
    }

    #[test]
    fn in_a_flow_of_one_direction_reports_ask_to_be_confirmed() {
        let mut receiver = receiver();
        let srtt = MS * 40;
        assert!(!receiver.wants_elicit(at(0), srtt), "there is nothing to confirm");
        arrive(&mut receiver, at(0), full(0));
        receiver.on_elicit(at(0));
        assert!(!receiver.wants_elicit(at(499_999), srtt));
        assert!(receiver.wants_elicit(at(500_000), srtt));
        for number in 1..16 {
            arrive(&mut receiver, at(number), full(number * 2));
        }
        assert!(!receiver.wants_elicit(at(39_000), srtt));
        assert!(receiver.wants_elicit(at(40_000), srtt), "sixteen ranges: every round trip");
    }

    #[test]
    fn a_window_smaller_than_the_ratio_does_not_stall_for_long() {
        // A peer with a window of 4 and a round trip of 1 ms: it sends 4 and waits for the report.
        let mut receiver = receiver();
        let (mut now, mut number) = (at(0), 0);
        for _ in 0..2_000 {
            let mut acknowledged = false;
            for _ in 0..4 {
                if arrive(&mut receiver, now, full(number)) {
                    report(&mut receiver, now);
                    acknowledged = true;
                }
                number += 1;
            }
            if !acknowledged {
                now = receiver.poll_timeout().unwrap();
                report(&mut receiver, now);
            }
            now += MS;
        }
        let per_round = now.since(at(0)) / 2_000;
        assert!(per_round < MS * 5 / 4, "a round of 1 ms takes {per_round:?}");
    }

    #[test]
    fn totals_are_kept() {
        let mut receiver = receiver();
        for (number, ce) in [(0, false), (2, true), (1, false), (1, false)] {
            arrive(&mut receiver, at(0), NumberedDatagram { ce, ..full(number) });
        }
        report(&mut receiver, at(0));
        let stats = ReceiverStats {
            datagrams: 4,
            bytes: 4 * u64::from(FULL),
            ce: 1,
            late: 1,
            duplicates: 1,
            reports: 1,
            forgotten_ranges: 0,
            next: 3,
        };
        assert_eq!(receiver.stats(), stats);
        assert_eq!(receiver.largest(), Some(2));
    }
}
