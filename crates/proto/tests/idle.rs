//! An idle tunnel rests: what makes its ends wake is its keepalives, all links' at a time, and nothing else.

use std::collections::BTreeMap;

use ropewalk_netlab::direct::{Direct, ROUND_TRIP};
use ropewalk_netlab::inner::Inner;
use ropewalk_netlab::lab::Towards;
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::time::{Duration, Instant};
use ropewalk_proto::timer::{LinkTimer, Timer, Wakeup, sooner};

/// The default of a link (`Keepalive`).
const KEEPALIVE: u64 = 15;
/// How long it rests before it is looked at: all that the last packets brought with them is over.
const SETTLE: Duration = Duration::from_secs(300);
const LOOKED_AT_SECONDS: u64 = 1800;

/// Wakes of an end, and what its timers were for.
#[derive(Default)]
struct Wakes {
    all: u64,
    timers: BTreeMap<&'static str, u64>,
}

impl Wakes {
    fn note(&mut self, wakeup: Option<Wakeup>, now: Instant) {
        if let Some((_, timer)) = wakeup.filter(|(at, _)| *at <= now) {
            self.all += 1;
            *self.timers.entry(kind(timer)).or_default() += 1;
        }
    }
}

fn kind(timer: Timer) -> &'static str {
    match timer {
        Timer::Link(_, LinkTimer::Keepalive) => "keepalive",
        Timer::Link(_, LinkTimer::Report) => "report",
        Timer::Link(..) => "another of a link",
        _ => "another of the tunnel",
    }
}

/// Wakes of each end until `end`: timers that went off, and batches that came.
fn rest(ends: &mut Direct, end: Instant) -> (Wakes, Wakes) {
    let (mut client, mut proxy) = (Wakes::default(), Wakes::default());
    while let Some((next, _)) = sooner(ends.clients[0].poll_timeout(), ends.proxy.poll_timeout())
        && next <= end
    {
        client.note(ends.clients[0].poll_timeout(), next);
        proxy.note(ends.proxy.poll_timeout(), next);
        ends.pass(0, next.since(ends.now));
        let mut talking = true;
        while talking {
            talking = false;
            while ends.client_sends(0) > 0 {
                ends.pass(0, ROUND_TRIP / 2);
                ends.proxy_receives(0);
                (talking, proxy.all) = (true, proxy.all + 1);
            }
            while ends.proxy_sends() > 0 {
                ends.pass(0, ROUND_TRIP / 2);
                ends.client_receives();
                (talking, client.all) = (true, client.all + 1);
            }
        }
    }
    (client, proxy)
}

#[test]
fn an_idle_tunnel_wakes_for_its_keepalives_only() {
    for links in [1, 2, 4] {
        let mut ends = Direct::new(&TunnelConfig::default(), 1, links).unwrap();
        ends.connect().unwrap();
        for number in 0..1000 {
            ends.packet_up(0, &Inner::plain(Towards::Proxy, number, 1400).packet());
            ends.packet_down(&Inner::plain(Towards::Client, number, 1400).packet());
            ends.exchange(0);
        }
        let settled = ends.now + SETTLE;
        rest(&mut ends, settled);
        let (client, proxy) = rest(&mut ends, settled + Duration::from_secs(LOOKED_AT_SECONDS));
        let rounds = LOOKED_AT_SECONDS / KEEPALIVE;
        println!(
            "{links} links: {rounds} rounds, {} wakes of the client ({:?}), {} of the proxy ({:?})",
            client.all, client.timers, proxy.all, proxy.timers
        );
        // The client: the timer that sends the keepalives, and what comes for them. The proxy: what comes. Now and then
        // both confirm what they hold, on each link.
        for (end, wakes, needed) in
            [("client", client.all, 2 * rounds), ("proxy", proxy.all, rounds)]
        {
            let most = needed + needed / 4;
            assert!(wakes <= most, "{links} links: {wakes} wakes of the {end}, {needed} needed");
        }
        assert!(client.all >= rounds, "the test would be empty: {} wakes", client.all);
        let keepalives = client.timers.get("keepalive").copied().unwrap_or_default();
        assert!(keepalives >= rounds, "{links} links: {:?}", client.timers);
    }
}
