//! The link in virtual time.

use std::sync::Arc;

use rand::SeedableRng;

use ropewalk_settings::Bitrate;

use super::*;
use crate::loss::{GilbertElliott, Loss};
use crate::trace::Trace;

const FULL: usize = 1500;

fn link(conditions: Conditions) -> Netem<u64> {
    Netem::new(Instant::ZERO, conditions, SmallRng::seed_from_u64(7))
}

fn fixed(mbps: u64) -> Conditions {
    Conditions { rate: Rate::Fixed(Bitrate::from_mbps(mbps)), ..Conditions::default() }
}

fn delayed(delay_ms: u64, jitter_ms: u64, keep_order: bool) -> Conditions {
    Conditions {
        delay: Duration::from_millis(delay_ms),
        jitter: Duration::from_millis(jitter_ms),
        keep_order,
        ..Conditions::default()
    }
}

/// Sends `count` full packets, one each `every`, and returns all that comes out, in order. Polls
/// only when something arrives or the timeout is due.
fn run(link: &mut Netem<u64>, count: u64, every: Duration, ecn: Ecn) -> Vec<Delivery<u64>> {
    let mut out = Vec::new();
    let mut arrival = Instant::ZERO;
    for number in 0..count {
        while let Some(at) = link.poll_timeout().filter(|&at| at <= arrival) {
            out.extend(std::iter::from_fn(|| link.poll_packet(at)));
        }
        link.handle_packet(arrival, number, FULL, ecn);
        arrival += every;
    }
    while let Some(at) = link.poll_timeout() {
        out.extend(std::iter::from_fn(|| link.poll_packet(at)));
    }
    out
}

fn numbers(deliveries: &[Delivery<u64>]) -> Vec<u64> {
    deliveries.iter().map(|delivery| delivery.payload).collect()
}

#[test]
fn a_perfect_cable_delivers_everything_at_once() {
    let mut link = link(Conditions::default());
    let out = run(&mut link, 1_000, Duration::ZERO, Ecn::Ect0);
    assert_eq!(numbers(&out), (0..1_000).collect::<Vec<_>>());
    assert!(out.iter().all(|d| d.due == Instant::ZERO && d.ecn == Ecn::Ect0 && !d.marked));
}

#[test]
fn the_rate_is_exact_over_ten_seconds_of_overload() {
    for mbps in [1, 2, 8, 100, 1_000] {
        let conditions =
            Conditions { queue: QueueLimit::of_time(Duration::from_millis(100)), ..fixed(mbps) };
        let mut link = link(conditions);
        // Twice the rate for ten seconds.
        let every = Bitrate::from_mbps(2 * mbps).time_for(FULL as u64);
        let count = 10_000_000_000 / u64::try_from(every.as_nanos()).unwrap();
        let out = run(&mut link, count, every, Ecn::NotEct);
        let within = out.iter().filter(|d| d.due <= Instant::from_millis(10_000)).count() as u64;
        let expected = mbps * 10_000_000 / 8 / FULL as u64;
        assert!(within.abs_diff(expected) <= 1, "{mbps} Mbit/s: {within}, not {expected}");
        assert_eq!(link.counters().queue_full + out.len() as u64, count);
    }
}

#[test]
fn the_rate_stays_exact_when_the_caller_is_late() {
    let mut link = link(Conditions { delay: Duration::from_millis(5), ..fixed(8) });
    for number in 0..100 {
        link.handle_packet(Instant::ZERO, number, FULL, Ecn::NotEct);
    }
    // One poll long after the last is due: each still has its own moment.
    let late = Instant::from_millis(1_000);
    let out: Vec<_> = std::iter::from_fn(|| link.poll_packet(late)).collect();
    for (n, delivery) in (1..).zip(&out) {
        assert_eq!(delivery.due, Instant::from_micros(1_500 * n + 5_000));
    }
    assert_eq!(out.len(), 100);
}

#[test]
fn drop_tail_holds_exactly_its_limit() {
    let hundred_ms = QueueLimit::of_time(Duration::from_millis(100));
    let table = [
        // 8 Mbit/s carry 100,000 bytes in 100 ms: 66 full packets and not 67.
        (hundred_ms, 66),
        (QueueLimit { packets: 10, ..hundred_ms }, 10),
        (QueueLimit { bytes: Some(3_000), ..hundred_ms }, 2),
        (QueueLimit { bytes: Some(2_999), ..hundred_ms }, 1),
        (QueueLimit { bytes: Some(0), ..hundred_ms }, 1),
    ];
    for (queue, expected) in table {
        let mut link = link(Conditions { queue, ..fixed(8) });
        for number in 0..200 {
            link.handle_packet(Instant::ZERO, number, FULL, Ecn::NotEct);
        }
        assert_eq!(link.backlog(), (expected, (expected * FULL) as u64), "{queue:?}");
        assert_eq!(link.counters().queue_full, 200 - expected as u64);
        // A place is free again only when a packet has left completely.
        link.handle_packet(Instant::from_nanos(1_499_999), 0, FULL, Ecn::NotEct);
        assert_eq!(link.counters().queue_full, 201 - expected as u64);
        link.handle_packet(Instant::from_nanos(1_500_000), 0, FULL, Ecn::NotEct);
        assert_eq!(link.counters().queue_full, 201 - expected as u64);
    }
}

#[test]
fn random_loss_comes_at_the_rate_asked_for_and_is_counted() {
    let chain = GilbertElliott::from_mean_and_burst(0.02, 5.0).unwrap();
    for (loss, bound) in [(Loss::Bernoulli(0.02), 0.002), (Loss::GilbertElliott(chain), 0.006)] {
        let mut link = link(Conditions { loss, ..Conditions::default() });
        let out = run(&mut link, 100_000, Duration::from_micros(10), Ecn::NotEct);
        let counters = link.counters();
        assert_eq!(counters.lost + out.len() as u64, 100_000);
        assert_eq!(counters.delivered, out.len() as u64);
        let share = counters.lost as f64 / 100_000.0;
        assert!((share - 0.02).abs() < bound, "{loss:?}: {share}");
    }
}

#[test]
fn jitter_has_the_mean_and_deviation_asked_for_and_may_reorder() {
    let mut link = link(delayed(50, 5, false));
    let out = run(&mut link, 50_000, Duration::from_millis(1), Ecn::NotEct);
    let delays: Vec<f64> = out.iter().map(|d| d.due.since(d.arrived).as_secs_f64() * 1e3).collect();
    let mean = delays.iter().sum::<f64>() / delays.len() as f64;
    let variance = delays.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / delays.len() as f64;
    // Standard errors: 5 / sqrt(50,000) = 0.022 and 0.016 ms.
    assert!((mean - 50.0).abs() < 0.12, "mean {mean}");
    assert!((variance.sqrt() - 5.0).abs() < 0.08, "deviation {}", variance.sqrt());
    // P(next one overtakes) = P(N(0, 5 * sqrt(2)) > 1 ms) = 44 %.
    let overtaken = out.windows(2).filter(|w| w[1].payload < w[0].payload).count();
    assert!(overtaken > out.len() / 4, "{overtaken} of {}", out.len());
}

#[test]
fn jitter_keeps_the_order_when_asked() {
    let mut link = link(delayed(20, 10, true));
    let out = run(&mut link, 10_000, Duration::from_micros(200), Ecn::NotEct);
    assert_eq!(numbers(&out), (0..10_000).collect::<Vec<_>>());
    assert!(out.windows(2).all(|w| w[0].due <= w[1].due));
}

#[test]
fn jitter_larger_than_the_delay_never_delivers_before_the_arrival() {
    let mut link = link(delayed(1, 10, false));
    let out = run(&mut link, 10_000, Duration::from_millis(1), Ecn::NotEct);
    assert!(out.iter().all(|d| d.due >= d.arrived));
    assert!(out.iter().any(|d| d.due == d.arrived));
}

#[test]
fn a_lower_delay_does_not_let_packets_overtake_when_order_is_kept() {
    for keep_order in [true, false] {
        let mut link = link(delayed(100, 0, keep_order));
        link.handle_packet(Instant::ZERO, 0, FULL, Ecn::NotEct);
        link.handle_change(Instant::from_millis(1), delayed(10, 0, keep_order));
        link.handle_packet(Instant::from_millis(1), 1, FULL, Ecn::NotEct);
        let out: Vec<_> =
            std::iter::from_fn(|| link.poll_packet(Instant::from_millis(200))).collect();
        assert_eq!(numbers(&out), if keep_order { [0, 1] } else { [1, 0] });
    }
}

#[test]
fn a_trace_delivers_its_own_rate() {
    // 4 opportunities in each 10 ms: 4.8 Mbit/s.
    let trace = Arc::new(Trace::parse("2\n2\n7\n10\n".as_bytes()).unwrap());
    let mut link = link(Conditions { rate: Rate::Trace(trace), ..Conditions::default() });
    let out = run(&mut link, 8_000, Duration::from_micros(1_250), Ecn::NotEct);
    let within = out.iter().filter(|d| d.due <= Instant::from_millis(10_000)).count();
    assert_eq!(within, 4_000);
}

#[test]
fn a_changed_mtu_leaves_the_trace_where_it_is() {
    let trace = Arc::new(Trace::parse("100\n200\n".as_bytes()).unwrap());
    let conditions = Conditions { rate: Rate::Trace(trace), ..Conditions::default() };
    let mut link = link(conditions.clone());
    link.handle_change(Instant::from_millis(50), Conditions { mtu: 1_400, ..conditions });
    link.handle_packet(Instant::from_millis(60), 0, 1_000, Ecn::NotEct);
    assert_eq!(link.poll_timeout(), Some(Instant::from_millis(100)));
}

#[test]
fn a_cut_takes_arrivals_or_everything() {
    for (cut, expected) in [(Cut::Arrivals, vec![0, 1, 2, 9]), (Cut::Everything, vec![0, 9])] {
        let good = Conditions { delay: Duration::from_millis(5), ..fixed(12) };
        let mut link = link(good.clone());
        // 1 ms each: 0 is delivered at 6 ms, 1 is under way and 2 waits when the link is cut at 6.5 ms.
        link.handle_packet(Instant::ZERO, 0, FULL, Ecn::NotEct);
        link.handle_packet(Instant::from_micros(1_000), 1, FULL, Ecn::NotEct);
        link.handle_packet(Instant::from_micros(6_400), 2, FULL, Ecn::NotEct);
        link.plan_change(
            Instant::from_micros(6_500),
            Conditions { cut: Some(cut), ..good.clone() },
        );
        link.plan_change(Instant::from_micros(20_000), good);
        link.handle_packet(Instant::from_micros(7_000), 3, FULL, Ecn::NotEct);
        link.handle_packet(Instant::from_micros(20_000), 9, FULL, Ecn::NotEct);
        let out: Vec<_> =
            std::iter::from_fn(|| link.poll_packet(Instant::from_millis(99))).collect();
        assert_eq!(numbers(&out), expected);
        assert_eq!(link.counters().cut, 5 - expected.len() as u64);
    }
}

#[test]
fn changes_happen_at_their_moment_whenever_the_link_is_polled() {
    let mut link = link(fixed(1));
    link.plan_change(Instant::from_millis(18), fixed(12));
    for number in 0..3 {
        link.handle_packet(Instant::ZERO, number, FULL, Ecn::NotEct);
    }
    let out: Vec<_> = std::iter::from_fn(|| link.poll_packet(Instant::from_millis(99))).collect();
    let due: Vec<u64> = out.iter().map(|d| d.due.as_micros()).collect();
    assert_eq!(due, [12_000, 18_500, 19_500]);
}

#[test]
fn a_change_that_frees_a_waiting_packet_wakes_the_caller() {
    let mut link = link(fixed(0));
    link.handle_packet(Instant::ZERO, 0, FULL, Ecn::NotEct);
    assert_eq!(link.poll_timeout(), None);
    link.plan_change(Instant::from_millis(10), fixed(12));
    assert_eq!(link.poll_timeout(), Some(Instant::from_millis(10)));
    assert!(link.poll_packet(Instant::from_millis(10)).is_none());
    assert_eq!(link.poll_timeout(), Some(Instant::from_millis(11)));
}

#[test]
fn a_packet_above_the_mtu_vanishes_and_is_counted() {
    let mut link = link(Conditions { mtu: 1_400, ..Conditions::default() });
    for size in [1_400, 1_401, 1_500] {
        link.handle_packet(Instant::ZERO, size as u64, size, Ecn::NotEct);
    }
    let out: Vec<_> = std::iter::from_fn(|| link.poll_packet(Instant::ZERO)).collect();
    assert_eq!(numbers(&out), [1_400]);
    assert_eq!(link.counters().too_big, 2);
}

#[test]
fn only_ecn_capable_packets_are_marked() {
    let above = Marking { above: Some(Duration::from_millis(10)), probability: 0.0 };
    let always = Marking { above: None, probability: 1.0 };
    for (marking, ecn, expected) in [
        // 1 ms each: the packets 0 to 10 waited 0 to 10 ms, the other nine longer.
        (above, Ecn::Ect0, 9),
        (above, Ecn::NotEct, 0),
        (always, Ecn::Ect1, 20),
        (always, Ecn::NotEct, 0),
        (always, Ecn::Ce, 0),
    ] {
        let mut link = link(Conditions { marking, ..fixed(12) });
        let out = run(&mut link, 20, Duration::ZERO, ecn);
        assert_eq!(out.iter().filter(|d| d.marked).count(), expected, "{marking:?} {ecn:?}");
        assert_eq!(link.counters().marked, expected as u64);
        assert!(out.iter().all(|d| d.ecn == if d.marked { Ecn::Ce } else { ecn }));
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let conditions = Conditions {
        loss: Loss::Bernoulli(0.1),
        queue: QueueLimit::of_time(Duration::from_millis(20)),
        rate: Rate::Fixed(Bitrate::from_mbps(8)),
        ..delayed(20, 5, false)
    };
    let once = |seed| {
        let mut link = Netem::new(Instant::ZERO, conditions.clone(), SmallRng::seed_from_u64(seed));
        run(&mut link, 5_000, Duration::from_millis(1), Ecn::NotEct)
            .iter()
            .map(|d| (d.payload, d.due))
            .collect::<Vec<_>>()
    };
    assert_eq!(once(1), once(1));
    assert_ne!(once(1), once(2));
}

#[test]
fn time_that_runs_backwards_is_taken_as_no_time() {
    let mut link = link(fixed(12));
    link.handle_packet(Instant::from_millis(10), 0, FULL, Ecn::NotEct);
    link.handle_packet(Instant::from_millis(5), 1, FULL, Ecn::NotEct);
    let out: Vec<_> = std::iter::from_fn(|| link.poll_packet(Instant::from_millis(99))).collect();
    assert_eq!(out.last().unwrap().due, Instant::from_millis(12));
}

#[test]
fn others_take_their_part_of_the_transmitter_and_come_out_nowhere() {
    let ours = |background: u64, change: Option<u64>| {
        let conditions = Conditions {
            background: Bitrate::from_mbps(background),
            queue: QueueLimit::of_time(Duration::from_millis(100)),
            ..fixed(10)
        };
        let mut link = link(conditions.clone());
        if let Some(mbit) = change {
            let other = Conditions { background: Bitrate::from_mbps(mbit), ..conditions };
            link.plan_change(Instant::from_millis(5_000), other);
        }
        // As much as the link carries, for ten seconds: a packet every 1.2 ms.
        for number in 0..8_333 {
            let now = Instant::from_micros(1_200 * number);
            link.handle_packet(now, number, 1500, Ecn::NotEct);
            while link.poll_packet(now).is_some() {}
        }
        let counters = link.counters();
        assert!(counters.received >= counters.delivered + counters.queue_full);
        let mbit = |bytes: u64| bytes as f64 * 8.0 / 1e7;
        (mbit(counters.delivered_bytes), mbit(counters.background_bytes))
    };
    let (alone, nothing) = ours(0, None);
    assert!((9.9..10.1).contains(&alone) && nothing == 0.0, "{alone} {nothing}");
    let (left, theirs) = ours(4, None);
    assert!((5.9..6.2).contains(&left) && (3.9..4.1).contains(&theirs), "{left} {theirs}");
    let (more, less) = ours(4, Some(0));
    assert!((7.9..8.2).contains(&more) && (1.9..2.1).contains(&less), "{more} {less}");
    let (nothing, all) = ours(20, None);
    assert!(nothing < 0.5 && all > 9.5, "{nothing} {all}");
}

#[test]
fn what_others_send_on_an_idle_link_delays_the_next_packet_as_it_would() {
    let mut link = link(Conditions { background: Bitrate::from_mbps(30), ..fixed(10) });
    // For a second three times what the link carries: two seconds of it wait.
    link.handle_packet(Instant::from_millis(1_000), 0, 1500, Ecn::NotEct);
    let (at, delivery) = loop {
        let at = link.poll_timeout().expect("it is under way");
        if let Some(delivery) = link.poll_packet(at) {
            break (at, delivery);
        }
    };
    assert_eq!(delivery.due, at);
    assert!((2_900_000..3_100_000).contains(&at.as_micros()), "{at:?}");
}

#[test]
fn a_policer_drops_what_exceeds_its_rate_behind_the_queue() {
    let burst = Duration::from_millis(10);
    let policer = Some(Policer { rate: Bitrate::from_mbps(12), burst });
    // 24 Mbit/s come for a second: ten packets find tokens at once, then 12 Mbit/s are filled up.
    for (rate, wait_ms) in [(Rate::Unlimited, 0.0), (Rate::Fixed(Bitrate::from_mbps(24)), 0.0)] {
        let mut link = link(Conditions { rate, policer, ..Conditions::default() });
        let out = run(&mut link, 2_000, Duration::from_micros(500), Ecn::NotEct);
        let counters = link.counters();
        assert_eq!(counters.delivered + counters.policed, 2_000);
        assert!((1_008..=1_011).contains(&out.len()), "{counters:?}");
        assert_eq!(link.waits().percentile_ms(95.0), wait_ms, "nothing waits for tokens");
    }
    // A queue before it that lets through what the policer does leaves nothing to drop.
    let rate = Rate::Fixed(Bitrate::from_mbps(12));
    let mut link = link(Conditions { rate, policer, ..Conditions::default() });
    run(&mut link, 2_000, Duration::from_micros(500), Ecn::NotEct);
    assert_eq!(link.counters().policed, 0);
    assert!((900.0..1_000.0).contains(&link.waits().percentile_ms(95.0)));
}

#[test]
fn packets_of_others_meet_the_same_queue_and_are_counted_apart() {
    let queue = QueueLimit { packets: 10, ..QueueLimit::default() };
    let mut link = link(Conditions { queue, ..fixed(12) });
    // Eight of others are there first, so that of ours two find room, and wait for them.
    (0..8).for_each(|n| link.handle_foreign(Instant::ZERO, n, FULL, Ecn::NotEct));
    (8..12).for_each(|n| link.handle_packet(Instant::ZERO, n, FULL, Ecn::NotEct));
    let out: Vec<_> =
        std::iter::from_fn(|| link.poll_packet(Instant::from_millis(1_000))).collect();
    let seen: Vec<_> = out.iter().map(|delivery| (delivery.payload, delivery.foreign)).collect();
    assert_eq!(seen, (0..10).map(|n| (n, n < 8)).collect::<Vec<_>>());
    let (ours, theirs) = (link.counters(), link.foreign_counters());
    assert_eq!((ours.received, ours.delivered, ours.queue_full), (4, 2, 2));
    assert_eq!((theirs.received, theirs.delivered, theirs.queue_full), (8, 8, 0));
    // Only ours: 8 and 9 ms.
    let waits = [1.0, 99.0].map(|percent| link.waits().percentile_ms(percent));
    assert!((7.8..=8.0).contains(&waits[0]) && (8.8..=9.0).contains(&waits[1]), "{waits:?}");
}

#[test]
fn a_cut_takes_packets_of_others_and_ours_and_counts_each() {
    let mut link = link(Conditions { delay: Duration::from_millis(5), ..fixed(12) });
    (0..3).for_each(|n| link.handle_foreign(Instant::ZERO, n, FULL, Ecn::NotEct));
    (3..5).for_each(|n| link.handle_packet(Instant::ZERO, n, FULL, Ecn::NotEct));
    let cut = Conditions { cut: Some(Cut::Everything), ..fixed(12) };
    link.handle_change(Instant::from_millis(2), cut);
    assert_eq!((link.counters().cut, link.foreign_counters().cut), (2, 3));
}
