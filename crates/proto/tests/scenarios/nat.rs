//! NATs that forget, and NATs that change.

use std::time::Duration;

use ropewalk_netlab::lab::Towards;
use ropewalk_netlab::netem::{Conditions, Cut};
use ropewalk_netlab::pair::TunnelLab;
use ropewalk_netlab::stream::{Stream, run};
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::error::DropReason;
use ropewalk_proto::event::Event;
use ropewalk_proto::time::Instant;
use ropewalk_proto::tunnel::LinkState;
use ropewalk_settings::Keepalive;

use super::{ms, s, settled};

/// One link whose NAT forgets after `timeout`, and which comes back with another port.
fn behind_nat(keepalive: Keepalive, timeout: Duration) -> TunnelLab {
    let mut lab = settled(&TunnelConfig::default(), keepalive, &[(10.0, 40)]);
    for link in &mut lab.links {
        (link.nat_timeout, link.nat_renumbers) = (Some(timeout), true);
    }
    lab
}

/// How long a packet from the server's side takes after `silence`; `None`: it does not come.
fn first_packet(lab: &mut TunnelLab, silence: Duration) -> Option<Duration> {
    let at = lab.now + silence;
    let mut streams = [Stream::at_rate(Towards::Client, 1.0, 100, at, Duration::from_nanos(1))];
    run(lab, &mut streams, at + s(3));
    let came = streams[0].came().first()?;
    streams[0].delay(came)
}

#[test]
fn a_keepalive_below_the_nats_timeout_keeps_an_idle_tunnel_open() {
    for (keepalive, comes) in [(Keepalive::Every(s(4)), true), (Keepalive::Off, false)] {
        let mut lab = behind_nat(keepalive, s(10));
        let took = first_packet(&mut lab, s(60));
        println!("{keepalive:?}: {took:?}");
        assert_eq!(took.is_some_and(|took| took < ms(25)), comes, "{keepalive:?}: {took:?}");
    }
}

#[test]
fn auto_finds_an_interval_that_works() {
    for timeout in [10, 30, 120].map(s) {
        let mut lab = behind_nat(Keepalive::Auto, timeout);
        let start = lab.now;
        let interval = |lab: &TunnelLab| lab.client.stats().links[0].keepalive.unwrap_or_default();
        let mut found = (interval(&lab), lab.now);
        while lab.now < start + s(3600) {
            let now = lab.now;
            lab.run_until(now + s(1));
            if interval(&lab) != found.0 {
                found = (interval(&lab), lab.now);
            }
        }
        println!("NAT {timeout:?}: every {:?}, after {:?}", found.0, found.1.since(start));
        assert!(found.0 < timeout && found.0 * 5 >= timeout * 2, "{:?} for {timeout:?}", found.0);
        assert!(found.1.since(start) < s(1800));
        let unmapped = lab.links[0].unmapped;
        for silence in [7, 61, 100, 233, 301].map(s) {
            let took = first_packet(&mut lab, silence);
            assert!(took.is_some_and(|took| took < ms(25)), "after {silence:?}: {took:?}");
        }
        assert_eq!(lab.links[0].unmapped, unmapped, "the mapping stays open");
    }
}

#[test]
fn a_nat_that_rebinds_under_load_stalls_nothing_for_a_second() {
    for (name, address) in [("port", false), ("address", true)] {
        for towards in [Towards::Client, Towards::Proxy] {
            let mut lab = settled(&TunnelConfig::default(), Keepalive::default(), &[(10.0, 40)]);
            let start = lab.now;
            let mut streams = [Stream::at_rate(towards, 5.0, 1200, start, s(10))];
            run(&mut lab, &mut streams, start + s(3));
            let outer = &mut lab.links[0].outer;
            if address {
                outer.set_ip([198, 51, 100, 77].into());
            }
            outer.set_port(50_123);
            run(&mut lab, &mut streams, start + s(12));
            let stall = streams[0].longest_stall(start + s(2), start + s(10));
            let after = streams[0].mbit_between(start + s(5), start + s(10));
            println!(
                "{name}, {towards:?}: stall {stall:?}, {} missing, then {after:.2} Mbit/s",
                streams[0].missing()
            );
            assert!(stall < s(1));
            assert!(after > 4.9);
        }
    }
}

#[test]
fn the_first_packet_after_a_long_idle_time_needs_no_more_than_the_delay() {
    let mut lab = settled(&TunnelConfig::default(), Keepalive::Every(s(15)), &[(10.0, 40)]);
    assert!(lab.now < Instant::ZERO + s(3));
    assert!(first_packet(&mut lab, s(3600)).is_some_and(|took| took < ms(25)));
}

#[test]
fn full_packets_pass_over_a_change_of_address_and_nobody_is_told_of_a_smaller_mtu() {
    for links in [&[(10.0, 40)][..], &[(10.0, 40), (10.0, 40)]] {
        let mut lab = settled(&TunnelConfig::default(), Keepalive::default(), links);
        let start = lab.now;
        while lab.proxy.poll_event().is_some() {}
        let mut streams = [Stream::at_rate(Towards::Client, 5.0, 1440, start, s(10))];
        run(&mut lab, &mut streams, start + s(3));
        for link in &mut lab.links {
            let last = link.outer.ip();
            let std::net::IpAddr::V4(last) = last else { panic!("{last}") };
            link.outer.set_ip([198, 51, 101, last.octets()[3]].into());
        }
        run(&mut lab, &mut streams, start + s(12));
        let told: Vec<_> = std::iter::from_fn(|| lab.proxy.poll_event()).collect();
        let stall = streams[0].longest_stall(start + s(2), start + s(10));
        println!("stall {stall:?}, {} missing, {told:?}", streams[0].missing());
        assert!(told.iter().any(|event| matches!(event, Event::PathMoved(..))), "{told:?}");
        assert!(!told.iter().any(|event| matches!(event, Event::InnerMtu(_))), "{told:?}");
        let proxy = lab.proxy.stats();
        assert_eq!(proxy.drops.get(DropReason::PacketTooBig), 0);
        assert!(proxy.links.iter().all(|link| link.path_mtu == 1500));
        assert!(stall < s(1));
    }
}

#[test]
fn a_shorter_way_through_another_nat_puts_nothing_out_of_order() {
    let mut lab = settled(&TunnelConfig::default(), Keepalive::default(), &[(10.0, 200)]);
    let start = lab.now;
    let mut streams = [Stream::at_rate(Towards::Proxy, 4.0, 1200, start, s(6))];
    run(&mut lab, &mut streams, start + s(3));
    lab.links[0].outer.set_port(50_123);
    run(&mut lab, &mut streams, start + s(3) + ms(10));
    // What is under way on the old path arrives up to 60 ms after what goes over the new one.
    let up = &mut lab.links[0].up;
    let shorter = Conditions { delay: ms(40), keep_order: false, ..up.conditions().clone() };
    up.handle_change(lab.now, shorter);
    run(&mut lab, &mut streams, start + s(3) + ms(150));
    let reseq = lab.proxy.stats().reseq;
    println!("{:.2} % in order, {reseq:?}", streams[0].in_order_percent());
    assert!(reseq.resequenced > 0, "nothing was overtaken");
    assert_eq!((reseq.late, reseq.skipped_by_proof), (0, 0));
}

#[test]
fn an_address_that_proves_nothing_gets_at_most_three_times_what_came_from_there() {
    let config = TunnelConfig::default();
    let mut lab = ropewalk_netlab::pair::tunnels(&config, &config, super::SEED);
    let good = ropewalk_netlab::pair::conditions(10.0, 40, 100);
    let cut = Conditions { cut: Some(Cut::Everything), ..good.clone() };
    for down in [cut, good.clone()] {
        let path = lab.add_link(down, good.clone(), super::SEED);
        let link = ropewalk_netlab::pair::link_config("wan", path, Keepalive::Every(s(1)));
        lab.client.add_link(lab.now, &link).expect("few links");
    }
    let mut worst = 0.0;
    for _ in 0..3000 {
        let now = lab.now;
        lab.run_until(now + ms(10));
        let stats = lab.proxy.stats();
        if let Some(link) = stats.links.first().filter(|link| link.id.0 == 0) {
            assert_eq!(link.state, LinkState::Joining);
            let share = link.sent.bytes as f64 / link.received.bytes as f64;
            worst = f64::max(worst, share);
        }
    }
    println!("at most {worst:.2} times what came");
    assert!(worst > 1.0 && worst <= 3.0, "{worst}");
    // It is taken at last when the peer does receive there.
    lab.links[0].down.handle_change(lab.now, good);
    let now = lab.now;
    lab.run_until(now + s(3));
    assert!(lab.proxy.stats().links.iter().all(|link| link.state == LinkState::Up));
}
