//! What the ends sense of their links, and what NATALIE's auto-weights make of it.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use ropewalk_netlab::lab::Towards;
use ropewalk_netlab::loss::Loss;
use ropewalk_netlab::netem::Conditions;
use ropewalk_netlab::pair::{TunnelLab, conditions};
use ropewalk_netlab::stream::{Stream, run};
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::time::Instant;
use ropewalk_settings::{
    Bitrate, ControllerKind, Count, Keepalive, LinkTerms, NatalieSettings, Profile, SchedulerKind,
    Scheduling, Weights, WhenFull,
};

use crate::{SEED, ms, s, settled};

/// Bytes at IP level of a full datagram, and of the packet in it.
const FULL: f64 = 1500.0;
const PACKET: usize = 1440;

fn natalie(weights: Weights, when_full: WhenFull) -> Scheduling {
    let natalie = NatalieSettings { count: Count::Packets, when_full, weights };
    Scheduling { natalie, ..SchedulerKind::Natalie.into() }
}

fn two_links(scheduling: Scheduling, told: [LinkTerms; 2]) -> TunnelConfig {
    let terms = ["wan0", "wan1"].map(str::to_owned).into_iter().zip(told).collect();
    TunnelConfig {
        scheduling: Scheduling { terms, ..scheduling },
        ..TunnelConfig::of(Profile::Paper)
    }
}

fn told(mbit: Option<u64>) -> LinkTerms {
    LinkTerms { rate: mbit.map(Bitrate::from_mbps), ..LinkTerms::default() }
}

/// Full packets to the client that fill links of `mbit` at IP level.
fn filling(mbit: f64, start: Instant, length: Duration) -> Stream {
    Stream::at_rate(Towards::Client, mbit * PACKET as f64 / FULL, PACKET, start, length)
}

/// Runs until `until` while another host sends `mbit` to somebody behind the first link, not evenly.
fn run_shared(
    lab: &mut TunnelLab,
    streams: &mut [Stream],
    (mbit, rng): (f64, &mut SmallRng),
    until: Instant,
) {
    let gap = FULL * 8e-6 / mbit.max(1e-3);
    while lab.now < until {
        let now = lab.now;
        if mbit > 0.0 {
            lab.links[0].share(now, Towards::Client, Vec::new(), 1500);
        }
        let next = now + Duration::from_secs_f64(gap * rng.random_range(0.5..1.5));
        run(lab, streams, if mbit > 0.0 { next.min(until) } else { until });
    }
}

/// Bytes that the proxy sent on each link.
fn sent(lab: &TunnelLab) -> [f64; 2] {
    let stats = lab.proxy.stats();
    #[expect(clippy::cast_precision_loss, reason = "few bytes")]
    [0, 1].map(|link| stats.links[link].sent.bytes as f64)
}

/// The first link's share of what the proxy sends while `act` runs, in percent.
fn share_of_first(lab: &mut TunnelLab, act: impl FnOnce(&mut TunnelLab)) -> f64 {
    let before = sent(lab);
    act(lab);
    let after = sent(lab);
    let [first, second] = [after[0] - before[0], after[1] - before[1]];
    100.0 * first / (first + second)
}

/// A link of 10 Mbit/s of which another host takes 5 for a while, unseen by any counter, beside one of its own.
#[test]
fn what_an_unseen_host_takes_of_a_link_is_left_to_it_within_a_second() {
    let fixed = ControllerKind::Fixed(64);
    let settings = [
        ("capacities measured", None, ControllerKind::Ccid2, WhenFull::Pass, 5.0),
        ("capacities told", Some(10), ControllerKind::Ccid2, WhenFull::Pass, 5.0),
        ("as in the paper", Some(10), fixed, WhenFull::Wait, 8.0),
    ];
    for (name, rate, controller, when_full, bound) in settings {
        let config = TunnelConfig {
            controller,
            ..two_links(natalie(Weights::Auto, when_full), [(); 2].map(|()| told(rate)))
        };
        let mut lab = settled(&config, Keepalive::Off, &[(10.0, 20), (10.0, 40)]);
        let begin = lab.now;
        // What is available: 20, 15 and 20 Mbit/s.
        let mut streams = [
            filling(15.0, begin, s(22)),
            filling(5.0, begin, s(6)),
            filling(5.0, begin + s(14), s(8)),
        ];
        let offered = |second: u64| if (6..14).contains(&second) { 15.0 } else { 20.0 };
        let (mut shares, mut rng) = (Vec::new(), SmallRng::seed_from_u64(SEED));
        for second in 0..22 {
            let others = 20.0 - offered(second);
            shares.push(share_of_first(&mut lab, |lab| {
                run_shared(lab, &mut streams, (others, &mut rng), begin + s(second + 1));
            }));
        }
        println!("{name}: the first link's share by the second {shares:.0?} %");
        let rate = |from: Duration, to: Duration| -> f64 {
            let came = |stream: &Stream| stream.mbit_between(begin + from, begin + to);
            streams.iter().map(came).sum::<f64>() * FULL / PACKET as f64
        };
        let goodput = rate(s(0), s(22)) / (8.0 * 15.0 + 14.0 * 20.0) * 22.0;
        let (mut dip, mut longest) = (0, 0);
        for quarter in 0..88 {
            let percent = 100.0 * rate(ms(250) * quarter, ms(250) * (quarter + 1))
                / offered(u64::from(quarter) / 4);
            dip = if percent < 90.0 { dip + 1 } else { 0 };
            longest = longest.max(dip);
        }
        println!(
            "{name}: {:.1} % of what is available, longest dip {longest} quarters",
            100.0 * goodput
        );
        // From a second after each change on.
        for (second, share) in (0..).zip(&shares).filter(|(second, _)| ![0, 6, 14].contains(second))
        {
            let expected = if offered(second) < 20.0 { 33.3 } else { 50.0 };
            assert!((share - expected).abs() < bound, "{name}: second {second}: {share:.1} %");
        }
        assert!(goodput > 0.95, "{name}: {goodput}");
        assert!(longest <= 4, "{name}: {longest} quarters of a second");
    }
}

#[test]
fn what_others_receive_beside_the_client_is_told_to_the_proxy_and_left_to_them() {
    let config =
        two_links(natalie(Weights::Auto, WhenFull::Pass), [(); 2].map(|()| told(Some(10))));
    let mut lab = settled(&config, Keepalive::Off, &[(20.0, 20), (20.0, 20)]);
    let (link, quarter) = (lab.client.stats().links[0].id, ms(250));
    let mut streams = [filling(5.0, lab.now, s(9))];
    let table = [(0, 50.0), (8, 16.7), (0, 50.0)];
    for (mbit, expected) in table {
        let mut a_second = |lab: &mut TunnelLab| {
            for _ in 0..4 {
                lab.client.tell_others(link, mbit * 31_250, quarter);
                let until = lab.now + quarter;
                run(lab, &mut streams, until);
            }
        };
        a_second(&mut lab);
        let share = share_of_first(&mut lab, |lab| (0..2).for_each(|_| a_second(lab)));
        let others = lab.proxy.stats().links[0].sensed.others;
        println!("others receive {mbit} of 10 Mbit/s: {share:.1} %, {others:?}");
        assert_eq!(others.raw.unwrap_or_default(), Bitrate::from_mbps(mbit));
        assert!((share - expected).abs() < 5.0, "{mbit}: {share}");
        assert_eq!(lab.proxy.stats().links[1].sensed.others.raw, None, "each link by itself");
    }
}

#[test]
fn others_that_stop_are_forgotten_while_every_report_rides_on_packets() {
    let config =
        two_links(natalie(Weights::Auto, WhenFull::Pass), [(); 2].map(|()| told(Some(10))));
    let mut lab = settled(&config, Keepalive::Off, &[(20.0, 20), (20.0, 20)]);
    let (links, length) = (lab.client.stats().links, s(6));
    let up = Stream::at_rate(Towards::Proxy, 2.0, 60, lab.now, length);
    let mut streams = [filling(5.0, lab.now, length), up];
    let left = |lab: &TunnelLab| [0, 1].map(|at| lab.proxy.stats().links[at].sensed.others);
    for (mbit, most) in [(8, 8.0), (0, 0.5)] {
        for _ in 0..8 {
            links.iter().for_each(|link| lab.client.tell_others(link.id, mbit * 31_250, ms(250)));
            let until = lab.now + ms(250);
            run(&mut lab, &mut streams, until);
        }
        for others in left(&lab) {
            let filtered = others.filtered.map_or(f64::NAN, ropewalk_proto::link::sensing::as_f64);
            assert_eq!(others.raw, Some(Bitrate::from_mbps(mbit)));
            assert!(filtered <= most * 1e6, "{mbit} Mbit/s: {others:?}");
        }
    }
}

/// Guideline 3 of the paper, with the thresholds of its figures 5 and 6. The window of such a link is one or two
/// datagrams, so that most of its losses are found by the timeout.
#[test]
fn a_link_that_loses_as_much_as_the_paper_bears_no_more_is_left_out() {
    for (mbit, losses, other) in [
        (10.0, [0.05, 0.1, 0.2], 10.0),
        (2.0, [0.05, 0.1, 0.2], 10.0),
        (1.0, [0.15, 0.2, 0.3], 1.0),
    ] {
        for loss in losses {
            let config =
                two_links(natalie(Weights::Auto, WhenFull::Pass), [(); 2].map(|()| told(None)));
            let mut lab = settled(&config, Keepalive::Off, &[(other, 20), (mbit, 20)]);
            let lossy = Conditions { loss: Loss::Bernoulli(loss), ..conditions(mbit, 20, 100) };
            lab.links[1].down.handle_change(lab.now, lossy.clone());
            lab.links[1].up.handle_change(lab.now, lossy);
            let begin = lab.now;
            let mut streams = [filling(0.9 * other + 0.5 * mbit, begin, s(20))];
            run(&mut lab, &mut streams, begin + s(8));
            let share =
                100.0 - share_of_first(&mut lab, |lab| run(lab, &mut streams, begin + s(20)));
            let link = &lab.proxy.stats().links[1];
            println!(
                "{mbit} Mbit/s, loss {loss}: {share:.1} %, seen {:.3}",
                link.sender.loss_ratio
            );
            assert!(share < 2.0, "{mbit} Mbit/s beside {other}, loss {loss}: {share:.1} %");
        }
    }
}

/// A window that grew without limit behind the pacing would not hold back anything when the link becomes slower.
#[test]
fn what_others_leave_of_a_told_rate_is_kept_to_and_lets_no_window_outgrow_what_is_in_flight() {
    for (others, expected_mbit, loses) in [(Some(2), 8.0, false), (None, 10.0, true)] {
        let config =
            two_links(natalie(Weights::Auto, WhenFull::Pass), [(); 2].map(|()| told(Some(10))));
        let mut lab = settled(&config, Keepalive::Off, &[(10.0, 20)]);
        // Who is counted is known before the link is filled: else slow start opens the window first.
        let (link, known) = (lab.client.stats().links[0].id, lab.now);
        let begin = known + s(2);
        let mut streams = [filling(1.0, known, s(2)), filling(15.0, begin, s(20))];
        for quarter in 1..=88 {
            if let Some(mbit) = others {
                lab.client.tell_others(link, mbit * 31_250, ms(250));
            }
            run(&mut lab, &mut streams, known + ms(250) * quarter);
        }
        let link = &lab.proxy.stats().links[0];
        #[expect(clippy::cast_precision_loss, reason = "few bytes")]
        let mbit = (link.on_wire.sent as f64 * 8e-6 - 2.0) / 20.0;
        println!(
            "others {others:?}: {mbit:.2} Mbit/s, lost {}, window {}",
            link.sender.lost, link.sender.window
        );
        assert!((mbit - expected_mbit).abs() < 0.4, "others {others:?}: {mbit}");
        assert_eq!(link.sender.lost > 0, loses, "others {others:?}: {:?}", link.sender);
        assert!(loses || link.sender.window < 60, "{:?}", link.sender);
    }
}

#[test]
fn what_others_receive_wakes_nobody() {
    let config = TunnelConfig::default();
    let mut lab = settled(&config, Keepalive::Off, &[(10.0, 20)]);
    lab.run_until(lab.now + s(10));
    let link = lab.client.stats().links[0].id;
    let before = lab.client.stats().links[0].sent;
    for _ in 0..100 {
        lab.client.tell_others(link, 1_000_000, ms(250));
        lab.run_until(lab.now + ms(250));
    }
    assert_eq!(lab.client.stats().links[0].sent, before);
}

#[test]
fn the_round_trip_of_a_link_without_packets_is_followed_while_the_tunnel_is_in_use() {
    let config = two_links(
        natalie(Weights::Told, WhenFull::Pass),
        [told(None), LinkTerms { weight: Some(0.0), ..LinkTerms::default() }],
    );
    let mut lab = settled(&config, Keepalive::Off, &[(10.0, 20), (10.0, 20)]);
    let mut streams = [filling(2.0, lab.now, s(20))];
    let until = lab.now + s(5);
    run(&mut lab, &mut streams, until);
    let ends = |lab: &TunnelLab| [lab.client.stats(), lab.proxy.stats()];
    let trips =
        |lab: &TunnelLab| ends(lab).map(|end| end.links[1].sensed.rtt.raw.unwrap_or_default());
    assert!(trips(&lab).iter().all(|rtt| *rtt < ms(30)), "{:?}", trips(&lab));
    let changed = lab.now;
    lab.links[1].down.handle_change(changed, conditions(10.0, 200, 100));
    lab.links[1].up.handle_change(changed, conditions(10.0, 200, 100));
    run(&mut lab, &mut streams, changed + ms(1300));
    println!("1.3 s after 20 became 200 ms: {:?}", trips(&lab));
    assert!(trips(&lab).iter().all(|rtt| (ms(195)..ms(230)).contains(rtt)), "{:?}", trips(&lab));

    // What it costs, apart from the marks.
    let bytes = |lab: &TunnelLab| ends(lab).map(|end| end.links[1].sender.confirmed);
    let before = bytes(&lab);
    run(&mut lab, &mut streams, changed + ms(11_300));
    println!("datagrams in 10 s: {:?} to {:?}", before, bytes(&lab));
    // None when the tunnel is out of use.
    let idle = changed + s(17);
    run(&mut lab, &mut streams, idle);
    let before = ends(&lab).map(|end| end.links[1].sent);
    lab.run_until(idle + s(60));
    assert_eq!(ends(&lab).map(|end| end.links[1].sent), before);
}
