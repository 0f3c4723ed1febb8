//! What one link and two links carry, and what their reports cost.

use ropewalk_netlab::lab::Towards;
use ropewalk_netlab::netem::{Conditions, Rate};
use ropewalk_netlab::stream::{Stream, run};
use ropewalk_proto::config::TunnelConfig;
use ropewalk_settings::{Bitrate, Keepalive};

use super::{SEED, s, settled};

/// Full inner packets where all paths are IPv4 with 1500 bytes.
const FULL: usize = 1440;
/// The share of a link's rate that such packets can have at most.
const SHARE: f64 = 1440.0 / 1500.0;

#[test]
fn one_link_alone_carries_its_limit_and_adds_no_delay() {
    println!("rate/rtt/direction: goodput of limit, delay at 80 %, delay at 120 %");
    for (mbit, rtt) in [(10.0, 20), (2.0, 100), (50.0, 10)] {
        for towards in [Towards::Client, Towards::Proxy] {
            let mut lab = settled(&TunnelConfig::default(), Keepalive::default(), &[(mbit, rtt)]);
            let limit = mbit * SHARE;
            let start = lab.now;
            let light = Stream::at_rate(towards, limit * 0.8, FULL, start, s(10));
            let mut streams =
                [light, Stream::at_rate(towards, limit * 1.2, FULL, start + s(12), s(20))];
            run(&mut lab, &mut streams, start + s(35));
            let [light, heavy] = &streams;
            // Without the time in which the window opens.
            let (from, to) = (start + s(14), start + s(32));
            let goodput = heavy.mbit_between(from, to);
            println!(
                "{mbit} Mbit/s {rtt} ms {towards:?}: {:.1} %, {:.1} ms, {:.1} ms",
                100.0 * goodput / limit,
                light.delays_from(start + s(2)).p99_ms,
                heavy.delays().p50_ms,
            );
            assert!(goodput >= 0.98 * limit, "{goodput} of {limit} Mbit/s");
            assert_eq!(light.missing(), 0);
            // One way, a packet's own time on the link, and one more for a report or probe before it.
            let bare = rtt as f64 / 2.0 + 2.0 * 1500.0 * 8.0 / (mbit * 1e3);
            let delays = light.delays_from(start + s(2));
            assert!(delays.p99_ms <= bare + 0.1, "{delays:?}, bare {bare}");
            // What the link holds of its own queue, and the most that the tunnel's holds.
            assert!(heavy.delays().max_ms <= bare + 260.0, "{:?}", heavy.delays());
        }
    }
}

#[test]
fn two_links_carry_their_sum_in_both_directions() {
    let tables = [
        vec![(5.0, 1, 5.0, 1), (6.0, 1, 4.0, 1), (7.0, 1, 3.0, 1), (8.0, 1, 2.0, 1)],
        vec![(5.0, 10, 5.0, 10), (5.0, 10, 5.0, 30), (5.0, 10, 5.0, 50), (5.0, 10, 5.0, 100)],
        vec![(8.0, 10, 2.0, 100)],
    ];
    println!("links: goodput of sum, in order, waits");
    for (a, rtt_a, b, rtt_b) in tables.into_iter().flatten() {
        for towards in [Towards::Client, Towards::Proxy] {
            let mut lab =
                settled(&TunnelConfig::default(), Keepalive::default(), &[(a, rtt_a), (b, rtt_b)]);
            let start = lab.now;
            let mut streams = [Stream::at_rate(towards, a + b, FULL, start, s(20))];
            run(&mut lab, &mut streams, start + s(21));
            let stream = &streams[0];
            let percent = 100.0 * stream.mbit_between(start, start + s(20)) / (a + b);
            let reseq = match towards {
                Towards::Client => lab.client.stats().reseq,
                Towards::Proxy => lab.proxy.stats().reseq,
            };
            println!(
                "{a} Mbit/s {rtt_a} ms + {b} Mbit/s {rtt_b} ms {towards:?}: {percent:.1} %, {:.2} %, \
                 p99 {} us, late {}, by deadline {}",
                stream.in_order_percent(),
                reseq.wait_p99_us,
                reseq.late,
                reseq.skipped_by_deadline,
            );
            assert!(percent >= 94.0);
            assert!(stream.in_order_percent() >= 99.9);
        }
    }
}

#[test]
fn reports_cost_less_than_a_hundredth_at_high_rates() {
    let mut lab =
        settled(&TunnelConfig::default(), Keepalive::default(), &[(200.0, 20), (100.0, 30)]);
    for link in &mut lab.links {
        // Only the cost of reports is of interest, not where the window ends.
        let wide = Conditions {
            rate: Rate::Fixed(Bitrate::from_mbps(500)),
            ..link.down.conditions().clone()
        };
        link.down.handle_change(lab.now, wide);
    }
    let start = lab.now;
    let bytes = |lab: &ropewalk_netlab::pair::TunnelLab| {
        let sum =
            |of: fn(&ropewalk_netlab::lab::LabLink) -> u64| lab.links.iter().map(of).sum::<u64>();
        (sum(|l| l.down.counters().delivered_bytes), sum(|l| l.up.counters().delivered_bytes))
    };
    let mut streams = [Stream::at_rate(Towards::Client, 250.0, FULL, start, s(8))];
    run(&mut lab, &mut streams, start + s(3));
    let before = bytes(&lab);
    run(&mut lab, &mut streams, start + s(8));
    let after = bytes(&lab);
    let (down, up) = (after.0 - before.0, after.1 - before.1);
    let percent = 100.0 * up as f64 / down as f64;
    println!("seed {SEED}: {} Mbit/s down, reports {percent:.2} % of it", down * 8 / 5_000_000);
    assert!(down > 100_000_000, "{down} bytes are no high rate");
    assert!(percent < 1.0);
}
