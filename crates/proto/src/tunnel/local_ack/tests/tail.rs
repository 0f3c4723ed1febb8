//! Stories of the last segments of a burst, behind which nothing comes that would tell of their loss.
//!
//! The tunnel's round trip is 40 ms, so a probe goes when the far end has said nothing for 80 ms, at the next look: every 100 ms
//! from the first segment on.

use std::ops::Range;

use super::holes::{again, has, repaired_within, sends};
use super::story::{FAR, NEAR, Story, packet};
use crate::time::Duration;
use crate::tunnel::local_ack::LocalAcks;
use crate::tunnel::local_ack::connection::{From, FromNear};
use crate::tunnel::local_ack::segment::flag;

const NONE: [u32; 0] = [];

/// Looks, far more than until the timeout, which ends after 1.12 s.
const MANY: u32 = 20;

#[test]
fn a_last_segment_that_was_lost_alone_goes_again_when_its_answer_cannot_be_delayed_any_more() {
    let mut story = Story::begin();
    sends(&mut story, 10);
    has(&mut story, 9, &[]);
    // Two round trips and 200 ms.
    assert_eq!(goes_after(&mut story, MANY), Some((3, vec![9])));
    has(&mut story, 10, &[]);
    assert_eq!(goes_after(&mut story, MANY), None);
    assert_eq!(story.acks.counters().kept_bytes, 0);
    assert_eq!(story.acks.counters().sent_again, 1);
}

#[test]
fn of_two_last_segments_that_were_lost_the_probe_tells_of_the_other() {
    let mut story = Story::begin();
    sends(&mut story, 10);
    has(&mut story, 8, &[]);
    assert_eq!(goes_after(&mut story, MANY), Some((1, vec![9])));
    has(&mut story, 8, &[(9, 10)]);
    assert_eq!(again(&mut story, 100), [8]);
    has(&mut story, 10, &[]);
    assert_eq!(goes_after(&mut story, MANY), None);
    assert_eq!(story.acks.counters().kept_bytes, 0);
    assert_eq!(story.acks.counters().sent_again, 2);
}

#[test]
fn a_hole_with_one_or_two_segments_beyond_it_goes_after_two_round_trips() {
    for lost in [7, 8] {
        let mut story = Story::begin();
        sends(&mut story, 10);
        has(&mut story, lost, &[(lost + 1, 10)]);
        assert_eq!(goes_after(&mut story, MANY), Some((1, vec![lost])));
        has(&mut story, 10, &[]);
        assert_eq!(goes_after(&mut story, MANY), None);
        assert_eq!(story.acks.counters().sent_again, 1);
    }
}

#[test]
fn when_the_probe_is_lost_too_the_timeout_comes_when_it_would_have_come() {
    let mut story = Story::begin();
    sends(&mut story, 10);
    has(&mut story, 8, &[]);
    assert_eq!(goes_after(&mut story, MANY), Some((1, vec![9])));
    // 1.2 s after the last confirmation.
    assert_eq!(goes_after(&mut story, MANY), Some((11, vec![8])));
    has(&mut story, 9, &[]);
    assert_eq!(again(&mut story, 100), [9]);
    has(&mut story, 10, &[]);
    assert_eq!(goes_after(&mut story, MANY), None);
}

#[test]
fn a_probe_that_is_lost_goes_again_when_later_segments_came() {
    let mut story = Story::begin();
    sends(&mut story, 10);
    has(&mut story, 9, &[]);
    assert_eq!(goes_after(&mut story, MANY), Some((3, vec![9])));
    burst(&mut story, 10..12);
    has(&mut story, 9, &[(10, 12)]);
    assert_eq!(goes_after(&mut story, MANY), Some((1, vec![9])));
    has(&mut story, 12, &[]);
    assert_eq!(goes_after(&mut story, MANY), None);
}

#[test]
fn a_probe_that_was_not_needed_does_no_harm_and_one_that_was_counts_as_a_loss() {
    // What the far end says when the probe arrives after all was confirmed; nothing if that was its answer.
    for (name, answer, was_lost) in [
        ("it came twice", Some(vec![(19_u32, 20_u32)]), false),
        ("the same as before, of a far end without D-SACK", Some(Vec::new()), false),
        ("nothing", None, true),
    ] {
        let mut story = Story::begin();
        burst(&mut story, 0..10);
        has(&mut story, 10, &[]);
        burst(&mut story, 10..20);
        has(&mut story, 18, &[]);
        assert_eq!(goes_after(&mut story, MANY), Some((1, vec![19])), "{name}");
        has(&mut story, 20, &[]);
        assert!(!is_bounded(&mut story), "{name}: nothing is known yet");
        if let Some(told) = answer {
            has(&mut story, 20, &told);
        }
        burst(&mut story, 20..30);
        has(&mut story, 30, &[]);
        assert_eq!(is_bounded(&mut story), was_lost, "{name}");
        assert_eq!(story.acks.counters().sent_again, 1, "{name}");
    }
}

#[test]
fn a_connection_at_rest_sends_no_probes() {
    let mut story = Story::begin();
    assert_eq!(goes_after(&mut story, MANY), None);
    assert_eq!(story.acks.poll_timeout(0), None);
    sends(&mut story, 10);
    has(&mut story, 10, &[]);
    assert_eq!(goes_after(&mut story, MANY), None);
    assert_eq!(story.acks.poll_timeout(0), None);
}

#[test]
fn what_waits_in_the_tunnels_queue_is_not_overdue() {
    let mut story = Story::begin();
    story.waiting = 2000;
    sends(&mut story, 10);
    has(&mut story, 8, &[]);
    assert_eq!(goes_after(&mut story, MANY), None);
    // At the next look it may just have left.
    story.waiting = 0;
    assert_eq!(goes_after(&mut story, MANY), Some((2, vec![9])));
}

#[test]
fn a_sender_that_goes_on_is_not_at_the_end_of_a_burst() {
    let mut story = Story::begin();
    for at in 0..30 {
        story.sends(at * 1000, 1000);
        assert_eq!(again(&mut story, 30), NONE, "{at}");
    }
    assert_eq!(goes_after(&mut story, MANY), Some((1, vec![29])));
}

#[test]
fn the_wait_is_two_round_trips_as_long_as_the_opening_took() {
    let mut story = opened_in(300);
    sends(&mut story, 10);
    assert_eq!(goes_after(&mut story, MANY), Some((6, vec![9])));
}

#[test]
fn an_opening_of_which_a_part_came_twice_measures_nothing_so_no_probe_goes() {
    let mut story = Story::begin();
    story.acks = LocalAcks::new(true);
    story.far(&packet(From::Far, flag::SYN, (FAR, 0), &[], &[]));
    let answers = packet(From::Near, flag::SYN | flag::ACK, (NEAR, FAR + 1), &[], &[]);
    story.near(&answers);
    story.now += Duration::from_secs(1);
    story.near(&answers);
    story.far(&packet(From::Far, flag::ACK, (FAR + 1, NEAR + 1), &[], &[]));
    sends(&mut story, 10);
    assert_eq!(goes_after(&mut story, MANY), Some((12, vec![0])), "the timeout");
}

#[test]
fn the_timeout_leaves_a_probe_the_time_to_be_answered() {
    let mut story = opened_in(500);
    sends(&mut story, 10);
    assert_eq!(goes_after(&mut story, MANY), Some((10, vec![9])));
    assert_eq!(goes_after(&mut story, MANY), Some((10, vec![0])), "and not after 1.12 s");
}

#[test]
fn a_second_probe_wants_a_round_trip_that_was_measured_since_the_first() {
    let mut story = Story::begin();
    sends(&mut story, 10);
    has(&mut story, 8, &[]);
    assert_eq!(goes_after(&mut story, MANY), Some((1, vec![9])));
    // This may be the answer to either.
    has(&mut story, 10, &[]);
    for at in 10..12 {
        story.sends(at * 1000, 1000);
    }
    assert_eq!(goes_after(&mut story, MANY), Some((12, vec![10])), "the timeout");
    has(&mut story, 12, &[]);
    for at in 12..15 {
        story.sends(at * 1000, 1000);
    }
    has(&mut story, 13, &[]);
    assert_eq!(goes_after(&mut story, MANY), Some((1, vec![14])));
}

#[test]
fn a_hole_before_the_tunnel_is_the_near_ends_to_fill() {
    let mut story = Story::begin();
    for at in [0, 1, 3, 4] {
        story.sends(at * 1000, 1000);
    }
    has(&mut story, 2, &[]);
    assert_eq!(goes_after(&mut story, 11), None, "what came behind it may be told late");
    let mut story = Story::begin();
    for at in [0, 1, 3, 4] {
        story.sends(at * 1000, 1000);
    }
    has(&mut story, 2, &[(3, 5)]);
    assert_eq!(goes_after(&mut story, 11), None);
}

#[test]
fn a_far_end_without_ranges_needs_fewer_words_after_two_round_trips_and_has_no_probes() {
    for (words, expected) in [(1, (12, vec![7])), (2, (1, vec![7])), (3, (1, vec![7]))] {
        let mut story = Story::begin();
        story.acks = LocalAcks::new(true);
        story.opens(&[1, 1, 3, 3, 7, 1, 1, 1, 1, 1, 1, 1]);
        sends(&mut story, 10);
        // The first one confirms, and each other repeats it.
        for _ in 0..words {
            has(&mut story, 7, &[]);
        }
        assert_eq!(goes_after(&mut story, MANY), Some(expected), "{words}");
    }
}

#[test]
fn the_end_of_a_burst_is_there_within_a_few_tenths_of_a_second_whatever_of_it_was_lost() {
    // The far end is 40 ms away. Each one cost a wait of 1.1 s at least.
    let last = repaired_within(10, |at| at == 9);
    let last_two = repaired_within(10, |at| at >= 8);
    let last_but_two = repaired_within(10, |at| at == 7);
    let whole = repaired_within(10, |_| true);
    println!("{last} ms, {last_two} ms, {last_but_two} ms, {whole} ms");
    assert!(last <= 450, "{last} ms");
    assert!(last_two <= 350, "{last_two} ms");
    assert!(last_but_two <= 250, "{last_but_two} ms");
    assert!(whole <= 250, "{whole} ms");
}

/// At which of so many looks something goes again, and what.
fn goes_after(story: &mut Story, looks: u32) -> Option<(u32, Vec<u32>)> {
    (1..=looks).find_map(|look| {
        let went = again(story, 100);
        (!went.is_empty()).then_some((look, went))
    })
}

/// These segments are under way for a round trip.
fn burst(story: &mut Story, segments: Range<u32>) {
    for at in segments {
        assert_eq!(story.sends(at * 1000, 1000), FromNear::Keep);
    }
    story.after(40);
}

/// A connection whose opening took the far end so long.
fn opened_in(ms: u64) -> Story {
    let mut story = Story::begin();
    story.acks = LocalAcks::new(true);
    story.far(&packet(From::Far, flag::SYN, (FAR, 0), &[], &[]));
    story.near(&packet(From::Near, flag::SYN | flag::ACK, (NEAR, FAR + 1), &[], &[]));
    story.now += Duration::from_millis(ms);
    story.far(&packet(From::Far, flag::ACK, (FAR + 1, NEAR + 1), &[], &[]));
    story
}

/// Whether less may be under way to the far end than it takes: something was lost behind the tunnel.
fn is_bounded(story: &mut Story) -> bool {
    let explained = story.backlog.explained();
    let connection = story.acks.connections.values_mut().next().expect("one");
    connection.room(explained, u32::MAX, 0).0 < u32::MAX
}
