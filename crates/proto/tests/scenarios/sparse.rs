//! A call beside what fills the links.

use ropewalk_netlab::lab::Towards;
use ropewalk_netlab::stream::{Stream, run};
use ropewalk_proto::config::TunnelConfig;
use ropewalk_settings::Keepalive;

use super::{s, settled};

/// Bytes of a packet of a call, which sends 50 of them a second.
const CALL: usize = 160;
const CALL_MBIT: f64 = 0.064;

#[test]
fn a_call_waits_in_no_queue_of_the_tunnel_beside_what_fills_the_links() {
    println!(
        "links, direction: the call's delay p50 p99 and losses; the other's delay p50 and losses"
    );
    let tables = [vec![(10.0, 20)], vec![(2.0, 100)], vec![(5.0, 10), (5.0, 100)]];
    for links in tables {
        for towards in [Towards::Client, Towards::Proxy] {
            let mut lab = settled(&TunnelConfig::default(), Keepalive::default(), &links);
            let start = lab.now;
            let sum: f64 = links.iter().map(|(rate, _)| rate).sum();
            let mut streams = [
                Stream::at_rate(towards, sum * 1.2, 1440, start, s(20)),
                Stream::at_rate(towards, CALL_MBIT, CALL, start + s(4), s(15)),
            ];
            run(&mut lab, &mut streams, start + s(22));
            let [full, call] = &streams;
            let (heavy, light) = (full.delays_from(start + s(4)), call.delays());
            println!(
                "{links:?} {towards:?}: {:.1} {:.1} ms, {}; {:.1} ms, {}",
                light.p50_ms,
                light.p99_ms,
                call.missing(),
                heavy.p50_ms,
                full.missing(),
            );
            // The tunnel's queue is 100 ms long. The links' own queues, which both share, stay.
            assert!(light.p50_ms + 50.0 <= heavy.p50_ms, "{light:?} beside {heavy:?}");
            // What its links lose for being full, and nothing in the tunnel's queue.
            assert!(call.missing() * 50 <= call.sent(), "{} of {}", call.missing(), call.sent());
        }
    }
}
