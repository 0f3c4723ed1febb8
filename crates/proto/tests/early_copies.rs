//! Stories of the last packets of a burst, which go over a second link when their answer is late, in virtual time. Each prints its
//! figures and asserts them.

use std::time::Duration;

use ropewalk_netlab::lab::Towards;
use ropewalk_netlab::loss::Loss;
use ropewalk_netlab::netem::{Conditions, QueueLimit, Rate};
use ropewalk_netlab::pair::{TunnelLab, link_config, tunnels};
use ropewalk_netlab::stream::{Stream, run_all};
use ropewalk_netlab::tcp::{Load, TcpFlow};
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::time::Instant;
use ropewalk_proto::timer::Timer;
use ropewalk_proto::tunnel::Repairs;
use ropewalk_settings::{Bitrate, Keepalive, Usage};

const SEED: u64 = 23;

/// Mbit/s, milliseconds one way, the share that is lost at random, whether it is a backup.
type Link = (u64, u64, f64, bool);

fn conditions((mbit, ms, loss, _): Link) -> Conditions {
    Conditions {
        rate: Rate::Fixed(Bitrate::from_mbps(mbit)),
        delay: Duration::from_millis(ms),
        loss: if loss > 0.0 { Loss::Bernoulli(loss) } else { Loss::None },
        queue: QueueLimit::of_time(Duration::from_millis(100)),
        ..Conditions::default()
    }
}

/// A tunnel that has been up for three seconds over these links.
fn lab(links: &[Link], seed: u64) -> TunnelLab {
    let config = TunnelConfig::default();
    let mut lab = tunnels(&config, &config, seed);
    for (number, link) in (0..).zip(links) {
        let path = lab.add_link(conditions(*link), conditions(*link), seed + number);
        let mut config = link_config(&format!("wan{number}"), path, Keepalive::default());
        if link.3 {
            config.policy.usage = Usage::Backup;
        }
        lab.client.add_link(lab.now, &config).expect("few links");
    }
    lab.run_until(Instant::ZERO + Duration::from_secs(3));
    lab
}

/// What the proxy sent again.
fn repairs(lab: &TunnelLab) -> Repairs {
    lab.proxy.stats().repairs.expect("the order within flows")
}

/// How long a download of 60 kB takes as the first one of a tunnel, in ms, with each of 200 seeds, in order.
fn pages(links: &[Link]) -> Vec<u128> {
    let page = |seed: u64| {
        let mut lab = lab(links, SEED + 10 * seed);
        let start = lab.now;
        let mtu = lab.client.stats().inner_mtu.unwrap_or(1200);
        let mut flows = [TcpFlow::new(Towards::Client, Load::Bytes(60_000), mtu, start)];
        run_all(&mut lab, &mut [], &mut flows, start + Duration::from_secs(10));
        assert!(flows[0].is_complete(), "seed {seed}");
        let last = flows[0].arrivals().last().expect("all of it");
        last.at.since(start).as_millis()
    };
    let mut took: Vec<u128> = (0..200).map(page).collect();
    took.sort_unstable();
    took
}

#[test]
fn a_page_whose_last_packets_are_lost_waits_for_a_round_trip_and_not_for_several() {
    for (links, most) in [
        ([(50, 10, 0.0, false), (50, 40, 0.05, false)], 190),
        ([(50, 20, 0.03, false), (50, 20, 0.03, false)], 190),
    ] {
        let took = pages(&links);
        let (half, late, longest) = (took[100], took[189], took[199]);
        println!("{links:?}: {half}, {late} (19 of 20), {longest} ms (seed {SEED})");
        assert!(late <= most, "{late} ms");
    }
}

#[test]
fn a_call_is_hardly_copied_though_its_answers_are_late() {
    for (ms, second_ms, len) in
        [(5, 5, 200), (5, 10, 200), (15, 15, 200), (15, 30, 200), (40, 80, 200), (15, 30, 1200)]
    {
        let mut lab = lab(&[(50, ms, 0.0, false), (50, second_ms, 0.0, false)], SEED);
        let (start, length) = (lab.now, Duration::from_secs(60));
        let mbit = len as f64 * 8.0 * 50.0 / 1e6;
        let mut streams = [Stream::at_rate(Towards::Client, mbit, len, start, length)];
        run_all(&mut lab, &mut streams, &mut [], start + length + Duration::from_secs(1));
        assert_eq!(streams[0].missing(), 0);
        let (sent, again) = (3000 * len as u64, repairs(&lab).sent_bytes);
        println!(
            "{ms} and {second_ms} ms, {len} bytes: {again} of {sent} bytes again (seed {SEED})"
        );
        assert!(again <= sent / 100, "{again} of {sent} bytes");
    }
}

#[test]
fn a_backup_takes_no_copy() {
    let mut lab = lab(&[(50, 20, 0.02, false), (50, 20, 0.0, true)], SEED);
    for _ in 0..20 {
        let (start, mtu) = (lab.now, lab.client.stats().inner_mtu.unwrap_or(1200));
        let mut flows = [TcpFlow::new(Towards::Client, Load::Bytes(60_000), mtu, start)];
        run_all(&mut lab, &mut [], &mut flows, start + Duration::from_secs(2));
    }
    let over_backup = lab.proxy.stats().links[1].sender.sent_bytes;
    println!("{:?}; {over_backup} bytes over the backup (seed {SEED})", repairs(&lab));
    assert!(repairs(&lab).sent > 0, "nothing was lost: a story that shows nothing");
    assert!(over_backup < 20_000, "{over_backup} bytes");
}

#[test]
fn nobody_wakes_for_copies_that_no_link_takes() {
    for is_backup in [false, true] {
        let mut lab = lab(&[(50, 5, 0.0, false), (50, 5, 0.0, is_backup)], SEED);
        let (start, length) = (lab.now, Duration::from_secs(2));
        let mut streams = [Stream::at_rate(Towards::Proxy, 0.08, 200, start, length)];
        let mut wakes = false;
        for ms in 1..2000 {
            run_all(&mut lab, &mut streams, &mut [], start + Duration::from_millis(ms));
            wakes |= matches!(lab.client.poll_timeout(), Some((_, Timer::EarlyCopy)));
        }
        assert_eq!(wakes, !is_backup);
    }
}
