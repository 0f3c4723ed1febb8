//! What the traffic of one link tells of it: capacity, what of it is available, throughput, and what others send.
//!
//! | value | raw | filtered |
//! | --- | --- | --- |
//! | capacity | the newest sample of a sender held back, plus others | the largest of the last 5 to 10 s |
//! | others | as counted on the interface, by the interval | exponential, half a sample |
//! | available | capacity minus others; of a full link what it delivers | the smaller of both, filtered |
//! | throughput | the newest delivery sample | Kalman (`kalman`) |
//!
//! A capacity that was told stands above a measured one. Round-trip time and loss are the sender's ([`SenderStats`]). All
//! rates are at IP level.
//!
//! A link is *full* when its window or its pacing held the sender back, unless the window is opening (slow start: then
//! nobody knows yet what the link carries), or when it loses datagrams behind a queue. What
//! it delivers then is what it has for us, whoever has the rest: another host behind the same bottleneck is on no
//! counter of ours. A sample of a link that is not full says only that the link carries at least so much: it counts where it is above what is
//! known. Else a link that is given little would seem to carry little, and be given less.

use ropewalk_settings::Bitrate;

use super::kalman::Kalman;
use super::loss::{Fates, LastingLoss};
use super::sender::{Outcome, SenderStats};
use crate::congestion::DeliverySample;
use crate::time::{Duration, Instant};

/// Half of the window of the capacity: long enough to bridge a halving of the window and its recovery, short enough
/// to forget a cell left behind.
const HALF_WINDOW: Duration = Duration::from_secs(5);

/// How much a fresh count of what others send weighs: at 4 counts a second a change is followed within one.
const OTHERS_GAIN: f64 = 0.5;

/// How fast what a full link delivers is followed: a change is seen to 95 % after three times that, and the spikes of
/// single samples are not.
const FOLLOW: Duration = Duration::from_millis(250);

/// A round trip longer than the shortest by a quarter and this much waited in a queue: jitter is mostly less.
const QUEUED: Duration = Duration::from_millis(10);

/// How fast what a full link delivered is forgotten once it is not full any more: it is tried for more within a second,
/// and a link that is full now and then swings little.
const FORGET: Duration = Duration::from_secs(1);

/// A told rate divided by this is ours whatever others send: enough to see what the link really delivers.
const LEAST_LEFT: f64 = 20.0;

/// A told rate divided by this is nobody: a kernel counts a little later than we do, and a neighbour's questions are no
/// traffic to yield to.
const LEAST_OTHERS: f64 = 20.0;

/// What of our share goes while a queue stands that we and others have built. In order, packets of all links wait for
/// it; NA7 holds its dips to a second with a quarter, and has two with a half.
const DRAINING: f64 = 0.25;

/// A value as last measured, and filtered; `None`: not measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reading<T> {
    /// The newest measurement.
    pub raw: Option<T>,
    /// What is made of it and those before.
    pub filtered: Option<T>,
}

impl<T> Default for Reading<T> {
    fn default() -> Self {
        Self { raw: None, filtered: None }
    }
}

/// All that is sensed of a link in the direction in which this end sends; the module says how each value is measured and
/// filtered. Rates are bit/s.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Sensed {
    /// What the link carries at most, if a person said so.
    pub told: Option<Bitrate>,
    /// What it carries at most, as measured.
    pub capacity: Reading<Bitrate>,
    /// What of that is there for this tunnel.
    pub available: Reading<Bitrate>,
    /// What others send on its interface.
    pub others: Reading<Bitrate>,
    /// What it delivers for this tunnel.
    pub throughput: Reading<Bitrate>,
    /// Round-trip time without the receiver's report delay.
    pub rtt: Reading<Duration>,
    /// Share of losses among the last 512 to 1,024 datagrams resolved, from 0 to 1.
    pub loss_recent: Option<f64>,
    /// Share of losses among all datagrams resolved, from 0 to 1.
    pub loss_total: Option<f64>,
}

/// What is sensed of a link, in the direction in which this end sends.
#[derive(Clone, Debug, Default)]
pub struct Sensing {
    told: Option<Bitrate>,
    /// The largest rate in the present and the previous half of the window.
    halves: [Option<Bitrate>; 2],
    half_began: Instant,
    /// The newest sample of a sender held back, plus others.
    full: Option<Bitrate>,
    /// The newest sample.
    raw: Option<Bitrate>,
    throughput: Kalman,
    others: Reading<f64>,
    limit: Limit,
    loss: LastingLoss,
    /// Whether something waits for the link, by the newest round-trip time.
    queued: bool,
}

/// What the link delivers while it is full, bit/s.
#[derive(Clone, Copy, Debug, Default)]
struct Limit {
    /// The newest sample, if the link was full.
    raw: Option<f64>,
    filtered: Option<f64>,
    at: Instant,
}

impl Limit {
    /// A sample; `capacity` is where a link that is free is tried again.
    fn on_sample(&mut self, now: Instant, rate: f64, load: Load, capacity: Option<f64>) {
        let elapsed = now.since(self.at).as_secs_f64();
        let least = self.filtered.map_or(rate, |before| before.max(rate));
        let (target, time) = match load {
            Load::Full => (rate, FOLLOW),
            Load::Queued => (least, FORGET),
            Load::Free => (capacity.map_or(least, |capacity| capacity.max(rate)), FORGET),
        };
        let gain = 1.0 - (-elapsed / time.as_secs_f64()).exp();
        self.raw = (load == Load::Full).then_some(rate);
        self.filtered = match self.filtered {
            Some(before) => Some(before + gain * (target - before)),
            None => self.raw,
        };
        self.at = now;
    }
}

/// What a sample says of the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Load {
    /// It delivers what it can.
    Full,
    /// Something waits for it, and nothing is lost.
    Queued,
    /// It may carry more.
    Free,
}

impl Sensing {
    /// A person said what the link carries, or takes it back.
    pub fn on_rate_told(&mut self, rate: Option<Bitrate>) {
        self.told = rate;
    }

    /// A report was applied, after which the datagrams' `fates` are these; `shortest` is the smallest round-trip time so
    /// far.
    pub fn on_report(
        &mut self,
        now: Instant,
        outcome: &Outcome,
        fates: Fates,
        shortest: Option<Duration>,
    ) {
        let trips = outcome.rtt.zip(shortest);
        let queued = trips.is_some_and(|(rtt, shortest)| rtt > shortest * 5 / 4 + QUEUED);
        if trips.is_some() {
            self.queued = queued;
        }
        self.on_fates(now, fates);
        let Some(sample) = outcome.delivery else { return };
        let load = match queued {
            _ if sample.held_back && !outcome.opening => Load::Full,
            true if outcome.lost > 0 => Load::Full,
            true => Load::Queued,
            false => Load::Free,
        };
        self.on_delivery(now, &sample, load);
    }

    /// The fates of datagrams were decided, by a report or a timeout: a window of one or two has no later datagrams by
    /// which a report could prove a loss.
    pub fn on_fates(&mut self, now: Instant, fates: Fates) {
        // What is lost behind a queue is what was too much, and no fault of the link.
        self.loss.on_fates(now, fates, self.queued);
    }

    /// A report gave a sample of the rate of delivery.
    fn on_delivery(&mut self, now: Instant, sample: &DeliverySample, load: Load) {
        let (rate, limited) = (sample.rate(), sample.held_back || load == Load::Full);
        self.raw = Some(rate);
        self.turn(now);
        if limited {
            let whole = bitrate(as_f64(rate) + self.least_others());
            self.full = Some(whole);
            self.halves[0] = self.halves[0].max(self.full);
        } else if self.measured().is_some_and(|known| rate > known) {
            self.halves[0] = self.halves[0].max(Some(rate));
        }
        self.limit.on_sample(now, as_f64(rate), load, self.capacity().map(as_f64));
        let kilobytes = kilobytes(rate);
        if sample.held_back || self.throughput.estimate().is_none_or(|known| kilobytes > known) {
            self.throughput.on_sample(now, kilobytes);
        }
    }

    /// Others were counted to send at this rate.
    pub fn on_others(&mut self, rate: Bitrate) {
        let rate = as_f64(rate);
        let filtered = match self.others.filtered {
            None => rate,
            Some(before) => before + OTHERS_GAIN * (rate - before),
        };
        self.others = Reading { raw: Some(rate), filtered: Some(filtered) };
    }

    /// The path is another: nothing of what was sensed holds.
    pub fn reset(&mut self) {
        *self = Self { told: self.told, ..Self::default() };
    }

    /// What the link carries at most: as told, else as measured.
    #[must_use]
    pub fn capacity(&self) -> Option<Bitrate> {
        self.told.or_else(|| self.measured())
    }

    /// What of the capacity is there for this tunnel, filtered.
    #[must_use]
    pub fn available(&self) -> Option<Bitrate> {
        let left = left(self.capacity(), self.others.filtered);
        smaller(left, self.limit.filtered.map(bitrate))
    }

    /// How fast to send so that others have what they take of the rate that was told: what they leave, and `DRAINING`
    /// of it while something waits for the link. A rise is believed at once. A little is ours in any case, so that the
    /// link stays known. `None` where nothing was told or nobody else was counted: what an unseen host behind the same
    /// bottleneck takes is the window's to find out.
    #[must_use]
    pub fn yielding_rate(&self) -> Option<Bitrate> {
        let told = self.told?;
        let others = self.others.raw.into_iter().chain(self.others.filtered).fold(0.0, f64::max);
        if others < as_f64(told) / LEAST_OTHERS {
            return None;
        }
        let left = (as_f64(told) - others).max(0.0);
        let rate = if self.queued { DRAINING * left } else { left };
        Some(bitrate(rate.max(as_f64(told) / LEAST_LEFT)))
    }

    /// Filtered throughput, kB/s.
    #[must_use]
    pub fn throughput(&self) -> Option<f64> {
        self.throughput.estimate()
    }

    /// The share of losses that is more than a burst of them, from 0 to 1.
    #[must_use]
    pub fn lasting_loss(&self) -> f64 {
        self.loss.ratio()
    }

    /// Everything, with what the sender knows.
    #[must_use]
    pub fn all(&self, sender: &SenderStats) -> Sensed {
        let capacity = Reading { raw: self.full, filtered: self.measured() };
        let resolved = sender.confirmed + sender.lost;
        Sensed {
            told: self.told,
            capacity,
            available: Reading {
                raw: match self.limit.raw {
                    Some(delivered) => Some(bitrate(delivered)),
                    None => left(self.told.or(capacity.raw), self.others.raw),
                },
                filtered: self.available(),
            },
            others: Reading {
                raw: self.others.raw.map(bitrate),
                filtered: self.others.filtered.map(bitrate),
            },
            throughput: Reading {
                raw: self.raw,
                filtered: self.throughput().map(|kilobytes| bitrate(kilobytes * 8e3)),
            },
            rtt: Reading { raw: sender.newest_rtt, filtered: sender.srtt },
            loss_recent: (resolved > 0).then_some(sender.loss_ratio),
            loss_total: (resolved > 0).then(|| share(sender.lost, resolved)),
        }
    }

    /// The filtered capacity, where one was measured.
    fn measured(&self) -> Option<Bitrate> {
        self.halves[0].max(self.halves[1])
    }

    /// What others send at least: a count that is about to be overtaken must not make the link seem wider.
    fn least_others(&self) -> f64 {
        let Reading { raw, filtered } = self.others;
        raw.unwrap_or(0.0).min(filtered.unwrap_or(0.0))
    }

    /// Begins another half of the window if it is time. While nothing is measured what is known stays.
    fn turn(&mut self, now: Instant) {
        if now.since(self.half_began) >= HALF_WINDOW && self.halves[0].is_some() {
            self.halves = [None, self.halves[0]];
            self.half_began = now;
        }
    }
}

/// What others leave of a capacity.
fn left(capacity: Option<Bitrate>, others: Option<f64>) -> Option<Bitrate> {
    let others = others.map_or(0, |others| bitrate(others).as_bps());
    capacity.map(|capacity| Bitrate::from_bps(capacity.as_bps().saturating_sub(others)))
}

/// The smaller of what is known.
fn smaller(a: Option<Bitrate>, b: Option<Bitrate>) -> Option<Bitrate> {
    a.into_iter().chain(b).min()
}

/// Bits per second as a float.
#[must_use]
pub fn as_f64(rate: Bitrate) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a rate needs no 53 bits of precision")]
    let bps = rate.as_bps() as f64;
    bps
}

fn kilobytes(rate: Bitrate) -> f64 {
    as_f64(rate) / 8e3
}

/// As a rate; what is negative or no number is none at all.
fn bitrate(bps: f64) -> Bitrate {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast saturates")]
    Bitrate::from_bps(bps as u64)
}

#[expect(clippy::cast_precision_loss, reason = "a share needs no 53 bits of precision")]
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(mbit: u64, held_back: bool) -> DeliverySample {
        let interval = Duration::from_millis(100);
        DeliverySample { bytes: mbit * 12_500, interval, held_back }
    }

    fn rate(mbit: u64) -> Option<Bitrate> {
        Some(Bitrate::from_mbps(mbit))
    }

    fn all(sensing: &Sensing) -> Sensed {
        sensing.all(&SenderStats::default())
    }

    /// Samples every 100 ms of one second, from `second` on. Returns what is available by then, in Mbit/s.
    fn second(sensing: &mut Sensing, second: u64, mbit: u64, load: Load) -> f64 {
        for tenth in 1..=10 {
            let now = Instant::from_millis(second * 1000 + tenth * 100);
            sensing.on_delivery(now, &sample(mbit, load == Load::Full), load);
        }
        sensing.available().map_or(f64::NAN, as_f64) / 1e6
    }

    #[test]
    fn the_capacity_is_the_largest_rate_of_the_last_seconds() {
        let mut sensing = Sensing::default();
        let table = [(0, 5, 5), (1, 9, 9), (2, 6, 9), (6, 4, 9), (9, 4, 9), (12, 4, 4)];
        for (second, mbit, expected) in table {
            sensing.on_delivery(
                Instant::from_millis(second * 1000),
                &sample(mbit, true),
                Load::Full,
            );
            assert_eq!(sensing.capacity(), rate(expected), "after {second} s");
        }
    }

    #[test]
    fn a_sender_with_nothing_more_to_send_does_not_make_its_link_seem_slow() {
        let mut sensing = Sensing::default();
        sensing.on_delivery(Instant::ZERO, &sample(1, false), Load::Free);
        assert_eq!((sensing.capacity(), sensing.throughput()), (None, Some(125.0)));
        sensing.on_delivery(Instant::ZERO, &sample(8, true), Load::Full);
        let full = sensing.throughput();
        for tenth in 1..20 {
            sensing.on_delivery(Instant::from_millis(tenth * 100), &sample(1, false), Load::Free);
        }
        assert_eq!((sensing.capacity(), sensing.available()), (rate(8), rate(8)));
        assert_eq!(sensing.throughput(), full);
        assert_eq!((all(&sensing).throughput.raw, all(&sensing).capacity.raw), (rate(1), rate(8)));
        sensing.on_delivery(Instant::from_millis(2100), &sample(12, false), Load::Free);
        assert_eq!(sensing.capacity(), rate(12), "it carries at least so much");
    }

    #[test]
    fn a_full_link_has_for_us_what_it_delivers_and_both_ways_are_followed_within_a_second() {
        let mut sensing = Sensing::default();
        sensing.on_rate_told(rate(10));
        let steps = [(10, 9.9..=10.0), (4, 4.0..=4.2), (10, 9.8..=10.0)];
        for (at, (mbit, expected)) in (0..).zip(steps) {
            let available = second(&mut sensing, at, mbit, Load::Full);
            assert!(expected.contains(&available), "at {mbit}: {available}");
            assert_eq!(all(&sensing).available.raw, rate(mbit));
        }
    }

    #[test]
    fn a_link_that_loses_behind_a_queue_is_full_and_one_that_only_loses_is_not() {
        let ms = Duration::from_millis;
        for (rtt, expected) in [(ms(34), rate(10)), (ms(60), rate(4))] {
            let mut sensing = Sensing::default();
            sensing.on_rate_told(rate(10));
            let delivery = Some(sample(4, false));
            let lossy =
                Outcome { lost: 1, confirmed: 9, rtt: Some(rtt), delivery, ..Default::default() };
            sensing.on_report(Instant::from_millis(100), &lossy, Fates::default(), Some(ms(20)));
            assert_eq!(sensing.available(), expected, "after {rtt:?}");
        }
    }

    #[test]
    fn a_window_that_opens_says_nothing_of_what_is_available() {
        for (opening, expected) in [(true, rate(10)), (false, rate(4))] {
            let mut sensing = Sensing::default();
            sensing.on_rate_told(rate(10));
            let delivery = Some(sample(4, true));
            let outcome = Outcome { confirmed: 9, delivery, opening, ..Default::default() };
            sensing.on_report(Instant::from_millis(100), &outcome, Fates::default(), None);
            assert_eq!((sensing.available(), all(&sensing).capacity.raw), (expected, rate(4)));
        }
    }

    #[test]
    fn a_link_that_is_full_no_more_is_tried_for_its_capacity_again() {
        let mut sensing = Sensing::default();
        sensing.on_rate_told(rate(10));
        second(&mut sensing, 0, 4, Load::Full);
        let after = [1, 2, 3].map(|at| second(&mut sensing, at, 2, Load::Free));
        assert!((7.0..9.0).contains(&after[0]) && after[2] > 9.5, "{after:?}");
        assert_eq!(all(&sensing).available.raw, rate(10));
    }

    #[test]
    fn a_link_behind_a_queue_is_not_tried_for_more() {
        let mut sensing = Sensing::default();
        sensing.on_rate_told(rate(10));
        second(&mut sensing, 0, 4, Load::Full);
        let queued = second(&mut sensing, 1, 3, Load::Queued);
        assert!((queued - 4.0).abs() < 0.01, "{queued}");
        let more = second(&mut sensing, 2, 6, Load::Queued);
        assert!((5.0..6.0).contains(&more), "{more}");
    }

    #[test]
    fn what_others_send_belongs_to_the_capacity_and_is_not_available() {
        let mut sensing = Sensing::default();
        sensing.on_others(Bitrate::from_mbps(3));
        // For longer than the capacity is remembered: it does not shrink by what others take.
        for at in 0..12 {
            second(&mut sensing, at, 5, Load::Full);
        }
        assert_eq!((sensing.capacity(), sensing.available()), (rate(8), rate(5)));
        let told = all(&sensing);
        assert_eq!(told.others, Reading { raw: rate(3), filtered: rate(3) });
        sensing.on_others(Bitrate::from_bps(u64::MAX));
        assert_eq!(sensing.available(), rate(0), "never less than nothing");
    }

    #[test]
    fn who_yields_sends_what_others_leave_of_a_told_rate_and_less_behind_a_queue() {
        let mut sensing = Sensing::default();
        sensing.on_rate_told(rate(20));
        // A rise is believed at once, a fall by halves.
        for (others, expected) in [(4, 16), (12, 8), (4, 14), (50, 1)] {
            sensing.on_others(Bitrate::from_mbps(others));
            assert_eq!(sensing.yielding_rate(), rate(expected), "others {others}");
        }
        let ms = Duration::from_millis;
        for (others, rtt, expected) in
            [(0, 60, None), (900, 60, None), (4000, 34, rate(16)), (4000, 60, rate(4))]
        {
            let mut sensing = Sensing::default();
            sensing.on_others(Bitrate::from_kbps(others));
            let outcome = Outcome { confirmed: 1, rtt: Some(ms(rtt)), ..Default::default() };
            sensing.on_report(Instant::ZERO, &outcome, Fates::default(), Some(ms(20)));
            assert_eq!(sensing.yielding_rate(), None, "nothing was told");
            sensing.on_rate_told(rate(20));
            assert_eq!(sensing.yielding_rate(), expected, "after {rtt} ms of 20");
        }
    }

    #[test]
    fn what_is_not_measured_is_not_told_of() {
        let mut sensing = Sensing::default();
        assert_eq!(all(&sensing), Sensed::default());
        let told = rate(3);
        sensing.on_rate_told(told);
        let available = Reading { raw: told, filtered: told };
        assert_eq!(all(&sensing), Sensed { told, available, ..Sensed::default() });
        let sender = SenderStats { confirmed: 9, lost: 1, loss_ratio: 0.2, ..Default::default() };
        let sensed = sensing.all(&sender);
        assert_eq!((sensed.loss_recent, sensed.loss_total), (Some(0.2), Some(0.1)));
    }

    #[test]
    fn another_path_keeps_only_what_was_told() {
        let mut sensing = Sensing::default();
        sensing.on_rate_told(rate(9));
        second(&mut sensing, 0, 5, Load::Full);
        sensing.on_others(Bitrate::from_mbps(1));
        sensing.reset();
        assert_eq!((sensing.available(), all(&sensing).others.raw), (rate(9), None));
    }

    #[test]
    fn what_others_send_is_followed_within_a_second() {
        let mut sensing = Sensing::default();
        assert_eq!(all(&sensing).others.filtered, None);
        sensing.on_others(Bitrate::default());
        for _ in 0..4 {
            sensing.on_others(Bitrate::from_mbps(6));
        }
        let others = all(&sensing).others.filtered.map_or(0.0, as_f64);
        assert!((5.5e6..6.0e6).contains(&others), "{others}");
    }
}
