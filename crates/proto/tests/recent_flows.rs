//! What a person sees of the flows of a tunnel, in virtual time: which links carry each, and what it waits for.

use std::time::Duration;

use ropewalk_netlab::lab::Towards;
use ropewalk_netlab::pair::{TunnelLab, connected};
use ropewalk_netlab::stream::{Stream, run_all};
use ropewalk_netlab::tcp::{Load, TcpFlow};
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::tunnel::{FlowWait, Flows, RecentFlow, RecentFlows};
use ropewalk_proto::units::LinkId;
use ropewalk_settings::SchedulerKind;

const SEED: u64 = 51;

/// What the proxy shows of what it sends.
fn look(lab: &mut TunnelLab, most: usize) -> RecentFlows {
    let now = lab.now;
    let recent = match lab.proxy.flows(now, most) {
        Flows::Recent(recent) => Some(*recent),
        Flows::Routed(_) => None,
    };
    recent.expect("no flow is routed")
}

/// What each of two links carried of a flow, in percent.
#[expect(clippy::cast_precision_loss, reason = "the bytes of a second")]
fn shares(flow: &RecentFlow) -> [f64; 2] {
    let all: u64 = flow.carried.iter().map(|(_, bytes)| bytes).sum();
    let on = |link| flow.carried.iter().find(|(id, _)| *id == link).map_or(0, |(_, bytes)| *bytes);
    [LinkId(0), LinkId(1)].map(|link| 100.0 * on(link) as f64 / all.max(1) as f64)
}

#[test]
fn a_download_is_seen_on_both_links_and_a_call_beside_it_on_the_sooner() {
    let mut lab = connected(&TunnelConfig::default(), &[(20, 10), (20, 40)], SEED);
    let (start, length) = (lab.now, Duration::from_secs(8));
    let mtu = lab.client.stats().inner_mtu.unwrap_or(1200);
    let mut calls = [Stream::at_rate(Towards::Client, 0.08, 200, start, length)];
    let mut downloads = [TcpFlow::new(Towards::Client, Load::For(length), mtu, start)];
    run_all(&mut lab, &mut calls, &mut downloads, start + Duration::from_secs(4));
    assert_eq!(look(&mut lab, 10).over, Duration::ZERO, "counting begins");
    run_all(&mut lab, &mut calls, &mut downloads, start + Duration::from_secs(6));
    let recent = look(&mut lab, 10);
    assert_eq!((recent.over, recent.left_out, recent.beyond), (Duration::from_secs(2), 0, 0));
    assert_eq!(recent.flows.len(), 2, "{recent:?}");
    let (download, call) = (&recent.flows[0], &recent.flows[1]);
    println!(
        "download {:.0?} %, call {:.0?} %: {recent:?} (seed {SEED})",
        shares(download),
        shares(call)
    );
    assert!(shares(download).iter().all(|share| *share > 30.0), "{:?}", shares(download));
    assert!(shares(call)[0] > 90.0, "{:?}", shares(call));
    assert!(download.waiting > 0 && download.under_way > 20_000, "{download:?}");
    assert_eq!((download.tuple.protocol, call.tuple.protocol), (Some(6), Some(17)));
    assert!(matches!(download.wait, FlowWait::Link(..) | FlowWait::Nothing), "{:?}", download.wait);
    assert!(call.waiting <= 400, "a packet or two wait for the link's pace: {call:?}");

    let one = look(&mut lab, 1);
    assert_eq!((one.flows.len(), one.left_out), (1, 1), "the busiest, and how many more");
}

#[test]
fn what_waits_for_a_link_that_is_sooner_says_which_and_by_how_much() {
    // The second link is too late to be worth anything to what waits.
    let mut lab = connected(&TunnelConfig::default(), &[(5, 10), (5, 150)], SEED);
    let (start, length) = (lab.now, Duration::from_secs(3));
    let mut streams = [Stream::at_rate(Towards::Client, 5.2, 1200, start, length)];
    let mut waits = Vec::new();
    for step in 1..200 {
        run_all(&mut lab, &mut streams, &mut [], start + Duration::from_millis(10) * step);
        waits.extend(look(&mut lab, 1).flows.iter().map(|flow| flow.wait));
    }
    let later = waits.iter().find_map(|wait| match wait {
        FlowWait::Link(LinkId(0), Some(later)) => Some(*later),
        _ => None,
    });
    println!("elsewhere {later:?} later (seed {SEED})");
    let expected = Duration::from_millis(50)..Duration::from_millis(200);
    assert!(later.is_some_and(|later| expected.contains(&later)), "{later:?} in {waits:?}");
}

#[test]
fn several_downloads_wait_for_their_turns() {
    let mut lab = connected(&TunnelConfig::default(), &[(10, 10), (10, 15)], SEED);
    let (start, length) = (lab.now, Duration::from_secs(4));
    let mtu = lab.client.stats().inner_mtu.unwrap_or(1200);
    let mut downloads: Vec<_> =
        (0..4).map(|_| TcpFlow::new(Towards::Client, Load::For(length), mtu, start)).collect();
    run_all(&mut lab, &mut [], &mut downloads, start + Duration::from_secs(3));
    let recent = look(&mut lab, 10);
    let turns =
        recent.flows.iter().filter(|flow| matches!(flow.wait, FlowWait::Turn(2..=4))).count();
    println!("{:?} (seed {SEED})", recent.flows);
    assert!(turns >= 2, "{:?}", recent.flows);
}

#[test]
fn a_tunnel_at_rest_has_no_flows_and_other_schedulers_show_theirs_too() {
    let config =
        TunnelConfig { scheduling: SchedulerKind::FreeWindow.into(), ..TunnelConfig::default() };
    let mut lab = connected(&config, &[(20, 10), (20, 10)], SEED);
    assert!(look(&mut lab, 10).flows.is_empty());
    let (start, length) = (lab.now, Duration::from_secs(2));
    let mut streams = [Stream::at_rate(Towards::Client, 4.0, 1200, start, length)];
    run_all(&mut lab, &mut streams, &mut [], start + Duration::from_secs(1));
    let recent = look(&mut lab, 10);
    assert_eq!(recent.flows.len(), 1);
    let carried: u64 = recent.flows[0].carried.iter().map(|(_, bytes)| bytes).sum();
    assert!((470_000..=530_000).contains(&carried), "{carried} bytes in a second of 4 Mbit/s");

    // Nobody looks any more: after five seconds nothing is counted.
    run_all(&mut lab, &mut streams, &mut [], start + Duration::from_secs(9));
    assert_eq!(look(&mut lab, 10).over, Duration::ZERO);
}
