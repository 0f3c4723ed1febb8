use proptest::prelude::*;

use super::super::label;
use super::*;

const DOWNLOAD: FlowKey = FlowKey(1);
const CALL: FlowKey = FlowKey(2);
const LIMIT: usize = 1 << 20;

fn queue() -> Fair {
    Fair::new(QueueLimits { time: Duration::from_millis(100), bytes: LIMIT })
}

/// One that knows that 1 MB/s leave and that nothing need wait, so 50 kB may stand.
fn bounded() -> Fair {
    let mut queue = queue();
    let round_trip = Duration::from_millis(40);
    let demand = Demand { rate: 1_000_000, bytes: 0, round_trip, ..Demand::default() };
    queue.allow(Duration::from_secs(10), demand);
    queue
}

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn push(queue: &mut Fair, flow: FlowKey, number: u8, len: usize) -> Dropped {
    queue.push(Instant::ZERO, &label(flow), vec![number; len].into(), LIMIT)
}

fn pop(queue: &mut Fair) -> Option<(FlowKey, u8)> {
    let waiting = queue.pop_packet()?;
    let left = (waiting.label().meta.flow, waiting.packet()[0]);
    Some(left)
}

fn drained(queue: &mut Fair) -> Vec<(FlowKey, u8)> {
    std::iter::from_fn(|| pop(queue)).collect()
}

fn numbers(queue: &mut Fair) -> Vec<u8> {
    drained(queue).into_iter().map(|(_, number)| number).collect()
}

#[test]
fn a_call_does_not_wait_behind_a_download() {
    let mut queue = queue();
    for number in 0..10 {
        push(&mut queue, DOWNLOAD, number, 1400);
    }
    push(&mut queue, CALL, 100, 160);
    push(&mut queue, CALL, 101, 160);
    assert_eq!(numbers(&mut queue), [0, 100, 101, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!((queue.len(), queue.bytes(), queue.flows()), (0, 0, 0));
}

#[test]
fn flows_have_the_same_bytes_however_large_their_packets_are_and_however_many_wait() {
    let mut queue = queue();
    let flows = [(FlowKey(1), 1500, 200), (FlowKey(2), 300, 900), (FlowKey(3), 1000, 90)];
    for (flow, len, packets) in flows {
        for _ in 0..packets {
            push(&mut queue, flow, 0, len);
        }
    }
    let mut sent = [0; 3];
    for _ in 0..230 {
        let (flow, _) = pop(&mut queue).expect("more waits");
        let place = flows.iter().position(|other| other.0 == flow).expect("one of them");
        sent[place] += flows[place].1;
    }
    let (most, least) = (sent.iter().max().unwrap(), sent.iter().min().unwrap());
    assert!(most - least <= 2 * QUANTUM, "{sent:?}");
}

#[test]
fn turns_are_as_long_as_a_quarter_of_a_millisecond_allows() {
    // Mbit/s; packets of each of four flows that stay together.
    for (mbit, together) in [(0, 1), (100, 1), (1_000, 5), (4_000, 20)] {
        let mut queue = queue();
        queue.allow(Duration::ZERO, Demand { rate: mbit * 125_000, ..Demand::default() });
        for _ in 0..100 {
            for flow in 1..5 {
                push(&mut queue, FlowKey(flow), 0, 1500);
            }
        }
        let flows: Vec<_> = std::iter::from_fn(|| pop(&mut queue)).map(|(flow, _)| flow).collect();
        // Beginning and end aside: first packets have no turn, and the last turns are short.
        let runs: Vec<_> = flows[100..300].chunk_by(PartialEq::eq).map(<[_]>::len).collect();
        let within = &runs[1..runs.len() - 1];
        assert!(within.iter().all(|run| run.abs_diff(together) <= 1), "{mbit} Mbit/s: {runs:?}");
    }
}

#[test]
fn a_flood_of_new_flows_leaves_the_others_a_ninth() {
    let mut queue = queue();
    for number in 0..20 {
        push(&mut queue, DOWNLOAD, number, 1514);
    }
    for flow in 3..203 {
        push(&mut queue, FlowKey(flow), 255, 1514);
    }
    let first: Vec<_> = numbers(&mut queue).into_iter().take(91).collect();
    let downloads = first.iter().filter(|number| **number < 20).count();
    assert_eq!(downloads, 11, "its first packet, and then each ninth: {first:?}");
}

#[test]
fn a_packet_that_goes_in_parts_is_finished_before_any_other() {
    for first in [DOWNLOAD, CALL] {
        let mut queue = queue();
        for number in 0..3 {
            push(&mut queue, first, number, 1280);
        }
        if first == DOWNLOAD {
            pop(&mut queue);
        }
        let begun = queue.head().expect("two wait").packet()[0];
        queue.begin_head();
        push(&mut queue, FlowKey(3), 100, 100);
        assert_eq!((pop(&mut queue).expect("it waits").1, queue.is_head_begun()), (begun, false));
        assert_eq!(pop(&mut queue).expect("the new one").1, 100);
    }
}

#[test]
fn a_packet_that_was_begun_is_not_given_up_while_another_of_its_flow_can_be() {
    let mut queue = queue();
    for number in 0..4 {
        push(&mut queue, DOWNLOAD, number, 1280);
    }
    pop(&mut queue);
    queue.begin_head();
    assert!(queue.drop_one_of_most());
    assert!(queue.is_head_begun());
    assert_eq!(numbers(&mut queue), [1, 3]);
}

#[test]
fn what_waited_too_long_goes_from_all_flows_and_what_is_younger_stays() {
    let mut queue = queue();
    for (ms, flow, number) in [(0, 1, 0), (1, 1, 1), (2, 1, 2), (0, 2, 3), (0, 2, 4), (9, 3, 5)] {
        queue.push(at(ms), &label(FlowKey(flow)), vec![number; 1400].into(), LIMIT);
    }
    assert_eq!(queue.poll_timeout(), Some(at(100)));
    assert_eq!(queue.handle_timeout(at(99)), 0);
    assert_eq!(queue.handle_timeout(at(101)), 4);
    assert_eq!(queue.poll_timeout(), Some(at(102)));
    assert_eq!(numbers(&mut queue), [5, 2]);
    assert_eq!((queue.bytes(), queue.poll_timeout()), (0, None));
}

#[test]
fn a_flood_pushes_out_nobody_but_itself() {
    let mut queue = queue();
    for number in 0..50 {
        queue.push(at(0), &label(CALL), vec![number; 1400].into(), 200_000);
    }
    let mut dropped = 0;
    for _ in 0..1000 {
        dropped += queue.push(at(0), &label(DOWNLOAD), vec![200; 1400].into(), 200_000).full;
    }
    assert!(queue.bytes() <= 200_000);
    assert_eq!(dropped + queue.len() as u64, 1050);
    let calls: Vec<_> = numbers(&mut queue).into_iter().filter(|number| *number < 200).collect();
    assert_eq!(calls, (0..50).collect::<Vec<u8>>());
}

#[test]
fn when_flows_of_a_single_packet_fill_the_queue_a_new_one_finds_no_room() {
    let mut queue = queue();
    let push = |queue: &mut Fair, flow| {
        queue.push(at(0), &label(FlowKey(flow)), vec![0; 1000].into(), 5000)
    };
    for flow in 0..5 {
        assert_eq!(push(&mut queue, flow), Dropped::default());
    }
    assert_eq!(push(&mut queue, 5), Dropped { full: 1, standing: 0 });
    assert_eq!(queue.len(), 5);
}

#[test]
fn more_than_a_quarter_of_a_second_of_excess_goes_at_once_from_the_flow_of_which_most_waits() {
    let mut queue = bounded();
    for number in 0..20 {
        push(&mut queue, CALL, number, 1400);
    }
    for _ in 0..400 {
        push(&mut queue, DOWNLOAD, 200, 1400);
    }
    assert!((248_000..=250_000).contains(&queue.bytes()), "{}", queue.bytes());
    assert_eq!(queue.backlog_of(CALL), 20 * 1400);
}

#[test]
fn a_standing_queue_loses_the_first_packet_of_the_flow_of_which_most_waits_or_marks_it() {
    for ecn in [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1] {
        let mut queue = bounded();
        let mut udp =
            vec![0x45, ecn.bits(), 0, 30, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        udp.extend([0, 1, 0, 2, 0, 10, 0, 0, 7, 7]);
        let checksum =
            crate::packet::checksum::finished(crate::packet::checksum::sum(0, &udp[..20]));
        udp[10..12].copy_from_slice(&checksum.to_be_bytes());
        let fat = Label { ecn, ..label(DOWNLOAD) };
        for number in 0..1600_u16 {
            udp[28..30].copy_from_slice(&number.to_be_bytes());
            assert_eq!(queue.push(at(0), &fat, udp.clone().into(), LIMIT), Dropped::default());
        }
        for _ in 0..5 {
            push(&mut queue, CALL, 0, 1400);
        }
        // 51 of the download were among the sparse.
        let (before, first) = (queue.len(), QUANTUM / udp.len());
        assert_eq!(
            queue.push(at(99), &label(CALL), vec![0; 1400].into(), LIMIT),
            Dropped::default()
        );
        let dropped = queue.push(at(100), &label(CALL), vec![0; 1400].into(), LIMIT);
        let drops = u64::from(ecn == Ecn::NotEct);
        assert_eq!(dropped, Dropped { full: 0, standing: drops }, "{ecn:?}");
        assert_eq!(queue.len() as u64, before as u64 + 2 - drops);
        let mut numbers = Vec::new();
        while let Some(waiting) = queue.pop_packet() {
            if waiting.label().meta.flow == CALL {
                continue;
            }
            let packet = waiting.packet();
            let number = usize::from(u16::from_be_bytes([packet[28], packet[29]]));
            let marked = drops == 0 && number == first;
            assert_eq!(packet[1], if marked { Ecn::Ce.bits() } else { ecn.bits() });
            assert!(crate::packet::tests::checksum_is_right(&[&packet[..20]]));
            assert_eq!(waiting.label().ecn, ecn, "its datagram is not marked");
            numbers.push(number);
        }
        let gone = |number: &usize| drops == 1 && *number == first;
        assert_eq!(numbers, (0..1600).filter(|number| !gone(number)).collect::<Vec<_>>());
    }
}

#[test]
fn what_comes_back_from_a_link_goes_first_and_no_flow_loses_its_order() {
    let mut queue = queue();
    let mut other = EgressQueue::new(QueueLimits { time: Duration::ZERO, bytes: 0 });
    for number in 0..3 {
        push(&mut queue, DOWNLOAD, number, 1400);
    }
    for _ in 0..3 {
        other.put(queue.pop_packet().expect("it waits"));
    }
    for number in 3..6 {
        push(&mut queue, DOWNLOAD, number, 1400);
    }
    push(&mut queue, CALL, 100, 160);
    queue.put_back(&mut other);
    assert_eq!(numbers(&mut queue), [0, 100, 1, 2, 3, 4, 5]);
    assert_eq!((queue.len(), queue.bytes(), other.len(), other.bytes()), (0, 0, 0, 0));
}

#[test]
fn memory_is_given_back_when_nothing_waits_and_what_waits_outlives_that() {
    let mut queue = queue();
    for number in 0..10 {
        push(&mut queue, DOWNLOAD, number, 1400);
    }
    pop(&mut queue);
    assert!(!queue.has_spare());
    queue.release_memory();
    assert_eq!(numbers(&mut queue), (1..10).collect::<Vec<u8>>());
    assert!(queue.has_spare());
    queue.release_memory();
    assert!(!queue.has_spare());
    assert_eq!((queue.places.capacity(), queue.lines.capacity()), (0, 0));
    push(&mut queue, DOWNLOAD, 7, 1400);
    assert_eq!(numbers(&mut queue), [7]);
}

/// What may happen to a queue.
#[derive(Clone, Debug)]
enum Step {
    Push(u64, usize),
    Pop,
    /// The next packets, as the queue tells them before, of at most so many bytes each.
    PopLine(usize),
    Begin,
    Timeout,
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..6_u64, 20..1500_usize).prop_map(|(flow, len)| Step::Push(flow * 600, len)),
        5 => Just(Step::Pop),
        2 => Just(Step::PopLine(1500)),
        1 => Just(Step::Begin),
        1 => Just(Step::Timeout),
        2 => (0..60_u64).prop_map(Step::Pass),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_flows_keep_their_order_and_the_queue_its_count(
        steps in proptest::collection::vec(step(), 1..400),
    ) {
        let mut queue = Fair::new(QueueLimits { time: Duration::from_millis(100), bytes: 40_000 });
        let round_trip = Duration::from_millis(10);
        let demand = Demand { rate: 100_000, bytes: 2000, round_trip, ..Demand::default() };
        queue.allow(Duration::from_millis(20), demand);
        let (mut now, mut came, mut gone) = (Instant::ZERO, 0_u64, 0_u64);
        let mut newest = std::collections::BTreeMap::new();
        let mut leaves = |waiting: &Waiting| {
            let number = u64::from_be_bytes(waiting.packet()[..8].try_into().unwrap());
            let flow = waiting.label().meta.flow;
            newest.insert(flow, number).is_none_or(|before| before < number)
        };
        for step in steps {
            match step {
                Step::Push(flow, len) => {
                    let mut packet = vec![0; len];
                    packet[..8].copy_from_slice(&came.to_be_bytes());
                    came += 1;
                    let dropped = queue.push(now, &label(FlowKey(flow)), packet.into(), 40_000);
                    gone += dropped.full + dropped.standing;
                }
                Step::Pop => {
                    let head = queue.head().map(|head| head.packet().to_vec());
                    let popped = queue.pop_packet();
                    prop_assert_eq!(head.as_deref(), popped.as_ref().map(Waiting::packet));
                    gone += u64::from(popped.is_some());
                    prop_assert!(popped.is_none_or(|popped| leaves(&popped)));
                }
                Step::PopLine(longest) if !queue.is_head_begun() => {
                    let (line, most) = queue.line(longest);
                    let expected: Vec<_> = (0..most.min(queue.len()))
                        .map_while(|place| line.nth(place).map(|next| next.packet().to_vec()))
                        .collect();
                    prop_assert!(queue.is_empty() || !expected.is_empty());
                    for packet in expected {
                        let popped = queue.pop_packet().expect("it was there");
                        prop_assert_eq!(popped.packet(), &packet[..]);
                        prop_assert!(leaves(&popped));
                        gone += 1;
                    }
                }
                Step::PopLine(_) => {}
                Step::Begin if !queue.is_empty() => queue.begin_head(),
                Step::Begin => {}
                Step::Timeout => gone += queue.handle_timeout(now),
                Step::Pass(ms) => now += Duration::from_millis(ms),
            }
            prop_assert_eq!(queue.len() as u64, came - gone);
            prop_assert_eq!(queue.is_empty(), queue.head().is_none());
            prop_assert!(queue.bytes() <= 40_000);
            let flows = (0..6).map(|flow| queue.backlog_of(FlowKey(flow * 600)));
            prop_assert_eq!(flows.sum::<usize>(), queue.bytes());
        }
        while let Some(popped) = queue.pop_packet() {
            prop_assert!(leaves(&popped));
        }
        prop_assert_eq!((queue.len(), queue.bytes(), queue.flows()), (0, 0, 0));
        prop_assert!(queue.places.iter().all(|place| place.sparse == 0 && place.line.is_none()));
    }
}

#[test]
fn an_acknowledgement_that_waits_gives_its_place_to_one_that_says_more() {
    let mut queue = queue();
    let ack = |number: u32| Label { acknowledges: Some(number), ..label(DOWNLOAD) };
    let mut push = |label: &Label, byte: u8, len: usize| {
        queue.push(at(0), label, vec![byte; len].into(), 1 << 20);
    };
    // The numbers wrap around; an older one, and one that says the same, say something else.
    for (number, byte) in [(u32::MAX - 1, 0), (3, 1), (2, 2), (2, 3), (9, 4)] {
        push(&ack(number), byte, 52);
    }
    push(&ack(20), 5, 64);
    push(&label(DOWNLOAD), 6, 52);
    push(&ack(30), 7, 52);
    let mut left = Vec::new();
    while let Some(waiting) = queue.pop_packet() {
        left.push(waiting.packet()[0]);
    }
    assert_eq!(left, [1, 2, 4, 5, 6, 7]);
    assert_eq!((queue.len(), queue.bytes()), (0, 0));
}

#[test]
fn what_a_sender_was_told_to_have_arrived_is_never_given_up_and_lets_others_wait_no_longer() {
    let mut queue = queue();
    let kept = Label { is_acknowledged: true, ..label(FlowKey(7)) };
    let demand =
        Demand { rate: 1000, bytes: 0, round_trip: Duration::from_millis(10), ..Demand::default() };
    queue.allow(Duration::ZERO, demand);
    for number in 0..200_u64 {
        assert_eq!(
            queue.push(at(number), &kept, vec![1; 1000].into(), 1 << 20),
            Dropped::default()
        );
    }
    let mut dropped = 0;
    for number in 0..200_u64 {
        dropped +=
            queue.push(at(200 + number), &label(DOWNLOAD), vec![2; 1000].into(), 1 << 20).full;
    }
    assert!(dropped > 100, "{dropped} of a flood");
    queue.handle_timeout(at(100_000));
    let mut left = Vec::new();
    while let Some(waiting) = queue.pop_packet() {
        left.push(waiting.packet()[0]);
    }
    assert_eq!(left.iter().filter(|byte| **byte == 1).count(), 200);
    assert!(left.len() <= 201, "all but the first of the flood were too old: {}", left.len());
    assert_eq!(queue.poll_timeout(), None);
}

#[test]
fn what_is_of_no_use_any_more_goes_from_the_front_of_its_flow_and_nothing_else_does() {
    let mut queue = queue();
    for number in 0..3 {
        push(&mut queue, DOWNLOAD, number, 1400);
    }
    // Seven of the call go before others, the rest takes turns.
    for number in 0..16_u8 {
        let packet = vec![10 + number; 200].into();
        queue.push(at(number.into()), &label(CALL), packet, LIMIT);
    }
    push(&mut queue, FlowKey(3), 100, 150);
    let is_outdated = |waiting: &Waiting| waiting.label.meta.flow == CALL && waiting.since < at(10);
    assert_eq!(queue.drop_outdated(is_outdated), 10);
    assert_eq!((queue.len(), queue.bytes()), (10, 3 * 1400 + 6 * 200 + 150));
    assert_eq!(queue.drop_outdated(is_outdated), 0);
    let mut left = numbers(&mut queue);
    let call: Vec<_> = left.iter().copied().filter(|number| (10..100).contains(number)).collect();
    assert_eq!(call, [20, 21, 22, 23, 24, 25]);
    left.sort_unstable();
    assert_eq!(left, [0, 1, 2, 20, 21, 22, 23, 24, 25, 100]);
    assert_eq!((queue.len(), queue.bytes(), queue.flows()), (0, 0, 0));
}
