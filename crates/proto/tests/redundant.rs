//! Stories of a call that goes over two links at once, in virtual time: a silent cut, a download beside it, a budget, and changes
//! while it lasts. Each prints its figures and asserts them.

use std::time::Duration;

use ropewalk_netlab::inner::Inner;
use ropewalk_netlab::lab::{PROXY, Towards};
use ropewalk_netlab::netem::{Conditions, Cut, QueueLimit, Rate};
use ropewalk_netlab::pair::{TunnelLab, link_config, tunnels};
use ropewalk_netlab::stream::{Stream, run_all};
use ropewalk_netlab::tcp::{Load, TcpFlow};
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::time::Instant;
use ropewalk_proto::tunnel::Redundancy;
use ropewalk_settings::{
    Bitrate, Keepalive, Order, PortRange, Profile, Redundant, Scheduling, Text as _, Usage,
};

const SEED: u64 = 17;

/// Mbit/s, round-trip time in ms.
type Link = (u32, u64);

const FAST: Link = (20, 20);
const SLOW: Link = (20, 50);

/// The ports of the first two streams: the call, down and up.
const CALL: &str = "1000-1001";

fn conditions((mbit, rtt_ms): Link) -> Conditions {
    Conditions {
        rate: Rate::Fixed(Bitrate::from_mbps(mbit.into())),
        delay: Duration::from_micros(rtt_ms * 500),
        queue: QueueLimit::of_time(Duration::from_millis(100)),
        ..Conditions::default()
    }
}

/// The call goes over two links, within the default budget.
fn the_call() -> Redundant {
    let ports = vec![PortRange::from_text(CALL).expect("a port")];
    Redundant { ports, ..Redundant::off() }
}

fn with(redundant: Redundant) -> TunnelConfig {
    let scheduling = Scheduling { redundant, ..Scheduling::default() };
    TunnelConfig { scheduling, ..TunnelConfig::default() }
}

/// A tunnel that has been up for three seconds over these links, of which those from `backups` on are kept back.
fn lab(config: &TunnelConfig, links: &[Link], backups: usize, seed: u64) -> TunnelLab {
    let mut lab = tunnels(config, config, seed);
    for (place, link) in (0..).zip(links) {
        lab.add_link(conditions(*link), conditions(*link), seed + place as u64);
        let socket = SocketId(u16::try_from(place).expect("few links"));
        let path = Path { socket, local: None, remote: PROXY };
        let mut config = link_config(&format!("wan{place}"), path, Keepalive::default());
        if place >= backups {
            config.policy.usage = Usage::Backup;
        }
        lab.with_client(|client, now, _| client.add_link(now, &config)).expect("few links");
    }
    lab.run_until(Instant::ZERO + Duration::from_secs(3));
    lab
}

/// Everything on the link in this place is lost from this moment on.
fn cut(lab: &mut TunnelLab, links: &[Link], place: usize, at: Instant) {
    let link = &mut lab.links[place];
    for line in [&mut link.down, &mut link.up] {
        let none = Conditions { cut: Some(Cut::Everything), ..conditions(links[place]) };
        line.plan_change(at, none);
    }
}

/// 50 packets of 200 bytes a second, each way.
fn calls(start: Instant, length: Duration) -> [Stream; 2] {
    [Towards::Client, Towards::Proxy].map(|way| Stream::at_rate(way, 0.08, 200, start, length))
}

/// What the client and the proxy sent twice.
fn sent_twice(lab: &TunnelLab) -> [Redundancy; 2] {
    [lab.client.stats(), lab.proxy.stats()]
        .map(|stats| stats.redundancy.expect("the order within flows"))
}

/// Packets that did not come, and that came more than once.
fn missing_and_doubled(stream: &Stream) -> (u64, u64) {
    let mut numbers: Vec<u64> = stream.came().iter().map(|came| came.number).collect();
    let came = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    (stream.sent() - numbers.len() as u64, (came - numbers.len()) as u64)
}

/// The longest time between two packets, ms, around a moment.
fn gap_ms(stream: &Stream, at: Instant) -> f64 {
    let came: Vec<Instant> = stream.came().iter().map(|came| came.at).collect();
    let around =
        came.windows(2).filter(|pair| pair[1] > at && pair[0] < at + Duration::from_secs(1));
    around.map(|pair| pair[1].since(pair[0]).as_secs_f64() * 1e3).fold(0.0, f64::max)
}

/// A call, alone or beside a download, of which the fast link is cut at this moment of it. Returns its longest gaps, ms, and how
/// many packets did not come.
fn silent_cut(redundant: Redundant, moment: Duration, is_alone: bool) -> ([f64; 2], u64) {
    let (links, length) = ([FAST, SLOW], Duration::from_secs(8));
    let mut lab = lab(&with(redundant), &links, 2, SEED);
    let start = lab.now;
    let at = start + Duration::from_secs(4) + moment;
    cut(&mut lab, &links, 0, at);
    let mut streams = calls(start, length);
    let mtu = lab.client.stats().inner_mtu.unwrap_or(1200);
    let download = TcpFlow::new(Towards::Client, Load::For(length), mtu, start);
    let mut flows = if is_alone { vec![] } else { vec![download] };
    run_all(&mut lab, &mut streams, &mut flows, start + length + Duration::from_secs(1));
    let [(down, down_twice), (up, up_twice)] = [&streams[0], &streams[1]].map(missing_and_doubled);
    assert_eq!((down_twice, up_twice), (0, 0), "cut at {moment:?}");
    ([gap_ms(&streams[0], at), gap_ms(&streams[1], at)], down + up)
}

#[test]
fn a_call_over_two_links_does_not_notice_the_silent_cut_of_the_fast_one() {
    for (is_alone, most) in [(true, 40.0), (false, 40.0)] {
        let story = |redundant: Redundant| {
            let (mut gaps, mut missing) = (Vec::new(), 0);
            for number in 0..12 {
                let moment = Duration::from_micros(4300 * number);
                let (gap, lost) = silent_cut(redundant.clone(), moment, is_alone);
                gaps.extend(gap);
                missing += lost;
            }
            gaps.sort_by(f64::total_cmp);
            (gaps[gaps.len() / 2], gaps[gaps.len() - 1], missing)
        };
        let (once, twice) = (story(Redundant::off()), story(the_call()));
        println!(
            "alone: {is_alone}; gaps of 24, median and longest, ms, and packets lost: sent once {once:.1?}, twice {twice:.1?} (seed {SEED})"
        );
        assert!(twice.1 <= most && twice.2 == 0, "{twice:?}");
        assert!(once.1 > 50.0, "{once:?}: a story that shows nothing");
    }
}

#[test]
fn each_packet_of_a_call_goes_twice_and_comes_once() {
    let mut lab = lab(&with(the_call()), &[FAST, SLOW], 2, SEED);
    let (start, length) = (lab.now, Duration::from_secs(10));
    let mut streams = calls(start, length);
    run_all(&mut lab, &mut streams, &mut [], start + length + Duration::from_secs(1));
    for stream in &streams {
        assert_eq!(missing_and_doubled(stream), (0, 0));
        let delays = stream.delays();
        assert!(delays.p95_ms < 12.0, "{delays:?}: the copies are the later ones");
    }
    for (stats, copies) in [lab.client.stats(), lab.proxy.stats()].iter().zip(sent_twice(&lab)) {
        // 60 bytes of headers each.
        let expected = Redundancy { packets: 500, bytes: 500 * 260, ..Redundancy::default() };
        assert_eq!(copies, expected);
        assert_eq!(stats.reseq.duplicates, 500, "dropped by the receiver");
        let repairs = stats.repairs.expect("the order within flows");
        assert_eq!((repairs.sent, repairs.given_up, repairs.kept), (0, 0, 0));
        assert!(stats.links.iter().all(|link| link.sender.lost == 0));
    }
}

/// A call beside a download that takes all there is: Mbit/s of the download, and what became of the call.
fn beside_a_download(redundant: Redundant) -> (f64, Stream, Redundancy) {
    let mut lab = lab(&with(redundant), &[FAST, SLOW], 2, SEED);
    let (start, length) = (lab.now, Duration::from_secs(20));
    let mtu = lab.client.stats().inner_mtu.unwrap_or(1200);
    let mut flows = [TcpFlow::new(Towards::Client, Load::For(length), mtu, start)];
    let mut streams = calls(start, length);
    run_all(&mut lab, &mut streams, &mut flows, start + length + Duration::from_secs(1));
    let [down, _] = streams;
    (flows[0].mbit_between(start + length / 2, start + length), down, sent_twice(&lab)[1])
}

#[test]
fn beside_a_download_a_call_keeps_its_delay_and_the_download_loses_no_more_than_the_budget() {
    let (without, once, _) = beside_a_download(Redundant::off());
    let (beside, twice, copies) = beside_a_download(the_call());
    let [delay, delay_twice] = [once.delays(), twice.delays()];
    println!(
        "download {without:.2} and {beside:.2} Mbit/s; call once p50 {:.1}, p95 {:.1} ms, twice {:.1}, {:.1}; {copies:?} (seed {SEED})",
        delay.p50_ms, delay.p95_ms, delay_twice.p50_ms, delay_twice.p95_ms
    );
    assert_eq!((missing_and_doubled(&once), missing_and_doubled(&twice)), ((0, 0), (0, 0)));
    assert!(copies.packets >= 900, "{copies:?}");
    // Of 40; the call itself costs 0.1.
    let budget = 1.0;
    assert!(beside >= without - budget, "{beside} Mbit/s in place of {without}");
    // Copies run ahead of the pace by 4 ms at most.
    assert!(delay_twice.p95_ms <= delay.p95_ms + 4.0, "{delay_twice:?} in place of {delay:?}");
}

#[test]
fn a_stream_that_costs_more_than_the_budget_is_copied_as_far_as_that_goes() {
    let budget = Bitrate::from_kbps(500);
    let mut lab = lab(&with(Redundant { budget, ..the_call() }), &[FAST, SLOW], 2, SEED);
    let (start, length) = (lab.now, Duration::from_secs(10));
    let mut streams = [Stream::at_rate(Towards::Client, 2.0, 1000, start, length)];
    run_all(&mut lab, &mut streams, &mut [], start + length + Duration::from_secs(1));
    let copies = sent_twice(&lab)[1];
    println!("{copies:?} (seed {SEED})");
    assert_eq!(missing_and_doubled(&streams[0]), (0, 0));
    // A quarter of the packets, and 60 bytes of headers each.
    assert!((620_000..=632_000).contains(&copies.bytes), "{copies:?}");
    assert_eq!((copies.packets + copies.over_budget, copies.no_room), (2500, 0));
    assert_eq!(copies.over_budget_bytes, copies.over_budget * 1060);
}

#[test]
fn a_packet_goes_once_where_nothing_else_may_carry_its_copy() {
    let paper = TunnelConfig::of(Profile::Paper);
    let global = TunnelConfig { order: Order::Global, ..with(the_call()) };
    let table: [(&str, TunnelConfig, &[Link], usize); 4] = [
        ("one link", with(the_call()), &[FAST], 1),
        ("a backup", with(the_call()), &[FAST, SLOW], 1),
        ("the papers' system", paper, &[FAST, SLOW], 2),
        ("the order of all", global, &[FAST, SLOW], 2),
    ];
    for (name, config, links, backups) in table {
        let mut lab = lab(&config, links, backups, SEED);
        let (start, length) = (lab.now, Duration::from_secs(2));
        let mut streams = calls(start, length);
        run_all(&mut lab, &mut streams, &mut [], start + length + Duration::from_secs(1));
        for (stream, stats) in streams.iter().zip([lab.client.stats(), lab.proxy.stats()]) {
            assert_eq!(missing_and_doubled(stream), (0, 0), "{name}");
            assert_eq!(stats.reseq.duplicates, 0, "{name}");
            let expected = Redundancy { no_room: 100, ..Redundancy::default() };
            let copies = stats.redundancy;
            assert!(copies.is_none_or(|copies| copies == expected), "{name}: {copies:?}");
            assert_eq!(copies.is_some(), config.order == Order::Flow, "{name}");
        }
    }
}

#[test]
fn what_is_said_while_packets_go_holds_for_the_next_and_loses_none() {
    let mut lab = lab(&with(Redundant::off()), &[FAST, SLOW], 2, SEED);
    let (start, length) = (lab.now, Duration::from_secs(6));
    let mut streams = calls(start, length);
    let mut sent = Vec::new();
    for (second, redundant) in [(1, the_call()), (3, Redundant::off()), (5, the_call())] {
        let at = start + Duration::from_secs(second);
        run_all(&mut lab, &mut streams, &mut [], at);
        let scheduling = Scheduling { redundant, ..Scheduling::default() };
        lab.with_client(|client, now, _| client.set_scheduling(now, scheduling));
        sent.push(sent_twice(&lab)[0].packets);
    }
    run_all(&mut lab, &mut streams, &mut [], start + length + Duration::from_secs(1));
    sent.push(sent_twice(&lab)[0].packets);
    assert_eq!(sent, [0, 100, 100, 149]);
    assert_eq!(sent_twice(&lab)[1].packets, 0, "the proxy was told nothing");
    for stream in &streams {
        assert_eq!(missing_and_doubled(stream), (0, 0));
        assert!(stream.longest_stall(start, start + length) < Duration::from_millis(36));
    }
}

#[test]
fn packets_that_share_a_datagram_share_that_of_their_copies() {
    let mut lab = lab(&with(the_call()), &[FAST, SLOW], 2, SEED);
    let start = lab.now + Duration::from_millis(10);
    lab.run_until(start);
    let packet =
        |number| Inner { flow: 1000, ..Inner::plain(Towards::Proxy, number, 120) }.packet();
    lab.with_client(|client, now, sink| {
        (0..20).for_each(|number| client.handle_packet(now, &packet(number), sink));
    });
    lab.run_until(start + Duration::from_millis(300));
    let (after, proxy) = (lab.client.stats(), lab.proxy.stats());
    let copies = after.redundancy.expect("the order within flows");
    assert_eq!((copies.packets, copies.over_budget, copies.no_room), (20, 0, 0));
    // 20 headers of 60 bytes would be 1,200 more; the frames cost 8 each.
    assert!(copies.bytes < 20 * 120 + 20 * 8 + 4 * 60, "{copies:?}");
    assert!(after.bundled.packets > 0, "{:?}", after.bundled);
    assert_eq!(proxy.reseq.duplicates, 20);
    assert_eq!(proxy.delivered.datagrams, 20);
}
