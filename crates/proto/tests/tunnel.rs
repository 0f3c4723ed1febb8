//! Two tunnels over emulated links, in virtual time.

mod common;

use common::{constant_rate, udp_packet, with_links};
use ropewalk_netlab::lab::Towards;
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::ecn::Ecn;
use ropewalk_proto::error::DropReason;
use ropewalk_proto::path::Path;
use ropewalk_proto::sched::WhenClosed;
use ropewalk_proto::sink::{PacketSink, TransmitSink};
use ropewalk_proto::tunnel::LinkState;

#[test]
fn links_join_and_come_up() {
    let mut lab = with_links(&TunnelConfig::default(), &[(8.0, 10), (2.0, 100)], 1);
    for end in [lab.client.stats(), lab.proxy.stats()] {
        assert_eq!(end.links.len(), 2);
        for link in &end.links {
            assert_eq!(link.state, LinkState::Up);
            assert_eq!(link.path_mtu, 1500);
        }
        assert_eq!(end.inner_mtu, Some(1440));
    }
    while let Some(event) = lab.client.poll_event() {
        println!("client: {event:?}");
    }
}

#[test]
fn two_unequal_links_carry_their_sum_in_order() {
    for towards in [Towards::Client, Towards::Proxy] {
        let mut lab = with_links(&TunnelConfig::default(), &[(8.0, 10), (2.0, 100)], 1);
        let flow = constant_rate(&mut lab, towards, 10.0, 1440, 30);
        let (sender, receiver) = match towards {
            Towards::Client => (lab.proxy.stats(), lab.client.stats()),
            Towards::Proxy => (lab.client.stats(), lab.proxy.stats()),
        };
        println!("{towards:?}: {:.3} Mbit/s, {flow:?}", flow.mbps());
        println!("{:#?}", receiver.reseq);
        println!(
            "{:?} {:?}",
            sender.drops,
            sender
                .links
                .iter()
                .map(|l| (l.sender.window, l.sender.lost, l.sender.timeouts, l.sender.srtt))
                .collect::<Vec<_>>()
        );
        println!(
            "{:?}",
            lab.links.iter().map(|l| (l.down.counters(), l.up.counters())).collect::<Vec<_>>()
        );
        assert!(flow.mbps() > 9.4);
        assert!(flow.in_order as f64 / flow.received as f64 > 0.999);
    }
}

#[test]
fn a_packets_mark_is_copied_to_its_datagram_unless_configured_otherwise() {
    for (ecn, expected) in [(true, [Ecn::NotEct, Ecn::Ect0, Ecn::Ce]), (false, [Ecn::NotEct; 3])] {
        let config = TunnelConfig { ecn, ..TunnelConfig::default() };
        let mut lab = with_links(&config, &[(8.0, 10)], 1);
        let mut sent = Sent::default();
        for mark in [Ecn::NotEct, Ecn::Ect0, Ecn::Ce] {
            let mut packet = udp_packet(0, 1400);
            packet[1] = mark.bits();
            lab.client.handle_packet(lab.now, &packet, &mut sent);
            lab.client.poll_transmit(lab.now, &mut sent);
        }
        assert_eq!(sent.marks, expected, "ecn = {ecn}");
    }
}

/// Notes the marks of large datagrams.
#[derive(Default)]
struct Sent {
    buffer: Vec<u8>,
    mark: Ecn,
    marks: Vec<Ecn>,
}

impl TransmitSink for Sent {
    fn reserve(&mut self, _: Path, ecn: Ecn, len: usize) -> Option<&mut [u8]> {
        self.buffer = vec![0; len];
        self.mark = ecn;
        Some(&mut self.buffer)
    }

    fn commit(&mut self, len: usize) {
        if len >= 1400 {
            self.marks.push(self.mark);
        }
    }
}

impl PacketSink for Sent {
    fn deliver(&mut self, _: &[u8]) {}
}

#[test]
fn the_papers_policy_drops_what_finds_no_room_and_fills_the_links_all_the_same() {
    let config = TunnelConfig { when_closed: WhenClosed::Drop, ..TunnelConfig::default() };
    for towards in [Towards::Client, Towards::Proxy] {
        let mut lab = with_links(&config, &[(8.0, 10), (2.0, 100)], 1);
        let flow = constant_rate(&mut lab, towards, 10.0, 1440, 30);
        let sender = match towards {
            Towards::Client => lab.proxy.stats(),
            Towards::Proxy => lab.client.stats(),
        };
        println!("{towards:?}: {:.3} Mbit/s, {:?}", flow.mbps(), sender.drops);
        assert!(flow.mbps() > 0.95 * 9.6);
        assert!(sender.drops.get(DropReason::NoRoom) > 0);
        assert_eq!(sender.drops.get(DropReason::QueueTimeout), 0);
    }
}
