//! Stories of links that are gone at once (`order = "flow"`), in virtual time: how long a call stands still beside a download
//! and an upload, that nothing is lost or doubled, and that the others go on. Each prints its figures and asserts them.

use std::time::Duration;

use ropewalk_netlab::lab::{PROXY, Towards};
use ropewalk_netlab::netem::{Conditions, Cut, QueueLimit, Rate};
use ropewalk_netlab::pair::{TunnelLab, link_config, tunnels};
use ropewalk_netlab::stream::{Stream, run_all};
use ropewalk_netlab::tcp::{Load, TcpFlow};
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::time::Instant;
use ropewalk_proto::units::LinkId;
use ropewalk_settings::{Bitrate, Keepalive};

const SEED: u64 = 31;

/// Moments at which a link goes, of each case.
const MOMENTS: u64 = 5;

/// A link is away for this long, and time for all to be as before passes until the next goes.
const AWAY: Duration = Duration::from_millis(1500);
const PERIOD: Duration = Duration::from_secs(4);

/// Cuts in the life of one tunnel.
const CUTS: u64 = 5;

/// Mbit/s, round-trip time in ms.
type Link = (u32, u64);

/// 20 and 50 ms; 40 and 80 ms; three.
const FAST: [Link; 2] = [(20, 20), (20, 50)];
const SLOW: [Link; 2] = [(20, 40), (10, 80)];
const THREE: [Link; 3] = [(20, 20), (10, 50), (15, 40)];

/// How a link goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Nothing passes any more, and nobody says so.
    Silent,
    /// The same, and the client's kernel says that the interface is gone.
    Removed,
    /// The same, and the client's kernel refuses what is sent there.
    Refused,
}

/// What goes beside the call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bulk {
    Down,
    Up,
}

fn conditions((mbit, rtt_ms): Link) -> Conditions {
    Conditions {
        rate: Rate::Fixed(Bitrate::from_mbps(mbit.into())),
        delay: Duration::from_micros(rtt_ms * 500),
        queue: QueueLimit::of_time(Duration::from_millis(100)),
        ..Conditions::default()
    }
}

/// A tunnel that has been up for three seconds over these links.
fn lab(links: &[Link], seed: u64) -> TunnelLab {
    let config = TunnelConfig::default();
    let mut lab = tunnels(&config, &config, seed);
    for (place, link) in (0..).zip(links) {
        lab.add_link(conditions(*link), conditions(*link), seed + place as u64);
        join(&mut lab, place);
    }
    lab.run_until(Instant::ZERO + Duration::from_secs(3));
    lab
}

/// The client's way over the link in this place.
fn path(place: usize) -> Path {
    let socket = SocketId(u16::try_from(place).expect("few links"));
    Path { socket, local: None, remote: PROXY }
}

/// The client opens the link in this place. Returns what the tunnel calls it.
fn join(lab: &mut TunnelLab, place: usize) -> LinkId {
    let config = link_config(&format!("wan{place}"), path(place), Keepalive::default());
    lab.with_client(|client, now, _| client.add_link(now, &config)).expect("few links")
}

/// Everything on the link, and what is under way there, is lost between these moments.
fn cut(lab: &mut TunnelLab, links: &[Link], place: usize, from: Instant, until: Instant) {
    let link = &mut lab.links[place];
    let before = conditions(links[place]);
    for line in [&mut link.down, &mut link.up] {
        line.plan_change(from, Conditions { cut: Some(Cut::Everything), ..before.clone() });
        line.plan_change(until, before.clone());
    }
}

/// How long each kind of traffic stood still, ms, rising.
#[derive(Default, Debug)]
struct Stalls {
    tcp: Vec<u128>,
    down: Vec<u128>,
    up: Vec<u128>,
    missing: u64,
    doubled: u64,
    sent_again_by_tcp: u64,
}

/// 50 packets a second of a call.
fn call(towards: Towards, start: Instant, length: Duration) -> Stream {
    Stream::at_rate(towards, 0.08, 200, start, length)
}

/// The link in this place goes and comes back, several times in the life of each of some tunnels.
fn stalls(links: &[Link], place: usize, kind: Kind, bulk: Bulk) -> Stalls {
    let mut stalls = Stalls::default();
    for life in 0..MOMENTS / CUTS {
        let mut lab = lab(links, SEED + life);
        let mut id = LinkId(u8::try_from(place).expect("few links"));
        let start = lab.now;
        let length = PERIOD * u32::try_from(CUTS + 1).expect("few");
        let mut streams =
            [call(Towards::Client, start, length), call(Towards::Proxy, start, length)];
        let towards = if bulk == Bulk::Down { Towards::Client } else { Towards::Proxy };
        let mtu = lab.client.stats().inner_mtu.unwrap_or(1200);
        let mut flows = [TcpFlow::new(towards, Load::For(length), mtu, start)];
        let mut cuts = Vec::new();
        for number in 0..CUTS {
            let moment = Duration::from_micros(7300 * (life + number * MOMENTS / CUTS));
            let at = start + PERIOD + PERIOD * u32::try_from(number).expect("few") + moment;
            cut(&mut lab, links, place, at, at + AWAY);
            run_all(&mut lab, &mut streams, &mut flows, at);
            match kind {
                Kind::Silent => {}
                Kind::Removed => {
                    lab.with_client(|client, now, sink| client.remove_link(now, id, sink));
                }
                Kind::Refused => {
                    lab.with_client(|client, now, _| client.on_send_refused(now, path(place)));
                }
            }
            run_all(&mut lab, &mut streams, &mut flows, at + AWAY);
            if kind == Kind::Removed {
                id = join(&mut lab, place);
            }
            cuts.push(at);
        }
        run_all(&mut lab, &mut streams, &mut flows, start + length + Duration::from_secs(1));
        for at in cuts {
            stalls.tcp.push(tcp_stall(&flows[0], at).as_millis());
            stalls.down.push(stall(&streams[0], at).as_millis());
            stalls.up.push(stall(&streams[1], at).as_millis());
        }
        for stream in &streams {
            let mut numbers: Vec<u64> = stream.came().iter().map(|came| came.number).collect();
            let came = numbers.len();
            numbers.sort_unstable();
            numbers.dedup();
            stalls.missing += stream.sent() - numbers.len() as u64;
            stalls.doubled += (came - numbers.len()) as u64;
        }
        stalls.sent_again_by_tcp += flows[0].stats().retransmissions;
    }
    for of in [&mut stalls.tcp, &mut stalls.down, &mut stalls.up] {
        of.sort_unstable();
    }
    stalls
}

/// The longest time without a packet of the call that ends after the cut and began within a second of it.
fn stall(stream: &Stream, at: Instant) -> Duration {
    let times: Vec<Instant> = stream.came().iter().map(|came| came.at).collect();
    longest(&times, at)
}

fn tcp_stall(flow: &TcpFlow, at: Instant) -> Duration {
    let times: Vec<Instant> = flow.arrivals().iter().map(|arrival| arrival.at).collect();
    longest(&times, at)
}

fn longest(times: &[Instant], at: Instant) -> Duration {
    let around =
        times.windows(2).filter(|pair| pair[1] > at && pair[0] < at + Duration::from_secs(1));
    around.map(|pair| pair[1].since(pair[0])).max().expect("it goes on")
}

/// In the median, and at most.
fn told(name: &str, of: &[u128]) -> String {
    format!("{name} {}/{}", of[of.len() / 2], of[of.len() - 1])
}

#[test]
fn a_call_outlives_a_link_without_a_loss_whichever_goes_and_however() {
    // The longest that a call may stand still beside a download and an upload: the 20 ms between its packets, what it takes
    // until the end that sends knows, and the way over the other link.
    for (links, place, kind, most) in [
        (&FAST[..], 0, Kind::Removed, 100),
        (&FAST, 0, Kind::Refused, 100),
        (&FAST, 0, Kind::Silent, 110),
        (&FAST, 1, Kind::Silent, 100),
        (&SLOW, 0, Kind::Silent, 180),
        (&THREE, 0, Kind::Removed, 100),
    ] {
        for bulk in [Bulk::Down, Bulk::Up] {
            let stalls = stalls(links, place, kind, bulk);
            let rows = [("tcp", &stalls.tcp), ("call down", &stalls.down), ("up", &stalls.up)];
            let rows = rows.map(|(name, of)| told(name, of)).join(", ");
            let seen = format!(
                "{links:?}, {place} {kind:?}, bulk {bulk:?}: {rows} ms (median/most of {MOMENTS}), {} missing, {} doubled, \
                 {} sent again by TCP (seed {SEED})",
                stalls.missing, stalls.doubled, stalls.sent_again_by_tcp
            );
            println!("{seen}");
            assert_eq!((stalls.missing, stalls.doubled), (0, 0), "{seen}");
            for of in [&stalls.down, &stalls.up] {
                assert!(of.iter().all(|stall| *stall <= most), "{seen}");
            }
        }
    }
}

#[test]
fn a_link_that_is_up_and_down_all_the_time_takes_nothing_from_the_others() {
    const STEADY: [Link; 2] = [(10, 20), (10, 40)];
    const FLAPS: Link = (10, 30);
    let (settle, length) = (Duration::from_secs(5), Duration::from_secs(40));
    let mut mbit = Vec::new();
    for flaps in [None, Some(Kind::Silent), Some(Kind::Removed)] {
        let links: Vec<Link> = STEADY.into_iter().chain(flaps.map(|_| FLAPS)).collect();
        let mut lab = lab(&links, SEED);
        let (start, place) = (lab.now, STEADY.len());
        let mut streams = [call(Towards::Client, start, settle + length)];
        let mtu = lab.client.stats().inner_mtu.unwrap_or(1200);
        let load = Load::For(settle + length);
        let mut flows = [TcpFlow::new(Towards::Client, load, mtu, start)];
        let mut events = 0;
        let mut at = start + settle;
        let mut id = LinkId(2);
        // Up and down for 0.5 to 5 s each.
        for step in 0_u64.. {
            let half = Duration::from_millis(500 + step * 1700 % 4500);
            let Some(kind) = flaps.filter(|_| at + half * 2 < start + settle + length) else {
                break;
            };
            cut(&mut lab, &links, place, at, at + half);
            run_all(&mut lab, &mut streams, &mut flows, at);
            if kind == Kind::Removed {
                lab.with_client(|client, now, sink| client.remove_link(now, id, sink));
            }
            run_all(&mut lab, &mut streams, &mut flows, at + half);
            if kind == Kind::Removed {
                id = join(&mut lab, place);
            }
            events += std::iter::from_fn(|| lab.client.poll_event()).count();
            let kept = lab.proxy.stats().repairs.expect("what is lost is sent again");
            assert!(kept.kept < 2000, "{kept:?}");
            at += half * 2;
        }
        run_all(&mut lab, &mut streams, &mut flows, start + settle + length);
        let got = flows[0].mbit_between(start + settle, start + settle + length);
        println!(
            "{flaps:?}: {got:.1} Mbit/s, {} of the call missing, {events} events (seed {SEED})",
            streams[0].missing()
        );
        mbit.push(got);
        assert!(events <= 60, "{events}");
    }
    assert!(mbit[1..].iter().all(|got| *got >= 0.9 * mbit[0]), "{mbit:?}");
}

#[test]
fn what_is_sent_while_the_only_link_is_away_waits_for_its_return() {
    let links = [(20, 20)];
    for kind in [Kind::Silent, Kind::Removed, Kind::Refused] {
        for away in [300, 700, 1200, 1700].map(Duration::from_millis) {
            let mut lab = lab(&links, SEED);
            let (start, length) = (lab.now, Duration::from_secs(6));
            let mut streams =
                [call(Towards::Client, start, length), call(Towards::Proxy, start, length)];
            let at = start + Duration::from_secs(2);
            cut(&mut lab, &links, 0, at, at + away);
            run_all(&mut lab, &mut streams, &mut [], at);
            match kind {
                Kind::Silent => {}
                Kind::Removed => {
                    lab.with_client(|client, now, sink| client.remove_link(now, LinkId(0), sink));
                }
                Kind::Refused => {
                    lab.with_client(|client, now, _| client.on_send_refused(now, path(0)));
                }
            }
            run_all(&mut lab, &mut streams, &mut [], at + away);
            if kind == Kind::Removed {
                join(&mut lab, 0);
            }
            run_all(&mut lab, &mut streams, &mut [], start + length + Duration::from_secs(1));
            let [down, up] = [0, 1].map(|which| stall(&streams[which], at));
            let missing = [0, 1].map(|which| streams[which].missing());
            let seen = format!(
                "{kind:?} for {away:?}: call down {down:?}, up {up:?}, {missing:?} missing (seed {SEED})"
            );
            println!("{seen}");
            assert_eq!(missing, [0, 0], "{seen}");
            assert!(down.max(up) <= away + Duration::from_millis(200), "{seen}");
        }
    }
}
