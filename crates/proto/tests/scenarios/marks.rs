//! Explicit congestion notification through the tunnel (RFC 6040).

use ropewalk_netlab::batch::Tun;
use ropewalk_netlab::inner::Inner;
use ropewalk_netlab::lab::Towards;
use ropewalk_netlab::netem::{Conditions, Cut};
use ropewalk_netlab::stream::{Stream, run};
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::ecn::Ecn::{self, Ce, Ect0, Ect1, NotEct};
use ropewalk_proto::error::DropReason;
use ropewalk_proto::packet::PacketView;
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::sink::TransmitSink;
use ropewalk_settings::{Keepalive, Profile};

use super::{s, settled};

#[test]
fn marks_pass_the_tunnel_as_the_table_of_rfc_6040_says() {
    let table = [
        (NotEct, [Some(NotEct), Some(NotEct), Some(NotEct), None]),
        (Ect0, [Some(Ect0), Some(Ect0), Some(Ect1), Some(Ce)]),
        (Ect1, [Some(Ect1), Some(Ect1), Some(Ect1), Some(Ce)]),
        (Ce, [Some(Ce), Some(Ce), Some(Ce), Some(Ce)]),
    ];
    for v6 in [false, true] {
        for (inner, row) in table {
            for (outer, expected) in [NotEct, Ect0, Ect1, Ce].into_iter().zip(row) {
                let (came, dropped) = through(inner, outer, v6);
                assert_eq!(came, expected, "{inner:?} in {outer:?}, IPv6: {v6}");
                assert_eq!(dropped, u64::from(expected.is_none()));
            }
        }
    }
}

/// Sends one packet with the mark `inner` whose datagram arrives with `outer`.
fn through(inner: Ecn, outer: Ecn, v6: bool) -> (Option<Ecn>, u64) {
    let mut lab = settled(&TunnelConfig::default(), Keepalive::Off, &[(10.0, 20)]);
    let down = &mut lab.links[0].down;
    // Nothing comes by itself.
    let cut = Conditions { cut: Some(Cut::Everything), ..down.conditions().clone() };
    down.handle_change(lab.now, cut);
    lab.record = true;
    let packet = Inner { ecn: inner, v6, ..Inner::plain(Towards::Client, 1, 900) }.packet();
    lab.send(Towards::Proxy, &packet);
    let (_, _, mut datagram) = lab.recorded.pop().expect("the window has room");
    let remote = ropewalk_netlab::lab::PROXY;
    let path = Path { socket: SocketId(0), local: None, remote };
    let mut tun = Tun::default();
    lab.client.handle_datagram(lab.now, path, outer, &mut datagram, &mut tun);
    let came = tun.0.first().map(|packet| PacketView::parse(packet).expect("a packet").ecn());
    (came, lab.client.stats().drops.get(DropReason::CongestionMarkedNotCapable))
}

#[test]
fn a_packets_mark_is_copied_to_its_datagram_unless_configured_otherwise() {
    for (ecn, expected) in [(true, [NotEct, Ect0, Ce]), (false, [NotEct; 3])] {
        let config = TunnelConfig { ecn, ..TunnelConfig::default() };
        let mut lab = settled(&config, Keepalive::Off, &[(8.0, 10)]);
        let mut sent = Sent::default();
        for (number, mark) in (0..).zip([NotEct, Ect0, Ce]) {
            let packet = Inner { ecn: mark, ..Inner::plain(Towards::Proxy, number, 1400) }.packet();
            lab.client.handle_packet(lab.now, &packet, &mut Tun::default());
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

    fn has_room(&mut self, _: &[Path], _: usize) -> bool {
        true
    }

    fn commit(&mut self, len: usize) {
        if len >= 1400 {
            self.marks.push(self.mark);
        }
    }
}

#[test]
fn a_marking_link_slows_the_sender_without_loss() {
    for profile in [Profile::Default, Profile::Paper] {
        is_slowed(profile);
    }
}

fn is_slowed(profile: Profile) {
    let mut lab = settled(&TunnelConfig::of(profile), Keepalive::Off, &[(10.0, 40)]);
    let down = &mut lab.links[0].down;
    let marking = ropewalk_netlab::netem::Marking { above: Some(super::ms(5)), probability: 0.0 };
    let marked = Conditions { marking, ..down.conditions().clone() };
    down.handle_change(lab.now, marked);
    let start = lab.now;
    let mut streams = [Stream::at_rate(Towards::Client, 12.0, 1440, start, s(20))];
    streams[0].ecn = Ect0;
    run(&mut lab, &mut streams, start + s(21));
    let counters = lab.links[0].down.counters();
    let goodput = streams[0].mbit_between(start + s(5), start + s(20));
    let marks = streams[0].came().iter().filter(|came| came.ecn == Ce).count();
    println!("{goodput:.2} Mbit/s, {counters:?}, {marks} marks arrived");
    assert_eq!(counters.queue_full, 0, "marks come before the queue is full");
    // Halved at 5 ms of queue, which is far below the delay: three quarters are what AIMD leaves.
    assert!(goodput > 7.0);
    match profile {
        Profile::Paper => assert_eq!(marks as u64, counters.marked),
        // The tunnel's own queue marks, too.
        Profile::Default => assert!(marks as u64 >= counters.marked),
    }
}

#[test]
fn marks_made_before_the_tunnel_do_not_slow_the_links() {
    // Small packets share their datagrams with the reports on what comes the other way.
    for (towards, len, mbit) in [
        (Towards::Client, 1440, 8.0),
        (Towards::Proxy, 1440, 8.0),
        (Towards::Client, 400, 4.0),
        (Towards::Proxy, 400, 4.0),
    ] {
        let mut lab = settled(&TunnelConfig::default(), Keepalive::Off, &[(10.0, 40)]);
        let start = lab.now;
        let mut streams = [
            Stream::at_rate(towards, mbit, len, start, s(10)),
            Stream::at_rate(towards.opposite(), 2.0, 1440, start, s(10)),
        ];
        streams[0].ecn = Ce;
        run(&mut lab, &mut streams, start + s(11));
        let sender = match towards {
            Towards::Client => lab.proxy.stats().links[0].sender,
            Towards::Proxy => lab.client.stats().links[0].sender,
        };
        let goodput = streams[0].mbit_between(start + s(1), start + s(10));
        println!("{towards:?}: {goodput:.2} Mbit/s, {} marks, {}", sender.marks, sender.window);
        assert_eq!((sender.marks, sender.threshold), (0, None), "the congestion is elsewhere");
        assert!(goodput > mbit * 0.98);
        assert!(streams[0].came().iter().all(|came| came.ecn == Ce), "its own ends are told");
    }
}
