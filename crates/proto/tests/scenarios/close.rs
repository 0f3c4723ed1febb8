//! The end of a tunnel over links with rates, that lose and reorder.

use std::time::Duration;

use ropewalk_netlab::inner::Inner;
use ropewalk_netlab::lab::Towards;
use ropewalk_netlab::loss::Loss;
use ropewalk_netlab::pair::{TunnelLab, conditions, link_config, tunnels};
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::error::DropReason;
use ropewalk_proto::time::Instant;
use ropewalk_proto::tunnel::TunnelStats;
use ropewalk_settings::Keepalive;

use super::{ms, s};

/// A lab with two links that lose `loss` of all datagrams, and whose delays vary by so much, after two seconds.
fn lab(seed: u64, loss: f64, jitter_ms: u64) -> TunnelLab {
    let config = TunnelConfig::default();
    let mut lab = tunnels(&config, &config, seed);
    for (place, (mbit, rtt)) in (0..).zip([(10.0, 20), (5.0, 80)]) {
        let mut conditions = conditions(mbit, rtt, 100);
        conditions.loss = Loss::Bernoulli(loss);
        (conditions.jitter, conditions.keep_order) = (ms(jitter_ms), false);
        let path = lab.add_link(conditions.clone(), conditions, seed + place);
        let link = link_config(&format!("wan{place}"), path, Keepalive::Off);
        lab.client.add_link(lab.now, &link).expect("few links");
    }
    lab.run_until(Instant::ZERO + s(2));
    lab
}

/// A second of packets upstream, so many a millisecond, and then the end: how long it took, and how many packets
/// were dropped in it.
fn stream_and_close(lab: &mut TunnelLab, each_ms: u64) -> (Duration, u64) {
    for number in 0..1000 * each_ms {
        lab.send(Towards::Client, &Inner::plain(Towards::Proxy, number, 1000).packet());
        if (number + 1).is_multiple_of(each_ms) {
            lab.run_until(lab.now + ms(1));
        }
    }
    let (begun, before) = (lab.now, lab.client.stats());
    lab.with_client(|client, now, _| client.close(now));
    while !lab.client.is_closed() {
        lab.run_until(lab.now + ms(1));
    }
    let (took, after) = (lab.now.since(begun), lab.client.stats());
    println!("{} packets waited; the client ended in {took:?}", before.queued.0);
    assert!(before.queued.0 > 50);
    let dropped = |stats: &TunnelStats| stats.drops.get(DropReason::QueueTimeout);
    (took, dropped(&after) - dropped(&before) + after.queued.0 as u64)
}

#[test]
fn a_full_queue_is_sent_before_the_end() {
    let mut lab = lab(1, 0.0, 0);
    // 16 Mbit/s into 15: the queues of the links hold a tenth of a second as well.
    let (took, dropped) = stream_and_close(&mut lab, 2);
    assert!(took < ms(400) && dropped == 0, "{took:?}, {dropped} packets");
    assert!(lab.proxy.is_closed());
}

#[test]
fn what_waits_for_its_order_is_delivered_before_the_end_over_links_that_lose_and_reorder() {
    for seed in 0..20 {
        let mut lab = lab(seed, 0.02, 5);
        stream_and_close(&mut lab, 2);
        lab.run_until(lab.now + s(1));
        assert!(lab.proxy.is_closed(), "seed {seed}");
        assert_eq!(lab.proxy.stats().reseq.held, 0, "seed {seed}");
    }
}
