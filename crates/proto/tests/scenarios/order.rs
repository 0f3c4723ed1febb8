//! A call beside a download over two links, one of them slower, in either order.

use ropewalk_netlab::lab::Towards;
use ropewalk_netlab::loss::Loss;
use ropewalk_netlab::pair::TunnelLab;
use ropewalk_netlab::stats::Percentiles;
use ropewalk_netlab::stream::{Stream, run};
use ropewalk_proto::config::TunnelConfig;
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
    for link in &mut lab.links {
        for direction in [&mut link.down, &mut link.up] {
            let mut conditions = direction.conditions().clone();
            conditions.loss = Loss::Bernoulli(0.03);
            direction.handle_change(lab.now, conditions);
        }
    }
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
