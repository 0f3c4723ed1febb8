//! A call beside a download over two links, one of them slower, in either order.

use std::time::Duration;

use ropewalk_netlab::inner::Inner;
use ropewalk_netlab::lab::Towards;
use ropewalk_netlab::loss::Loss;
use ropewalk_netlab::pair::TunnelLab;
use ropewalk_netlab::stats::Percentiles;
use ropewalk_netlab::stream::{Stream, run};
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::packet::protocol;
use ropewalk_proto::time::Instant;
use ropewalk_settings::{ControllerKind, Keepalive, Order, SchedulerKind};

use super::{ms, s, settled};

/// Mbit/s, and milliseconds there and back: 10 and 60 one way.
const LINKS: [(f64, u64); 2] = [(20.0, 20), (20.0, 120)];

fn lab(order: Order) -> TunnelLab {
    let config = TunnelConfig {
        order,
        controller: ControllerKind::Model,
        scheduling: SchedulerKind::Arrival.into(),
        ..TunnelConfig::default()
    };
    settled(&config, Keepalive::default(), &LINKS)
}

/// The links lose this share at random.
fn lose(lab: &mut TunnelLab, share: f64) {
    for link in &mut lab.links {
        for direction in [&mut link.down, &mut link.up] {
            let mut conditions = direction.conditions().clone();
            conditions.loss = Loss::Bernoulli(share);
            direction.handle_change(lab.now, conditions);
        }
    }
}

/// The delay of a ping of 100 bytes each 20 ms, towards the client, beside a download that needs both links.
fn ping_beside_a_download(lab: &mut TunnelLab) -> (Percentiles, [Stream; 2]) {
    let start = lab.now;
    let mut streams = [
        Stream::at_rate(Towards::Client, 30.0, 1400, start, s(12)),
        Stream::at_rate(Towards::Client, 0.04, 100, start + s(4), s(8)),
    ];
    run(lab, &mut streams, start + s(14));
    (streams[1].delays(), streams)
}

#[test]
fn a_ping_beside_a_download_over_a_slower_link_too_waits_only_in_the_global_order() {
    // The fast link's 10 ms and what the download queues there, at most as much again.
    for (order, least, most) in [(Order::Global, 40.0, 75.0), (Order::Flow, 10.0, 20.0)] {
        let mut lab = lab(order);
        let (ping, [download, call]) = ping_beside_a_download(&mut lab);
        let slow = lab.client.stats().links[1].receiver;
        let reseq = lab.client.stats().reseq;
        println!("{order}: ping p50 {:.1} ms, p99 {:.1} ms; {reseq:?}", ping.p50_ms, ping.p99_ms);
        assert!(ping.p50_ms >= least && ping.p50_ms <= most, "{order}: {ping:?}");
        assert_eq!((call.missing(), download.missing()), (0, 0), "the links lose nothing");
        assert!(slow.datagrams > 5_000, "the download needs both links");
        let numbers = download.came().iter().map(|came| came.number);
        assert!(numbers.is_sorted(), "{order}: the download is in order");
        assert_eq!((reseq.skipped_by_proof, reseq.skipped_by_deadline), (0, 0), "{order}");
    }
}

#[test]
fn a_call_over_links_that_lose_waits_for_nothing_and_a_stream_in_a_row_is_in_order() {
    let mut lab = lab(Order::Flow);
    lose(&mut lab, 0.03);
    let start = lab.now;
    // A packet each 20 ms, and one each 2 ms.
    let mut streams = [
        Stream::at_rate(Towards::Client, 0.064, 160, start, s(60)),
        Stream::at_rate(Towards::Client, 4.8, 1200, start, s(60)),
    ];
    run(&mut lab, &mut streams, start + s(62));
    let [call, stream] = &streams;
    let delays = call.delays_from(start + s(1));
    let in_order = [call, stream].map(Stream::in_order_percent);
    println!("call {delays:?}, in order {in_order:.2?} %");
    assert_eq!((call.missing(), stream.missing()), (0, 0), "all that was lost came again");
    assert!(delays.p50_ms < 12.0 && delays.p95_ms < 20.0, "{delays:?}");
    assert!(delays.p99_ms > 30.0, "those that were lost come later: {delays:?}");
    // What was lost three times comes when nobody waits any more.
    assert!(in_order[0] < 99.0 && in_order[1] > 99.9, "{in_order:?}");
}

/// What shows no ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Portless {
    Fragment,
    Icmp,
}

impl Portless {
    /// A packet with this number, towards the client. Three fragments are a datagram.
    fn packet(self, number: u64) -> Vec<u8> {
        let len = if self == Self::Fragment { 1200 } else { 100 };
        let mut packet = Inner::plain(Towards::Client, number, len).packet();
        match self {
            Self::Fragment => {
                let part = if number.is_multiple_of(3) { [0x20, 0] } else { [0x20, 9] };
                packet[6..8].copy_from_slice(&part);
            }
            Self::Icmp => packet[9] = protocol::ICMP,
        }
        packet
    }

    /// Which of them a packet is, and its number; `None`: it is one of the download.
    fn read(packet: &[u8]) -> Option<(Self, u64)> {
        let number = u64::from_be_bytes(*packet[28..].first_chunk().expect("a number"));
        let is_icmp = packet[9] == protocol::ICMP;
        let kind = if is_icmp { Self::Icmp } else { Self::Fragment };
        (is_icmp || packet[6] & 0x20 != 0).then_some((kind, number))
    }
}

#[test]
fn fragments_and_icmp_are_in_order_among_themselves_and_wait_for_no_download() {
    let mut lab = lab(Order::Flow);
    lose(&mut lab, 0.01);
    let kinds = [Portless::Fragment, Portless::Icmp];
    // When each was sent; which came, and how long they took.
    let mut sent: [Vec<Instant>; 2] = [Vec::new(), Vec::new()];
    let mut came: [Vec<(u64, Duration)>; 2] = [Vec::new(), Vec::new()];
    let mut download = 0;
    // Six seconds, and one for what is still under way.
    for tick in 0..7_000 {
        let mut packets = Vec::new();
        if tick < 6_000 {
            // 22 Mbit/s between the same addresses: more than the fast link carries.
            for _ in 0..2 {
                packets.push(Inner::plain(Towards::Client, download, 1400).packet());
                download += 1;
            }
            // Three of each at once: no call.
            if tick % 10 == 0 {
                for (kind, sent) in kinds.iter().zip(&mut sent) {
                    for _ in 0..3 {
                        packets.push(kind.packet(sent.len() as u64));
                        sent.push(lab.now);
                    }
                }
            }
        }
        lab.send_all(Towards::Proxy, &packets);
        let next = lab.now + ms(1);
        lab.run_until(next);
        for delivered in lab.delivered(Towards::Client) {
            let Some((kind, number)) = Portless::read(&delivered.packet) else { continue };
            let of = usize::from(kind == Portless::Icmp);
            let at = sent[of][usize::try_from(number).expect("few")];
            came[of].push((number, delivered.at.since(at)));
        }
    }
    for (kind, (sent, came)) in kinds.iter().zip(sent.iter().zip(&came)) {
        let delays = Percentiles::of(came.iter().map(|(_, delay)| *delay).collect());
        println!("{kind:?}: {} of {} came, {delays:?}", came.len(), sent.len());
        assert_eq!(came.len(), sent.len(), "{kind:?}: what was lost came again");
        assert!(came.iter().map(|(number, _)| *number).is_sorted(), "{kind:?} out of order");
        // The fast link's 10 ms, and some for their turns; those that were lost come later, with those behind them.
        assert!(delays.p50_ms < 25.0, "{kind:?}: {delays:?}");
        assert!(delays.max_ms > 30.0, "{kind:?}: some were lost: {delays:?}");
    }
}

#[test]
fn in_the_order_of_flows_idle_links_send_no_marks() {
    let sent = [Order::Global, Order::Flow].map(|order| {
        let config = TunnelConfig { order, ..TunnelConfig::default() };
        let mut lab = settled(&config, Keepalive::default(), &[(10.0, 20), (10.0, 20), (10.0, 20)]);
        let start = lab.now;
        // One packet at a time takes one link, and the others are idle.
        let mut streams = [Stream::at_rate(Towards::Client, 0.08, 100, start, s(10))];
        run(&mut lab, &mut streams, start + s(10) + ms(500));
        assert_eq!(streams[0].missing(), 0);
        let stats = lab.proxy.stats();
        stats.links.iter().map(|link| link.sender.sent).sum::<u64>()
    });
    println!("datagrams: {sent:?}");
    assert!(sent[1] + 500 < sent[0], "{sent:?}");
}
