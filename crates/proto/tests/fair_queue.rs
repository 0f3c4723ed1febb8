//! Stories of the queue in front of links that are used by arrival: fair between flows, and bounded by delay. In virtual time;
//! each prints its figures and asserts them.

use std::time::Duration;

use ropewalk_netlab::lab::Towards;
use ropewalk_netlab::pair::{TunnelLab, connected};
use ropewalk_netlab::stream::{Stream, run_all};
use ropewalk_netlab::tcp::{Load, TcpFlow};
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::ecn::Ecn;
use ropewalk_proto::error::DropReason;
use ropewalk_settings::{Acknowledge, ControllerKind, SchedulerKind};

const SEED: u64 = 3;
const LENGTH: Duration = Duration::from_secs(15);
/// Of the links of most stories, there and back.
const IDLE_MS: f64 = 40.0;

/// Mbit/s, and milliseconds one way.
type Link = (u64, u64);

/// A tunnel that has been up for three seconds over these links.
fn lab(links: &[Link]) -> TunnelLab {
    let config = TunnelConfig {
        controller: ControllerKind::Model,
        scheduling: SchedulerKind::Arrival.into(),
        // Else the queue would have nothing to give up.
        acknowledge: Acknowledge::EndToEnd,
        ..TunnelConfig::default()
    };
    connected(&config, links, SEED)
}

fn downloads(lab: &TunnelLab, count: usize) -> Vec<TcpFlow> {
    let mtu = lab.client.stats().inner_mtu.unwrap_or(1200);
    (0..count).map(|_| TcpFlow::new(Towards::Client, Load::For(LENGTH), mtu, lab.now)).collect()
}

/// Fifty echoes a second.
fn pings(lab: &TunnelLab) -> Stream {
    Stream::echoes(Duration::from_millis(20), 84, lab.now, LENGTH)
}

#[test]
fn eight_downloads_get_the_same() {
    for links in [[(50, 20), (50, 20)], [(50, 20), (50, 70)], [(8, 5), (2, 50)]] {
        let mut lab = lab(&links);
        let (start, mut flows) = (lab.now, downloads(&lab, 8));
        run_all(&mut lab, &mut [], &mut flows, start + LENGTH);
        let rates: Vec<f64> =
            flows.iter().map(|flow| flow.mbit_between(start, start + LENGTH)).collect();
        let sum: f64 = rates.iter().sum();
        let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
        let jain = sum * sum / 8.0 / squares;
        let all = links.iter().map(|link| link.0).sum::<u64>() as f64;
        let percent = 100.0 * sum / all / 0.9253;
        println!("{links:?}: {percent:.1} %, Jain's index {jain:.3}");
        assert!(jain >= 0.95, "{links:?}: Jain's index {jain:.3} of {rates:?}");
        assert!(percent >= 88.0, "{links:?}: {percent:.1} %");
    }
}

#[test]
fn a_ping_beside_a_download_takes_hardly_longer() {
    let mut lab = lab(&[(50, 20), (50, 20)]);
    let (start, mut flows, mut streams) = (lab.now, downloads(&lab, 1), [pings(&lab)]);
    run_all(&mut lab, &mut streams, &mut flows, start + LENGTH);
    let delays = streams[0].delays();
    println!("{:.1} ms, p95 {:.1}", delays.p50_ms, delays.p95_ms);
    assert!(delays.p50_ms <= IDLE_MS + 10.0, "{} ms", delays.p50_ms);
}

#[test]
fn a_flood_leaves_a_ping_and_a_download_beside_it_alone() {
    let mut lab = lab(&[(50, 20), (50, 20)]);
    let (start, mut flows) = (lab.now, downloads(&lab, 1));
    let flood = Stream::at_rate(Towards::Client, 130.0, 1400, start, LENGTH);
    let mut streams = [pings(&lab), flood];
    run_all(&mut lab, &mut streams, &mut flows, start + LENGTH);
    let delays = streams[0].delays();
    let half = start + LENGTH / 2;
    let rate = flows[0].mbit_between(half, start + LENGTH);
    println!("ping {:.1} ms, a download {rate:.1} Mbit/s", delays.p50_ms);
    assert!(delays.p50_ms <= IDLE_MS + 10.0, "{} ms", delays.p50_ms);
    // Three may be under way at the end.
    assert!(streams[0].missing() <= 5, "{} lost", streams[0].missing());
    assert!(rate >= 35.0, "its half would be 46: {rate:.1} Mbit/s");
}

#[test]
fn a_download_that_fills_the_queue_loses_single_packets() {
    let mut lab = lab(&[(50, 20), (50, 20)]);
    let (start, mut flows) = (lab.now, downloads(&lab, 1));
    run_all(&mut lab, &mut [], &mut flows, start + LENGTH);
    let drops = lab.proxy.stats().drops;
    let [standing, full, late] =
        [DropReason::QueueStanding, DropReason::QueueFull, DropReason::QueueTimeout]
            .map(|reason| drops.get(reason));
    println!("{standing} because it stood, {full} for lack of room, {late} of age");
    assert!((1..=10).contains(&standing), "{standing}");
    assert_eq!((full, late), (0, 0));
}

#[test]
fn where_a_flow_can_see_marks_it_is_told_by_them() {
    let mut lab = lab(&[(50, 20), (50, 20)]);
    let start = lab.now;
    let mut flood = Stream::at_rate(Towards::Client, 97.0, 1400, start, LENGTH);
    flood.ecn = Ecn::Ect0;
    let mut streams = [flood];
    run_all(&mut lab, &mut streams, &mut [], start + LENGTH);
    let marked = streams[0].came().iter().filter(|came| came.ecn == Ecn::Ce).count();
    let standing = lab.proxy.stats().drops.get(DropReason::QueueStanding);
    println!("{marked} marked, {standing} given up because the queue stood");
    assert!(marked > 0);
    assert_eq!(standing, 0);
}
