//! When the next datagram may leave a link that is paced.
//!
//! A link of a rate is busy with what was sent until `free_at`. It may run ahead of that by `BURST`, so that a
//! timer that comes late loses nothing: what is due by then goes at once. A fast link that ran ahead as far as it may is
//! open again for a whole train, not for one datagram.

use ropewalk_settings::Bitrate;

use super::train::{TRAIN, takes_trains};
use crate::time::{Duration, Instant};

/// How far sending may run ahead of the rate: a timer's lateness and a full datagram at 10 Mbit/s.
const BURST: Duration = Duration::from_millis(2);

/// How far test data may run ahead: half of what packets may. So a packet finds the link open, or waits for at most one datagram of test
/// data, where that takes longer than the other half.
const FILLER: Duration = Duration::from_millis(1);
const _: () = assert!(FILLER.as_micros() * 2 <= BURST.as_micros());

/// What takes no longer delays others by little: a report at 0.6 Mbit/s.
const SHORT: Duration = Duration::from_millis(1);

/// The pacer of one link.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pacer {
    free_at: Instant,
    /// It ran ahead as far as it may, and is shut until a train is due.
    is_full: bool,
    /// Since when it has not paused.
    busy_since: Instant,
}

impl Pacer {
    /// Until when it is busy.
    #[must_use]
    pub(crate) fn free_at(&self) -> Instant {
        self.free_at
    }

    /// Whether a datagram may leave now.
    #[must_use]
    pub(crate) fn is_open(&self, now: Instant, rate: Bitrate) -> bool {
        self.free_at.since(now) <= self.most_ahead(rate) && rate != Bitrate::default()
    }

    /// How far it may have run ahead when a datagram leaves.
    fn most_ahead(&self, rate: Bitrate) -> Duration {
        if self.is_full && takes_trains(rate) { BURST - TRAIN } else { BURST }
    }

    /// Whether a copy of a packet may leave now. New packets keep a link that is full ahead by [`BURST`] all the time; copies may run
    /// ahead as far again, and new packets make up for it. What that takes of them is bounded by the budget of the copies.
    #[must_use]
    pub(crate) fn is_open_for_copy(&self, now: Instant, rate: Bitrate) -> bool {
        self.free_at.since(now) <= BURST * 2 && rate != Bitrate::default()
    }

    /// Whether test data may leave now.
    #[must_use]
    pub(crate) fn is_open_for_filler(&self, now: Instant, rate: Bitrate) -> bool {
        self.free_at.since(now) <= FILLER && rate != Bitrate::default()
    }

    /// When test data may leave again; on a fast link a whole train of it. `None`: at this rate never.
    #[must_use]
    pub(crate) fn opens_for_filler_at(&self, rate: Bitrate) -> Option<Instant> {
        let most_ahead = if takes_trains(rate) { FILLER - TRAIN } else { FILLER };
        (rate != Bitrate::default()).then(|| self.free_at - most_ahead)
    }

    /// When it is open again; `None`: at this rate never.
    #[must_use]
    pub(crate) fn opens_at(&self, rate: Bitrate) -> Option<Instant> {
        (rate != Bitrate::default()).then(|| self.free_at - self.most_ahead(rate))
    }

    /// For how long the link has been kept busy without a pause.
    #[must_use]
    pub(crate) fn busy_for(&self, now: Instant) -> Duration {
        if self.free_at > now { now.since(self.busy_since) } else { Duration::ZERO }
    }

    /// A datagram of `bytes` at IP level left.
    pub(crate) fn on_sent(&mut self, now: Instant, bytes: usize, rate: Bitrate) {
        // A day is as good as never, and adds to any instant.
        let busy = rate.time_for(bytes as u64).min(Duration::from_secs(86_400));
        if self.free_at <= now {
            (self.free_at, self.busy_since) = (now, now);
        }
        self.is_full &= self.free_at.since(now) > BURST - TRAIN;
        self.free_at += busy;
        self.is_full |= self.free_at.since(now) > BURST;
    }

    /// A datagram left that waits for no turn: a report. If it takes long, it delays no turn that is waited for: at the rate of a link on
    /// which little was sent, the reports of a download alone would keep its acknowledgements from ever leaving.
    pub(crate) fn on_sent_beside(&mut self, now: Instant, bytes: usize, rate: Bitrate) {
        if rate.time_for(bytes as u64) <= SHORT || self.is_open(now, rate) {
            self.on_sent(now, bytes, rate);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leaves_in_a_second_is_what_the_rate_says() {
        for (mbit, step_us) in [(1, 100), (10, 100), (10, 1900), (100, 500)] {
            let (mut pacer, rate) = (Pacer::default(), Bitrate::from_mbps(mbit));
            let (mut now, mut bytes) = (Instant::from_millis(5), 0_u32);
            let end = now + Duration::from_secs(1);
            while now < end {
                while pacer.is_open(now, rate) {
                    pacer.on_sent(now, 1500, rate);
                    bytes += 1500;
                }
                now += Duration::from_micros(step_us);
            }
            let expected = u32::try_from(mbit).unwrap_or(0) * 125_000;
            let more = f64::from(bytes) / f64::from(expected);
            assert!(
                (0.99..1.03).contains(&more),
                "{mbit} Mbit/s every {step_us} us: {bytes} bytes"
            );
        }
    }

    #[test]
    fn a_fast_link_that_is_full_opens_for_a_train() {
        // Mbit/s, and datagrams that leave each time it opens.
        for (mbit, train) in [(50, 1), (100, 3), (1000, 21), (4000, 81)] {
            let (mut pacer, rate) = (Pacer::default(), Bitrate::from_mbps(mbit));
            let mut now = Instant::from_millis(5);
            let mut trains = Vec::new();
            for _ in 0..100 {
                let mut sent = 0;
                while pacer.is_open(now, rate) {
                    pacer.on_sent(now, 1500, rate);
                    sent += 1;
                }
                trains.push(sent);
                now = pacer.opens_at(rate).expect("it opens");
            }
            let later = &trains[1..];
            assert!(later.iter().all(|sent| train - sent <= 1), "{mbit} Mbit/s: {trains:?}");
        }
    }

    #[test]
    fn reports_keep_no_packet_from_its_turn_however_many_there_are() {
        let (mut pacer, rate) = (Pacer::default(), Bitrate::from_kbps(11));
        let (mut packets, mut reports) = (0, 0);
        for ms in 0..10_000 {
            let now = Instant::from_millis(ms);
            if ms % 5 == 0 {
                pacer.on_sent_beside(now, 74, rate);
                reports += 1;
            }
            if pacer.is_open(now, rate) {
                pacer.on_sent(now, 74, rate);
                packets += 1;
            }
        }
        // 54 ms each; of the turns that nobody waits for in time the reports have some.
        assert!(packets >= 60, "{packets} packets beside {reports} reports");
    }

    #[test]
    fn a_closed_pacer_opens_when_it_says() {
        let (mut pacer, rate) = (Pacer::default(), Bitrate::from_mbps(1));
        let now = Instant::from_millis(100);
        assert!(pacer.is_open(now, rate));
        pacer.on_sent(now, 1500, rate);
        assert!(!pacer.is_open(now, rate));
        let opens = pacer.opens_at(rate).expect("it opens");
        assert_eq!(opens, Instant::from_millis(110), "12 ms a packet, 2 ahead");
        assert!(
            pacer.is_open(opens, rate) && !pacer.is_open(opens - Duration::from_millis(1), rate)
        );
        let later = Instant::from_millis(5000);
        pacer.on_sent(later, 1500, rate);
        assert!(!pacer.is_open(later, rate), "no credit for a pause");
    }

    #[test]
    fn a_link_that_new_packets_keep_full_takes_a_copy_and_not_many() {
        let (mut pacer, rate) = (Pacer::default(), Bitrate::from_mbps(10));
        let now = Instant::from_millis(100);
        while pacer.is_open(now, rate) {
            pacer.on_sent(now, 1500, rate);
        }
        let mut copies = 0;
        while pacer.is_open_for_copy(now, rate) {
            pacer.on_sent(now, 250, rate);
            copies += 1;
        }
        // 0.2 ms each, from 2.4 to beyond 4.
        assert_eq!(copies, 9);
        assert!(!Pacer::default().is_open_for_copy(now, Bitrate::default()));
    }

    #[test]
    fn test_data_fills_a_link_and_a_packet_waits_for_one_datagram_of_it_at_most() {
        for mbit in [1, 10, 100, 1000] {
            let (mut pacer, rate) = (Pacer::default(), Bitrate::from_mbps(mbit));
            let start = Instant::from_millis(5);
            let (mut now, mut bytes) = (start, 0_u32);
            while now < start + Duration::from_secs(1) {
                while pacer.is_open_for_filler(now, rate) {
                    pacer.on_sent(now, 1500, rate);
                    bytes += 1500;
                }
                let packet_waits = pacer.opens_at(rate).expect("it opens").since(now);
                let most = if mbit < 100 { rate.time_for(1500) } else { Duration::ZERO };
                assert!(packet_waits <= most, "{mbit} Mbit/s: a packet waits {packet_waits:?}");
                let opens = pacer.opens_for_filler_at(rate).expect("it opens");
                assert!(opens > now, "{mbit} Mbit/s: a timer that spins");
                now = opens;
            }
            let share = f64::from(bytes) / (mbit as f64 * 125_000.0);
            assert!((0.99..1.03).contains(&share), "{mbit} Mbit/s: {bytes} bytes");
        }
        let (pacer, never) = (Pacer::default(), Bitrate::default());
        assert_eq!(pacer.opens_for_filler_at(never), None);
        assert!(!pacer.is_open_for_filler(Instant::ZERO, never));
    }

    #[test]
    fn a_link_is_busy_until_a_pause() {
        let (mut pacer, rate) = (Pacer::default(), Bitrate::from_mbps(1));
        let at = Instant::from_millis;
        assert_eq!(pacer.busy_for(at(5)), Duration::ZERO);
        for now in [100, 110, 122] {
            pacer.on_sent(at(now), 1500, rate);
        }
        assert_eq!(pacer.busy_for(at(134)), Duration::from_millis(34));
        assert_eq!(pacer.busy_for(at(136)), Duration::ZERO, "12 ms each");
        pacer.on_sent(at(200), 1500, rate);
        assert_eq!(pacer.busy_for(at(205)), Duration::from_millis(5));
    }

    #[test]
    fn a_rate_of_nothing_never_opens() {
        let mut pacer = Pacer::default();
        pacer.on_sent(Instant::ZERO, 1500, Bitrate::default());
        let never = Bitrate::default();
        assert_eq!((pacer.is_open(Instant::ZERO, never), pacer.opens_at(never)), (false, None));
    }
}
