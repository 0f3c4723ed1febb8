//! A tunnel out of use.

use ropewalk_netlab::lab::Towards;
use ropewalk_netlab::stream::{Stream, run};
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::time::Instant;
use ropewalk_settings::Keepalive;

use super::{s, settled};

#[test]
fn a_tunnel_out_of_use_holds_no_memory_for_packets_and_wakes_once_to_give_it_back() {
    let mut lab = settled(&TunnelConfig::default(), Keepalive::Off, &[(20.0, 10), (5.0, 100)]);
    let start = lab.now;
    // More than the links carry, so that packets wait at both ends.
    let mut streams =
        [Towards::Client, Towards::Proxy].map(|to| Stream::at_rate(to, 30.0, 1440, start, s(5)));
    run(&mut lab, &mut streams, start + s(5));
    for (end, stats) in [("client", lab.client.stats()), ("proxy", lab.proxy.stats())] {
        println!("{end}: {} bytes kept in use", stats.spare_bytes);
        assert!(stats.spare_bytes > 100_000, "{end}: nothing to give back");
    }
    let idle = lab.now;
    lab.run_until(idle + s(4));
    assert!(lab.client.stats().spare_bytes > 0, "a pause is no idleness");
    let mut wakes = Vec::<Instant>::new();
    while let Some(next) = lab.next_event().filter(|next| *next < idle + s(60)) {
        lab.run_until(next);
        wakes.push(next);
    }
    // The last packets of the queues left within 200 ms; either end wakes once for its memory.
    assert!(wakes.len() <= 2, "{wakes:?}");
    for stats in [lab.client.stats(), lab.proxy.stats()] {
        assert_eq!((stats.spare_bytes, stats.queued, stats.reseq.held), (0, (0, 0), 0));
    }
}
