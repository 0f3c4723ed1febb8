//! A link that is silent for a while: the other carries on, and the link is used again soon after it is back.

use std::time::Duration;

use ropewalk_netlab::lab::Towards;
use ropewalk_netlab::netem::{Conditions, Cut};
use ropewalk_netlab::pair::TunnelLab;
use ropewalk_netlab::stream::{Stream, run};
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::tunnel::{LinkState, LinkStats};
use ropewalk_settings::{Keepalive, Profile};

use super::{ms, s, settled};

fn cut(lab: &mut TunnelLab, link: usize, cut: Option<Cut>) {
    let link = &mut lab.links[link];
    for direction in [&mut link.down, &mut link.up] {
        let conditions = Conditions { cut, ..direction.conditions().clone() };
        direction.handle_change(lab.now, conditions);
    }
}

/// Packets of at least this many bytes are the stream's.
const LEN: usize = 1200;

#[test]
fn a_link_cut_in_mid_flow_is_used_again_within_two_seconds_of_its_return() {
    println!("direction, cut: lost at the cut, stall, used again after, lost later");
    for towards in [Towards::Client, Towards::Proxy] {
        for length in [2, 30, 300] {
            story(towards, s(length));
        }
    }
}

fn story(towards: Towards, length: Duration) {
    let links = [(8.0, 10), (4.0, 60)];
    let mut lab = settled(&TunnelConfig::default(), Keepalive::default(), &links);
    let start = lab.now;
    let (at, back) = (start + s(3), start + s(3) + length);
    let end = back + s(10);
    // What the other link carries alone, and from the return on more than that.
    let mut streams = [
        Stream::at_rate(towards, 3.0, LEN, start, end.since(start)),
        Stream::at_rate(towards, 4.0, LEN, back, s(10)),
    ];
    run(&mut lab, &mut streams, at);
    cut(&mut lab, 0, Some(Cut::Everything));
    // Until the loss is noticed: a timeout of the link and a full queue, and a second on top.
    let noticed = at + length.min(s(2));
    run(&mut lab, &mut streams, noticed);
    let lost_at_cut = streams[0].missing();
    run(&mut lab, &mut streams, back);
    let lost_while_down = streams[0].missing() - lost_at_cut;
    cut(&mut lab, 0, None);
    let through = |lab: &TunnelLab| match towards {
        Towards::Client => lab.links[0].down.counters().delivered_bytes,
        Towards::Proxy => lab.links[0].up.counters().delivered_bytes,
    };
    let before = through(&lab);
    let mut used = None;
    while lab.now < end {
        let now = lab.now;
        run(&mut lab, &mut streams, now + ms(10));
        // Twenty packets are more than all probes in two seconds.
        if used.is_none() && through(&lab) - before > 20 * LEN as u64 {
            used = Some(lab.now.since(back));
        }
    }
    run(&mut lab, &mut streams, end + s(1));
    let stream = &streams[0];
    let stall = stream.longest_stall(start, back);
    println!("{towards:?}, {length:?}: {lost_at_cut}, {stall:?}, {used:?}, {lost_while_down}");
    assert!(used.is_some_and(|used| used <= s(2)), "used again after {used:?}");
    assert!(stall < s(1), "nothing came for {stall:?}");
    // What was sent into the dead link before anybody could know: at most its window.
    assert!(lost_at_cut < 150, "{lost_at_cut}");
    assert_eq!(lost_while_down, 0, "the other link is unaffected");
    assert!(stream.in_order_percent() > 99.5, "{}", stream.in_order_percent());
}

#[test]
fn a_link_that_answers_again_is_as_open_as_a_new_one() {
    for (profile, least) in [(Profile::Default, 4), (Profile::Paper, 1)] {
        answers_again(&TunnelConfig::of(profile), least);
    }
}

/// The window of a link that does not answer is the `least`; when it answers, that of a new one.
fn answers_again(config: &TunnelConfig, least: u32) {
    let mut lab = settled(config, Keepalive::default(), &[(8.0, 10), (2.0, 60)]);
    let start = lab.now;
    let mut streams = [Stream::at_rate(Towards::Client, 9.0, LEN, start, s(6))];
    run(&mut lab, &mut streams, start + s(2));
    cut(&mut lab, 0, Some(Cut::Everything));
    run(&mut lab, &mut streams, start + s(4));
    let seen = |lab: &TunnelLab| {
        let link = &lab.proxy.stats().links[0];
        (link.state, link.sender.window)
    };
    assert_eq!(seen(&lab), (LinkState::Down, least), "after its timeout");
    cut(&mut lab, 0, None);
    while seen(&lab).0 == LinkState::Down && lab.now < start + s(6) {
        let now = lab.now;
        run(&mut lab, &mut streams, now + ms(1));
    }
    let (state, window) = seen(&lab);
    assert!(state == LinkState::Up && window >= 10, "{state:?}, {window}");
}

#[test]
fn links_that_are_dead_in_one_direction_go_on_in_the_other() {
    let links = [(4.0, 20), (4.0, 30), (4.0, 40)];
    let mut lab = settled(&TunnelConfig::default(), Keepalive::default(), &links);
    let start = lab.now;
    let mut streams = [
        Stream::at_rate(Towards::Client, 9.0, LEN, start, s(20)),
        Stream::at_rate(Towards::Proxy, 1.0, LEN, start, s(20)),
    ];
    run(&mut lab, &mut streams, start + s(2));
    for link in &mut lab.links[..2] {
        let conditions = Conditions { cut: Some(Cut::Everything), ..link.up.conditions().clone() };
        link.up.handle_change(lab.now, conditions);
    }
    run(&mut lab, &mut streams, start + s(21));
    let states = |end: Vec<LinkStats>| end.iter().map(|link| link.state).collect::<Vec<_>>();
    let down = streams[0].mbit_between(start + s(6), start + s(20));
    println!("{down:.2} Mbit/s down");
    let (client, proxy) = (lab.client.stats(), lab.proxy.stats());
    assert_eq!(states(client.links), [LinkState::Down, LinkState::Down, LinkState::Up]);
    // Copies of the reports on both go over the third.
    assert_eq!(states(proxy.links), [LinkState::Up; 3]);
    assert!(down > 8.5);
}
