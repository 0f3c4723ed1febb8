//! Stories of packets by arrival (`scheduler = "arrival"`), over two unequal links, in virtual time: each prints its figures and
//! asserts them.

use std::time::Duration;

use ropewalk_netlab::lab::Towards;
use ropewalk_netlab::netem::{Conditions, Rate};
use ropewalk_netlab::pair::{TunnelLab, connected};
use ropewalk_netlab::stream::{Stream, run_all};
use ropewalk_netlab::tcp::{Load, TcpFlow};
use ropewalk_proto::config::TunnelConfig;
use ropewalk_settings::{Bitrate, ControllerKind, SchedulerKind};

const SEED: u64 = 3;

/// Mbit/s, and milliseconds one way.
type Link = (u64, u64);

/// A tunnel that has been up for three seconds over these links.
fn lab(links: &[Link]) -> TunnelLab {
    let config = TunnelConfig {
        controller: ControllerKind::Model,
        scheduling: SchedulerKind::Arrival.into(),
        ..TunnelConfig::default()
    };
    connected(&config, links, SEED)
}

/// What one TCP download of 15 s gets, in percent of all links less headers.
fn download(links: &[Link]) -> f64 {
    let mut lab = lab(links);
    let (start, length) = (lab.now, Duration::from_secs(15));
    let mtu = lab.client.stats().inner_mtu.unwrap_or(1200);
    let mut flows = [TcpFlow::new(Towards::Client, Load::For(length), mtu, start)];
    run_all(&mut lab, &mut [], &mut flows, start + length);
    let sum: u64 = links.iter().map(|link| link.0).sum();
    100.0 * flows[0].mbit_between(start, start + length) / 0.9253 / sum as f64
}

#[test]
fn one_tcp_gains_by_a_second_link_that_is_slower_or_longer() {
    for (links, least) in [
        ([(50, 20), (50, 20)], 90.0),
        ([(50, 20), (50, 40)], 90.0),
        ([(50, 20), (50, 70)], 83.0),
        ([(50, 20), (50, 120)], 70.0),
        ([(50, 20), (12, 20)], 90.0),
        ([(100, 20), (10, 20)], 90.0),
        ([(40, 10), (20, 25)], 90.0),
    ] {
        let percent = download(&links);
        println!("{links:?}: {percent:.1} %");
        assert!(percent >= least, "{links:?}: {percent:.1} %, at least {least} %");
    }
}

#[test]
fn a_second_link_that_is_worth_nothing_costs_nothing() {
    for (links, alone) in [([(40, 35), (20, 320)], (40, 35)), ([(50, 15), (2, 400)], (50, 15))] {
        let (both, alone) = (download(&links), download(&[alone]));
        let rate = |percent: f64, links: &[Link]| {
            percent * links.iter().map(|link| link.0).sum::<u64>() as f64 / 100.0
        };
        let (both, alone) = (rate(both, &links), rate(alone, &links[..1]));
        println!("{links:?}: {both:.1} Mbit/s, the first alone {alone:.1}");
        assert!(both >= 0.95 * alone, "{links:?}: {both:.1} of {alone:.1} Mbit/s");
    }
}

#[test]
fn a_call_takes_the_fastest_link_and_no_other() {
    for links in [[(40, 35), (20, 320)], [(5, 5), (5, 50)], [(10, 60), (300, 8)]] {
        let mut lab = lab(&links);
        let (start, length) = (lab.now, Duration::from_secs(10));
        let mut streams = [Stream::at_rate(Towards::Client, 0.08, 200, start, length)];
        run_all(&mut lab, &mut streams, &mut [], start + length);
        let fastest = links.iter().map(|link| link.1).min().unwrap_or(0) as f64;
        let delays = streams[0].delays();
        println!("{links:?}: {:.1} ms in the median, p95 {:.1}", delays.p50_ms, delays.p95_ms);
        assert!(delays.p95_ms <= fastest + 3.0, "{links:?}: {} ms", delays.p95_ms);
    }
}

#[test]
fn when_the_fast_link_falls_silent_a_call_goes_over_the_other_at_once_and_back_when_it_returns() {
    for links in [[(40, 35), (20, 320)], [(50, 10), (50, 50)]] {
        let mut lab = lab(&links);
        let start = lab.now;
        let (silent, back) = (start + Duration::from_secs(3), start + Duration::from_secs(6));
        let fast = &mut lab.links[0];
        for line in [&mut fast.down, &mut fast.up] {
            let before = line.conditions().clone();
            let nothing = Conditions { rate: Rate::Fixed(Bitrate::from_kbps(1)), ..before.clone() };
            line.plan_change(silent, nothing);
            line.plan_change(back, before);
        }
        let mut streams =
            [Stream::at_rate(Towards::Client, 0.08, 200, start, back.since(start) * 2)];
        run_all(&mut lab, &mut streams, &mut [], start + Duration::from_secs(12));
        let ms = |millis| Duration::from_millis(millis);
        let slow = ms(links[1].1);
        let full = streams[0].mbit_between(start, start + ms(2500));
        let meanwhile = streams[0].mbit_between(silent + ms(300) + slow, back);
        let after = streams[0].mbit_between(back + ms(2000), start + Duration::from_secs(11));
        println!(
            "{links:?}: {:.0} % from 0.3 s on, {:.0} % after",
            100.0 * meanwhile / full,
            100.0 * after / full
        );
        assert!(meanwhile >= 0.9 * full, "{links:?}: {meanwhile} of {full}");
        assert!(after >= 0.95 * full, "{links:?}: {after} of {full}");
    }
}
