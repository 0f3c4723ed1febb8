//! Small packets that share a datagram.

use std::collections::BTreeMap;

use ropewalk_netlab::inner::{Inner, number_of};
use ropewalk_netlab::lab::{PROXY, Towards};
use ropewalk_netlab::loss::Loss;
use ropewalk_netlab::netem::{Conditions, Cut};
use ropewalk_netlab::pair::TunnelLab;
use ropewalk_netlab::stream::{Stream, run};
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::ecn::Ecn::{self, Ce, Ect0, NotEct};
use ropewalk_proto::error::DropReason;
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::queue::QueueLimits;
use ropewalk_settings::{
    Bitrate, ControllerKind, Count, Keepalive, LinkTerms, NatalieSettings, Profile, SchedulerKind,
    Scheduling, Weights, WhenClosed, WhenFull,
};

use crate::{ms, s, settled};

/// Bytes of a datagram beyond its packets where there are several, and for each of them.
const HEADER: usize = 32;
const FRAME: usize = 8;

/// The longest datagram over IPv4 where 1,500 bytes pass.
const LONGEST: usize = 1472;

const SMALL: (usize, Ecn) = (100, NotEct);

/// Weighted round-robin by packets, with the weights of [`terms`].
fn natalie(when_full: WhenFull) -> Scheduling {
    let natalie = NatalieSettings { count: Count::Packets, when_full, weights: Weights::Told };
    Scheduling { natalie, ..SchedulerKind::Natalie.into() }
}

fn terms(weights: [f64; 2]) -> BTreeMap<String, LinkTerms> {
    let terms = |weight| LinkTerms { weight: Some(weight), ..LinkTerms::default() };
    let named = ["wan0", "wan1"].into_iter().zip(weights);
    named.map(|(name, weight)| (name.to_owned(), terms(weight))).collect()
}

/// Windows with room for what the tests send at once.
fn roomy() -> TunnelConfig {
    TunnelConfig { controller: ControllerKind::Fixed(200), ..TunnelConfig::default() }
}

/// The same in the papers' order, in which losses are proven.
fn roomy_in_order() -> TunnelConfig {
    TunnelConfig { controller: ControllerKind::Fixed(200), ..TunnelConfig::of(Profile::Paper) }
}

/// A lab in which packets have gone, whose datagrams are recorded from now on.
fn opened(config: &TunnelConfig, links: &[(f64, u64)]) -> TunnelLab {
    let mut lab = settled(config, Keepalive::Off, links);
    // Half of what they carry: nobody saves up turns.
    let rate: f64 = links.iter().map(|(mbit, _)| mbit / 2.0).sum();
    let stream = Stream::at_rate(Towards::Client, rate, 1200, lab.now, s(2));
    let end = lab.now + s(4);
    run(&mut lab, &mut [stream], end);
    lab.delivered(Towards::Client);
    lab.record = true;
    lab.recorded.clear();
    lab
}

/// Gives the proxy packets of these lengths and marks at once.
fn batch(lab: &mut TunnelLab, packets: &[(usize, Ecn)]) {
    let packet = |(number, (len, ecn)): (u64, &(usize, Ecn))| {
        Inner { ecn: *ecn, ..Inner::plain(Towards::Client, number, *len) }.packet()
    };
    let packets: Vec<_> = (0..).zip(packets).map(packet).collect();
    lab.send_all(Towards::Proxy, &packets);
}

/// The link and length of each datagram with packets that went to the client.
fn datagrams(lab: &TunnelLab) -> Vec<(usize, usize)> {
    let to_client = lab.recorded.iter().filter(|(towards, ..)| *towards == Towards::Client);
    // Reports and marks are shorter.
    let with_packets = to_client.filter(|(.., datagram)| datagram.len() > HEADER + 60);
    with_packets.map(|(_, link, datagram)| (*link, datagram.len())).collect()
}

fn arrived(lab: &mut TunnelLab) -> Vec<u64> {
    let delivered = lab.delivered(Towards::Client);
    delivered.iter().filter_map(|came| number_of(&came.packet)).collect()
}

fn came(lab: &mut TunnelLab) -> Vec<u64> {
    let end = lab.now + s(1);
    lab.run_until(end);
    arrived(lab)
}

/// Nothing comes to the client by itself from now on.
fn cut(lab: &mut TunnelLab) {
    for link in &mut lab.links {
        let cut = Conditions { cut: Some(Cut::Everything), ..link.down.conditions().clone() };
        link.down.handle_change(lab.now, cut);
    }
}

/// How a client sees this link.
fn path(link: usize) -> Path {
    let socket = SocketId(u16::try_from(link).expect("few links"));
    Path { socket, local: None, remote: PROXY }
}

#[test]
fn what_goes_the_same_way_shares_a_datagram_as_far_as_it_fits() {
    let whole = |lens: [usize; 3]| lens.map(|len| (len, NotEct));
    let not_full = [whole([512, 512, 392]), whole([512, 512, 393])].concat();
    type Case<'a> = (&'a str, &'a [(usize, Ecn)], &'a [usize]);
    let table: [Case<'_>; 8] = [
        ("one alone has no frame", &[SMALL], &[HEADER + 100]),
        ("two", &[SMALL; 2], &[HEADER + 2 * (FRAME + 100)]),
        (
            "as many as fit, and the rest",
            &[SMALL; 15],
            &[HEADER + 13 * (FRAME + 100), HEADER + 2 * (FRAME + 100)],
        ),
        (
            "a large one goes alone, and nothing overtakes it",
            &[SMALL, SMALL, (1400, NotEct), SMALL],
            &[HEADER + 2 * (FRAME + 100), HEADER + 1400, HEADER + 100],
        ),
        ("not small enough", &[(513, NotEct); 2], &[HEADER + 513; 2]),
        (
            "a datagram has one mark",
            &[(100, Ect0), (100, Ect0), (100, Ce), SMALL],
            &[HEADER + 2 * (FRAME + 100), HEADER + 100, HEADER + 100],
        ),
        (
            "no more than the longest",
            &not_full,
            &[LONGEST, HEADER + 2 * (FRAME + 512), HEADER + 393],
        ),
        (
            "what goes first as a sparse flow, and what follows it",
            &[(60, NotEct); 33],
            &[HEADER + 21 * 68, HEADER + 4 * 68, HEADER + 8 * 68],
        ),
    ];
    for (case, packets, expected) in table {
        let mut lab = opened(&roomy(), &[(10.0, 20)]);
        batch(&mut lab, packets);
        let lengths: Vec<_> = datagrams(&lab).iter().map(|(_, len)| *len).collect();
        assert_eq!(lengths, expected, "{case}");
        let numbers: Vec<_> = (0..packets.len() as u64).collect();
        assert_eq!(came(&mut lab), numbers, "{case}");
    }
}

#[test]
fn bursts_of_small_packets_cost_a_fraction_of_their_datagrams() {
    for (links, most) in [(&[(20.0, 20)][..], 0.17), (&[(20.0, 20), (20.0, 40)], 0.22)] {
        let mut lab = opened(&roomy(), links);
        let before = lab.proxy.stats().bundled;
        for _ in 0..100 {
            let burst: Vec<_> = [(160, NotEct); 32].into();
            batch(&mut lab, &burst);
            let next = lab.now + ms(20);
            lab.run_until(next);
        }
        let (sent, bundled) = (datagrams(&lab).len() as f64 / 3200.0, lab.proxy.stats().bundled);
        println!("{} links: {sent:.3} datagrams a packet of 160 bytes", links.len());
        assert_eq!(came(&mut lab).len(), 3200);
        assert!(sent < most, "{sent}");
        assert!(bundled.packets - before.packets > 3000, "{bundled:?}");
        assert!(bundled.datagrams - before.datagrams <= datagrams(&lab).len() as u64);
    }
}

#[test]
fn marks_that_are_not_carried_over_do_not_part_packets() {
    let config = TunnelConfig { ecn: false, ..roomy() };
    let mut lab = opened(&config, &[(10.0, 20)]);
    batch(&mut lab, &[(100, Ect0), (100, Ce), (100, NotEct)]);
    assert_eq!(datagrams(&lab).len(), 1);
    let end = lab.now + s(1);
    lab.run_until(end);
    let marked = Inner { ecn: Ce, ..Inner::plain(Towards::Client, 1, 100) }.packet();
    assert_eq!(lab.delivered(Towards::Client)[1].packet, marked);
}

/// Which link carried which packet of those that left at once when so many came behind some large ones.
fn links_of(config: &TunnelConfig, large: usize, small: usize) -> BTreeMap<u64, usize> {
    let mut lab = opened(config, &[(10.0, 20), (10.0, 60)]);
    cut(&mut lab);
    batch(&mut lab, &vec![(1400, NotEct); large]);
    lab.recorded.clear();
    let packets: Vec<_> = (0..large + small)
        .map(|number| Inner::plain(Towards::Client, number as u64, 60 + number % 7).packet())
        .collect();
    lab.send_all(Towards::Proxy, &packets[large..]);
    let recorded = std::mem::take(&mut lab.recorded);
    let mut links = BTreeMap::new();
    for (_, link, datagram) in recorded.iter().filter(|(towards, ..)| *towards == Towards::Client) {
        lab.inject(Towards::Client, path(*link), datagram);
        // What is missing was large: nobody waits for it for longer.
        let end = lab.now + s(2);
        lab.run_until(end);
        links.extend(arrived(&mut lab).into_iter().map(|number| (number, *link)));
    }
    links
}

#[test]
fn each_packet_takes_the_link_that_it_takes_alone() {
    let mut parted = 0;
    for scheduling in [
        SchedulerKind::FreeWindow.into(),
        SchedulerKind::RoundRobin.into(),
        natalie(WhenFull::Pass),
        natalie(WhenFull::Wait),
        SchedulerKind::Safire.into(),
    ] {
        for (weights, window, large) in
            [([1.0, 1.0], 40, 0), ([3.0, 1.0], 40, 9), ([1.0, 0.0], 40, 0), ([1.0, 2.0], 6, 3)]
        {
            let config = |bundle| TunnelConfig {
                scheduling: Scheduling { terms: terms(weights), ..scheduling.clone() },
                controller: ControllerKind::Fixed(window),
                bundle,
                ..TunnelConfig::default()
            };
            let case =
                format!("{} {weights:?} window {window}, {large} large", scheduling.in_words());
            let alone = links_of(&config(false), large, 30);
            let bundled = links_of(&config(true), large, 30);
            assert!(alone.len() >= 3, "{case}: {alone:?}");
            assert_eq!(bundled, alone, "{case}");
            parted += u32::from(alone.values().min() != alone.values().max());
        }
    }
    assert!(parted > 8, "the packets of most cases take both links");
}

#[test]
fn a_link_of_one_place_takes_one_packet_and_then_the_next_is_asked_for_again() {
    // With both windows at one place each the packets take turns, bundled or not.
    let config = TunnelConfig { controller: ControllerKind::Fixed(1), ..TunnelConfig::default() };
    let mut lab = opened(&config, &[(10.0, 20), (10.0, 20)]);
    batch(&mut lab, &[SMALL; 6]);
    assert_eq!(datagrams(&lab), [(0, HEADER + 100), (1, HEADER + 100)]);
    assert_eq!(came(&mut lab), (0..6).collect::<Vec<_>>());
}

#[test]
fn what_waits_for_its_link_shares_a_datagram_as_far_as_it_fits() {
    // All of it is for the first link, whose window is two datagrams.
    let config = TunnelConfig {
        scheduling: Scheduling { terms: terms([1.0, 0.0]), ..natalie(WhenFull::Wait) },
        controller: ControllerKind::Fixed(2),
        queue: QueueLimits { time: s(1), bytes: 1 << 20 },
        ..TunnelConfig::default()
    };
    let mut lab = settled(&config, Keepalive::Off, &[(10.0, 20), (10.0, 20)]);
    lab.record = true;
    batch(&mut lab, &[SMALL; 60]);
    assert_eq!(came(&mut lab), (0..60).collect::<Vec<_>>());
    let sent = datagrams(&lab);
    assert!(sent.iter().all(|(link, _)| *link == sent[0].0), "{sent:?}");
    assert!(sent.len() <= 60 / 13 + 4, "{sent:?}");
}

#[test]
fn a_full_tunnel_that_drops_takes_bundles_too() {
    let config = TunnelConfig {
        when_closed: WhenClosed::Drop,
        controller: ControllerKind::Fixed(3),
        ..TunnelConfig::default()
    };
    let mut lab = opened(&config, &[(10.0, 20)]);
    let dropped = |lab: &TunnelLab| lab.proxy.stats().drops.get(DropReason::NoRoom);
    let before = dropped(&lab);
    batch(&mut lab, &[SMALL; 40]);
    assert_eq!(datagrams(&lab), [(0, HEADER + 3 * (FRAME + 100))]);
    assert_eq!(came(&mut lab), [0, 1, 2]);
    assert_eq!(dropped(&lab) - before, 37);
}

#[test]
fn a_paced_link_is_given_no_more_at_once_than_its_pace_allows() {
    let rate = Some(Bitrate::from_mbps(1));
    let terms = LinkTerms { rate, ..LinkTerms::default() };
    let config = TunnelConfig {
        scheduling: Scheduling {
            terms: [("wan0".into(), terms)].into(),
            ..natalie(WhenFull::Pass)
        },
        controller: ControllerKind::Fixed(64),
        ..TunnelConfig::default()
    };
    let mut lab = settled(&config, Keepalive::Off, &[(1.0, 20)]);
    lab.record = true;
    let begin = lab.now;
    // Ten times what it carries.
    let mut streams = [Stream::at_rate(Towards::Client, 3.0, 160, begin, s(5))];
    run(&mut lab, &mut streams, begin + s(6));
    let lost = crate::lost(lab.links[0].down.counters());
    assert_eq!(lost, 0, "its own queue never fills");
}

#[test]
fn of_a_lost_datagram_all_packets_are_passed_over_and_no_other() {
    let mut lab = opened(&roomy_in_order(), &[(10.0, 20)]);
    let before = lab.client.stats().reseq;
    cut(&mut lab);
    batch(&mut lab, &[SMALL; 39]);
    let sent: Vec<_> = std::mem::take(&mut lab.recorded);
    // Of 13, of 2 that are the last of a sparse flow, of 13, of 11.
    assert_eq!(sent.len(), 4);
    for came in [0, 1, 3] {
        lab.inject(Towards::Client, path(0), &sent[came].2);
    }
    assert_eq!(
        arrived(&mut lab),
        (0..15).chain(28..39).collect::<Vec<_>>(),
        "at once: it is proven"
    );
    // It was only late: nothing is lost, nothing comes twice.
    lab.inject(Towards::Client, path(0), &sent[2].2);
    assert_eq!(arrived(&mut lab), (15..28).collect::<Vec<_>>());
    let stats = lab.client.stats().reseq;
    assert_eq!(stats.skipped_by_proof - before.skipped_by_proof, 13);
    assert_eq!((stats.late - before.late, stats.duplicates), (13, 0));
}

#[test]
fn a_datagram_lost_between_two_links_is_proven_by_both_and_the_order_is_kept() {
    let mut lab = opened(&roomy_in_order(), &[(10.0, 20), (10.0, 20)]);
    cut(&mut lab);
    for _ in 0..2 {
        batch(&mut lab, &[SMALL; 24]);
    }
    let sent: Vec<_> = std::mem::take(&mut lab.recorded);
    let of = |link: usize| sent.iter().filter(move |(_, on, _)| *on == link);
    assert!(of(0).count() >= 2 && of(1).count() >= 2, "both carry both batches");
    // The first of one link is lost; the rest comes, one link behind the other.
    let mut all = Vec::new();
    for (_, link, datagram) in of(0).skip(1).chain(of(1)) {
        lab.inject(Towards::Client, path(*link), datagram);
        all.extend(arrived(&mut lab));
    }
    let stats = lab.client.stats().reseq;
    assert_eq!(stats.held, 0, "nothing waits: what is missing is proven lost");
    assert_eq!((stats.late, stats.skipped_by_deadline), (0, 0));
    assert_eq!(all.len() as u64 + stats.skipped_by_proof, 48);
    assert!(stats.skipped_by_proof > 5, "{stats:?}");
}

#[test]
fn bursts_keep_their_order_over_links_that_lose_and_reorder() {
    for reorder in [false, true] {
        let mut lab = opened(&roomy(), &[(10.0, 20), (10.0, 60)]);
        for link in &mut lab.links {
            let rough = Conditions {
                loss: Loss::Bernoulli(0.02),
                jitter: ms(if reorder { 4 } else { 0 }),
                keep_order: !reorder,
                ..link.down.conditions().clone()
            };
            link.down.handle_change(lab.now, rough);
        }
        let mut number = 0;
        for _ in 0..400 {
            let burst: Vec<_> = (number..number + 20)
                .map(|number| Inner::plain(Towards::Client, number, 160).packet())
                .collect();
            number += 20;
            lab.send_all(Towards::Proxy, &burst);
            let next = lab.now + ms(5);
            lab.run_until(next);
        }
        let came = came(&mut lab);
        let behind = came.windows(2).filter(|pair| pair[1] < pair[0]).count() as u64;
        let stats = lab.client.stats().reseq;
        println!("reordering {reorder}: {} of 8000 came, {behind} back, {stats:?}", came.len());
        assert!(came.len() > 7600, "{}", came.len());
        assert!(behind <= stats.late, "{behind} {stats:?}");
        assert!(reorder || stats.late_after_proof == 0, "{stats:?}");
        let again = lab.proxy.stats().repairs.map_or(0, |repairs| repairs.sent);
        assert!(stats.duplicates + stats.too_old <= again, "{stats:?}, {again} sent again");
    }
}
