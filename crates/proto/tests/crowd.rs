//! One proxy and thousands of clients: none pays for the others.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "what it costs is measured"
)]

use std::time::Instant as WallClock;

use ropewalk_netlab::direct::{Direct, inner};
use ropewalk_netlab::inner::Inner;
use ropewalk_netlab::lab::Towards;
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::error::DropReason;
use ropewalk_proto::time::Duration;

#[test]
fn ten_thousand_clients_a_second_return_after_a_restart_and_none_has_to_ask_twice() {
    const CLIENTS: u32 = 4000;
    let mut ends = Direct::new(&TunnelConfig::default(), CLIENTS, 1).unwrap();
    for client in 0..CLIENTS as usize {
        ends.pass(client, Duration::from_micros(100));
        while ends.client_sends(client) > 0 {
            ends.proxy_receives(client);
        }
        while ends.proxy_sends() > 0 {
            ends.client_receives();
        }
    }
    let stats = ends.proxy.stats();
    assert_eq!(stats.admission.grants, u64::from(CLIENTS));
    assert_eq!(stats.drops.get(DropReason::HandshakeRateLimited), 0);
}

/// The least time that one of many pieces of work took: what else the machine does only adds to it.
fn least(mut work: impl FnMut()) -> f64 {
    let time = |_| {
        let began = WallClock::now();
        work();
        began.elapsed().as_secs_f64()
    };
    (0..200).map(time).fold(f64::INFINITY, f64::min)
}

#[test]
fn what_a_turn_costs_does_not_grow_with_the_number_of_sessions() {
    const MANY: u32 = 1000;
    let costs = [1, MANY].map(|clients| {
        let mut ends = Direct::new(&TunnelConfig::default(), clients, 1).unwrap();
        ends.connect().unwrap();
        let up = Inner::plain(Towards::Proxy, 1, 160).packet();
        let mut down = Inner::plain(Towards::Client, 1, 160).packet();
        down[16..20].copy_from_slice(&inner(0).octets());
        // Fifty turns of one client, beside which the others rest.
        let turns = least(|| {
            for _ in 0..50 {
                ends.packet_up(0, &up);
                ends.packet_down(&down);
                ends.exchange(0);
            }
        });
        let looks = least(|| {
            for _ in 0..1000 {
                std::hint::black_box(ends.proxy.poll_timeout());
            }
        });
        [turns, looks]
    });
    let [[turns, looks], [turns_of_many, looks_of_many]] = costs;
    println!(
        "turns: {turns:.6} s and {turns_of_many:.6} s; looks: {looks:.6} s and {looks_of_many:.6} s"
    );
    // Whatever goes through all sessions costs hundreds of times as much.
    assert!(turns_of_many < 3.0 * turns, "{turns_of_many} s among {MANY}, {turns} s alone");
    assert!(looks_of_many < 10.0 * looks, "{looks_of_many} s among {MANY}, {looks} s alone");
}
