//! Stories of calls whose packets go again as long as that is of use, and no longer (`order = "flow"`), in virtual time: each prints
//! its figures and asserts them. That a call's packets wait for the last link is in `failover.rs`.

use std::time::Duration;

use ropewalk_netlab::lab::Towards;
use ropewalk_netlab::loss::Loss;
use ropewalk_netlab::netem::{Conditions, Cut};
use ropewalk_netlab::pair::{TunnelLab, connected};
use ropewalk_netlab::stream::{Stream, run};
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::time::Instant;

const SEED: u64 = 71;

/// Mbit/s, and milliseconds one way.
const LINKS: [(u64, u64); 2] = [(20, 20), (20, 40)];

/// Between two packets of a call.
const GAP: Duration = Duration::from_millis(20);

/// A tunnel that has been up for six seconds over these links: time for a satellite, too.
fn lab(links: &[(u64, u64)], seed: u64) -> TunnelLab {
    let mut lab = connected(&TunnelConfig::default(), links, seed);
    let settled = lab.now + Duration::from_secs(3);
    lab.run_until(settled);
    lab
}

/// 50 packets a second of a call in each direction.
fn call(start: Instant, length: Duration) -> [Stream; 2] {
    [Towards::Client, Towards::Proxy]
        .map(|towards| Stream::at_rate(towards, 0.08, 200, start, length))
}

/// Nothing passes on any link, and nobody says so, between these moments.
fn cut(lab: &mut TunnelLab, from: Instant, until: Instant) {
    for link in &mut lab.links {
        for line in [&mut link.down, &mut link.up] {
            let before = line.conditions().clone();
            line.plan_change(from, Conditions { cut: Some(Cut::Everything), ..before.clone() });
            line.plan_change(until, before);
        }
    }
}

/// All links lose this share at random from now on.
fn lose(lab: &mut TunnelLab, share: f64) {
    for link in &mut lab.links {
        for line in [&mut link.down, &mut link.up] {
            let loss = Loss::Bernoulli(share);
            let conditions = Conditions { loss, ..line.conditions().clone() };
            line.handle_change(lab.now, conditions);
        }
    }
}

/// When each packet was sent, and how long it took; `None`: it did not come.
fn packets(stream: &Stream) -> Vec<(Instant, Option<Duration>)> {
    let mut packets: Vec<_> = (0..u32::try_from(stream.sent()).expect("few"))
        .map(|number| (stream.start() + GAP * number, None))
        .collect();
    for came in stream.came() {
        let packet = &mut packets[usize::try_from(came.number).expect("few")];
        assert!(packet.1.is_none(), "{} twice", came.number);
        packet.1 = stream.delay(came);
    }
    packets
}

#[test]
fn when_all_links_were_silent_a_call_goes_on_without_what_is_old() {
    const AWAY: Duration = Duration::from_millis(600);
    // 250 ms beyond twice the way over the slower link, and the way itself, when it leaves at the last moment.
    let most = Duration::from_millis(250 + 2 * 40 + 40) + Duration::from_millis(20);
    for moment in [0, 7, 13] {
        let mut lab = lab(&LINKS, SEED + moment);
        let (start, length) = (lab.now, Duration::from_secs(6));
        let mut streams = call(start, length);
        let from = start + Duration::from_secs(3) + Duration::from_millis(moment);
        let until = from + AWAY;
        cut(&mut lab, from, until);
        run(&mut lab, &mut streams, start + length + Duration::from_secs(1));
        for (stream, direction) in streams.iter().zip(["down", "up"]) {
            let packets = packets(stream);
            let oldest = packets.iter().filter_map(|packet| packet.1).max().expect("some came");
            let missing: Vec<Instant> =
                packets.iter().filter(|packet| packet.1.is_none()).map(|packet| packet.0).collect();
            let seen = format!(
                "cut at {moment}, {direction}: {} missing, the oldest came after {oldest:?} (seed {SEED})",
                missing.len()
            );
            println!("{seen}");
            assert!(oldest <= most, "{seen}; at most {most:?}");
            // Those are of the time without a link.
            assert!((5..=40).contains(&missing.len()), "{seen}");
            let around = (from - Duration::from_millis(100), until);
            assert!(
                missing.iter().all(|at| (around.0..around.1).contains(at)),
                "{seen}: {missing:?}"
            );
            // Nobody waits for them.
            let again = until + Duration::from_millis(300);
            let later =
                packets.iter().filter(|packet| packet.0 >= again).filter_map(|packet| packet.1);
            let slowest = later.max().expect("it goes on");
            assert!(slowest <= Duration::from_millis(100), "{seen}; then {slowest:?}");
        }
    }
}

#[test]
fn a_call_over_links_that_lose_one_packet_in_a_hundred_has_all_of_them() {
    let mut lab = lab(&LINKS, SEED);
    lose(&mut lab, 0.01);
    let (start, length) = (lab.now, Duration::from_secs(60));
    let mut streams = call(start, length);
    run(&mut lab, &mut streams, start + length + Duration::from_secs(1));
    for (stream, direction) in streams.iter().zip(["down", "up"]) {
        let oldest = packets(stream).iter().filter_map(|packet| packet.1).max();
        let seen =
            format!("{direction}: {} missing, oldest {oldest:?} (seed {SEED})", stream.missing());
        println!("{seen}");
        assert_eq!(stream.missing(), 0, "{seen}");
        assert!(oldest > Some(Duration::from_millis(60)), "some were lost: {seen}");
    }
}

#[test]
fn a_satellite_has_time_for_a_repair() {
    let mut lab = lab(&[(20, 300)], SEED);
    lose(&mut lab, 0.01);
    let (start, length) = (lab.now, Duration::from_secs(40));
    let mut streams = call(start, length);
    run(&mut lab, &mut streams, start + length + Duration::from_secs(2));
    for (stream, direction) in streams.iter().zip(["down", "up"]) {
        let again = Duration::from_millis(600);
        let delays = packets(stream).into_iter().filter_map(|packet| packet.1);
        let repaired = delays.filter(|delay| *delay > again).count();
        let seen =
            format!("{direction}: {repaired} repaired, {} missing (seed {SEED})", stream.missing());
        println!("{seen}");
        // Of 2,000 packets about 20 are lost, and hardly any of these twice.
        assert!(repaired >= 5 && stream.missing() <= 3, "{seen}");
    }
}
