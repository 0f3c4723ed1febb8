//! Two ends of one link over a channel that loses, delays, reorders and repeats datagrams and reports:
//! whatever happens, each datagram ends as exactly one of confirmed or lost, and none that arrived ends as
//! lost.
//!
//! 10,000 seeds; `LINK_SEED=n` runs one of them, `LINK_SEEDS=n` the first n.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may panic in its helpers too")]

use std::collections::BTreeMap;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use ropewalk_proto::link::carried::Carried;
use ropewalk_proto::link::received::{Placement, Report};
use ropewalk_proto::link::receiver::{LinkReceiver, NumberedDatagram};
use ropewalk_proto::link::sender::{LinkSender, Via};
use ropewalk_proto::link::sent::{Fate, Sent, Settled};
use ropewalk_proto::time::{Duration, Instant, earliest};
use ropewalk_proto::units::LinkId;
use ropewalk_settings::ControllerKind;

/// Data is sent for so long, over the bad channel.
const BUSY: Duration = Duration::from_millis(1500);
/// Then the channel is good, and pings flow for so long.
const QUIET: Duration = Duration::from_secs(5);

#[test]
fn each_datagram_ends_as_exactly_one_of_confirmed_or_lost() {
    let number = |name| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let seeds = match number("LINK_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("LINK_SEEDS").unwrap_or(10_000),
    };
    let mut totals = Totals::default();
    for seed in seeds.clone() {
        let result = std::panic::catch_unwind(|| run(seed));
        let Ok(run) = result else { panic!("failed with LINK_SEED={seed}") };
        totals.add(run);
    }
    println!("{totals:?}");
    if seeds.end - seeds.start < 1000 {
        return;
    }
    // What is to be tested has happened.
    assert!(totals.lost * 100 > totals.sent, "{totals:?}");
    assert!(totals.spurious * 1000 > totals.sent, "{totals:?}");
    assert!(totals.late_after_timeout > 1000 && totals.marks > 1000, "{totals:?}");
    assert!(totals.forgetful * 100 < totals.runs, "memory overflows rarely: {totals:?}");
}

#[derive(Clone, Copy, Default, Debug)]
struct Totals {
    runs: u64,
    sent: u64,
    lost: u64,
    spurious: u64,
    late_after_timeout: u64,
    marks: u64,
    reports: u64,
    /// Ends that forgot ranges before they were confirmed; what arrived may be taken for lost there.
    forgetful: u64,
}

impl Totals {
    fn add(&mut self, other: Self) {
        self.runs += other.runs;
        self.sent += other.sent;
        self.lost += other.lost;
        self.spurious += other.spurious;
        self.late_after_timeout += other.late_after_timeout;
        self.marks += other.marks;
        self.reports += other.reports;
        self.forgetful += other.forgetful;
    }
}

fn run(seed: u64) -> Totals {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut channel = Channel::random(&mut rng);
    let both = rng.random_bool(0.5);
    let mut ends = [End::new(true), End::new(both)];
    let start = Instant::from_millis(1);
    let (busy_until, end) = (start + BUSY, start + BUSY + QUIET);
    let mut now = start;
    let mut next_send = [start; 2];
    while now < end {
        let busy = now < busy_until;
        if !busy {
            channel.heal();
        }
        for index in 0..2 {
            while let Some(datagram) = channel.take(now, 1 - index) {
                ends[index].receive(now, &datagram);
            }
            ends[index].receiver.end_of_batch(now);
            ends[index].time_out(now);
            if now >= next_send[index] {
                ends[index]
                    .send_some(now, busy, &mut rng, |d, rng| channel.put(now, index, d, rng));
                let pause = if busy { rng.random_range(100..40_000) } else { 100_000 };
                next_send[index] = now + Duration::from_micros(pause);
            }
            ends[index].send_report(now, |d| channel.put(now, index, d, &mut rng));
        }
        let timers = ends.iter().flat_map(|end| {
            [end.sender.poll_timeout(), end.receiver.poll_timeout().filter(|&due| due > now)]
        });
        let next = timers.fold(channel.next(), earliest);
        now = earliest(next, Some(next_send[0].min(next_send[1]))).unwrap();
    }
    let [mut a, mut b] = ends;
    a.check_against(&b);
    b.check_against(&a);
    let mut totals = Totals { runs: 1, ..Totals::default() };
    for end in [&mut a, &mut b] {
        let (sent, received) = (end.sender.stats(), end.receiver.stats());
        totals.sent += sent.sent;
        totals.lost += sent.lost;
        totals.spurious += sent.spurious;
        totals.marks += sent.marks;
        totals.reports += received.reports;
        totals.forgetful += u64::from(end.forgetful());
        totals.late_after_timeout += end.model.late_after_timeout;
    }
    totals
}

#[derive(Clone, Debug)]
struct Datagram {
    number: u64,
    eliciting: bool,
    ce: bool,
    report: Option<Report>,
}

/// Both directions of the link.
struct Channel {
    loss: [f64; 2],
    repeat: f64,
    mark: f64,
    delay_us: u64,
    jitter_us: u64,
    order: u64,
    /// By time of arrival, then by time of sending.
    flying: [BTreeMap<(Instant, u64), Datagram>; 2],
}

impl Channel {
    fn random(rng: &mut SmallRng) -> Self {
        let mut loss = || if rng.random_bool(0.3) { 0.0 } else { rng.random_range(0.0..0.3) };
        Self {
            loss: [loss(), loss()],
            repeat: rng.random_range(0.0..0.05),
            mark: rng.random_range(0.0..0.02),
            delay_us: rng.random_range(100..150_000),
            jitter_us: if rng.random_bool(0.5) { 1 } else { rng.random_range(1..300_000) },
            order: 0,
            flying: [BTreeMap::new(), BTreeMap::new()],
        }
    }

    fn heal(&mut self) {
        (self.loss, self.repeat, self.mark, self.jitter_us) = ([0.0; 2], 0.0, 0.0, 1);
    }

    /// Sends from `from`.
    fn put(&mut self, now: Instant, from: usize, datagram: Datagram, rng: &mut SmallRng) {
        if rng.random_bool(self.loss[from]) {
            return;
        }
        let datagram = Datagram { ce: rng.random_bool(self.mark), ..datagram };
        let copies = 1 + u32::from(rng.random_bool(self.repeat));
        for _ in 0..copies {
            let delay = self.delay_us + rng.random_range(0..self.jitter_us);
            self.order += 1;
            let at = now + Duration::from_micros(delay);
            self.flying[from].insert((at, self.order), datagram.clone());
        }
    }

    fn take(&mut self, now: Instant, from: usize) -> Option<Datagram> {
        let first = self.flying[from].first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(first.remove())
    }

    fn next(&self) -> Option<Instant> {
        self.flying.iter().filter_map(|flying| Some(flying.first_key_value()?.0.0)).min()
    }
}

/// What must be true of a sender, from nothing but the order of events.
#[derive(Default)]
struct Model {
    /// Per number: in the window?, fate.
    datagrams: Vec<(bool, Option<Fate>)>,
    in_flight: u32,
    late_after_timeout: u64,
}

impl Model {
    fn settle(&mut self, settled: Settled) {
        let (in_window, fate) = &mut self.datagrams[usize::try_from(settled.number).unwrap()];
        match (*fate, settled.fate) {
            (None, Fate::Confirmed | Fate::Lost | Fate::TimedOut) => {
                self.in_flight -= u32::from(*in_window);
            }
            (Some(Fate::Lost), Fate::ConfirmedLate) => {}
            (Some(Fate::TimedOut), Fate::ConfirmedLate) => self.late_after_timeout += 1,
            (before, after) => panic!("{} was {before:?} and became {after:?}", settled.number),
        }
        assert_eq!(settled.sent.in_window(), *in_window);
        *fate = Some(settled.fate);
    }
}

struct End {
    sender: LinkSender,
    receiver: LinkReceiver,
    model: Model,
    has_data: bool,
    /// Numbers that arrived, and those of them that came too late to be remembered.
    arrived: BTreeMap<u64, bool>,
}

impl End {
    fn new(has_data: bool) -> Self {
        Self {
            sender: LinkSender::new(ControllerKind::Ccid2, 0),
            receiver: LinkReceiver::new(LinkId(0), 0),
            model: Model::default(),
            has_data,
            arrived: BTreeMap::new(),
        }
    }

    fn send_some(
        &mut self,
        now: Instant,
        busy: bool,
        rng: &mut SmallRng,
        mut put: impl FnMut(Datagram, &mut SmallRng),
    ) {
        if !busy {
            put(self.send(now, false, None), rng);
            return;
        }
        let most = if self.has_data { rng.random_range(0..20) } else { 0 };
        for _ in 0..most.min(self.sender.room()) {
            let ride = rng.random_bool(0.1).then(|| self.receiver.poll_ride(now)).flatten();
            put(self.send(now, true, ride), rng);
        }
    }

    fn send_report(&mut self, now: Instant, put: impl FnOnce(Datagram)) {
        if let Some(report) = self.receiver.poll_report(now) {
            put(self.send(now, false, Some(report)));
            assert_eq!(self.receiver.poll_report(now), None, "it was sent");
        }
    }

    /// A datagram with data, or a report, or (outside the window and with no report) a ping.
    fn send(&mut self, now: Instant, data: bool, report: Option<Report>) -> Datagram {
        let srtt = self.sender.rtt().srtt().unwrap_or(Duration::from_millis(100));
        let eliciting = data || report.is_none() || self.receiver.wants_elicit(now, srtt);
        let token = report.as_ref().map(|report| {
            if eliciting {
                self.receiver.on_elicit(now);
            }
            self.receiver.report_sent(now, report)
        });
        let sent = Sent {
            size: 1000,
            header: 28,
            places: u8::from(data),
            eliciting,
            window_limited: data,
            window_full: data,
            paced: false,
            carried: Carried { report: token, ..Carried::default() },
        };
        let number = self.sender.on_sent(now, sent);
        self.model.datagrams.push((data, None));
        self.model.in_flight += u32::from(data);
        self.check();
        Datagram { number, eliciting, ce: false, report }
    }

    fn receive(&mut self, now: Instant, datagram: &Datagram) {
        let Datagram { number, eliciting, ce, ref report } = *datagram;
        let eliciting = u32::from(eliciting);
        let placement =
            self.receiver.on_datagram(now, NumberedDatagram { number, size: 1000, eliciting, ce });
        let known = self.arrived.contains_key(&number);
        match placement {
            Placement::Duplicate => assert!(known, "{number} came for the first time"),
            Placement::Forgotten => {
                self.arrived.entry(number).or_insert(true);
            }
            Placement::Next | Placement::Ahead | Placement::Late { .. } => {
                assert!(!known, "{number} came twice");
                self.arrived.insert(number, false);
            }
        }
        let Some(report) = report else { return };
        let (model, receiver) = (&mut self.model, &mut self.receiver);
        let outcome = self.sender.on_report(now, report, Via::Own, 0, |settled| {
            model.settle(settled);
            let arrived = matches!(settled.fate, Fate::Confirmed | Fate::ConfirmedLate);
            if let Some(token) = settled.sent.carried.report.filter(|_| arrived) {
                receiver.on_report_confirmed(now, token);
            }
        });
        outcome.expect("an honest report");
        self.check();
    }

    fn time_out(&mut self, now: Instant) {
        let model = &mut self.model;
        self.sender.handle_timeout(now, |settled| model.settle(settled));
        self.check();
    }

    fn check(&self) {
        assert_eq!(self.sender.in_flight(), self.model.in_flight);
        assert!(self.sender.window() >= 1);
    }

    fn forgetful(&self) -> bool {
        self.receiver.stats().forgotten_ranges > 0 || self.arrived.values().any(|forgot| *forgot)
    }

    /// At the end, `peer` knows what arrived.
    fn check_against(&mut self, peer: &Self) {
        assert_eq!(self.sender.in_flight(), 0);
        // The last ping or report may still be on its way.
        let settled = self.model.datagrams.iter().rposition(|(_, fate)| fate.is_some()).unwrap();
        assert!(settled + 10 > self.model.datagrams.len(), "the end is unsettled");
        for (number, (_, fate)) in (0..).zip(&self.model.datagrams[..=settled]) {
            let fate = fate.unwrap_or_else(|| panic!("{number} has no fate"));
            let confirmed = matches!(fate, Fate::Confirmed | Fate::ConfirmedLate);
            let arrived = peer.arrived.contains_key(&number);
            assert!(arrived || !confirmed, "{number} never arrived, but is {fate:?}");
            assert!(confirmed || !arrived || peer.forgetful(), "{number} arrived, but is {fate:?}");
        }
        let stats = self.sender.stats();
        let open = self.model.datagrams.iter().filter(|(_, fate)| fate.is_none()).count() as u64;
        assert_eq!(stats.confirmed + stats.lost + open, stats.sent);
    }
}
