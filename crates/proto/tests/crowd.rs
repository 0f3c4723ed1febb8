//! One proxy and thousands of clients: none pays for the others.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "what it costs is measured"
)]

use std::time::Instant as WallClock;

use ropewalk_netlab::direct::Direct;
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

/// A proxy to which so many clients are connected, of which all but the first rest for good.
fn crowd(clients: u32) -> Direct {
    let mut ends = Direct::new(&TunnelConfig::default(), clients, 1).expect("there is room");
    ends.connect().expect("everybody is known");
    ends.clients.truncate(1);
    ends
}

/// The time that the work took on each of the two, one right after the other; of many times the least, as what else
/// the machine does only adds to it. What is done before it does not count.
fn least(
    both: &mut [Direct; 2],
    mut before: impl FnMut(&mut Direct),
    mut work: impl FnMut(&mut Direct),
) -> [f64; 2] {
    let mut least = [f64::INFINITY; 2];
    for _ in 0..1000 {
        for (ends, least) in both.iter_mut().zip(&mut least) {
            before(ends);
            let began = WallClock::now();
            work(ends);
            *least = least.min(began.elapsed().as_secs_f64());
        }
    }
    least
}

#[test]
fn what_a_turn_costs_does_not_grow_with_the_number_of_sessions() {
    const MANY: u32 = 10_000;
    let mut both = [1, MANY].map(crowd);
    let up = Inner::plain(Towards::Proxy, 1, 160).packet();
    let down = Inner::plain(Towards::Client, 1, 160).packet();
    // One packet each way. What time brings to the others is not the turn's.
    let rest = |ends: &mut Direct| {
        ends.client_receives();
        ends.exchange(0);
        ends.packet_up(0, &up);
        assert!(ends.client_sends(0) > 0);
    };
    let [turn, turn_of_many] = least(&mut both, rest, |ends| {
        ends.proxy_receives(0);
        ends.packet_down(&down);
        assert!(ends.proxy_sends() > 0);
    });
    let [looks, looks_of_many] = least(
        &mut both,
        |_| {},
        |ends| {
            for _ in 0..1000 {
                std::hint::black_box(ends.proxy.poll_timeout());
            }
        },
    );
    println!(
        "turns: {turn:.7} s and {turn_of_many:.7} s; looks: {looks:.6} s and {looks_of_many:.6} s"
    );
    // Whatever goes through all sessions costs thousands of times as much. That it is less than a fifth more beside a
    // thousand, `scripts/instructions` shows on any machine.
    assert!(turn_of_many < 1.5 * turn, "{turn_of_many} s among {MANY}, {turn} s alone");
    assert!(looks_of_many < 10.0 * looks, "{looks_of_many} s among {MANY}, {looks} s alone");
}
