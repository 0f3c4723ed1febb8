//! Stories of packets that were lost and sent again (`order = "flow"`), in virtual time: each prints its figures and asserts
//! them.

use std::time::Duration;

use ropewalk_netlab::lab::Towards;
use ropewalk_netlab::loss::Loss;
use ropewalk_netlab::netem::{Conditions, QueueLimit, Rate};
use ropewalk_netlab::pair::{TunnelLab, link_config, tunnels};
use ropewalk_netlab::stream::{Stream, run_all};
use ropewalk_netlab::tcp::{Load, TcpFlow};
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::time::Instant;
use ropewalk_proto::units::LinkId;
use ropewalk_settings::{Bitrate, Keepalive};

const SEED: u64 = 11;

/// Mbit/s, milliseconds one way, the share that is lost at random.
type Link = (f64, u64, f64);

fn conditions((mbit, ms, loss): Link) -> Conditions {
    Conditions {
        rate: Rate::Fixed(Bitrate::from_kbps((mbit * 1000.0) as u32)),
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
        let link = link_config(&format!("wan{number}"), path, Keepalive::default());
        lab.client.add_link(lab.now, &link).expect("few links");
    }
    lab.run_until(Instant::ZERO + Duration::from_secs(3));
    lab
}

/// The link is cut in both directions at this moment, and nobody says so.
fn cut(lab: &mut TunnelLab, link: usize, at: Instant) {
    let link = &mut lab.links[link];
    for line in [&mut link.down, &mut link.up] {
        let nothing = Conditions { loss: Loss::Bernoulli(1.0), ..line.conditions().clone() };
        line.plan_change(at, nothing);
    }
}

/// 50 packets a second of a call.
fn call(start: Instant, length: Duration) -> Stream {
    Stream::at_rate(Towards::Client, 0.08, 200, start, length)
}

#[test]
fn what_links_lose_at_random_hardly_reaches_tcp() {
    for (links, least) in [
        ([(10.0, 25, 0.0), (10.0, 12, 0.01)], 84.0),
        ([(50.0, 20, 0.005), (50.0, 20, 0.005)], 78.0),
        ([(50.0, 20, 0.02), (50.0, 20, 0.02)], 60.0),
    ] {
        // A packet that is lost four times in a row can cost one run in ten its beginning.
        let mut percent: Vec<f64> = (0..3).map(|seed| download(&links, SEED + seed)).collect();
        percent.sort_by(f64::total_cmp);
        println!("{links:?}: {percent:.1?} % (seed {SEED})");
        assert!(percent[1] >= least, "{links:?}: {percent:.1?} %, at least {least} %");
    }
}

/// What one TCP download of 15 s gets, in percent of what all links deliver less headers.
fn download(links: &[Link], seed: u64) -> f64 {
    let mut lab = lab(links, seed);
    let (start, length) = (lab.now, Duration::from_secs(15));
    let mtu = lab.client.stats().inner_mtu.unwrap_or(1200);
    let mut flows = [TcpFlow::new(Towards::Client, Load::For(length), mtu, start)];
    run_all(&mut lab, &mut [], &mut flows, start + length);
    let limit: f64 = links.iter().map(|(mbit, _, loss)| mbit * (1.0 - loss)).sum();
    100.0 * flows[0].mbit_between(start, start + length) / 0.9253 / limit
}

#[test]
fn a_call_over_a_link_that_loses_packets_has_all_of_them() {
    for links in [vec![(20.0, 20, 0.03)], vec![(20.0, 20, 0.03), (20.0, 60, 0.0)]] {
        let mut lab = lab(&links, SEED);
        let (start, length) = (lab.now, Duration::from_secs(60));
        let mut streams = [call(start, length)];
        run_all(&mut lab, &mut streams, &mut [], start + length + Duration::from_secs(1));
        let (missing, delays) = (streams[0].missing(), streams[0].delays());
        println!(
            "{links:?}: {missing} missing, {:.1} ms in the median (seed {SEED})",
            delays.p50_ms
        );
        assert_eq!(missing, 0, "{links:?}");
        assert!(delays.p50_ms <= 22.0, "{links:?}: {} ms", delays.p50_ms);
    }
}

#[test]
fn a_link_that_falls_silent_takes_no_packet_along() {
    for (links, silent) in [
        ([(50.0, 10, 0.0), (50.0, 25, 0.0)], 0),
        ([(50.0, 10, 0.0), (50.0, 25, 0.0)], 1),
        ([(10.0, 25, 0.0), (20.0, 12, 0.0)], 1),
    ] {
        let mut stalls = Vec::new();
        for moment in 0..10 {
            let mut lab = lab(&links, SEED + moment);
            let (start, length) = (lab.now, Duration::from_secs(6));
            let at = start + Duration::from_millis(3000 + 13 * moment);
            cut(&mut lab, silent, at);
            let mtu = lab.client.stats().inner_mtu.unwrap_or(1200);
            let mut streams = [call(start, length)];
            let mut flows = [TcpFlow::new(Towards::Client, Load::For(length), mtu, start)];
            run_all(&mut lab, &mut streams, &mut flows, start + length + Duration::from_secs(1));
            let lost = streams[0].missing();
            assert_eq!(lost, 0, "{links:?}, cut at {moment}: packets of the call were lost");
            let stall = streams[0].longest_stall(at, at + Duration::from_secs(2));
            stalls.push(stall.as_millis());
        }
        stalls.sort_unstable();
        println!("{links:?}, {silent} cut: the call stands still for {stalls:?} ms (seed {SEED})");
        assert!(stalls[9] <= 200, "{links:?}: {stalls:?}");
    }
}

#[test]
fn a_link_that_is_taken_out_takes_no_packet_along() {
    let mut lab = lab(&[(20.0, 10, 0.0), (20.0, 40, 0.0)], SEED);
    let (start, length) = (lab.now, Duration::from_secs(4));
    let half = start + length / 2;
    let up = Stream::at_rate(Towards::Proxy, 0.08, 200, start, length);
    let mut streams = [call(start, length), up];
    let mtu = lab.client.stats().inner_mtu.unwrap_or(1200);
    let mut flows = [TcpFlow::new(Towards::Proxy, Load::For(length), mtu, start)];
    run_all(&mut lab, &mut streams, &mut flows, half);
    lab.with_client(|client, now, sink| client.remove_link(now, LinkId(0), sink));
    // The interface is gone: nothing comes in or goes out there any more.
    cut(&mut lab, 0, half);
    run_all(&mut lab, &mut streams, &mut flows, start + length + Duration::from_secs(1));
    for (stream, direction) in streams.iter().zip(["down", "up"]) {
        let stall = stream.longest_stall(half, start + length);
        println!("{direction}: {} missing, still for {stall:?} (seed {SEED})", stream.missing());
        assert_eq!(stream.missing(), 0, "{direction}");
        assert!(stall <= Duration::from_millis(150), "{direction}: {stall:?}");
    }
}

#[test]
fn what_is_kept_to_be_sent_again_is_given_back_when_nothing_goes() {
    let mut lab = lab(&[(20.0, 10, 0.0), (20.0, 40, 0.0)], SEED);
    let (start, length) = (lab.now, Duration::from_secs(2));
    let mut streams = [Stream::at_rate(Towards::Client, 30.0, 1400, start, length)];
    run_all(&mut lab, &mut streams, &mut [], start + length);
    let during = lab.proxy.stats().repairs.expect("what is lost is sent again");
    assert!(during.kept > 10 && during.kept_bytes > 10_000, "{during:?}");
    lab.run_until(start + length + Duration::from_secs(10));
    let after = lab.proxy.stats().repairs.expect("as before");
    assert_eq!((after.kept, after.kept_bytes), (0, 0));
    assert_eq!(lab.proxy.stats().spare_bytes, 0);
}
