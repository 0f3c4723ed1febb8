//! Marks of congestion, on a path of which everything is known.

use std::collections::VecDeque;

use super::*;
use crate::time::Duration;

/// A path of 5 MB/s and 40 ms with a sender that always has something to send, a millisecond at a time.
struct Path {
    model: Model,
    now: Instant,
    next: u64,
    /// Number, when it was sent, when it arrives.
    open: VecDeque<(u64, Instant, Instant)>,
    free_at: Instant,
    /// Datagrams that may leave by now.
    credit: f64,
    total: u64,
}

const RATE: f64 = 5e6;
const ONE_WAY: Duration = Duration::from_millis(20);

impl Path {
    fn new() -> Self {
        let (now, model) = (Instant::from_millis(1), Model::from_number(0));
        Self { model, now, next: 0, open: VecDeque::new(), free_at: now, credit: 0.0, total: 0 }
    }

    fn run(&mut self, millis: u64) {
        for _ in 0..millis {
            self.now += Duration::from_millis(1);
            self.credit += (self.pace() * 1e-3 / 1500.0).min(20.0);
            while self.credit >= 1.0 {
                self.credit -= 1.0;
                if self.open.len() as u32 >= self.model.window() {
                    break;
                }
                let begins = self.free_at.max(self.now);
                self.free_at = begins + Duration::from_secs_f64(1500.0 / RATE);
                self.open.push_back((self.next, self.now, self.free_at + ONE_WAY));
                self.model.on_sent(self.now, self.next, self.open.len() as u32);
                self.next += 1;
            }
            self.report();
        }
    }

    /// What arrived until a way back ago is confirmed.
    fn report(&mut self) {
        let mut newest = None;
        let mut count = 0;
        while let Some(&(number, sent, arrived)) = self.open.front()
            && arrived + ONE_WAY <= self.now
        {
            newest = Some((number, sent, arrived));
            self.open.pop_front();
            count += 1;
        }
        let Some((largest, sent_at, arrived)) = newest else { return };
        self.total += u64::from(count) * 1500;
        let in_flight = self.open.len() as u32;
        let arrival = ArrivalSample {
            at_us: arrived.as_micros() as i64,
            sent_at,
            bytes: (RATE * 0.04) as u64,
            interval: Duration::from_millis(40),
            total: self.total,
            held_back: true,
        };
        let sample = AckSample {
            datagrams: count,
            bytes: u64::from(count) * 1472,
            largest,
            prior_in_flight: in_flight + count,
            window_limited: false,
            rtt: Some(self.now.since(sent_at)),
            delivery: None,
            arrival: Some(arrival),
            next: self.next,
            in_flight,
            lateness: Duration::ZERO,
        };
        self.model.on_ack(self.now, &sample);
    }

    fn pace(&self) -> f64 {
        self.model.pacing_rate().map_or(f64::INFINITY, |pace| real(pace.as_bps()) / 8.0)
    }

    fn mark(&mut self) {
        let largest = self.open.back().map_or(0, |open| open.0);
        let next = self.next;
        let sample = LossSample { datagrams: 1, largest, next, prior_in_flight: 9 };
        self.model.on_ecn(self.now, &sample);
    }
}

#[test]
fn a_congestion_mark_slows_a_round_down_and_is_forgotten_after_it() {
    let mut path = Path::new();
    path.run(2000);
    let before = path.pace();
    assert!((0.8 * RATE..1.4 * RATE).contains(&before), "{before}");
    path.mark();
    path.run(20);
    assert!(path.pace() <= 0.9 * before, "{} of {before}", path.pace());
    path.run(400);
    assert!(path.pace() >= 0.9 * RATE, "{} half a second later", path.pace());
}

#[test]
fn marks_without_end_leave_something() {
    let mut path = Path::new();
    path.run(2000);
    for _ in 0..500 {
        path.mark();
        path.run(10);
    }
    assert!(path.pace() > 0.0 && path.model.window() >= 4, "{}", path.pace());
}
