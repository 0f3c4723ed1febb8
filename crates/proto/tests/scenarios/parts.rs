//! Packets that fit no link whole and may not be refused.

use ropewalk_netlab::inner::{Inner, number_of};
use ropewalk_netlab::lab::Towards;
use ropewalk_netlab::loss::Loss;
use ropewalk_netlab::netem::Conditions;
use ropewalk_netlab::pair::{TunnelLab, conditions, link_config, tunnels};
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::error::DropReason;
use ropewalk_settings::{Keepalive, Profile};

use super::{SEED, ms, s, sender};

/// The smallest MTU of IPv6.
const SMALLEST: usize = 1280;

/// Two links over IPv4 that carry inner packets of 1,240 and 1,220 bytes.
fn narrow() -> TunnelLab {
    narrow_with(&TunnelConfig::default())
}

fn narrow_with(config: &TunnelConfig) -> TunnelLab {
    let mut lab = tunnels(config, config, SEED);
    for (place, (mtu, rtt)) in [(1300, 10), (1280, 60)].into_iter().enumerate() {
        let conditions = Conditions { mtu, ..conditions(10.0, rtt, 100) };
        let path = lab.add_link(conditions.clone(), conditions, SEED + place as u64);
        let link = link_config(&format!("wan{place}"), path, Keepalive::Off);
        lab.client.add_link(lab.now, &link).expect("few links");
    }
    lab.run_until(lab.now + s(5));
    lab
}

/// Sends packets of [`SMALLEST`] bytes, one a millisecond, and one small one after each; returns the numbers of what
/// came, all of it unaltered.
fn exchange(lab: &mut TunnelLab, towards: Towards, v6: bool, count: u64) -> Vec<u64> {
    let made = |number: u64| {
        let len = if number.is_multiple_of(2) { SMALLEST } else { 100 };
        Inner { v6, ..Inner::plain(towards, number, len) }.packet()
    };
    for number in 0..count {
        lab.send(towards.opposite(), &made(number));
        lab.run_until(lab.now + ms(1));
    }
    lab.run_until(lab.now + s(1));
    let number = |packet: &[u8]| {
        let number = number_of(packet).expect("one of ours");
        assert!(packet == made(number), "{number} was altered");
        number
    };
    lab.delivered(towards).iter().map(|came| number(&came.packet)).collect()
}

#[test]
fn packets_of_the_smallest_ipv6_mtu_pass_links_that_carry_less() {
    for towards in [Towards::Client, Towards::Proxy] {
        for v6 in [false, true] {
            let mut lab = narrow();
            assert_eq!(sender(&lab, towards).inner_mtu, Some(1220));
            let came = exchange(&mut lab, towards, v6, 400);
            assert_eq!(came, (0..400).collect::<Vec<_>>(), "{towards:?}, IPv6: {v6}");
            let receiver = sender(&lab, towards.opposite());
            assert_eq!(receiver.joined, 200);
            assert_eq!(receiver.drops.get(DropReason::PartAlone), 0);
        }
    }
}

#[test]
fn a_lost_part_costs_its_own_packet_and_no_other() {
    let mut lab = narrow_with(&TunnelConfig::of(Profile::Paper));
    for link in &mut lab.links {
        let lossy = Conditions { loss: Loss::Bernoulli(0.05), ..link.up.conditions().clone() };
        link.up.handle_change(lab.now, lossy);
    }
    let before: u64 = lab.links.iter().map(|link| link.up.counters().lost).sum();
    let came = exchange(&mut lab, Towards::Proxy, true, 4000);
    let lost = lab.links.iter().map(|link| link.up.counters().lost).sum::<u64>() - before;
    let stats = lab.proxy.stats();
    let alone = stats.drops.get(DropReason::PartAlone);
    println!("{} of 4000 came, {lost} datagrams lost, {alone} parts alone", came.len());
    assert!(alone > 50, "nothing was lost");
    assert!(
        4000 - came.len() as u64
            <= lost + lab.client.stats().drops.iter().map(|d| d.1).sum::<u64>()
    );
}

#[test]
fn an_ipv4_sender_that_forbids_fragments_is_told_as_ever() {
    let mut lab = narrow();
    let mut packet = Inner::plain(Towards::Proxy, 1, SMALLEST).packet();
    packet[6] = 0x40;
    lab.send(Towards::Client, &packet);
    assert_eq!(lab.client.stats().drops.get(DropReason::PacketTooBig), 1);
    let answers = lab.delivered(Towards::Client);
    assert_eq!(answers.iter().map(|answer| answer.packet[9]).collect::<Vec<_>>(), [1], "ICMP");
}
