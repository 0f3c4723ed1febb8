//! The order of flows, through the resequencer. Two links of steady delay: a packet from the fast one has patience for 35 ms.

use std::collections::BTreeMap;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use ropewalk_settings::Resequencer as Settings;

use super::super::{Config, Evidence, EvidenceKind, GRANULARITY, Resequencer, State, deadline};
use super::*;

const FAST: LinkId = LinkId(0);
const SLOW: LinkId = LinkId(1);

/// Delivered packets by their numbers (each packet is its number behind a zero).
#[derive(Default)]
struct Out(Vec<u64>);

impl PacketSink for Out {
    fn deliver(&mut self, packet: Packet<'_>) {
        let number = packet.bytes.last_chunk().expect("packets here are numbers");
        self.0.push(u64::from_be_bytes(*number));
    }
}

struct Bench {
    reseq: Resequencer,
    out: Out,
    now: Instant,
    locals: [u64; 2],
}

impl Bench {
    fn new(config: Config) -> Self {
        let mut reseq = Resequencer::new(config, 0);
        [FAST, SLOW].into_iter().for_each(|link| reseq.link_added(link, 0));
        let now = Instant::from_millis(1_000);
        let mut bench = Self { reseq, out: Out::default(), now, locals: [0; 2] };
        for _ in 0..60 {
            [FAST, SLOW].into_iter().for_each(|link| bench.offer(link, 0, EvidenceKind::Mark));
        }
        bench
    }

    fn offer(&mut self, link: LinkId, global: u64, kind: EvidenceKind) {
        let local = &mut self.locals[usize::from(link.0)];
        *local += 1;
        let delay_us = if link == FAST { 10_000 } else { 40_000 };
        let sent_us = deadline::delay_us(self.now, delay_us);
        let arrival = Evidence { link, local: *local - 1, sent_us, global, kind };
        let mut packet = [0; 9];
        packet[1..].copy_from_slice(&global.to_be_bytes());
        self.reseq.offer(self.now, &arrival, Packet::whole(&packet), &mut self.out);
    }

    /// A packet by the fast link, behind another of its flow. Returns what is delivered.
    fn flow(&mut self, global: u64, before: Option<u64>) -> Vec<u64> {
        self.offer(FAST, global, EvidenceKind::FlowData { prev_of_flow: before });
        self.take()
    }

    /// One in the order of all packets.
    fn data(&mut self, global: u64) -> Vec<u64> {
        self.offer(FAST, global, EvidenceKind::Data { prev_on_link: None });
        self.take()
    }

    fn pass(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        self.reseq.handle_timeout(self.now, &mut self.out);
    }

    /// Jumps to the next timeout; returns how long that took, and what was delivered.
    fn time_out(&mut self) -> (Duration, Vec<u64>) {
        let at = self.reseq.poll_timeout().expect("something waits");
        let waited = at.since(self.now);
        self.now = at;
        self.reseq.handle_timeout(at, &mut self.out);
        (waited, self.take())
    }

    fn take(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.out.0)
    }
}

#[test]
fn a_packet_waits_for_the_one_before_it_of_its_flow_and_for_no_other() {
    let mut bench = Bench::new(Config::default());
    // What comes, the one before it, and what is delivered then.
    let table: [(u64, Option<u64>, &[u64]); 9] = [
        (0, None, &[0]),
        // The download: 1, 3, 5, 6. The call: 2, 4.
        (3, Some(1), &[]),
        (2, None, &[2]),
        (4, Some(2), &[4]),
        (6, Some(5), &[]),
        (5, Some(3), &[]),
        (6, Some(5), &[]),
        (1, None, &[1, 3, 5, 6]),
        (5, Some(3), &[]),
    ];
    for (global, before, expected) in table {
        assert_eq!(bench.flow(global, before), expected, "{global}");
    }
    let stats = bench.reseq.stats();
    assert_eq!((stats.in_order, stats.resequenced, stats.duplicates), (4, 3, 2));
    assert_eq!((stats.held, stats.held_bytes, stats.held_peak), (0, 0, 3));
    assert_eq!((bench.reseq.poll_timeout(), bench.reseq.state()), (None, State::InOrder));
}

#[test]
fn only_time_gives_a_packet_up_and_then_all_behind_it_goes() {
    let mut bench = Bench::new(Config::default());
    bench.flow(0, None);
    assert_eq!(bench.flow(3, Some(2)), [0; 0]);
    assert_eq!(bench.flow(4, Some(3)), [0; 0]);
    // Neither what links say nor that they are gone.
    for link in [FAST, SLOW] {
        bench.offer(link, 50, EvidenceKind::Mark);
        bench.reseq.link_down(bench.now, link, &mut bench.out);
        bench.reseq.link_up(link);
    }
    assert_eq!(bench.take(), [0; 0]);
    assert_eq!(bench.reseq.state(), State::Holding { expiries: 0 });
    let (waited, delivered) = bench.time_out();
    let spread = Duration::from_millis(30) + GRANULARITY;
    assert!(waited >= spread && waited < spread + Duration::from_millis(1), "{waited:?}");
    assert_eq!(delivered, [3, 4]);
    let stats = bench.reseq.stats();
    assert_eq!((stats.skipped_by_deadline, stats.expiries, stats.skipped_by_proof), (1, 1, 0));
    assert_eq!(bench.flow(2, Some(0)), [2], "late, once");
    assert_eq!(bench.flow(2, Some(0)), [0; 0]);
    let stats = bench.reseq.stats();
    assert_eq!((stats.late, stats.duplicates), (1, 1));
}

#[test]
fn the_time_of_a_repair_is_added_and_a_second_is_the_most() {
    for (repair, expected) in [(0, 35), (200, 235), (2_000, 1_000)] {
        let mut bench = Bench::new(Config::default());
        bench.reseq.set_repair_time(Duration::from_millis(repair));
        bench.flow(1, Some(0));
        let (waited, delivered) = bench.time_out();
        assert_eq!((waited.as_millis(), delivered), (expected, vec![1]));
    }
}

#[test]
fn a_chain_has_the_earliest_deadline_of_its_packets() {
    let mut bench = Bench::new(Config::default());
    // A packet from the slow link has less patience, since it was sent earlier.
    bench.flow(8, Some(7));
    bench.pass(10);
    bench.offer(SLOW, 7, EvidenceKind::FlowData { prev_of_flow: Some(6) });
    let (waited, delivered) = bench.time_out();
    assert_eq!((waited.as_millis(), delivered), (5, vec![7, 8]));
}

#[test]
fn while_links_become_slower_nothing_is_given_up_that_they_may_still_bring() {
    let mut bench = Bench::new(Config::default());
    bench.flow(1, Some(0));
    bench.now += Duration::from_millis(30);
    let sent_us = deadline::delay_us(bench.now, 140_000);
    let arrival = Evidence { link: SLOW, local: 60, sent_us, global: 1, kind: EvidenceKind::Mark };
    bench.reseq.offer(bench.now, &arrival, Packet::whole(&[]), &mut bench.out);
    let (_, delivered) = bench.time_out();
    assert_eq!(delivered, [0; 0], "the slow link takes longer by now");
    let (waited, delivered) = bench.time_out();
    assert!(waited >= Duration::from_millis(100) && delivered == [1], "{waited:?}");
}

#[test]
fn what_leaves_the_window_is_settled() {
    let config = Config { max_packets: 128, ..Config::default() };
    let mut bench = Bench::new(config);
    bench.flow(0, None);
    assert_eq!(bench.flow(3, Some(1)), [0; 0]);
    assert_eq!(bench.flow(4, Some(2)), [0; 0]);
    assert_eq!(bench.flow(129, None), [3, 129], "the window begins with 2");
    assert_eq!(bench.flow(1, None), [0; 0], "too old");
    assert_eq!(bench.flow(500, Some(1)), [4, 500], "the one before it is below the window");
    assert_eq!(bench.flow(1 << 40, Some(500)), [1 << 40]);
    let stats = bench.reseq.stats();
    assert_eq!((stats.too_old, stats.skipped_by_full, stats.held), (1, 2, 0));
}

#[test]
fn a_full_buffer_gives_up_what_is_due_first() {
    let settings = Settings { buffer: 27, ..Settings::default() };
    for config in
        [Config { settings, ..Config::default() }, Config { max_packets: 3, ..Config::default() }]
    {
        let mut bench = Bench::new(config);
        bench.flow(0, None);
        assert_eq!(bench.flow(9, Some(7)), [0; 0]);
        bench.pass(1);
        assert_eq!(bench.flow(4, Some(2)), [0; 0]);
        assert_eq!(bench.flow(5, Some(4)), [0; 0]);
        assert_eq!(bench.flow(6, Some(5)), [9], "this one waits longest");
        assert_eq!(
            bench.flow(11, Some(6)),
            [4, 5, 6, 11],
            "what it waited for was delivered for it"
        );
        assert_eq!(bench.flow(7, None), [7]);
        let stats = bench.reseq.stats();
        assert_eq!((stats.skipped_by_full, stats.late, stats.held), (2, 1, 0));
    }
}

#[test]
fn a_sender_out_of_its_mind_has_nothing_delivered_twice() {
    let mut bench = Bench::new(Config::default());
    bench.flow(0, None);
    assert_eq!(bench.flow(5, Some(3)), [0; 0]);
    assert_eq!(bench.flow(7, Some(5)), [0; 0]);
    assert_eq!(bench.flow(5, Some(2)), [0; 0], "it waits already");
    assert_eq!(bench.flow(5, None), [0; 0]);
    assert_eq!(bench.flow(6, Some(3)), [6], "a second one behind the same");
    assert_eq!(bench.flow(8, Some(8)), [8], "behind itself");
    assert_eq!(bench.flow(9, Some(20)), [9], "behind one to come");
    assert_eq!(bench.flow(3, None), [3, 5, 7]);
    assert_eq!(bench.reseq.stats().duplicates, 2);
}

#[test]
fn when_the_sender_changes_the_order_what_waits_goes_and_what_is_late_comes_once() {
    let mut bench = Bench::new(Config::default());
    assert_eq!(bench.data(0), [0]);
    assert_eq!(bench.data(2), [0; 0]);
    assert_eq!(bench.data(4), [0; 0]);
    // From 5 on the order of flows; 6 comes first.
    assert_eq!(bench.flow(6, Some(5)), [2, 4]);
    assert_eq!(bench.data(3), [3], "late");
    assert_eq!(bench.data(3), [0; 0]);
    assert_eq!(bench.flow(5, Some(4)), [5, 6]);
    assert_eq!(bench.flow(9, Some(8)), [0; 0]);
    assert_eq!(bench.flow(11, Some(7)), [0; 0]);
    // From 12 on the order of all again; 13 comes first.
    assert_eq!(bench.data(13), [9, 11]);
    assert_eq!(bench.flow(8, Some(6)), [8], "late");
    assert_eq!(bench.flow(8, Some(6)), [0; 0]);
    assert_eq!(bench.flow(9, Some(8)), [0; 0]);
    assert_eq!(bench.data(12), [12, 13]);
    assert_eq!(bench.flow(1, Some(0)), [1], "late of the first order, in the kind of the second");
    // And back.
    assert_eq!(bench.flow(14, Some(11)), [14]);
    assert_eq!(bench.data(12), [0; 0]);
    assert_eq!(bench.flow(7, Some(6)), [7]);
    let stats = bench.reseq.stats();
    assert_eq!((stats.held, stats.duplicates, stats.skipped_by_full), (0, 4, 2 + 3));
}

#[test]
fn without_order_each_packet_is_delivered_as_it_comes_and_once() {
    let settings = Settings { enabled: false, ..Settings::default() };
    let mut bench = Bench::new(Config { settings, ..Config::default() });
    for (global, before, expected) in
        [(3, Some(2), vec![3]), (2, None, vec![2]), (3, Some(2), vec![]), (9, Some(7), vec![9])]
    {
        assert_eq!(bench.flow(global, before), expected, "{global}");
    }
    let stats = bench.reseq.stats();
    assert_eq!((stats.as_they_came, stats.duplicates, stats.held), (3, 1, 0));
    assert_eq!(bench.reseq.poll_timeout(), None);
}

#[test]
fn a_link_is_waited_for_while_others_wait_for_its_packet() {
    let mut bench = Bench::new(Config::default());
    bench.flow(1, Some(0));
    bench.pass(20);
    bench.offer(SLOW, 0, EvidenceKind::FlowData { prev_of_flow: None });
    assert_eq!(bench.take(), [0, 1]);
    assert_eq!(bench.reseq.waited_for(SLOW), Duration::from_millis(20));
    let stats = bench.reseq.stats();
    assert!((20_000..=23_000).contains(&stats.wait_p50_us), "{stats:?}");
    assert!(bench.reseq.has_spare());
    bench.reseq.release_memory();
    assert_eq!((bench.reseq.has_spare(), bench.reseq.spare_bytes()), (false, 0));
}

#[test]
fn a_peer_that_sends_the_same_packets_for_ever_has_each_delivered_once_and_fills_nothing() {
    let mut bench = Bench::new(Config::default());
    assert_eq!(bench.flow(0, None), [0]);
    // Number 2 is missing: 3 waits for it.
    assert_eq!(bench.flow(1, Some(0)), [1]);
    assert_eq!(bench.flow(3, Some(2)), Vec::<u64>::new());
    let before = (bench.reseq.stats(), bench.reseq.spare_bytes());
    for round in 0..50_000 {
        let link = if round % 2 == 0 { FAST } else { SLOW };
        for (global, of_flow) in [(0, None), (1, Some(0)), (3, Some(2)), (3, Some(1)), (1, None)] {
            bench.offer(link, global, EvidenceKind::FlowData { prev_of_flow: of_flow });
        }
    }
    assert_eq!(bench.take(), Vec::<u64>::new());
    let after = (bench.reseq.stats(), bench.reseq.spare_bytes());
    assert_eq!(after.0.duplicates, before.0.duplicates + 250_000);
    assert_eq!((after.0.held, after.0.held_bytes), (1, 9));
    assert_eq!(after.1, before.1, "no memory is kept for them");
    // They hold up nobody either.
    assert_eq!(bench.flow(2, Some(1)), [2, 3]);
}

#[test]
fn what_waited_goes_in_bursts_that_the_buffer_of_a_socket_takes() {
    let mut bench = Bench::new(Config::default());
    bench.flow(0, None);
    (2..=100).for_each(|number| assert_eq!(bench.flow(number, Some(number - 1)), [0; 0]));
    let mut delivered = bench.flow(1, Some(0));
    assert_eq!(delivered, (1..=25).collect::<Vec<_>>());
    // What comes meanwhile has its turn, and what waits for another packet does not go with it.
    assert_eq!(bench.flow(101, Some(100)), [0; 0]);
    assert_eq!(bench.flow(103, Some(102)), [0; 0]);
    while delivered.last() != Some(&101) {
        let (waited, burst) = bench.time_out();
        assert_eq!(waited, Duration::from_millis(1));
        assert!((1..=24).contains(&burst.len()), "{burst:?}");
        delivered.extend(burst);
    }
    assert_eq!(delivered, (1..=101).collect::<Vec<_>>());
    assert_eq!(bench.flow(102, Some(101)), [102, 103]);
    let stats = bench.reseq.stats();
    assert_eq!((stats.skipped_by_deadline, stats.expiries, stats.held), (0, 0, 0));
    assert_eq!(bench.reseq.poll_timeout(), None);
}

/// One flow over a link that loses and reorders, into a socket with the buffer that Linux gives it, read by an application
/// that has the processor every few milliseconds.
struct Socket {
    waits: usize,
    read: u64,
    lost: u64,
}

impl Socket {
    /// Full packets that fit 212,992 bytes.
    const HOLDS: usize = 92;
    const READ_EVERY_MS: u64 = 4;

    fn take(&mut self, packets: usize) {
        let fit = packets.min(Self::HOLDS - self.waits);
        self.waits += fit;
        self.lost += (packets - fit) as u64;
    }

    fn read(&mut self) {
        self.read += std::mem::take(&mut self.waits) as u64;
    }
}

#[test]
fn an_application_that_is_busy_for_some_milliseconds_loses_nothing_to_repairs() {
    // Packets per millisecond, those lost of a thousand, ms until one is sent again and here, ms by which a link reorders.
    for (per_ms, lost, repair, jitter) in
        [(1, 20, 200, 25), (4, 10, 150, 0), (8, 10, 400, 50), (8, 10, 650, 25), (8, 1, 800, 0)]
    {
        let mut bench = Bench::new(Config::default());
        bench.reseq.set_repair_time(Duration::from_secs(1));
        let mut socket = Socket { waits: 0, read: 0, lost: 0 };
        let mut arrivals = BTreeMap::<u64, Vec<u64>>::new();
        let mut random = SmallRng::seed_from_u64(7);
        let mut held_most = 0;
        let start = bench.now;
        let ends = 4_000;
        let packets = ends * per_ms;
        for number in 0..packets {
            let mut at = number / per_ms + random.random_range(0..=jitter);
            while random.random_range(0..1_000) < lost {
                at += repair;
            }
            arrivals.entry(at).or_default().push(number);
        }
        for ms in 0..ends + 2_000 {
            bench.now = start + Duration::from_millis(ms);
            for number in arrivals.remove(&ms).unwrap_or_default() {
                socket.take(bench.flow(number, number.checked_sub(1)).len());
            }
            while bench.reseq.poll_timeout().is_some_and(|at| at <= bench.now) {
                socket.take(bench.time_out().1.len());
            }
            held_most = held_most.max(bench.reseq.stats().held);
            if ms % Socket::READ_EVERY_MS == 0 {
                socket.read();
            }
        }
        socket.read();
        let case = (per_ms, lost, repair, jitter, held_most);
        println!("{case:?}: read {}, lost {}", socket.read, socket.lost);
        assert_eq!(socket.lost, 0, "{case:?}");
        assert_eq!(socket.read, packets, "{case:?}");
    }
}

#[test]
fn what_waited_is_gone_in_no_more_time_than_it_waited_also_if_nothing_came_for_long() {
    for (per_ms, nothing_ms) in [(1, 0), (10, 0), (80, 0), (10, 300), (40, 300)] {
        let mut bench = Bench::new(Config::default());
        bench.reseq.set_repair_time(Duration::from_secs(1));
        bench.flow(0, None);
        let mut next = 2;
        for _ in 0..100 {
            bench.pass(1);
            for _ in 0..per_ms {
                assert_eq!(bench.flow(next, Some(next - 1)), [0; 0]);
                next += 1;
            }
        }
        bench.pass(nothing_ms);
        let (from, mut delivered) = (bench.now, bench.flow(1, Some(0)).len() + 1);
        while bench.reseq.poll_timeout().is_some() {
            let burst = bench.time_out().1.len();
            assert!(burst <= 46, "half of what a socket holds: {burst}");
            delivered += burst;
        }
        assert_eq!(delivered as u64, next);
        let (took, waited) = (bench.now.since(from), 100 + nothing_ms);
        println!("{per_ms} a millisecond, then {nothing_ms} ms of nothing: gone in {took:?}");
        assert!(took <= Duration::from_millis(waited), "{per_ms}: {took:?}");
    }
}

#[test]
fn a_flow_of_any_rate_catches_up_however_late_the_turns_of_a_busy_machine_are() {
    for (per_ms, turn_ms) in [(2, 1), (80, 1), (8, 4), (20, 2), (20, 4), (80, 2), (80, 4), (8, 10)]
    {
        let mut bench = Bench::new(Config::default());
        bench.reseq.set_repair_time(Duration::from_millis(500));
        bench.flow(0, None);
        let (mut next, mut delivered) = (2, 1);
        let mut come = |bench: &mut Bench| {
            bench.now += Duration::from_millis(turn_ms);
            let packets = next..next + per_ms * turn_ms;
            next = packets.end;
            packets.map(|number| bench.flow(number, Some(number - 1)).len()).sum::<usize>()
        };
        (0..48 / turn_ms).for_each(|_| assert_eq!(come(&mut bench), 0));
        delivered += bench.flow(1, Some(0)).len();
        let repaired = bench.now;
        while bench.reseq.poll_timeout().is_some() {
            let held = bench.reseq.stats().held;
            let took = bench.now.since(repaired);
            assert!(took < Duration::from_millis(400), "{per_ms}, {turn_ms}: {held} wait");
            delivered += come(&mut bench);
            bench.reseq.handle_timeout(bench.now, &mut bench.out);
            delivered += bench.take().len();
        }
        assert_eq!(delivered as u64, next);
    }
}

#[test]
fn tcp_takes_all_at_once() {
    let mut bench = Bench::new(Config::default());
    // Where the protocol of a packet would stand, these numbers have that of TCP.
    let first = 0x06_0000;
    bench.flow(first, None);
    (first + 2..first + 256)
        .for_each(|number| assert_eq!(bench.flow(number, Some(number - 1)), [0; 0]));
    assert_eq!(bench.flow(first + 1, Some(first)).len(), 255);
}

#[test]
fn a_burst_that_waits_makes_room_for_what_comes_where_memory_is_full() {
    let mut bench = Bench::new(Config { max_packets: 128, ..Config::default() });
    bench.flow(0, None);
    (2..=100).for_each(|number| assert_eq!(bench.flow(number, Some(number - 1)), [0; 0]));
    let mut delivered = bench.flow(1, Some(0));
    // Numbers run on so far that the first of what waits leave the window.
    for number in 101..=400 {
        delivered.extend(bench.flow(number, Some(number - 1)));
    }
    while bench.reseq.poll_timeout().is_some() {
        delivered.extend(bench.time_out().1);
    }
    assert_eq!(delivered, (1..=400).collect::<Vec<_>>());
    assert_eq!(bench.reseq.stats().skipped_by_full, 0);
}
