//! Stories of local acknowledgement, segment by segment. The near end is a server, the far end a client that asked it.

mod holes;
mod story;
mod tail;

use super::near_trip::NearTrip;
use super::segment::{Range, Segment, flag};
use super::*;
use crate::packet::buffer::PacketBuffer;
use crate::tunnel::local_ack::connection::FromNear;
use story::{BACKLOG, FAR, NEAR, Story, Tun, complete, packet, place, read};

#[test]
fn what_is_taken_over_is_acknowledged_once_a_turn_and_the_far_ends_word_for_it_goes_no_further() {
    let mut story = Story::begin();
    for at in 0..4 {
        assert_eq!(story.sends(at * 1000, 1000), FromNear::Keep);
    }
    let [ack] = story.after(0)[..] else { panic!("one") };
    assert_eq!((place(ack.ack), ack.seq, ack.flags), (4000, FAR + 1, flag::ACK));
    // The near end's own clock comes back, and the far end's goes on.
    assert_eq!(ack.times.unwrap().echo, NEAR.wrapping_add(3001) / 2);
    assert!(story.after(0).is_empty());
    assert_eq!(story.acks.counters().kept_bytes, 4 * 1052);
    assert_eq!(story.confirms(2000, &[]), None);
    assert_eq!(story.acks.counters().kept_bytes, 2 * 1052);
    // With nothing left to confirm the far end speaks for itself.
    assert!(story.confirms(4000, &[]).is_some());
    assert_eq!(
        story.acks.counters(),
        LocallyAcknowledged { connections: 1, segments: 4, ..LocallyAcknowledged::default() }
    );
}

#[test]
fn a_hole_before_the_tunnel_is_told_with_the_ranges_behind_it_and_filled() {
    let mut story = Story::begin();
    story.sends(0, 1000);
    assert_eq!(story.told(0), [1000]);
    assert_eq!(story.sends(2000, 1000), FromNear::Keep);
    let [ack] = story.after(0)[..] else { panic!("one") };
    let range = ack.sacks[0].map(|(start, end)| (place(start), place(end)));
    assert_eq!((place(ack.ack), range), (1000, Some((2000, 3000))));
    assert_eq!(story.sends(2000, 1000), FromNear::Drop, "it went before");
    assert_eq!(story.told(0), [1000]);
    assert_eq!(story.sends(1000, 1000), FromNear::Keep);
    assert_eq!(story.told(0), [3000]);
    // What came twice and was confirmed is asked after: is the far end alive?
    assert!(story.confirms(3000, &[]).is_some());
    assert_eq!(story.sends(2999, 1), FromNear::Pass);
}

#[test]
fn so_many_holes_that_not_all_ranges_fit_are_left_to_the_far_end() {
    let mut story = Story::begin();
    let became: Vec<_> = (1..12).map(|at| story.sends(at * 2000, 1000)).collect();
    assert_eq!(became, [[FromNear::Keep; 8].as_slice(), &[FromNear::Pass; 3]].concat());
    // The far end may have what this end has not.
    assert!(story.confirms(1000, &[]).is_some());
    assert_eq!(story.sends(1000, 1000), FromNear::Keep);
    assert_eq!(story.told(0), [3000]);
}

#[test]
fn a_packet_that_was_broken_on_its_way_is_not_acknowledged() {
    let mut story = Story::begin();
    let mut broken = packet(From::Near, flag::ACK, (NEAR + 1, FAR + 1), &[], &[1; 100]);
    *broken.last_mut().unwrap() ^= 1;
    assert_eq!(story.near(&broken), FromNear::Pass);
    assert!(story.after(0).is_empty());
    let mut label = Label::of(&PacketView::parse(&broken).unwrap(), Checksum::Partial);
    let now = story.now;
    assert_eq!(
        story.acks.on_near(now, &broken.into(), &mut label, true),
        FromNear::Keep,
        "a kernel's own"
    );
}

#[test]
fn the_near_end_may_send_what_may_wait_and_hears_of_room_when_less_waits() {
    let mut story = Story::begin();
    // 50 kB may wait: 50 ms of that rate, as the far end answers at once; the far end takes 128 kB beyond what it has.
    story.backlog.share = Some(1_000_000);
    (story.backlog.round_trip, story.backlog.least_round_trip) = (Duration::ZERO, Duration::ZERO);
    story.confirms(0, &[]);
    let edge = |acks: &[Segment]| {
        acks.last().map(|ack| place(ack.ack.wrapping_add(u32::from(ack.window) << 7)))
    };
    story.waiting = 49_000;
    for at in 0..120 {
        story.sends(at * 1000, 1000);
    }
    let first = edge(&story.after(0)).expect("an acknowledgement");
    assert!(first.abs_diff(128_000) < 256, "{first}");
    story.confirms(100_000, &[]);
    story.after(1);
    story.waiting = 45_000;
    assert!(story.after(1).is_empty(), "too little to tell");
    story.waiting = 10_000;
    let second = edge(&story.after(1)).expect("there is room");
    assert!(second.abs_diff(160_000) < 256, "{second}");
    story.waiting = 0;
    let third = edge(&story.after(1));
    assert_eq!(third, None, "a little more goes with the next acknowledgement");
}

#[test]
fn how_long_the_near_end_takes_is_seen_whenever_it_could_send_nothing() {
    let mut story = Story::begin();
    (story.backlog.share, story.backlog.round_trip) = (Some(1_000_000), Duration::ZERO);
    story.backlog.least_round_trip = Duration::ZERO;
    let near_rtt =
        |story: &Story| story.acks.connections.values().next().and_then(|it| it.near_trip.least());
    let edge = |acks: &[Segment]| {
        acks.last().map(|ack| place(ack.ack.wrapping_add(u32::from(ack.window) << 7)))
    };
    story.confirms(0, &[]);
    story.sends(0, 1000);
    let mut at = 1000;
    let mut may = edge(&story.after(0)).expect("an acknowledgement");
    // Nothing is known of the opening.
    story.acks.connections.values_mut().for_each(|it| it.near_trip = NearTrip::default());
    for took in [9, 4, 7] {
        // It sends all that it may, which waits.
        while at + 1000 <= may {
            story.sends(at, 1000);
            at += 1000;
        }
        story.waiting = 200_000;
        story.confirms(at - 1000, &[]);
        story.after(1);
        story.waiting = 0;
        may = edge(&story.after(1)).expect("there is room");
        // What it had sent before it heard of that says nothing.
        let before = near_rtt(&story);
        story.sends(at, 100);
        assert_eq!(near_rtt(&story), before);
        story.now += Duration::from_millis(took);
    }
    story.sends(at, 1000);
    assert_eq!(near_rtt(&story), Some(Duration::from_millis(4)));
}

#[test]
fn what_may_wait_of_all_flows_together_stays_in_the_caches_where_links_are_fast() {
    let ms = Duration::from_millis;
    // Mbit/s; flows; the round trip now and at least, ms; kB that may wait of all flows at least and at most.
    for (mbit, flows, now, least, from, to) in [
        (50, 1, 40, 40, 560, 565),
        (50, 4, 60, 40, 680, 690),
        (4_000, 1, 9, 0, 1_048, 1_050),
        (4_000, 4, 9, 0, 1_048, 1_050),
        (4_000, 4, 9, 1, 1_545, 1_550),
    ] {
        let share = Some(mbit * 125_000 / flows);
        let (round_trip, least_round_trip) = (ms(now), ms(least));
        let backlog = Backlog { share, flows, round_trip, least_round_trip, ..BACKLOG };
        let all = u64::from(backlog.most(None)) * flows / 1000;
        assert!((from..=to).contains(&all), "{mbit} Mbit/s, {flows} flows: {all} kB");
    }
}

#[test]
fn before_anybody_knows_what_links_carry_as_much_may_wait_as_a_later_one_needs_that_has_nothing_to_do()
 {
    for (needed, unused, more) in [
        (0, true, 0),
        (400_000, true, 400_000),
        (400_000, false, 0),
        (u64::MAX, true, (1 << 30) - 256 * 1024),
    ] {
        let most = Backlog { share: None, needed, unused, ..BACKLOG }.most(None);
        assert_eq!(u64::from(most), 256 * 1024 + more, "{needed} bytes, unused: {unused}");
    }
}

#[test]
fn what_the_near_end_may_send_is_never_taken_back() {
    let mut story = Story::begin();
    let mut most = 0;
    for at in 0..200_u32 {
        story.waiting = usize::try_from(at * 7919 % 150_000).unwrap();
        story.backlog.share = Some(u64::from(at * 104_729 % 3_000_000));
        story.sends(at * 500, 500);
        if at % 3 == 0 {
            story.confirms(at * 400, &[]);
        }
        for ack in story.after(1) {
            let edge = place(ack.ack) + (u32::from(ack.window) << 7);
            assert!(edge + 128 > most, "{edge} after {most}");
            most = most.max(edge);
        }
    }
    assert!(most > 100_000);
}

#[test]
fn what_the_far_end_misses_goes_again() {
    let mut story = Story::begin();
    for at in 0..6 {
        story.sends(at * 1000, 1000);
    }
    story.after(0);
    for _ in 0..4 {
        assert_eq!(story.confirms(1000, &[(3000, 6000)]), None);
    }
    story.after(100);
    let places: Vec<_> = story.again.drain(..).map(|segment| place(segment.seq)).collect();
    assert_eq!(places, [1000, 2000]);
    // Once, and not with each word of the same hole.
    story.confirms(1000, &[(3000, 6000)]);
    story.after(100);
    assert!(story.again.is_empty());
}

#[test]
fn a_far_end_that_says_nothing_is_asked_ever_more_rarely_and_at_last_the_near_end_is_told() {
    let mut story = Story::begin();
    story.sends(0, 1000);
    story.sends(1000, 1000);
    story.after(0);
    let mut times = Vec::new();
    let mut heard = Vec::new();
    for tenth in 1..3000_u32 {
        heard.extend(story.after(100));
        times.extend(story.again.drain(..).map(|segment| (tenth, place(segment.seq))));
    }
    assert_eq!(times.remove(0), (1, 1000), "a probe");
    assert!(times.iter().all(|(_, place)| *place == 0));
    let times: Vec<_> = times.iter().map(|(tenth, _)| tenth / 10).collect();
    assert_eq!(times, [1, 3, 8, 17, 35, 70, 142]);
    assert_eq!(heard.iter().map(|end| end.flags).collect::<Vec<_>>(), [flag::ACK | flag::RST]);
    assert_eq!(story.acks.counters().kept_bytes, 0);
    assert_eq!(story.acks.poll_timeout(0), None);
}

#[test]
fn a_far_end_that_lost_all_has_it_again_within_a_second() {
    let mut story = Story::begin();
    for at in 0..100 {
        story.sends(at * 1000, 1000);
    }
    story.acks.ask_for_all();
    let (mut has, mut tenths) = (0, 0);
    while has < 100_000 && tenths < 100 {
        tenths += 1;
        story.after(100);
        for segment in std::mem::take(&mut story.again) {
            assert_eq!(place(segment.seq), has, "one after the other");
            has = place(segment.end());
        }
        story.confirms(has, &[]);
    }
    assert!(tenths <= 10, "{tenths}");
    assert_eq!(story.acks.counters().kept_bytes, 0);
    assert_eq!(story.acks.counters().sent_again, 100);
}

#[test]
fn a_far_end_that_takes_nothing_for_an_hour_but_answers_is_waited_for_and_then_has_all_at_once() {
    let mut story = Story::begin();
    for at in 0..20 {
        story.sends(at * 1000, 1000);
    }
    story.after(0);
    let mut shut = packet(From::Far, flag::ACK, (FAR + 1, NEAR.wrapping_add(1)), &[], &[]);
    shut[34..36].fill(0);
    complete(&mut shut);
    let mut asked = 0;
    for _ in 0..36_000 {
        let heard = story.after(100);
        assert!(heard.iter().all(|segment| !segment.has(flag::RST)));
        if !std::mem::take(&mut story.again).is_empty() {
            asked += 1;
            assert_eq!(story.far(&shut), None);
        }
    }
    assert!((30..120).contains(&asked), "{asked}");
    story.confirms(0, &[]);
    let mut has = 0;
    for _ in 0..8 {
        story.after(100);
        has = story.again.drain(..).map(|segment| place(segment.end())).max().unwrap_or(has);
        story.confirms(has, &[]);
    }
    assert_eq!(has, 20_000);
}

#[test]
fn what_goes_again_acknowledges_what_the_near_end_has_by_then_with_its_clock() {
    let mut story = Story::begin();
    story.sends(0, 1000);
    story.after(0);
    story.far(&packet(From::Far, flag::ACK, (FAR + 1, NEAR.wrapping_add(1)), &[], &[5; 700]));
    let later = packet(From::Near, flag::ACK, (NEAR.wrapping_add(1001), FAR + 701), &[], &[]);
    story.near(&later);
    story.after(2000);
    let [again] = story.again[..] else { panic!("one") };
    assert_eq!((place(again.seq), again.ack), (0, FAR + 701));
    assert_eq!(again.times, read(&later).times);
}

#[test]
fn a_near_end_that_may_not_send_hears_of_room_although_memory_was_given_back() {
    let mut story = Story::begin();
    story.backlog.round_trip = Duration::ZERO;
    story.confirms(0, &[]);
    story.waiting = 49_000;
    for at in 0..120 {
        story.sends(at * 1000, 1000);
    }
    story.after(0);
    story.confirms(100_000, &[]);
    story.after(1);
    story.waiting = 45_000;
    assert!(story.after(1).is_empty(), "too little to tell");
    story.acks.release_memory();
    story.waiting = 10_000;
    assert_eq!(story.after(1).len(), 1);
}

#[test]
fn data_that_come_back_carry_what_the_near_end_has_heard_already() {
    let mut story = Story::begin();
    story.sends(0, 1000);
    story.after(0);
    let data = packet(From::Far, flag::ACK, (FAR + 1, NEAR + 1), &[(NEAR, NEAR + 1)], &[5; 77]);
    let came = story.far(&data).expect("data go on");
    let segment = read(&came);
    assert_eq!((place(segment.ack), segment.has_ranges(), segment.len), (1000, false, 77));
    assert!(segment.at.is_right(&came), "its checksum is corrected");
    assert_eq!(came[came.len() - 77..], [5; 77]);
    story.sends(1000, 1000);
    assert_eq!(story.after(0)[0].seq, FAR + 78);
}

#[test]
fn of_what_only_acknowledges_the_number_is_known_unless_it_says_more() {
    let mut story = Story::begin();
    let acks = |sacks: &[Range]| packet(From::Near, flag::ACK, (NEAR + 1, FAR + 500), sacks, &[]);
    assert_eq!(story.near(&acks(&[])), FromNear::Acknowledges(FAR + 500));
    assert_eq!(story.near(&acks(&[(FAR + 900, FAR + 1000)])), FromNear::Pass);
    let ends = packet(From::Near, flag::ACK | flag::FIN, (NEAR + 1, FAR + 500), &[], &[]);
    assert_eq!(story.near(&ends), FromNear::Pass);
}

#[test]
fn an_end_is_acknowledged_by_the_far_end_alone() {
    let mut story = Story::begin();
    story.sends(0, 1000);
    let fin = |at: u32| packet(From::Near, flag::ACK | flag::FIN, (at, FAR + 1), &[], &[2; 500]);
    assert_eq!(story.near(&fin(NEAR.wrapping_add(1001))), FromNear::Keep);
    assert_eq!(story.told(0), [1500]);
    assert_eq!(story.confirms(1000, &[]), None);
    let last = story.confirms(1501, &[]).expect("the end is acknowledged");
    assert_eq!(place(read(&last).ack), 1501);
    let fin =
        packet(From::Far, flag::ACK | flag::FIN, (FAR + 1, NEAR.wrapping_add(1502)), &[], &[]);
    assert!(story.far(&fin).is_some());
    assert!(story.acks.is_empty(), "both have ended");
}

#[test]
fn congestion_before_the_tunnel_is_told_until_the_near_end_has_reduced_its_window() {
    let mut story = Story::begin();
    let mut marked = packet(From::Near, flag::ACK, (NEAR + 1, FAR + 1), &[], &[0; 100]);
    crate::packet::set_ecn(&mut marked, Ecn::Ce);
    story.near(&marked);
    assert_eq!(story.after(0)[0].flags, flag::ACK | flag::ECE);
    story.sends(100, 100);
    assert_eq!(story.after(0)[0].flags, flag::ACK | flag::ECE);
    let reduced = packet(From::Near, flag::ACK | flag::CWR, (NEAR + 201, FAR + 1), &[], &[0; 100]);
    story.near(&reduced);
    assert_eq!(story.after(0)[0].flags, flag::ACK);
}

#[test]
fn connections_that_are_not_to_be_touched_are_not() {
    // Multipath TCP, TCP-AO, an option that nobody knows.
    for extra in [[30, 4, 0, 0], [29, 4, 1, 1], [99, 2, 1, 1]] {
        let mut story = Story::begin();
        story.acks = LocalAcks::new(true);
        story.opens(&extra);
        assert_eq!(story.sends(0, 1000), FromNear::Pass, "{extra:?}");
    }
    // One that was open before, and one of a tunnel that is not to do it.
    for is_on in [true, false] {
        let mut story = Story::begin();
        story.acks = LocalAcks::new(is_on);
        if !is_on {
            story.opens(&[]);
        }
        assert_eq!(story.sends(0, 1000), FromNear::Pass);
        assert!(story.confirms(1000, &[]).is_some());
        assert!(story.acks.is_empty());
    }
}

#[test]
fn a_connection_that_is_reset_is_forgotten() {
    for (from, flags) in [(From::Near, flag::RST), (From::Far, flag::RST | flag::ACK)] {
        let mut story = Story::begin();
        story.sends(0, 1000);
        story.gives(from, &packet(from, flags, numbers(from, 1001), &[], &[]));
        assert_eq!(story.acks.counters().kept_bytes, 0);
        assert_eq!(story.sends(1000, 1000), FromNear::Pass);
    }
}

/// From the near end behind so many bytes, or from the far end at its first.
fn numbers(from: From, place: u32) -> (u32, u32) {
    match from {
        From::Near => (NEAR.wrapping_add(place), FAR + 1),
        From::Far => (FAR + 1, NEAR.wrapping_add(place)),
    }
}

#[test]
fn what_is_kept_survives_what_strangers_can_forge_without_the_numbers_of_the_connection() {
    let stranger = 0x3000_0000;
    for from in [From::Near, From::Far] {
        for flags in [flag::RST, flag::RST | flag::ACK, flag::SYN, flag::SYN | flag::ACK, flag::ACK]
        {
            let mut story = Story::begin();
            story.sends(0, 1000);
            story.after(0);
            let (seq, ack) = numbers(from, 1001);
            let forged =
                packet(from, flags, (seq + stranger, ack.wrapping_add(stranger)), &[], &[9; 10]);
            story.gives(from, &forged);
            assert_eq!(story.acks.counters().kept_bytes, 1052, "{from:?} {flags:02x}");
            // What it says in the far end's name goes on where the far end is, by its clock.
            story.sends(1000, 1000);
            let [ack] = story.after(0)[..] else { panic!("one") };
            assert_eq!((place(ack.ack), ack.seq), (2000, FAR + 1), "{from:?} {flags:02x}");
            assert_eq!(ack.times.unwrap().value, 1 << 20);
            assert_eq!(story.confirms(1000, &[]), None, "{from:?} {flags:02x}");
        }
    }
}

#[test]
fn a_syn_that_comes_twice_changes_nothing_and_one_for_another_connection_counts_when_it_is_answered()
 {
    let mut story = Story::begin();
    story.sends(0, 1000);
    let again = packet(From::Far, flag::SYN, (FAR, 0), &[], &[]);
    story.far(&again);
    assert_eq!(story.sends(1000, 1000), FromNear::Keep);
    let (near, far) = (5_000_000, 9_000_000);
    story.far(&packet(From::Far, flag::SYN, (far, 0), &[], &[]));
    assert_eq!(story.sends(2000, 1000), FromNear::Keep, "it may be forged");
    assert!(story.confirms(1000, &[]).is_some(), "who asks hears what the other end has");
    story.near(&packet(From::Near, flag::SYN | flag::ACK, (near, far + 1), &[], &[]));
    assert_eq!(story.acks.counters().kept_bytes, 0, "the other end agrees");
    story.far(&packet(From::Far, flag::ACK, (far + 1, near + 1), &[], &[]));
    let data = packet(From::Near, flag::ACK, (near + 1, far + 1), &[], &[1; 100]);
    assert_eq!(story.near(&data), FromNear::Keep);
}

#[test]
fn a_byte_beyond_the_window_asks_for_it_and_is_left_to_the_far_end() {
    let mut story = Story::begin();
    let shut = |place: u32| {
        let numbers = (FAR + 1, NEAR.wrapping_add(1 + place));
        let mut shut = packet(From::Far, flag::ACK, numbers, &[], &[]);
        shut[34..36].fill(0);
        complete(&mut shut);
        shut
    };
    let most = 127_000;
    for at in 0..most / 1000 {
        assert_eq!(story.sends(at * 1000, 1000), FromNear::Keep);
    }
    story.after(0);
    assert_eq!(story.sends(most, 1000), FromNear::Keep);
    assert!(story.far(&shut(128_000)).is_some());
    assert_eq!(story.sends(128_000, 1), FromNear::Pass);
    assert!(story.far(&shut(128_000)).is_some(), "the far end answers");
    assert_eq!(story.acks.counters().kept_bytes, 0);
}

#[test]
fn of_too_many_connections_one_that_was_silent_long_gives_way() {
    let mut story = Story::begin();
    story.sends(0, 1000);
    story.after(1);
    for port in 1..2000_u16 {
        let mut asks = packet(From::Far, flag::SYN, (FAR, 0), &[], &[]);
        asks[20..22].copy_from_slice(&port.to_be_bytes());
        complete(&mut asks);
        story.now += Duration::from_millis(1);
        story.far(&asks);
    }
    assert_eq!(story.acks.counters().connections, MOST_CONNECTIONS);
    assert_eq!(story.sends(1000, 1000), FromNear::Keep, "one whose sender relies on it stays");
}

#[test]
fn a_far_end_that_lies_opens_no_window_beyond_what_may_wait_and_frees_nothing_it_has_not_heard_of()
{
    let mut story = Story::begin();
    story.sends(0, 1000);
    story.after(0);
    for number in [NEAR.wrapping_add(5000), NEAR.wrapping_sub(5000), NEAR.wrapping_add(1 << 31)] {
        let lie = packet(From::Far, flag::ACK, (FAR + 1, number), &[], &[]);
        story.far(&lie);
        assert_eq!(story.acks.counters().kept_bytes, 1052, "{number}");
    }
    // The largest window.
    let mut wide = packet(From::Far, flag::ACK, (FAR + 1, NEAR + 1), &[], &[]);
    wide[34..36].fill(0xff);
    complete(&mut wide);
    story.far(&wide);
    story.sends(1000, 1000);
    let ack = story.after(0)[0];
    assert!(u32::from(ack.window) << 7 <= FIRST_ROOM);
}

#[test]
fn whatever_comes_in_whatever_order_nothing_panics_and_what_is_kept_is_bounded() {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};
    for seed in 0..200 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut story = Story::begin();
        for _ in 0..300 {
            let from = if rng.random() { From::Near } else { From::Far };
            let flags = if rng.random_ratio(1, 10) { rng.random() } else { flag::ACK };
            let ranges = rng.random_range(0..=3);
            let mut number = |base: u32| base.wrapping_add(rng.random_range(0..20_000));
            let numbers = match from {
                From::Near => (number(NEAR), number(FAR)),
                From::Far => (number(FAR), number(NEAR)),
            };
            let sacks: Vec<_> = (0..ranges).map(|_| (number(NEAR), number(NEAR))).collect();
            let len = rng.random_range(0..3) * 700;
            let mut packet = packet(from, flags & !flag::SYN, numbers, &sacks, &vec![0; len]);
            if rng.random_ratio(1, 5) {
                let at = rng.random_range(20..packet.len());
                packet[at] ^= 1 << rng.random_range(0..8);
            }
            match from {
                From::Near => drop(story.near(&packet)),
                From::Far => drop(story.far(&packet)),
            }
            story.waiting = rng.random_range(0..300_000);
            story.now += Duration::from_millis(rng.random_range(0..300));
            let mut tun = Tun::default();
            let send = |_: PacketBuffer, _: Label| {};
            let (now, waiting) = (story.now, story.waiting);
            story.acks.handle_timeout(now, BACKLOG, |_| waiting, &mut tun, send);
        }
        let kept = story.acks.counters().kept_bytes;
        assert!(kept < 300 * 1500, "seed {seed}: {kept}");
        let mut tun = Tun::default();
        story.acks.abandon(&mut tun);
        assert_eq!(story.acks.counters().kept_bytes, 0, "seed {seed}");
    }
}
