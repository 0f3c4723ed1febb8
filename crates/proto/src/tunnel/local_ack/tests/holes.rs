//! Stories of a far end that misses several segments, and says so.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::iter;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::story::{FAR, NEAR, Story, complete, packet, place};
use crate::packet::buffer::PacketBuffer;
use crate::packet::checksum::{fold, sum};
use crate::time::{Duration, Instant};
use crate::tunnel::local_ack::LocalAcks;
use crate::tunnel::local_ack::connection::{From, FromNear};
use crate::tunnel::local_ack::kept::{Kept, Store};
use crate::tunnel::local_ack::segment::{Range, flag};

const NONE: [u32; 0] = [];

/// With a tunnel of this round trip a second's silence is no proof, and no reason for a probe.
const LONG: Duration = Duration::from_millis(500);

#[test]
fn many_holes_of_one_window_go_again_in_the_same_turn_and_once() {
    let mut story = Story::begin();
    sends(&mut story, 40);
    let ranges: Vec<_> = (0..9).map(|at| (at * 4 + 2, at * 4 + 5)).collect();
    for told in ranges.chunks(3) {
        assert_eq!(has(&mut story, 1, told), None);
    }
    assert_eq!(again(&mut story, 100), [1, 5, 9, 13, 17, 21, 25, 29, 33]);
    has(&mut story, 1, &ranges[6..]);
    assert_eq!(again(&mut story, 100), NONE);
    has(&mut story, 40, &[]);
    assert_eq!(story.acks.counters().kept_bytes, 0);
    assert_eq!(story.acks.counters().sent_again, 9);
}

#[test]
fn a_hole_that_shows_only_later_goes_without_waiting() {
    let mut story = Story::begin();
    sends(&mut story, 20);
    has(&mut story, 0, &[(1, 4)]);
    assert_eq!(again(&mut story, 100), [0]);
    // One word is enough.
    has(&mut story, 0, &[(5, 8), (1, 4)]);
    assert_eq!(again(&mut story, 100), [4]);
}

#[test]
fn what_was_lost_once_more_goes_after_a_pause_while_the_far_end_speaks() {
    let mut story = Story::begin();
    sends(&mut story, 20);
    let mut times = Vec::new();
    for tenth in 1..=10 {
        has(&mut story, 0, &[(1, 4 + tenth)]);
        if !again(&mut story, 100).is_empty() {
            times.push(tenth);
        }
    }
    // Half of the wait is 560 ms.
    assert_eq!(times, [1, 7]);
}

#[test]
fn a_segment_that_is_only_late_does_not_go_again() {
    let mut story = Story::begin();
    story.backlog.round_trip = LONG;
    sends(&mut story, 20);
    has(&mut story, 0, &[(1, 2)]);
    has(&mut story, 0, &[(1, 3)]);
    // The same three times is no more than once.
    has(&mut story, 0, &[(1, 2), (1, 3), (2, 3)]);
    assert_eq!(again(&mut story, 100), NONE);
    has(&mut story, 3, &[]);
    has(&mut story, 3, &[(4, 5)]);
    assert_eq!(again(&mut story, 100), NONE);
}

#[test]
fn the_last_hole_goes_when_the_ones_before_it_are_filled_although_little_lies_beyond_it() {
    let mut story = Story::begin();
    story.backlog.round_trip = LONG;
    sends(&mut story, 10);
    has(&mut story, 2, &[(8, 10), (3, 7)]);
    assert_eq!(again(&mut story, 100), [2]);
    has(&mut story, 7, &[(8, 10)]);
    assert_eq!(again(&mut story, 100), [7]);
    // All is confirmed that was under way by then: what comes later has to be proven again.
    has(&mut story, 10, &[]);
    for at in 10..20 {
        story.sends(at * 1000, 1000);
    }
    has(&mut story, 11, &[(12, 14)]);
    assert_eq!(again(&mut story, 100), NONE);
}

#[test]
fn of_the_first_hole_only_what_was_under_way_by_then_goes_without_proof() {
    let mut story = Story::begin();
    sends(&mut story, 10);
    has(&mut story, 0, &[(1, 4)]);
    assert_eq!(again(&mut story, 100), [0]);
    for at in 10..20 {
        story.sends(at * 1000, 1000);
    }
    has(&mut story, 9, &[(15, 16)]);
    assert_eq!(again(&mut story, 100), [9], "the others may only be late");
    has(&mut story, 9, &[(15, 18)]);
    assert_eq!(again(&mut story, 100), [10, 11, 12, 13, 14]);
}

#[test]
fn what_was_lost_with_nothing_beyond_it_goes_when_the_hole_before_it_is_filled() {
    let mut story = Story::begin();
    sends(&mut story, 12);
    has(&mut story, 0, &[(1, 5)]);
    assert_eq!(again(&mut story, 100), [0]);
    has(&mut story, 5, &[]);
    assert_eq!(again(&mut story, 100), [5]);
    has(&mut story, 6, &[]);
    assert_eq!(again(&mut story, 100), [6, 7]);
    has(&mut story, 8, &[]);
    assert_eq!(again(&mut story, 100), [8, 9, 10, 11]);
}

#[test]
fn after_a_wait_the_rest_goes_although_more_is_confirmed_than_went_again() {
    let mut story = Story::begin();
    sends(&mut story, 12);
    assert_eq!(again(&mut story, 1200), [0]);
    has(&mut story, 5, &[]);
    assert_eq!(again(&mut story, 100), [5]);
    has(&mut story, 6, &[]);
    assert_eq!(again(&mut story, 100), [6, 7]);
}

#[test]
fn twice_as_many_go_after_a_wait_however_many_words_confirm_what_went_together() {
    let mut story = Story::begin();
    sends(&mut story, 40);
    assert_eq!(again(&mut story, 1200), [0]);
    has(&mut story, 1, &[]);
    assert_eq!(again(&mut story, 100), [1, 2]);
    for first in [2, 3] {
        has(&mut story, first, &[]);
    }
    assert_eq!(again(&mut story, 100), [3, 4, 5, 6]);
}

#[test]
fn holes_that_the_far_end_tells_after_a_wait_go_once() {
    let mut story = Story::begin();
    sends(&mut story, 10);
    assert_eq!(again(&mut story, 1200), [0]);
    has(&mut story, 0, &[(5, 8)]);
    assert_eq!(again(&mut story, 100), [1, 2, 3, 4]);
    has(&mut story, 1, &[(5, 8)]);
    assert_eq!(again(&mut story, 100), [8, 9]);
}

#[test]
fn of_a_long_hole_twice_as_many_go_as_arrive_and_ten_at_least() {
    let mut story = Story::begin();
    sends(&mut story, 60);
    let all = |from: u32, to: u32| (from..to).collect::<Vec<_>>();
    has(&mut story, 0, &[(57, 60)]);
    assert_eq!(again(&mut story, 100), all(0, 10));
    assert_eq!(again(&mut story, 100), all(10, 20), "it is not forgotten");
    has(&mut story, 15, &[(57, 60)]);
    assert_eq!(again(&mut story, 100), all(20, 50));
    assert_eq!(again(&mut story, 100), all(50, 57));
    assert_eq!(again(&mut story, 100), NONE);
}

#[test]
fn what_the_far_end_discarded_goes_again_after_a_wait_although_it_was_told() {
    let mut story = Story::begin();
    sends(&mut story, 8);
    has(&mut story, 0, &[(1, 4)]);
    assert_eq!(again(&mut story, 100), [0]);
    assert_eq!(again(&mut story, 1100), [0]);
    has(&mut story, 1, &[]);
    assert_eq!(again(&mut story, 100), [1, 2]);
    has(&mut story, 3, &[]);
    assert_eq!(again(&mut story, 100), [3, 4, 5, 6]);
}

#[test]
fn what_the_far_end_tells_after_a_wait_does_not_go_again() {
    let mut story = Story::begin();
    sends(&mut story, 8);
    assert_eq!(again(&mut story, 1200), [0]);
    has(&mut story, 1, &[(2, 3), (4, 5)]);
    assert_eq!(again(&mut story, 100), [1, 3]);
    has(&mut story, 5, &[]);
    assert_eq!(again(&mut story, 100), [5, 6, 7]);
}

#[test]
fn ranges_that_cannot_be_change_nothing() {
    let mut story = Story::begin();
    story.backlog.round_trip = LONG;
    sends(&mut story, 10);
    let lies = [
        // Beyond what was sent, and from the first number on that it misses.
        (5000, 10_001),
        (1000, 1 << 31),
        (0, 5000),
        // Inverted, empty, and around.
        (6000, 2000),
        (3000, 3000),
        (1 << 31, 3000),
        (0_u32.wrapping_sub(5000), 8000),
        (3000, 0_u32.wrapping_sub(5000)),
    ];
    for lie in lies {
        for _ in 0..4 {
            assert_eq!(story.confirms(0, &[lie]), None);
        }
        assert_eq!(again(&mut story, 100), NONE, "{lie:?}");
    }
    // What is true beside them counts.
    story.confirms(0, &[lies[0], (1000, 4000), lies[3]]);
    assert_eq!(again(&mut story, 100), [0]);
}

#[test]
fn ranges_may_lie_around_the_end_of_all_numbers() {
    let mut story = Story::begin();
    for at in 0..20 {
        story.sends(at * 100, 100);
    }
    story.after(0);
    // The last of all numbers lies at 998.
    story.confirms(200, &[(300, 800)]);
    story.confirms(200, &[(300, 1600)]);
    story.confirms(200, &[(1700, 2000), (300, 1600)]);
    story.after(100);
    let places: Vec<_> = story.again.drain(..).map(|segment| place(segment.seq)).collect();
    assert_eq!(places, [200, 1600]);
}

#[test]
fn what_came_twice_is_told_below_what_is_confirmed_and_shows_no_loss() {
    let mut story = Story::begin();
    story.backlog.round_trip = LONG;
    sends(&mut story, 10);
    for _ in 0..4 {
        has(&mut story, 5, &[(0, 1)]);
    }
    assert_eq!(again(&mut story, 100), NONE);
    has(&mut story, 5, &[(1, 2), (6, 9)]);
    assert_eq!(again(&mut story, 100), [5]);
}

#[test]
fn a_fourth_range_is_read_where_no_clock_takes_its_place() {
    let mut story = Story::begin();
    sends(&mut story, 10);
    story.far(&without_clock(0, [(7, 10), (5, 6), (3, 4), (1, 2)]));
    assert_eq!(again(&mut story, 100), [0, 2, 4, 6]);
}

#[test]
fn a_far_end_without_ranges_has_its_first_segment_again_after_three_words_and_then_hole_by_hole() {
    let mut story = Story::begin();
    story.backlog.round_trip = LONG;
    story.acks = LocalAcks::new(true);
    story.opens(&[1, 1, 3, 3, 7, 1, 1, 1, 1, 1, 1, 1]);
    sends(&mut story, 10);
    for _ in 0..3 {
        assert_eq!(has(&mut story, 1, &[]), None);
    }
    assert_eq!(again(&mut story, 100), NONE, "two repeat the first");
    has(&mut story, 1, &[]);
    assert_eq!(again(&mut story, 100), [1]);
    for _ in 0..4 {
        has(&mut story, 1, &[]);
    }
    assert_eq!(again(&mut story, 100), NONE, "once");
    for next in [4, 7] {
        has(&mut story, next, &[]);
        assert_eq!(again(&mut story, 100), [next]);
    }
    has(&mut story, 10, &[]);
    assert_eq!(story.acks.counters().kept_bytes, 0);
}

#[test]
fn what_a_far_end_without_ranges_lost_one_behind_the_other_goes_ever_faster() {
    let mut story = Story::begin();
    story.acks = LocalAcks::new(true);
    story.opens(&[1, 1, 3, 3, 7, 1, 1, 1, 1, 1, 1, 1]);
    sends(&mut story, 40);
    for _ in 0..4 {
        has(&mut story, 1, &[]);
    }
    let (mut first, mut looks) = (1, 0);
    while first < 31 {
        looks += 1;
        for at in again(&mut story, 100) {
            assert_eq!(at, first, "one after the other");
            first += 1;
        }
        has(&mut story, first, &[]);
    }
    assert_eq!(looks, 5);
}

#[test]
fn without_ranges_nothing_that_came_later_than_the_first_loss_goes_without_proof() {
    let mut story = Story::begin();
    story.acks = LocalAcks::new(true);
    story.opens(&[1, 1, 3, 3, 7, 1, 1, 1, 1, 1, 1, 1]);
    sends(&mut story, 10);
    for _ in 0..4 {
        has(&mut story, 1, &[]);
    }
    assert_eq!(again(&mut story, 100), [1]);
    for at in 10..20 {
        story.sends(at * 1000, 1000);
    }
    // The first confirms a part; the others come of what was under way beyond the next hole.
    for _ in 0..4 {
        has(&mut story, 4, &[]);
    }
    assert_eq!(again(&mut story, 100), [4]);
    has(&mut story, 10, &[]);
    has(&mut story, 12, &[]);
    assert_eq!(again(&mut story, 100), NONE);
}

#[test]
fn a_third_of_a_window_that_was_lost_behind_the_tunnel_is_there_after_two_round_trips() {
    // The far end is 40 ms away, and what it misses is looked for every 100 ms. Before all holes were known at once, each one cost
    // a wait of 1.1 s.
    let took = repaired_within(100, |at| at % 3 == 0 && at < 96);
    println!("{took} ms");
    assert!(took <= 180, "{took} ms");
    // Only two lie beyond the last hole: it goes when the ones before it are filled, a round trip and a look later.
    let took = repaired_within(100, |at| at % 3 == 1);
    println!("{took} ms");
    assert!(took <= 320, "{took} ms");
}

#[test]
fn marks_are_those_of_a_walk_through_all_segments_whatever_is_told_in_whatever_order() {
    const LEN: u32 = 100;
    const MOST: u32 = 100;
    for seed in 0..200 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let base = u32::MAX - rng.random_range(0..12_000_u32);
        let number = |offset: u32| base.wrapping_add(offset);
        let mut store = Store::default();
        // Those that are kept, and whether they are marked.
        let mut expected = BTreeMap::new();
        let mut confirmed = 0;
        for _ in 0..300 {
            match rng.random_range(0..10_u32) {
                0..=4 => {
                    let at = rng.random_range(confirmed..MOST);
                    expected.entry(at).or_insert_with(|| {
                        store.keep(kept(number(at * LEN), LEN));
                        false
                    });
                }
                5..=8 => {
                    // In half of the cases not between two segments.
                    let mut edge = || rng.random_range(confirmed * 2 + 1..=MOST * 2) * LEN / 2;
                    let (one, other) = (edge(), edge());
                    let (start, end) = (one.min(other), one.max(other));
                    store.mark(iter::once((number(start), number(end))));
                    for (at, is_marked) in &mut expected {
                        *is_marked |= at * LEN >= start && (at + 1) * LEN <= end;
                    }
                }
                _ => {
                    confirmed = rng.random_range(confirmed..MOST).min(confirmed + 5);
                    store.confirm(number(confirmed * LEN), |_| {});
                    expected.retain(|at, _| *at >= confirmed);
                }
            }
            let missing: Vec<_> = expected
                .iter()
                .filter(|(_, is_marked)| !**is_marked)
                .map(|(at, _)| number(at * LEN))
                .collect();
            assert_eq!(unmarked(&mut store, number(confirmed * LEN)), missing, "seed {seed}");
            let marked = expected.iter().rev().filter(|(_, is_marked)| **is_marked);
            let third = marked.map(|(at, _)| number(at * LEN)).nth(2);
            assert_eq!(store.lost_below(), third, "seed {seed}");
        }
    }
}

#[test]
fn a_long_range_is_marked_by_several_acknowledgements_so_that_none_costs_much() {
    let mut store = Store::default();
    for at in 0..1000 {
        store.keep(kept(at * 10, 10));
    }
    let told: Range = (10, 10_000);
    let mut left = Vec::new();
    for _ in 0..5 {
        store.mark(iter::repeat_n(told, 4));
        left.push(unmarked(&mut store, 0).len());
    }
    assert_eq!(left, [744, 488, 232, 1, 1]);
    store.forget_marks();
    assert_eq!((unmarked(&mut store, 0).len(), store.lost_below()), (1000, None));
}

/// A segment of a store without a connection.
fn kept(seq: u32, len: u32) -> Kept {
    Kept::new(seq, seq.wrapping_add(len), PacketBuffer::default())
}

/// Where those begin that are not marked.
fn unmarked(store: &mut Store, from: u32) -> Vec<u32> {
    let below = from.wrapping_add(1 << 30);
    let all = store.again(Instant::ZERO, from, below, usize::MAX, Duration::ZERO);
    all.map(|kept| kept.seq).collect()
}

/// So many segments of 1000 bytes are under way.
pub(super) fn sends(story: &mut Story, segments: u32) {
    for at in 0..segments {
        assert_eq!(story.sends(at * 1000, 1000), FromNear::Keep);
    }
    story.after(0);
}

/// The far end has all of the first segments, and these beyond.
pub(super) fn has(story: &mut Story, first: u32, beyond: &[(u32, u32)]) -> Option<Vec<u8>> {
    let ranges: Vec<_> = beyond.iter().map(|(a, b)| (a * 1000, b * 1000)).collect();
    story.confirms(first * 1000, &ranges)
}

/// So much later: the segments that go again.
pub(super) fn again(story: &mut Story, ms: u64) -> Vec<u32> {
    story.after(ms);
    story.again.drain(..).map(|segment| place(segment.seq) / 1000).collect()
}

/// An acknowledgement of a far end that has no clock, so that it has room for four ranges of segments.
fn without_clock(first: u32, beyond: [(u32, u32); 4]) -> Vec<u8> {
    let number = |segment: u32| NEAR.wrapping_add(1 + segment * 1000);
    let mut packet = packet(From::Far, flag::ACK, (FAR + 1, number(first)), &[], &[]);
    let mut options = vec![1, 1, 5, 34];
    for (start, end) in beyond {
        options.extend(number(start).to_be_bytes());
        options.extend(number(end).to_be_bytes());
    }
    packet.splice(40.., options);
    packet[32] = 14 << 4;
    packet[2..4].copy_from_slice(&76_u16.to_be_bytes());
    packet[10..12].fill(0);
    let checksum = !fold(sum(0, &packet[..20]));
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    complete(&mut packet);
    packet
}

/// A far end that acknowledges each segment.
#[derive(Default)]
struct FarEnd {
    has: BTreeSet<u32>,
    /// As they came.
    latest: Vec<u32>,
}

impl FarEnd {
    /// It takes a segment: how many of the first it has, and the ranges beyond, the latest first (RFC 2018 §4).
    fn takes(&mut self, at: u32) -> (u32, Vec<(u32, u32)>) {
        self.has.insert(at);
        self.latest.push(at);
        let is_here = |at: &u32| self.has.contains(at);
        let first = (0..).find(|at| !is_here(at)).expect("a missing one");
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for at in self.latest.iter().rev() {
            let is_told = ranges.iter().any(|(start, end)| (*start..*end).contains(at));
            if *at > first && !is_told && ranges.len() < 3 {
                let start = (first..*at).rev().find(|at| !is_here(at)).expect("the first") + 1;
                let end = (*at..).find(|at| !is_here(at)).expect("a missing one");
                ranges.push((start, end));
            }
        }
        (first, ranges)
    }
}

/// After how many milliseconds all of so many segments are confirmed by a far end 20 ms away, on the way to which some are lost at
/// first.
pub(super) fn repaired_within(segments: u32, is_lost: impl Fn(u32) -> bool) -> u64 {
    let mut story = Story::begin();
    sends(&mut story, segments);
    let mut far = FarEnd::default();
    let arriving = (0..segments).filter(|at| !is_lost(*at));
    let mut arriving: VecDeque<(u64, u32)> = arriving.map(|at| (20, at)).collect();
    let mut acks = VecDeque::new();
    for now in 1..60_000_u64 {
        let went = again(&mut story, 1);
        arriving.extend(went.into_iter().map(|at| (now + 20, at)));
        while arriving.front().is_some_and(|(due, _)| *due <= now) {
            let Some((_, at)) = arriving.pop_front() else { break };
            acks.push_back((now + 20, far.takes(at)));
        }
        while acks.front().is_some_and(|(due, _)| *due <= now) {
            let Some((_, (first, beyond))) = acks.pop_front() else { break };
            has(&mut story, first, &beyond);
        }
        if story.acks.counters().kept_bytes == 0 {
            return now;
        }
    }
    panic!("never")
}
