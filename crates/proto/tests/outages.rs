//! What a person sees of links that carry nothing for a while, in virtual time: how each end knew, how much was moved to other
//! links, for how long that stood still, and that the link is back.

use std::time::Duration;

use ropewalk_netlab::lab::{PROXY, Towards};
use ropewalk_netlab::netem::{Conditions, Cut, QueueLimit, Rate};
use ropewalk_netlab::pair::{TunnelLab, link_config, tunnels};
use ropewalk_netlab::stream::run_all;
use ropewalk_netlab::tcp::{Load, TcpFlow};
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::time::Instant;
use ropewalk_proto::tunnel::{Outage, OutageCause};
use ropewalk_proto::units::LinkId;
use ropewalk_settings::{Bitrate, Keepalive};

const SEED: u64 = 61;

/// How long a link is away.
const AWAY: Duration = Duration::from_millis(1500);

/// 20 Mbit/s each, 20 and 50 ms.
const RTTS: [u64; 2] = [20, 50];

fn conditions(rtt_ms: u64) -> Conditions {
    Conditions {
        rate: Rate::Fixed(Bitrate::from_mbps(20)),
        delay: Duration::from_micros(rtt_ms * 500),
        queue: QueueLimit::of_time(Duration::from_millis(100)),
        ..Conditions::default()
    }
}

/// A tunnel that has been up for three seconds.
fn lab() -> TunnelLab {
    let config = TunnelConfig::default();
    let mut lab = tunnels(&config, &config, SEED);
    for (place, rtt) in (0..).zip(RTTS) {
        lab.add_link(conditions(rtt), conditions(rtt), SEED + u64::from(place));
        join(&mut lab, place);
    }
    lab.run_until(Instant::ZERO + Duration::from_secs(3));
    lab
}

/// The client's way over the link in this place.
fn path(place: u16) -> Path {
    Path { socket: SocketId(place), local: None, remote: PROXY }
}

fn join(lab: &mut TunnelLab, place: u16) {
    let config = link_config(&format!("wan{place}"), path(place), Keepalive::default());
    lab.with_client(|client, now, _| client.add_link(now, &config)).expect("few links");
}

/// Nothing passes on the first link for [`AWAY`] from this moment on.
fn cut(lab: &mut TunnelLab, from: Instant) {
    let before = conditions(RTTS[0]);
    let link = &mut lab.links[0];
    for line in [&mut link.down, &mut link.up] {
        line.plan_change(from, Conditions { cut: Some(Cut::Everything), ..before.clone() });
        line.plan_change(from + AWAY, before.clone());
    }
}

/// The first link is away during a download; `act` is what the client does then, and when the link is back. Returns the outages
/// that the client and the proxy tell of.
fn away(act: impl Fn(&mut TunnelLab), back: impl Fn(&mut TunnelLab)) -> [Vec<Outage>; 2] {
    let mut lab = lab();
    let (start, length) = (lab.now, Duration::from_secs(7));
    let mtu = lab.client.stats().inner_mtu.unwrap_or(1200);
    let mut flows = [TcpFlow::new(Towards::Client, Load::For(length), mtu, start)];
    let at = start + Duration::from_secs(3);
    cut(&mut lab, at);
    run_all(&mut lab, &mut [], &mut flows, at);
    for before in [lab.client.stats().outages, lab.proxy.stats().outages] {
        assert_eq!(before.counts, [0; 4], "late answers are no outages: {before:?}");
    }
    act(&mut lab);
    run_all(&mut lab, &mut [], &mut flows, at + AWAY);
    back(&mut lab);
    run_all(&mut lab, &mut [], &mut flows, start + length);
    let told = [lab.client.stats().outages, lab.proxy.stats().outages];
    for outages in &told {
        let moved: u64 = outages.newest.iter().map(|outage| outage.moved).sum();
        assert_eq!(outages.counts.iter().sum::<u64>(), outages.newest.len() as u64, "{outages:?}");
        assert!(outages.moved >= moved, "with what late answers cost: {outages:?}");
        assert!(outages.newest.iter().all(|outage| outage.returned.is_some()), "{outages:?}");
        let stalls = outages.newest.iter().filter_map(|outage| outage.stall);
        let known = outages.stalls.iter().flat_map(|stalls| stalls.counts);
        assert_eq!(known.sum::<u64>(), stalls.clone().count() as u64, "{outages:?}");
        let sum: Duration = outages.stalls.iter().map(|stalls| stalls.sum).sum();
        assert_eq!(sum, stalls.sum::<Duration>(), "{outages:?}");
    }
    told.map(|outages| outages.newest.into_iter().collect())
}

/// The download was moved at the proxy, stood still for a moment, and the link was away for about as long as it was cut.
fn is_told_in_whole(outage: &Outage) {
    let stall = outage.stall.expect("packets were moved, and confirmed");
    assert!(outage.moved > 10, "{outage:?}");
    assert!((20..200).contains(&stall.as_millis()), "{outage:?}");
    let away = outage.returned.map(|returned| returned.since(outage.at)).unwrap_or_default();
    assert!((1300..2600).contains(&away.as_millis()), "{outage:?}");
    assert_eq!(outage.name.as_str(), "wan0");
}

#[test]
fn a_link_that_falls_silent_is_told_of_at_both_ends() {
    let [client, proxy] = away(|_| {}, |_| {});
    println!("client {client:?}, proxy {proxy:?} (seed {SEED})");
    let silent = |outage: &Outage| outage.cause == OutageCause::Silent;
    assert!(proxy.len() == 1 && proxy.iter().all(silent), "{proxy:?}");
    is_told_in_whole(&proxy[0]);
    assert!(client.len() == 1 && client.iter().all(silent), "{client:?}");
}

#[test]
fn a_link_whose_interface_goes_is_removed_here_and_told_to_the_peer() {
    let remove = |lab: &mut TunnelLab| {
        lab.with_client(|client, now, sink| client.remove_link(now, LinkId(0), sink));
    };
    let [client, proxy] = away(remove, |lab| join(lab, 0));
    println!("client {client:?}, proxy {proxy:?} (seed {SEED})");
    assert_eq!(client.iter().map(|one| one.cause).collect::<Vec<_>>(), [OutageCause::Removed]);
    assert_eq!(proxy.iter().map(|one| one.cause).collect::<Vec<_>>(), [OutageCause::Peer]);
    is_told_in_whole(&proxy[0]);
}

#[test]
fn a_link_where_the_kernel_refuses_to_send_is_told_of_as_that() {
    let refuse = |lab: &mut TunnelLab| {
        lab.with_client(|client, now, _| client.on_send_refused(now, path(0)));
    };
    let [client, proxy] = away(refuse, |_| {});
    println!("client {client:?}, proxy {proxy:?} (seed {SEED})");
    assert_eq!(client.first().map(|one| one.cause), Some(OutageCause::Refused), "{client:?}");
    assert_eq!(proxy.iter().map(|one| one.cause).collect::<Vec<_>>(), [OutageCause::Peer]);
    is_told_in_whole(&proxy[0]);
}
