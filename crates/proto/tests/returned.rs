//! Stories of a link whose interface goes and comes back, in virtual time: for both ends it is a new link, which begins with what it had
//! before as far as that is still so. Each prints its figures and asserts them.

use std::net::Ipv4Addr;
use std::time::Duration;

use ropewalk_netlab::half_rate::half_rate_after;
use ropewalk_netlab::lab::{PROXY, Towards};
use ropewalk_netlab::netem::{Conditions, Cut, QueueLimit, Rate};
use ropewalk_netlab::pair::{TunnelLab, link_config, tunnels};
use ropewalk_netlab::stream::run_all;
use ropewalk_netlab::tcp::{Load, TcpFlow};
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::time::Instant;
use ropewalk_proto::units::LinkId;
use ropewalk_settings::{Bitrate, Keepalive};

const SEED: u64 = 83;

/// The link beside is used meanwhile: 50 Mbit/s and 20 ms.
const OTHER: Link = Link { mbit: 50, ms: 20, queue_ms: 100 };

/// All links have been filled for this long when the first goes; it is away for so long, and then looked at for so long.
const BEFORE: Duration = Duration::from_secs(6);
const AWAY: Duration = Duration::from_secs(3);
const AFTER: Duration = Duration::from_secs(4);

/// How often a link that is back is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// A link, the same both ways; `ms` is one way.
#[derive(Clone, Copy, Debug)]
struct Link {
    mbit: u32,
    ms: u64,
    queue_ms: u64,
}

impl Link {
    fn conditions(self) -> Conditions {
        Conditions {
            rate: Rate::Fixed(Bitrate::from_mbps(self.mbit.into())),
            delay: Duration::from_millis(self.ms),
            queue: QueueLimit::of_time(Duration::from_millis(self.queue_ms)),
            ..Conditions::default()
        }
    }

    fn round_trip(self) -> Duration {
        Duration::from_millis(2 * self.ms)
    }
}

/// As what the first link is back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Back {
    /// As itself.
    Itself,
    /// The same, but its network gave it another address.
    Elsewhere,
    /// Under another name: nobody knows it.
    Stranger,
}

/// What the first link did after its return, every [`LOOK`].
#[derive(Default)]
struct Seen {
    /// Bytes that came out of it since.
    carried: Vec<(Duration, u64)>,
    /// How long its queue was, ms.
    queues: Vec<f64>,
}

impl Seen {
    /// For how long its queue was longer than this.
    fn longer_than(&self, ms: f64) -> Duration {
        let longer = self.queues.iter().filter(|queue| **queue > ms).count();
        LOOK * u32::try_from(longer).expect("some seconds")
    }
}

/// The client's way over the link in this place.
fn path(place: u16) -> Path {
    Path { socket: SocketId(place), local: None, remote: PROXY }
}

fn join(lab: &mut TunnelLab, place: u16, name: &str) {
    let config = link_config(name, path(place), Keepalive::default());
    lab.with_client(|client, now, _| client.add_link(now, &config)).expect("few links");
}

/// A link goes while one TCP fills it and the other one in this direction, and is back after three seconds as `now`.
fn returns(before: Link, now: Link, back: Back, towards: Towards) -> Seen {
    let config = TunnelConfig::default();
    let mut lab = tunnels(&config, &config, SEED);
    for (place, link) in (0..).zip([before, OTHER]) {
        lab.add_link(link.conditions(), link.conditions(), SEED + u64::from(place));
        join(&mut lab, place, &format!("wan{place}"));
    }
    lab.run_until(Instant::ZERO + Duration::from_secs(3));
    let start = lab.now;
    let mtu = lab.client.stats().inner_mtu.unwrap_or(1200);
    let load = Load::For(BEFORE + AWAY + AFTER);
    let mut flows = [TcpFlow::new(towards, load, mtu, start)];
    let (goes, comes) = (start + BEFORE, start + BEFORE + AWAY);
    let first = &mut lab.links[0];
    for line in [&mut first.down, &mut first.up] {
        line.plan_change(goes, Conditions { cut: Some(Cut::Everything), ..before.conditions() });
        line.plan_change(comes, now.conditions());
    }
    run_all(&mut lab, &mut [], &mut flows, goes);
    lab.with_client(|client, now, sink| client.remove_link(now, LinkId(0), sink));
    run_all(&mut lab, &mut [], &mut flows, comes);
    if back == Back::Elsewhere {
        lab.links[0].outer.set_ip(Ipv4Addr::new(203, 0, 113, 7).into());
    }
    join(&mut lab, 0, if back == Back::Stranger { "other" } else { "wan0" });
    let mut seen = Seen::default();
    let mut look = |lab: &TunnelLab| {
        let line = match towards {
            Towards::Client => &lab.links[0].down,
            Towards::Proxy => &lab.links[0].up,
        };
        let waiting = line.backlog().1 as f64 * 8.0 / (f64::from(now.mbit) * 1e3);
        seen.carried.push((lab.now.since(comes), line.counters().delivered_bytes));
        seen.queues.push(waiting);
    };
    look(&lab);
    while lab.now < comes + AFTER {
        let next = lab.now + LOOK;
        run_all(&mut lab, &mut [], &mut flows, next);
        look(&lab);
    }
    seen
}

#[test]
fn a_far_link_that_was_away_has_half_of_its_rate_within_a_second_and_two_round_trips() {
    let far = Link { mbit: 50, ms: 120, queue_ms: 100 };
    let half = |back, towards| {
        let seen = returns(far, far, back, towards);
        let after = half_rate_after(&seen.carried, Bitrate::from_mbps(far.mbit.into()));
        println!("{far:?}, {towards:?}, back as {back:?}: half its rate after {after:?}");
        after.unwrap_or(Duration::MAX)
    };
    let most = Duration::from_secs(1) + far.round_trip() * 2;
    for towards in [Towards::Client, Towards::Proxy] {
        let itself = half(Back::Itself, towards);
        assert!(itself <= most, "{towards:?}: {itself:?}, at most {most:?}");
    }
    // A link that nobody knows has to find its path MTU, and starts slowly.
    let stranger = half(Back::Stranger, Towards::Client);
    let elsewhere = half(Back::Elsewhere, Towards::Client);
    assert!(elsewhere < stranger, "{elsewhere:?}, and one of which nothing is known {stranger:?}");
}

#[test]
fn a_link_that_is_back_ten_times_slower_is_not_filled_by_what_it_had() {
    for ms in [20, 120] {
        let before = Link { mbit: 50, ms, queue_ms: 500 };
        let now = Link { mbit: 5, ..before };
        let [itself, stranger] = [Back::Itself, Back::Stranger].map(|back| {
            let seen = returns(before, now, back, Towards::Client);
            let late = &seen.queues[seen.queues.len() * 3 / 4..];
            let in_the_end = late.iter().sum::<f64>() / late.len() as f64;
            let long = seen.longer_than(40.0);
            println!(
                "{before:?}, back with {} Mbit/s as {back:?}: more than 40 ms of queue for {long:?}, {in_the_end:.0} ms in the end",
                now.mbit
            );
            assert!(in_the_end <= 60.0, "{ms} ms, {back:?}: {in_the_end:.1} ms");
            long
        });
        // It finds out sooner how large packets may be, so its startup is another one.
        let few = before.round_trip() * 5;
        assert!(itself <= stranger + few, "{ms} ms: {itself:?}, and a stranger {stranger:?}");
    }
}
