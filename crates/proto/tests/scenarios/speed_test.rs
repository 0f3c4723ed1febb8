//! Speed tests: test data fills the links that are tested to what they carry, and nobody else notices.

use std::time::Duration;

use ropewalk_netlab::lab::{PROXY, Towards};
use ropewalk_netlab::pair::{TunnelLab, conditions, forger, link_config, tunnels};
use ropewalk_netlab::stream::{Stream, run};
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::event::Event;
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::time::Instant;
use ropewalk_proto::tunnel::{LinkStats, SpeedAnswer, SpeedDecision, SpeedPhase, Trips};
use ropewalk_proto::units::{LinkId, SessionIndex};
use ropewalk_proto::wire::cursor::Writer;
use ropewalk_proto::wire::frame::{
    Frame, MAX_REQUEST_LINKS, SpeedAnswerFrame, SpeedLoad, SpeedRefusal, SpeedRequestFrame, emit,
    emit_links,
};
use ropewalk_proto::wire::header::{CLEAR_LEN, Clear, Kind, Sealed, TAG_LEN};
use ropewalk_settings::{ControllerKind, Keepalive, LinkPolicy, Usage};

use super::{SEED, ms, s, settled};

/// The share of a link's rate that full packets have at most: 1,440 of 1,500 bytes.
const SHARE: f64 = 1440.0 / 1500.0;

/// Has the client begin a phase over these links, with no bound but its length.
fn begin(lab: &mut TunnelLab, links: &[u8], load: SpeedLoad, length: Duration) {
    let links = links.iter().map(|link| (LinkId(*link), u64::MAX)).collect();
    let phase = SpeedPhase { links, bytes: u64::MAX, load, until: lab.now + length };
    begin_phase(lab, phase);
}

fn begin_phase(lab: &mut TunnelLab, phase: SpeedPhase<LinkId>) {
    let begun = lab.with_client(|client, now, _| client.begin_speed_phase(now, phase));
    begun.expect("the proxy knows speed tests");
}

/// Runs until `end` with a proxy whose owner grants all that is asked for.
fn run_granting(lab: &mut TunnelLab, streams: &mut [Stream], end: Instant) {
    while lab.now < end {
        let next = (lab.now + ms(2)).min(end);
        run(lab, streams, next);
        while let Some(event) = lab.proxy.poll_event() {
            if event == Event::SpeedWish && lab.proxy.speed_wish().is_some() {
                let (time, bytes) = (s(3600), u64::MAX);
                let granted = SpeedDecision::Granted { time, bytes, place: None };
                lab.proxy.decide_speed_test(lab.now, granted);
            }
        }
    }
}

fn of_client(lab: &TunnelLab, link: usize) -> LinkStats {
    lab.client.stats().links[link].clone()
}

/// The end that fills links, and its link.
fn filling(lab: &TunnelLab, link: usize, load: SpeedLoad) -> LinkStats {
    match load {
        SpeedLoad::Down => lab.proxy.stats().links[link].clone(),
        SpeedLoad::Up | SpeedLoad::Idle => of_client(lab, link),
    }
}

/// What a link carried so far that way as its client knows it, in bytes with IP and UDP headers.
fn carried(lab: &TunnelLab, link: usize, load: SpeedLoad) -> u64 {
    let stats = of_client(lab, link);
    let header = u64::from(stats.path.header_len());
    match load {
        SpeedLoad::Down => stats.on_wire.received,
        SpeedLoad::Up | SpeedLoad::Idle => {
            stats.sender.confirmed_bytes + stats.sender.confirmed * header
        }
    }
}

/// The rate of a link between two times after the present, Mbit/s with all headers.
fn measure(
    lab: &mut TunnelLab,
    streams: &mut [Stream],
    link: usize,
    load: SpeedLoad,
    (from, to): (Duration, Duration),
) -> f64 {
    let start = lab.now;
    run_granting(lab, streams, start + from);
    let before = carried(lab, link, load);
    run_granting(lab, streams, start + to);
    let bytes = carried(lab, link, load) - before;
    bytes as f64 * 8.0 / 1e6 / (to - from).as_secs_f64()
}

#[test]
fn a_test_finds_the_rate_of_a_link_within_three_percent_both_ways() {
    let default = TunnelConfig::default;
    let fixed = |kind| TunnelConfig { controller: kind, ..TunnelConfig::default() };
    let ccid2 = || fixed(ControllerKind::Ccid2);
    for (config, mbit, rtt, least) in [
        (default(), 10.0, 20, 0.97),
        (default(), 2.0, 100, 0.97),
        (default(), 50.0, 10, 0.97),
        (default(), 100.0, 60, 0.97),
        (default(), 20.0, 600, 0.97),
        // It gives way at each loss, as its packets do.
        (ccid2(), 8.0, 10, 0.95),
    ] {
        for load in [SpeedLoad::Down, SpeedLoad::Up] {
            let mut lab = settled(&config, Keepalive::default(), &[(mbit, rtt)]);
            begin(&mut lab, &[0], load, s(16));
            let found = measure(&mut lab, &mut [], 0, load, (s(6), s(16)));
            let filler = filling(&lab, 0, load).filler.sent;
            println!("{mbit} Mbit/s {rtt} ms {load:?}: {:.1} %", 100.0 * found / mbit);
            assert!((least..=1.03).contains(&(found / mbit)), "{mbit} {rtt} {load:?}: {found}");
            assert!(filler.bytes > 1_000_000, "{filler:?}");
            assert_eq!(lab.client.speed_answer(), Some(SpeedAnswer::Granted));
        }
    }
}

#[test]
fn round_trips_are_measured_idle_and_under_load_both_ways() {
    let mut lab = settled(&TunnelConfig::default(), Keepalive::default(), &[(10.0, 40)]);
    let percentile = |lab: &TunnelLab, percent| {
        let trips = lab.client.speed_trips(LinkId(0)).expect("it is tested");
        trips.percentile(percent).expect("some were measured").as_secs_f64() * 1e3
    };
    let counts = [(SpeedLoad::Idle, 30), (SpeedLoad::Down, 30), (SpeedLoad::Up, 300)];
    for (load, least_count) in counts {
        begin(&mut lab, &[0], load, s(8));
        let start = lab.now;
        run_granting(&mut lab, &mut [], start + s(4));
        lab.with_client(|client, _, _| client.forget_speed_trips());
        run_granting(&mut lab, &mut [], start + s(8));
        let (half, most) = (percentile(&lab, 50), percentile(&lab, 95));
        let count = lab.client.speed_trips(LinkId(0)).map_or(0, Trips::count);
        println!("{load:?}: {half:.1} ms, {most:.1} ms, {count} times");
        assert!(count >= least_count, "{load:?}: {count}");
        assert!(half >= 40.0 && most < 100.0, "{load:?}: {half} {most}");
        if load == SpeedLoad::Idle {
            assert!(most < 42.0, "nothing is in the way: {most}");
        }
        lab.with_client(|client, _, _| client.end_speed_test());
        let rest = lab.now + s(1);
        run_granting(&mut lab, &mut [], rest);
        assert!(lab.client.speed_trips(LinkId(0)).is_none(), "it is over");
    }
}

#[test]
fn packets_beside_a_test_come_as_soon_as_on_a_link_with_a_short_queue_and_none_is_lost() {
    for load in [SpeedLoad::Down, SpeedLoad::Up] {
        let mut lab = settled(&TunnelConfig::default(), Keepalive::default(), &[(20.0, 40)]);
        let start = lab.now;
        let towards = if load == SpeedLoad::Down { Towards::Client } else { Towards::Proxy };
        let mut streams = [
            Stream::echoes(ms(20), 100, start, s(12)),
            Stream::at_rate(towards, 2.0, 1200, start, s(12)),
        ];
        begin(&mut lab, &[0], load, s(12));
        let found = measure(&mut lab, &mut streams, 0, load, (s(4), s(12)));
        run_granting(&mut lab, &mut streams, start + s(14));
        let [echo, stream] = &streams;
        let delays = echo.delays_from(start + s(4));
        println!("{load:?}: {found:.1} Mbit/s, echoes {delays:?}");
        assert!(found >= 0.97 * 20.0, "with all packets it is the whole link: {found}");
        assert_eq!((echo.missing(), stream.missing()), (0, 0));
        // The model holds some milliseconds of queue on a full link, whoever fills it.
        assert!(delays.p50_ms < 55.0 && delays.p95_ms < 70.0, "{delays:?}");
    }
}

#[test]
fn packets_that_want_the_whole_link_have_it() {
    let goodput = |with_test: bool| {
        let mut lab = settled(&TunnelConfig::default(), Keepalive::default(), &[(10.0, 30)]);
        let start = lab.now;
        let mut streams =
            [Stream::at_rate(Towards::Client, 1.2 * 10.0 * SHARE, 1440, start, s(14))];
        run(&mut lab, &mut streams, start + s(4));
        if with_test {
            begin(&mut lab, &[0], SpeedLoad::Down, s(10));
        }
        run_granting(&mut lab, &mut streams, start + s(14));
        let filler = filling(&lab, 0, SpeedLoad::Down).filler.sent.bytes;
        (streams[0].mbit_between(start + s(4), start + s(14)), filler)
    };
    let ((alone, none), (beside, filler)) = (goodput(false), goodput(true));
    println!("{alone:.2} Mbit/s alone, {beside:.2} beside a test, which sent {filler} bytes");
    assert_eq!(none, 0);
    assert!(beside >= 0.99 * alone, "{beside} of {alone}");
}

#[test]
fn one_link_of_three_is_tested_while_packets_go_over_all_of_them() {
    let links = [(10.0, 20), (10.0, 30), (10.0, 50)];
    for load in [SpeedLoad::Down, SpeedLoad::Up] {
        let mut lab = settled(&TunnelConfig::default(), Keepalive::default(), &links);
        let start = lab.now;
        let towards = if load == SpeedLoad::Down { Towards::Client } else { Towards::Proxy };
        let mut streams = [Stream::at_rate(towards, 12.0, 1200, start, s(14))];
        run(&mut lab, &mut streams, start + s(2));
        begin(&mut lab, &[2], load, s(12));
        let found = measure(&mut lab, &mut streams, 2, load, (s(4), s(12)));
        let end = start + s(15);
        run_granting(&mut lab, &mut streams, end);
        let goodput = streams[0].mbit_between(start + s(4), start + s(13));
        println!("{load:?}: {found:.2} Mbit/s there, {goodput:.2} Mbit/s of packets over all");
        assert!((0.97..=1.03).contains(&(found / 10.0)), "{found}");
        assert_eq!(streams[0].missing(), 0);
        assert!(goodput > 11.8, "{goodput}");
        for link in [0, 1] {
            assert_eq!(filling(&lab, link, load).filler.sent.bytes, 0, "only the one is tested");
        }
    }
}

#[test]
fn a_link_that_is_kept_back_is_tested_and_rests_before_and_after() {
    let config = TunnelConfig::default();
    let mut lab = tunnels(&config, &config, SEED);
    for (place, usage) in (0..).zip([Usage::Always, Usage::Backup]) {
        let conditions = conditions(8.0, 20, 100);
        let path = lab.add_link(conditions.clone(), conditions, SEED + place);
        let mut link = link_config(&format!("wan{place}"), path, Keepalive::Off);
        link.policy = LinkPolicy { usage, ..LinkPolicy::default() };
        lab.client.add_link(lab.now, &link).expect("few links");
    }
    lab.run_until(Instant::ZERO + s(8));
    for load in [SpeedLoad::Down, SpeedLoad::Up] {
        begin(&mut lab, &[1], load, s(10));
        let found = measure(&mut lab, &mut [], 1, load, (s(4), s(10)));
        assert!((0.97..=1.03).contains(&(found / 8.0)), "{load:?}: {found}");
    }
    lab.with_client(|client, _, _| client.end_speed_test());
    let (end, before) = (lab.now + s(20), carried(&lab, 1, SpeedLoad::Down));
    run_granting(&mut lab, &mut [], end);
    let cost = carried(&lab, 1, SpeedLoad::Down) - before;
    assert!(cost < 20_000, "{cost} bytes after the test");
}

#[test]
fn what_is_not_renewed_ends_within_a_second_and_what_is_over_at_once() {
    let mut lab = settled(&TunnelConfig::default(), Keepalive::default(), &[(20.0, 40)]);
    let sent = |lab: &TunnelLab| filling(lab, 0, SpeedLoad::Down).filler.sent.datagrams;
    // The client asks for a second only, and then no more; its reports go on.
    begin(&mut lab, &[0], SpeedLoad::Down, s(1));
    let start = lab.now;
    run_granting(&mut lab, &mut [], start + ms(900));
    let before = sent(&lab);
    run_granting(&mut lab, &mut [], start + ms(1900));
    let ended = sent(&lab);
    assert!(ended > before, "it went on until the grant was over");
    run_granting(&mut lab, &mut [], start + s(4));
    assert_eq!(sent(&lab), ended);

    begin(&mut lab, &[0], SpeedLoad::Down, s(10));
    let start = lab.now;
    run_granting(&mut lab, &mut [], start + s(2));
    lab.with_client(|client, _, _| client.end_speed_test());
    run_granting(&mut lab, &mut [], start + s(2) + ms(30));
    let ended = sent(&lab);
    run_granting(&mut lab, &mut [], start + s(5));
    assert_eq!(sent(&lab), ended, "a word of the client is enough");

    // The client fills the link only while the proxy grants it.
    begin(&mut lab, &[0], SpeedLoad::Up, s(10));
    let start = lab.now;
    let sent = |lab: &TunnelLab| filling(lab, 0, SpeedLoad::Up).filler.sent.datagrams;
    run(&mut lab, &mut [], start + s(1));
    assert_eq!(sent(&lab), 0, "the owner says nothing");
    run_granting(&mut lab, &mut [], start + s(2));
    assert!(sent(&lab) > 0);
    run(&mut lab, &mut [], start + s(3));
    let ended = sent(&lab);
    run(&mut lab, &mut [], start + s(6));
    assert_eq!(sent(&lab), ended, "nothing was granted for a second");
}

#[test]
fn a_client_whose_grants_end_again_and_again_is_called_for_what_is_to_come_only() {
    let mut lab = settled(&TunnelConfig::default(), Keepalive::default(), &[(20.0, 40)]);
    begin(&mut lab, &[0], SpeedLoad::Up, s(60));
    // Long enough for the link's pace to hold test data back, and not its window.
    let mut end = lab.now + s(8);
    for _ in 0..8 {
        run_granting(&mut lab, &mut [], end);
        let sent = of_client(&lab, 0).filler.sent.datagrams;
        // The lab lets no timer spin; reports of what is under way come for a while.
        run(&mut lab, &mut [], end + ms(1500));
        assert!(lab.client.poll_timeout().is_some_and(|(at, _)| at > lab.now));
        let ended = of_client(&lab, 0).filler.sent.datagrams;
        assert!(ended > sent, "it went on until the grant was over");
        end = lab.now + ms(510);
    }
}

#[test]
fn no_more_is_sent_than_the_phase_allows_on_a_link_and_on_all() {
    let links = [(20.0, 20), (20.0, 30)];
    for load in [SpeedLoad::Down, SpeedLoad::Up] {
        let mut lab = settled(&TunnelConfig::default(), Keepalive::default(), &links);
        let used = |lab: &TunnelLab, link| {
            let stats = filling(lab, link, load);
            let header = u64::from(stats.path.header_len());
            stats.filler.sent.bytes + stats.filler.sent.datagrams * header
        };
        let allowed = [(LinkId(0), 400_000), (LinkId(1), u64::MAX)];
        let until = lab.now + s(5);
        let phase =
            SpeedPhase { links: allowed.into_iter().collect(), bytes: 1_000_000, load, until };
        begin_phase(&mut lab, phase);
        run_granting(&mut lab, &mut [], until);
        let [first, second] = [0, 1].map(|link| used(&lab, link));
        println!("{load:?}: {first} and {second} bytes");
        assert!((398_000..=400_000).contains(&first), "{first}");
        assert!((998_000..=1_000_000).contains(&(first + second)), "{first} {second}");
    }
}

/// A datagram of the other end's with these frames, far above the numbers in use.
fn datagram(towards: Towards, number: u32, frames: &[Frame<'_>]) -> Vec<u8> {
    let link = LinkId(0);
    let clear =
        Clear { kind: Kind::Frames, phase: 0, link, receiver: SessionIndex::new(9), number }
            .to_bytes();
    let mut body = [0; 1400];
    let mut writer = Writer::new(&mut body);
    let sealed = Sealed { send_time: 0, global: 0, previous_on_link: 0, previous_of_flow: 0 };
    sealed.emit(&mut writer).expect("room");
    frames.iter().for_each(|frame| emit(&mut writer, frame).expect("room"));
    let len = writer.len();
    let mut datagram = clear.to_vec();
    datagram.extend_from_slice(&body[..len]);
    datagram.resize(CLEAR_LEN + len + TAG_LEN, 0);
    forger(towards)
        .seal(link, number.into(), &clear, &mut datagram[CLEAR_LEN..])
        .expect("a number used once");
    datagram
}

#[test]
fn a_peer_that_lies_about_tests_gets_nothing_that_its_owner_did_not_grant() {
    let mut lab = settled(&TunnelConfig::default(), Keepalive::default(), &[(10.0, 20)]);
    let mut links = [0; MAX_REQUEST_LINKS];
    let mut writer = Writer::new(&mut links);
    let named = [(LinkId(0), u64::MAX), (LinkId(77), u64::MAX)];
    emit_links(&mut writer, named).expect("room");
    let len = writer.len();
    let greedy = |turn| {
        let request = SpeedRequestFrame::new(u32::MAX, turn, Some(SpeedLoad::Down), &links[..len]);
        Frame::SpeedRequest(request.allowing(u16::MAX, u64::MAX))
    };
    let granted = SpeedAnswerFrame { phase: 0, turn: 0, refusal: None, wait_s: 0 };
    let to_proxy = Path { socket: SocketId(0), local: None, remote: lab.links[0].outer };
    let to_client = Path { socket: SocketId(0), local: None, remote: PROXY };
    let before = [lab.client.stats(), lab.proxy.stats()].map(|stats| stats.links[0].sent.bytes);
    for turn in 0..50 {
        let frames = [greedy(turn), Frame::Filler(0), Frame::Filler(1000)];
        let number = 5000 + u32::from(turn);
        lab.inject(Towards::Proxy, to_proxy, &datagram(Towards::Proxy, number, &frames));
        let frames = [Frame::SpeedAnswer(granted), greedy(turn), Frame::Filler(1000)];
        lab.inject(Towards::Client, to_client, &datagram(Towards::Client, number, &frames));
        let end = lab.now + ms(20);
        lab.run_until(end);
    }
    let after = [lab.client.stats(), lab.proxy.stats()].map(|stats| stats.links[0].sent.bytes);
    for (before, after) in before.into_iter().zip(after) {
        assert!(after - before < 20_000, "{} bytes for 50 lies", after - before);
    }
    assert_eq!(lab.proxy.stats().links[0].filler.sent.bytes, 0);
    assert_eq!(lab.client.stats().links[0].filler.sent.bytes, 0);
    // An owner who refuses says so, and a link that there is not takes nothing from one that is.
    assert_eq!(lab.proxy.speed_wish(), Some(false));
    let (why, wait) = (SpeedRefusal::Forbidden, Duration::ZERO);
    lab.proxy.decide_speed_test(lab.now, SpeedDecision::Refused { why, wait });
    let end = lab.now + ms(100);
    lab.run_until(end);
    assert_eq!((lab.proxy.speed_wish(), lab.client.speed_answer()), (None, None));
    assert_eq!(lab.proxy.stats().links[0].filler.sent.bytes, 0);
}
