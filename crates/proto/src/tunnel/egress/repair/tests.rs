//! What is kept, lost, confirmed and given up.

use super::*;
use crate::link::carried::{Carried, Packets};
use crate::link::sent::Sent;

const WLAN: LinkId = LinkId(0);
const LTE: LinkId = LinkId(1);

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn unconfirmed(ms: u64, link: LinkId, number: u64) -> Unconfirmed {
    let sent = Attempt {
        checksum: Checksum::Whole,
        mark: Ecn::NotEct,
        flow: FlowKey(1),
        previous_of_flow: None,
        is_sparse: false,
        is_acknowledged: false,
        is_redundant: false,
        came: None,
        link,
        number,
        moved_from: None,
    };
    Unconfirmed { packet: vec![7; 100].into(), sent_at: at(ms), sent, copy: None }
}

/// Packets 10 to 13, on two links in turn.
fn four() -> Repair {
    let mut repair = Repair::default();
    for (global, link, number) in [(10, WLAN, 5), (11, LTE, 9), (12, WLAN, 6), (13, LTE, 10)] {
        repair.keep(at(0), global, unconfirmed(0, link, number), drop);
    }
    repair
}

fn fate(number: u64, packets: Packets, fate: Fate) -> Settled {
    let carried = Carried { packets, ..Carried::default() };
    let sent = Sent {
        size: 100,
        header: 28,
        places: 1,
        eliciting: true,
        window_limited: false,
        window_full: false,
        paced: false,
        carried,
    };
    Settled { number, sent_at: at(0), sent, fate }
}

/// Settles the datagram with one packet; says how many buffers came back.
fn settle(repair: &mut Repair, ms: u64, link: LinkId, number: u64, global: u64, of: Fate) -> usize {
    let mut freed = 0;
    repair.settle(at(ms), link, &fate(number, Packets::one(global), of), |_| freed += 1);
    freed
}

fn lost(repair: &Repair) -> Vec<u64> {
    repair.lost.iter().map(|lost| lost.global).collect()
}

#[test]
fn what_is_confirmed_is_forgotten_and_its_buffer_comes_back() {
    let mut repair = four();
    assert_eq!(settle(&mut repair, 40, LTE, 9, 11, Fate::Confirmed), 1);
    assert_eq!(settle(&mut repair, 40, LTE, 9, 11, Fate::Confirmed), 0, "once");
    assert_eq!((repair.repairs().kept, repair.repairs().kept_bytes), (3, 300));
    for (link, number, global) in [(WLAN, 5, 10), (WLAN, 6, 12), (LTE, 10, 13)] {
        assert_eq!(settle(&mut repair, 50, link, number, global, Fate::Confirmed), 1);
    }
    assert!(repair.places.is_empty() && repair.repairs().kept_bytes == 0);
}

/// Packet 10 on both links.
fn copied() -> Repair {
    let mut repair = Repair::default();
    repair.keep(at(0), 10, unconfirmed(0, WLAN, 5), drop);
    repair.on_copied(10, Way { link: LTE, number: 9 });
    repair
}

#[test]
fn a_packet_on_two_links_is_confirmed_by_either_datagram_and_lost_with_both() {
    use Fate::{Confirmed, Lost, TimedOut};
    type Fates<'a> = &'a [(LinkId, u64, Fate)];
    let table: [(Fates<'_>, (usize, usize)); 9] = [
        (&[(WLAN, 5, Confirmed)], (0, 0)),
        (&[(LTE, 9, Confirmed)], (0, 0)),
        (&[(WLAN, 5, Lost)], (1, 0)),
        (&[(LTE, 9, Lost)], (1, 0)),
        (&[(WLAN, 5, TimedOut), (LTE, 9, Confirmed)], (0, 0)),
        (&[(LTE, 9, Lost), (WLAN, 5, Confirmed)], (0, 0)),
        (&[(WLAN, 5, Confirmed), (LTE, 9, Lost)], (0, 0)),
        (&[(WLAN, 5, Lost), (LTE, 9, Lost)], (1, 1)),
        (&[(LTE, 9, Lost), (WLAN, 5, TimedOut)], (1, 1)),
    ];
    for (fates, (kept, again)) in table {
        let mut repair = copied();
        for (link, number, fate) in fates {
            settle(&mut repair, 50, *link, *number, 10, *fate);
        }
        assert_eq!((repair.repairs().kept, lost(&repair).len()), (kept, again), "{fates:?}");
        assert_eq!(repair.repairs().sent, 0, "a copy is no repair");
    }
}

#[test]
fn a_packet_on_two_links_goes_again_when_both_are_silent() {
    for links in [[WLAN, LTE], [LTE, WLAN]] {
        let mut repair = copied();
        repair.reinject(at(60), links[0], true, drop);
        assert_eq!(lost(&repair), [], "the other one carries it");
        repair.reinject(at(70), links[1], true, drop);
        assert_eq!(lost(&repair), [10]);
    }
}

#[test]
fn what_was_lost_goes_again_the_lowest_first_and_once_for_each_loss() {
    let mut repair = four();
    settle(&mut repair, 50, LTE, 10, 13, Fate::Lost);
    settle(&mut repair, 60, WLAN, 5, 10, Fate::Lost);
    assert_eq!(lost(&repair), [10, 13]);
    assert_eq!(repair.next().map(|(global, _)| global), Some(10));
    repair.on_sent(0, 1, LTE, 11);
    assert_eq!(lost(&repair), [13]);
    // What is heard of the first attempt says nothing of the second.
    settle(&mut repair, 70, WLAN, 5, 10, Fate::Lost);
    assert_eq!(lost(&repair), [13]);
    settle(&mut repair, 80, LTE, 11, 10, Fate::Lost);
    assert_eq!((lost(&repair), repair.repairs().sent), (vec![10, 13], 1));
}

#[test]
fn those_that_were_overtaken_are_kept_under_their_lower_numbers() {
    let mut repair = Repair::default();
    repair.keep(at(0), 13, unconfirmed(0, LTE, 9), drop);
    for (global, number) in [(10, 5), (12, 6), (11, 7), (14, 8)] {
        repair.keep(at(0), global, unconfirmed(0, WLAN, number), drop);
    }
    assert_eq!((repair.repairs().kept, repair.repairs().kept_bytes), (5, 500));
    for (link, number, global) in [(WLAN, 5, 10), (LTE, 9, 13), (WLAN, 7, 11)] {
        assert_eq!(settle(&mut repair, 40, link, number, global, Fate::Confirmed), 1);
    }
    settle(&mut repair, 50, WLAN, 6, 12, Fate::Lost);
    assert_eq!(lost(&repair), [12]);
    // One that comes far too late for its number is not kept.
    let mut freed = 0;
    let far = 12 + MOST_PACKETS as u64;
    repair.keep(at(60), far, unconfirmed(60, WLAN, 9), |_| freed += 1);
    repair.keep(at(60), 5, unconfirmed(60, WLAN, 10), |_| freed += 1);
    assert!(repair.get(5).is_none());
    assert!(freed > 0);
}

#[test]
fn what_seemed_lost_and_came_does_not_go_again() {
    let mut repair = four();
    settle(&mut repair, 50, WLAN, 5, 10, Fate::Lost);
    assert_eq!(settle(&mut repair, 60, WLAN, 5, 10, Fate::ConfirmedLate), 1);
    assert!(repair.next().is_none());
}

#[test]
fn nothing_goes_again_that_is_older_than_two_seconds() {
    let mut repair = four();
    assert_eq!(settle(&mut repair, 2001, WLAN, 5, 10, Fate::TimedOut), 1);
    assert_eq!((lost(&repair), repair.repairs().given_up), (vec![], 1));
}

#[test]
fn what_follows_one_that_is_of_no_use_any_more_waits_for_the_one_before_that() {
    let mut repair = Repair::default();
    // 10, 11, 13 and 14 of a call, 12 of a download.
    let packets = [(10, 1, None), (11, 1, Some(10)), (12, 2, None), (13, 1, Some(11))];
    for (global, flow, before) in packets.into_iter().chain([(14, 1, Some(13))]) {
        let mut packet = unconfirmed(0, WLAN, global);
        packet.sent.flow = FlowKey(flow);
        packet.sent.previous_of_flow = before;
        packet.sent.came = (flow == 1).then(|| at(0));
        repair.keep(at(0), global, packet, drop);
    }
    let before = |repair: &Repair, global| repair.kept(global)?.sent.previous_of_flow;
    assert!(repair.give_up(13).is_some() && repair.give_up(11).is_some());
    assert_eq!(before(&repair, 14), Some(10));
    assert!(repair.give_up(10).is_some());
    assert_eq!((before(&repair, 14), before(&repair, 12)), (None, None));
    let given_up: Vec<_> = std::iter::from_fn(|| repair.poll_given_up()).collect();
    assert_eq!(given_up, [10, 11, 13].map(|global| (FlowKey(1), global)));
}

#[test]
fn all_that_is_under_way_on_a_silent_link_goes_over_the_others() {
    let mut repair = four();
    repair.reinject(at(60), WLAN, false, drop);
    assert_eq!(lost(&repair), [10]);
    repair.reinject(at(60), WLAN, true, drop);
    assert_eq!(lost(&repair), [10, 12]);
    repair.on_sent(0, 2, LTE, 11);
    repair.reinject(at(70), WLAN, true, drop);
    assert_eq!(lost(&repair), [] as [u64; 0], "it is not there any more");
}

#[test]
fn what_was_copied_early_counts_among_what_goes_over_others_when_its_link_falls_silent() {
    let mut repair = four();
    repair.on_copied_early(10, Way { link: LTE, number: 11 });
    assert_eq!((repair.repairs.sent, repair.repairs.sent_bytes), (1, 100));
    // Its copy is under way; 12 has none.
    assert_eq!(repair.reinject(at(60), WLAN, true, drop), 2);
    assert_eq!(lost(&repair), [12]);
    assert_eq!(settle(&mut repair, 80, LTE, 11, 10, Fate::Confirmed), 1);
    assert_eq!(repair.poll_resumed(), Some(WLAN));
}

#[test]
fn of_packets_in_one_datagram_each_has_its_own_fate() {
    let mut repair = Repair::default();
    // Packets 1, 2 and 4 in a datagram, 3 in another of the same moment.
    for (global, link, number) in [(1, WLAN, 5), (2, WLAN, 5), (3, LTE, 8), (4, WLAN, 5)] {
        repair.keep(at(0), global, unconfirmed(0, link, number), drop);
    }
    repair.settle(at(30), WLAN, &fate(5, Packets::several(1, 4, 3), Fate::Lost), drop);
    assert_eq!(lost(&repair), [1, 2, 4]);
}

#[test]
fn neither_packets_nor_bytes_grow_without_bound() {
    let mut repair = Repair::default();
    let mut freed = 0;
    for global in 0..2 * MOST_PACKETS as u64 {
        repair.keep(at(0), global, unconfirmed(0, WLAN, global), |_| freed += 1);
    }
    assert_eq!((repair.repairs().kept, freed), (MOST_PACKETS, MOST_PACKETS));
    // A number was skipped; a far one begins again.
    repair.keep(at(0), 2 * MOST_PACKETS as u64 + 1, unconfirmed(0, WLAN, 1), drop);
    assert_eq!(repair.base, MOST_PACKETS as u64 + 2);
    repair.keep(at(0), 1 << 40, unconfirmed(0, WLAN, 2), drop);
    assert_eq!((repair.repairs().kept, repair.base), (1, 1 << 40));
    // What nobody reports is forgotten in the end.
    repair.keep(at(60_000), (1 << 40) + 1, unconfirmed(60_000, WLAN, 3), drop);
    assert_eq!((repair.repairs().kept, repair.base), (1, (1 << 40) + 1));
}
