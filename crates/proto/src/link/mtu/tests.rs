use super::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;

/// A path in virtual time with a bulk flow on it: what is sent, and the path's answer to each.
struct Sim {
    path: PathMtu,
    now: Instant,
    mtu: u16,
    rtt: Duration,
    loss: f64,
    dead: bool,
    /// Full-sized datagrams, one every so often.
    bulk: Option<Duration>,
    next_bulk: Instant,
    rng: SmallRng,
    answers: BTreeMap<(Instant, u64), Answer>,
    sent: u64,
    probes: u64,
}

#[derive(Clone, Copy)]
enum Answer {
    ProbeAcked(u16),
    ProbeLost(u16),
    Acked(u16),
    Lost(u16),
}

/// The sender's timeout when nothing later is confirmed.
const RTO: Duration = Duration::from_secs(1);

impl Sim {
    fn new(mtu: u16, max: u16) -> Self {
        Self {
            path: PathMtu::new(Instant::ZERO, 28, max),
            now: Instant::ZERO,
            mtu,
            rtt: Duration::from_millis(50),
            loss: 0.0,
            dead: false,
            bulk: None,
            next_bulk: Instant::ZERO,
            rng: SmallRng::seed_from_u64(1),
            answers: BTreeMap::new(),
            sent: 0,
            probes: 0,
        }
    }

    /// Lets `length` pass in steps of 1 ms.
    fn run(&mut self, length: Duration) {
        let end = self.now + length;
        while self.now < end {
            self.step();
        }
    }

    /// Runs until `done`; the time it took.
    fn run_until(&mut self, limit: Duration, done: impl Fn(&PathMtu) -> bool) -> Duration {
        let start = self.now;
        while !done(&self.path) {
            assert!(self.now.since(start) < limit, "not within {limit:?}: {:?}", self.path);
            self.step();
        }
        self.now.since(start)
    }

    fn step(&mut self) {
        self.now += Duration::from_millis(1);
        while let Some(entry) = self.answers.first_entry()
            && entry.key().0 <= self.now
        {
            match entry.remove() {
                Answer::ProbeAcked(size) => self.path.on_probe_acked(self.now, size),
                Answer::ProbeLost(size) => self.path.on_probe_lost(self.now, size),
                Answer::Acked(size) => self.path.on_acked(self.now, size),
                Answer::Lost(size) => self.path.on_lost(self.now, size, 1),
            }
        }
        if self.path.poll_timeout().is_some_and(|at| at <= self.now) {
            while let Some(size) = self.path.poll_probe(self.now) {
                self.probes += 1;
                self.send(size, Answer::ProbeAcked(size), Answer::ProbeLost(size));
            }
            let timer = self.path.poll_timeout();
            assert!(timer.is_none_or(|at| at > self.now), "a timer that spins: {:?}", self.path);
        }
        if let Some(every) = self.bulk
            && self.now >= self.next_bulk
        {
            self.next_bulk = self.now + every;
            let size = self.path.mtu();
            self.send(size, Answer::Acked(size), Answer::Lost(size));
        }
    }

    fn send(&mut self, size: u16, acked: Answer, lost: Answer) {
        let arrives = size <= self.mtu && !self.dead && !self.rng.random_bool(self.loss);
        let answer = if arrives { (self.now + self.rtt, acked) } else { (self.now + RTO, lost) };
        self.answers.insert((answer.0, self.sent), answer.1);
        self.sent += 1;
    }
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[test]
fn a_path_of_1500_is_known_after_two_round_trips() {
    let mut sim = Sim::new(1500, 1500);
    assert_eq!((sim.path.mtu(), sim.path.state()), (BASE, State::Base));
    let took = sim.run_until(secs(1), |path| path.state() == State::Complete);
    assert_eq!(sim.path.mtu(), 1500);
    assert!(took <= Duration::from_millis(110), "{took:?}");
}

#[test]
fn every_mtu_is_found_to_within_twenty_bytes() {
    let mut slowest = Duration::ZERO;
    for mtu in BASE..=1500 {
        let mut sim = Sim::new(mtu, 1500);
        slowest = slowest.max(sim.run_until(secs(10), |path| path.state() == State::Complete));
        let found = sim.path.mtu();
        assert!(found <= mtu && mtu - found < 20, "{mtu}: {found}");
        if mtu == BASE || mtu == 1500 || COMMON_SIZES.contains(&mtu) {
            assert_eq!(found, mtu);
        }
    }
    assert!(slowest < secs(5), "{slowest:?}");
}

#[test]
fn jumbo_paths_are_found_up_to_the_bound() {
    for (mtu, max, expected) in [
        (9000, 9000, 9000),
        (1500, 9000, 1500),
        (4352, 9000, 4352),
        (9000, 1500, 1500),
        (1400, 1380, 1380),
    ] {
        let mut sim = Sim::new(mtu, max);
        sim.run_until(secs(20), |path| path.state() == State::Complete);
        assert_eq!(sim.path.mtu(), expected, "{mtu} up to {max}");
    }
}

#[test]
fn a_path_lowered_in_mid_flow_is_found_within_two_seconds() {
    for mtu in [1480, 1400, 1300, 1280] {
        let mut sim = Sim::new(1500, 1500);
        sim.bulk = Some(Duration::from_millis(5));
        sim.run(secs(2));
        assert_eq!(sim.path.mtu(), 1500);
        sim.mtu = mtu;
        let took = sim.run_until(secs(2), |path| path.mtu() <= mtu);
        assert_eq!(sim.path.black_holes(), 1);
        sim.run_until(secs(10), |path| path.state() == State::Complete);
        assert_eq!(sim.path.mtu(), mtu, "after {took:?}");
    }
}

#[test]
fn loss_by_congestion_is_not_taken_for_a_black_hole() {
    for (loss, rtt) in [(0.02, 10), (0.05, 50), (0.10, 300), (0.3, 20)] {
        let mut sim = Sim::new(1500, 1500);
        sim.loss = loss;
        sim.rtt = Duration::from_millis(rtt);
        sim.bulk = Some(Duration::from_millis(3));
        sim.run_until(secs(60), |path| path.mtu() == 1500);
        sim.run(secs(120));
        assert_eq!((sim.path.mtu(), sim.path.black_holes()), (1500, 0), "{loss}");
    }
}

#[test]
fn a_black_hole_takes_two_failed_tries_and_a_full_datagram_ends_the_suspicion() {
    let suspect = || {
        let mut sim = Sim::new(1500, 1500);
        sim.run(secs(1));
        sim.path.on_lost(sim.now, 1500, BLACK_HOLE_LOSSES);
        sim
    };
    let fail = |sim: &mut Sim| {
        sim.now = sim.path.poll_timeout().expect("a try is due");
        assert_eq!(sim.path.poll_probe(sim.now), Some(1500));
        assert_eq!(sim.path.poll_probe(sim.now), Some(BASE));
        sim.path.on_probe_acked(sim.now + sim.rtt, BASE);
        sim.path.on_probe_lost(sim.now + sim.rtt, 1500);
    };
    let mut sim = suspect();
    fail(&mut sim);
    assert_eq!(sim.path.mtu(), 1500);
    fail(&mut sim);
    assert_eq!((sim.path.mtu(), sim.path.black_holes()), (BASE, 1));
    assert!(sim.path.candidate() < Some(1500), "what just failed is not tried again");
    let mut sim = suspect();
    fail(&mut sim);
    sim.path.on_acked(sim.now, 1400);
    assert!(sim.path.verifying, "a smaller one says nothing");
    sim.path.on_acked(sim.now, 1500);
    assert_eq!((sim.path.verifying, sim.path.mtu()), (false, 1500));
    let mut sim = Sim::new(1500, 1500);
    sim.run(secs(1));
    sim.path.on_lost(sim.now, BASE, 1_000);
    assert!(!sim.path.verifying, "the base size cannot be too big");
}

#[test]
fn an_outage_teaches_nothing_about_sizes() {
    let mut sim = Sim::new(1500, 1500);
    sim.bulk = Some(Duration::from_millis(3));
    sim.run(secs(1));
    sim.dead = true;
    sim.run(secs(20));
    sim.dead = false;
    sim.run(secs(20));
    assert_eq!((sim.path.mtu(), sim.path.black_holes()), (1500, 0));
    // And one that begins in mid-search.
    let mut sim = Sim::new(1400, 1500);
    sim.run(Duration::from_millis(120));
    sim.dead = true;
    sim.run(secs(30));
    assert!(sim.probes < 30, "{}: probes of a dead path become rare", sim.probes);
    sim.dead = false;
    sim.run_until(secs(20), |path| path.state() == State::Complete);
    assert_eq!(sim.path.mtu(), 1400);
}

#[test]
fn a_raised_mtu_is_found_after_ten_minutes() {
    let mut sim = Sim::new(1400, 1500);
    sim.run_until(secs(10), |path| path.state() == State::Complete);
    sim.mtu = 1500;
    sim.run(secs(590));
    assert_eq!(sim.path.mtu(), 1400);
    sim.run(secs(12));
    assert_eq!((sim.path.mtu(), sim.path.state()), (1500, State::Complete));
    assert_eq!(sim.path.poll_timeout(), None, "nothing above the bound to look for");
}

#[test]
fn a_path_below_the_base_is_used_with_the_least_size() {
    let mut sim = Sim::new(1240, 1500);
    sim.run_until(secs(20), |path| path.state() == State::Error);
    assert_eq!(sim.path.mtu(), 1200 + 28, "the headers of IPv4");
    sim.run(secs(300));
    assert!(sim.probes < 30, "{}", sim.probes);
    sim.mtu = 1500;
    sim.run_until(secs(120), |path| path.mtu() == 1500);
}

#[test]
fn a_hint_lowers_nothing_but_shortens_the_search() {
    let mut sim = Sim::new(1500, 1500);
    sim.run(secs(1));
    sim.path.on_hint(sim.now, 1300);
    sim.run(secs(1));
    assert_eq!((sim.path.mtu(), sim.path.black_holes()), (1500, 0), "a forged hint");
    for (hint, name) in [(40, "below the base"), (1600, "above what is used")] {
        sim.path.on_hint(sim.now, hint);
        assert_eq!(sim.path.poll_timeout(), None, "{name}");
    }
    sim.mtu = 1333;
    sim.run(HINT_SPACING);
    sim.path.on_hint(sim.now, 1333);
    let took = sim.run_until(secs(2), |path| path.mtu() == 1333);
    assert!(took < Duration::from_millis(400), "{took:?}");
}

#[test]
fn forged_hints_cost_few_probes() {
    let mut sim = Sim::new(1500, 1500);
    sim.run(secs(1));
    let before = sim.probes;
    for _ in 0..1_000 {
        sim.path.on_hint(sim.now, 1400);
        sim.run(Duration::from_millis(10));
    }
    assert!(sim.probes - before <= 22, "{} in ten seconds", sim.probes - before);
    assert_eq!(sim.path.mtu(), 1500);
}

#[test]
fn on_another_path_it_starts_again_and_a_rebinding_keeps_the_size() {
    let mut sim = Sim::new(1500, 1500);
    sim.run(secs(1));
    sim.path.revalidate(sim.now);
    assert_eq!(sim.path.mtu(), 1500);
    sim.run(secs(1));
    assert_eq!((sim.path.mtu(), sim.path.state()), (1500, State::Complete));
    sim.mtu = 1400;
    sim.path.revalidate(sim.now);
    sim.run_until(secs(1), |path| path.mtu() == BASE);
    sim.path.reset(sim.now, 48, 1492);
    assert_eq!((sim.path.mtu(), sim.path.state()), (BASE, State::Base));
    sim.run_until(secs(10), |path| path.state() == State::Complete);
    assert_eq!(sim.path.mtu(), 1400);
}

#[test]
fn a_probe_or_guard_that_was_not_sent_is_offered_again_and_costs_no_try() {
    let mut path = PathMtu::new(Instant::ZERO, 28, 1500);
    let now = Instant::from_millis(5);
    // The base size has no guard.
    for _ in 0..9 {
        assert_eq!(path.poll_probe(now), Some(BASE));
        path.on_unsent();
        assert_eq!(path.poll_timeout().map(|at| at <= now), Some(true), "still due");
    }
    assert_eq!((path.poll_probe(now), path.poll_probe(now)), (Some(BASE), None));
    path.on_probe_acked(now, BASE);
    for _ in 0..9 {
        assert_eq!(path.poll_probe(now), Some(1500));
        path.on_unsent();
    }
    assert_eq!(path.poll_probe(now), Some(1500));
    for _ in 0..9 {
        assert_eq!(path.poll_probe(now), Some(BASE));
        path.on_unsent();
    }
    assert_eq!((path.poll_probe(now), path.poll_probe(now)), (Some(BASE), None));
    assert_eq!((path.tries, path.unanswered), (0, 0));
    path.on_probe_acked(now, 1500);
    assert_eq!((path.mtu(), path.state()), (1500, State::Complete));
}

#[test]
fn another_address_keeps_the_size_until_it_fails_and_forgets_what_failed() {
    // Before, after, and whether anything smaller was used for a moment.
    for (before, after, dips) in [(1500, 1500, false), (1400, 1500, false), (1500, 1400, true)] {
        let mut sim = Sim::new(before, 1500);
        sim.run(secs(5));
        assert_eq!(sim.path.mtu(), before);
        sim.mtu = after;
        sim.path.on_new_address(sim.now);
        assert_eq!(sim.path.mtu(), before);
        let mut least = before;
        for _ in 0..3000 {
            sim.step();
            least = least.min(sim.path.mtu());
        }
        assert_eq!((sim.path.mtu(), sim.path.state()), (after, State::Complete));
        assert_eq!(least == BASE, dips, "{before} to {after}: {least}");
    }
    let mut narrow = Sim::new(1000, 1500);
    narrow.run(secs(20));
    assert_eq!(narrow.path.state(), State::Error);
    narrow.mtu = 1500;
    narrow.path.on_new_address(narrow.now);
    narrow.run(secs(3));
    assert_eq!(narrow.path.mtu(), 1500, "asked again at once");
}

#[test]
fn no_sequence_of_events_breaks_the_bounds() {
    for seed in 0..2_000 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut now = Instant::ZERO;
        let header_len = [28, 48][rng.random_range(0..2)];
        let mut path = PathMtu::new(now, header_len, rng.random());
        for _ in 0..200 {
            now += Duration::from_millis(rng.random_range(0..400));
            let sizes = [path.mtu(), path.mtu().saturating_add(1), BASE, USUAL, rng.random()];
            let size = sizes[rng.random_range(0..sizes.len())];
            match rng.random_range(0..9) {
                0 => path.on_probe_lost(now, size),
                1 => path.on_probe_acked(now, size),
                2 => path.on_acked(now, size),
                3 => path.on_lost(now, size, rng.random()),
                4 => path.on_hint(now, size),
                5 => path.revalidate(now),
                6 if rng.random_bool(0.2) => path.reset(now, header_len, size),
                _ => {
                    let sent = std::iter::from_fn(|| path.poll_probe(now)).take(9).count();
                    assert!(sent <= 2, "seed {seed}: {sent} probes at once");
                    let spins = path.poll_timeout().is_some_and(|at| at <= now);
                    assert!(!spins, "seed {seed}: a timer that spins: {path:?}");
                }
            }
            assert!(path.mtu() <= path.max, "seed {seed}: {path:?}");
            assert!(path.mtu() > header_len, "seed {seed}: {path:?}");
        }
    }
}

/// A path of 1400 bytes whose search has ended.
fn found() -> KnownMtu {
    let mut sim = Sim::new(1400, 1500);
    assert_eq!(sim.path.known(), None, "nothing is known yet");
    sim.run_until(secs(10), |path| path.state() == State::Complete);
    sim.path.known().expect("the search is over")
}

#[test]
fn a_path_that_is_back_is_known_after_one_round_trip() {
    let known = found();
    let mut sim = Sim::new(1400, 1500);
    sim.path.remember(known);
    assert_eq!((sim.path.mtu(), sim.path.state()), (BASE, State::Base), "it is not believed");
    assert_eq!(sim.path.known(), Some(known), "if it goes before it was asked");
    let took = sim.run_until(secs(1), |path| path.state() == State::Complete);
    assert!(took <= Duration::from_millis(60), "{took:?}");
    assert_eq!((sim.path.mtu(), sim.path.known()), (1400, Some(known)));
}

#[test]
fn a_path_that_carries_less_than_before_is_found_as_a_fresh_one_is() {
    let known = found();
    let mut sim = Sim::new(1320, 1500);
    sim.path.remember(known);
    sim.run_until(secs(10), |path| path.state() == State::Complete);
    assert_eq!(sim.path.mtu(), 1320);
    let mut sim = Sim::new(1400, 1500);
    sim.path.remember(known);
    sim.dead = true;
    sim.run(Duration::from_millis(1500));
    sim.dead = false;
    sim.run_until(secs(20), |path| path.state() == State::Complete);
    assert_eq!(sim.path.mtu(), 1400, "it was away in the beginning");
}

#[test]
fn a_size_that_the_interface_does_not_carry_any_more_is_not_asked_for() {
    let mut sim = Sim::new(1400, 1390);
    sim.path.remember(found());
    let took = sim.run_until(secs(1), |path| path.state() == State::Complete);
    assert_eq!(sim.path.mtu(), 1390);
    assert!(took <= Duration::from_millis(110), "{took:?}");
}
