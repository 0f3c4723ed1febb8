use ropewalk_settings::{Release, Resequencer as Settings};

use super::*;

fn with(settings: Settings) -> Config {
    Config { settings, ..Config::default() }
}

/// Delivered packets by their numbers (each packet is its number).
#[derive(Default)]
struct Out(Vec<u64>);

impl PacketSink for Out {
    fn deliver(&mut self, packet: Packet<'_>) {
        self.0.push(u64::from_be_bytes(packet.bytes.try_into().expect("packets here are numbers")));
    }
}

const FAST: LinkId = LinkId(0);
const SLOW: LinkId = LinkId(1);

/// A resequencer with two links of steady delay, 10 and 40 ms, whose numbers are kept here.
struct Bench {
    reseq: Resequencer,
    out: Out,
    now: Instant,
    locals: [u64; 2],
}

impl Bench {
    fn new(config: Config) -> Self {
        let now = Instant::from_millis(1_000);
        let mut reseq = Resequencer::new(config, 0);
        for link in [FAST, SLOW] {
            reseq.link_added(link, 0);
        }
        let mut bench = Self { reseq, out: Out::default(), now, locals: [0; 2] };
        for _ in 0..60 {
            for link in [FAST, SLOW] {
                bench.mark(link, 0);
            }
        }
        bench
    }

    fn arrival(&mut self, link: LinkId, global: u64, kind: EvidenceKind) -> Evidence {
        let local = &mut self.locals[usize::from(link.0)];
        *local += 1;
        let delay_us = if link == FAST { 10_000 } else { 40_000 };
        let sent_us = deadline::delay_us(self.now, delay_us);
        Evidence { link, local: *local - 1, sent_us, global, kind }
    }

    fn mark(&mut self, link: LinkId, next: u64) {
        let arrival = self.arrival(link, next, EvidenceKind::Mark);
        self.reseq.offer(self.now, &arrival, Packet::whole(&[]), &mut self.out);
    }

    fn data(&mut self, link: LinkId, global: u64) {
        self.data_after(link, global, None);
    }

    fn data_after(&mut self, link: LinkId, global: u64, prev_on_link: Option<u64>) {
        let arrival = self.arrival(link, global, EvidenceKind::Data { prev_on_link });
        self.reseq.offer(self.now, &arrival, Packet::whole(&global.to_be_bytes()), &mut self.out);
    }

    /// Jumps to the next timeout.
    fn time_out(&mut self) {
        self.now = self.reseq.poll_timeout().expect("something waits");
        self.reseq.handle_timeout(self.now, &mut self.out);
    }

    /// What was delivered since the last call.
    fn take(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.out.0)
    }
}

fn holding(expiries: u8) -> State {
    State::Holding { expiries }
}

/// What proves a number lost once all lower local numbers are in may mature with that very number.
#[test]
fn a_packet_that_closes_its_own_gap_keeps_its_place() {
    let mut bench = Bench::new(Config::default());
    bench.reseq.link_rerouted(bench.now, FAST);
    bench.data(FAST, 0);
    let overtaken = bench.arrival(FAST, 1, EvidenceKind::Data { prev_on_link: Some(0) });
    bench.data_after(FAST, 2, Some(1));
    bench.data_after(FAST, 3, Some(2));
    assert_eq!(bench.take(), [0]);
    bench.reseq.offer(bench.now, &overtaken, Packet::whole(&1_u64.to_be_bytes()), &mut bench.out);
    assert_eq!(bench.take(), [1, 2, 3]);
    let stats = bench.reseq.stats();
    assert_eq!((stats.late, stats.skipped_by_proof), (0, 0));
}

/// The table in the head of the module, line by line: from each state, each event.
#[test]
fn states_follow_the_table() {
    enum Event {
        Expected,
        Ahead(u64),
        Held,
        Late,
        Duplicate,
        Proven,
        Deadline,
    }
    use Event::*;
    // In order, 10 is expected and 7 was skipped; holding, 12, 15 and 18 wait.
    let in_order: [(Event, &[u64], State); 5] = [
        (Expected, &[10], State::InOrder),
        (Ahead(12), &[], holding(0)),
        (Late, &[7], State::InOrder),
        (Duplicate, &[], State::InOrder),
        (Proven, &[], State::InOrder),
    ];
    for (event, delivered, state) in in_order {
        let mut bench = prepared(None);
        apply(&mut bench, &event);
        assert_eq!((bench.take().as_slice(), bench.reseq.state()), (delivered, state));
    }
    for k in 0..=2 {
        let lowest: u64 = [12, 15, 18][usize::from(k)];
        let rest: Vec<u64> = [15, 18, 21].into_iter().filter(|n| *n > lowest).collect();
        let after_lowest =
            if k == 2 { [lowest].into_iter().chain(rest).collect() } else { vec![lowest] };
        let after_deadline = if k == 2 { State::InOrder } else { holding(k + 1) };
        let table: [(Event, Vec<u64>, State); 7] = [
            (Expected, vec![lowest - 2], holding(0)),
            (Ahead(30), vec![], holding(k)),
            (Held, vec![], holding(k)),
            (Late, vec![7], holding(k)),
            (Duplicate, vec![], holding(k)),
            (Proven, vec![lowest], holding(0)),
            (Deadline, after_lowest, after_deadline),
        ];
        for (line, (event, delivered, state)) in table.into_iter().enumerate() {
            let mut bench = prepared(Some(k));
            apply(&mut bench, &event);
            assert_eq!((bench.take(), bench.reseq.state()), (delivered, state), "{k} line {line}");
        }
    }

    fn prepared(expiries: Option<u8>) -> Bench {
        let mut bench = Bench::new(Config::default());
        for global in (0..10).filter(|g| *g != 7) {
            bench.data(FAST, global);
        }
        bench.mark(SLOW, 8);
        assert_eq!(bench.reseq.stats().skipped_by_proof, 1);
        if let Some(expiries) = expiries {
            for global in [12, 15, 18, 21] {
                bench.data(FAST, global);
                bench.now += Duration::from_millis(1);
            }
            for _ in 0..expiries {
                bench.time_out();
            }
            assert_eq!(bench.reseq.state(), holding(expiries));
        }
        bench.take();
        bench
    }

    fn apply(bench: &mut Bench, event: &Event) {
        let expected = bench.reseq.expected();
        match event {
            Expected => bench.data(SLOW, expected),
            Ahead(global) => bench.data(FAST, *global),
            Held => bench.data(FAST, 21),
            Late => bench.data(SLOW, 7),
            Duplicate => bench.data(SLOW, 9),
            Proven => {
                let lowest = bench.reseq.buffer.lowest().unwrap_or(1);
                bench.mark(FAST, expected + lowest);
                bench.mark(SLOW, expected + lowest);
            }
            Deadline => bench.time_out(),
        }
    }
}

#[test]
fn a_packet_named_as_previous_is_lost_without_word_from_other_links() {
    let mut bench = Bench::new(Config::default());
    bench.data(FAST, 0);
    bench.data_after(FAST, 2, Some(1));
    assert_eq!(bench.take(), [0, 2], "and 2 was never stored");
    assert_eq!((bench.reseq.stats().skipped_by_proof, bench.reseq.stats().in_order), (1, 2));
}

#[test]
fn a_packet_inside_a_wider_hole_is_remembered_as_lost() {
    let mut bench = Bench::new(Config::default());
    bench.data_after(FAST, 3, Some(1));
    assert_eq!(bench.take(), [], "0 and 2 may still come");
    bench.data(SLOW, 0);
    assert_eq!(bench.take(), [0], "1 is passed over, 2 may still come");
    assert_eq!(bench.reseq.expected(), 2);
    bench.data(SLOW, 2);
    assert_eq!(bench.take(), [2, 3]);
}

#[test]
fn a_local_gap_alone_skips_nothing() {
    let mut bench = Bench::new(Config::default());
    bench.locals[0] += 1;
    bench.data(FAST, 1);
    assert_eq!(bench.take(), [], "the lost datagram may have been a report");
    bench.data(SLOW, 0);
    assert_eq!(bench.take(), [0, 1]);
}

#[test]
fn a_hole_is_proven_when_every_live_link_has_passed_it() {
    let mut bench = Bench::new(Config::default());
    bench.data(FAST, 1);
    assert_eq!(bench.take(), []);
    bench.mark(SLOW, 1);
    assert_eq!(bench.take(), [1]);
}

#[test]
fn links_that_leave_or_fall_are_not_waited_for() {
    type Gone = fn(&mut Bench);
    let table: [(&str, Gone); 3] = [
        ("down", |b| b.reseq.link_down(b.now, SLOW, &mut b.out)),
        ("left, all arrived", |b| b.reseq.link_left(b.now, SLOW, Some(b.locals[1]), &mut b.out)),
        ("left, end unknown", |b| b.reseq.link_left(b.now, SLOW, None, &mut b.out)),
    ];
    for (name, gone) in table {
        let mut bench = Bench::new(Config::default());
        bench.data(FAST, 1);
        assert_eq!(bench.take(), [], "{name}");
        gone(&mut bench);
        assert_eq!(bench.take(), [1], "{name}");
    }
}

#[test]
fn a_late_packet_is_counted_by_what_passed_it_over() {
    type Passed = fn(&mut Bench);
    let table: [(&str, Passed, u64); 2] = [
        ("proof", |b| b.reseq.link_down(b.now, SLOW, &mut b.out), 1),
        ("deadline", Bench::time_out, 0),
    ];
    for (name, passed, after_proof) in table {
        let mut bench = Bench::new(Config::default());
        bench.data(FAST, 1);
        passed(&mut bench);
        bench.data(SLOW, 0);
        let stats = bench.reseq.stats();
        assert_eq!((bench.take(), stats.late), (vec![1, 0], 1), "{name}");
        assert_eq!(stats.late_after_proof, after_proof, "{name}");
    }
}

#[test]
fn what_a_leaving_link_has_under_way_is_awaited() {
    let mut bench = Bench::new(Config::default());
    let end = bench.locals[1] + 1;
    bench.reseq.link_left(bench.now, SLOW, Some(end), &mut bench.out);
    bench.data(FAST, 1);
    assert_eq!(bench.take(), []);
    bench.data(SLOW, 0);
    assert_eq!(bench.take(), [0, 1]);
    bench.data(FAST, 3);
    assert_eq!(bench.take(), [3], "then it has left");
}

#[test]
fn a_link_that_joins_carries_nothing_older() {
    let mut bench = Bench::new(Config::default());
    bench.data(FAST, 0);
    bench.data(SLOW, 1);
    let first = bench.reseq.next_unseen();
    bench.reseq.link_added(LinkId(2), first);
    bench.data(FAST, 4);
    bench.mark(SLOW, 4);
    assert_eq!(bench.take(), [0, 1], "2 and 3 may be on the new link");
    bench.reseq.link_down(bench.now, LinkId(2), &mut bench.out);
    assert_eq!(bench.take(), [4]);
}

#[test]
fn a_packet_of_a_link_that_is_not_waited_for_is_put_in_order_if_it_can_be() {
    let mut bench = Bench::new(Config::default());
    bench.data(FAST, 0);
    bench.reseq.link_down(bench.now, SLOW, &mut bench.out);
    bench.reseq.link_added(LinkId(2), 0);
    bench.data(FAST, 3);
    assert_eq!(bench.take(), [0], "1 and 2 may be on the third link");
    bench.data(SLOW, 2);
    bench.reseq.link_down(bench.now, LinkId(2), &mut bench.out);
    assert_eq!(bench.take(), [2, 3]);
    bench.reseq.link_added(LinkId(2), 0);
    bench.data(FAST, 6);
    bench.mark(FAST, 8);
    let mark = bench.arrival(SLOW, 8, EvidenceKind::Mark);
    bench.reseq.offer(
        bench.now,
        &Evidence { link: LinkId(2), local: 0, ..mark },
        Packet::whole(&[]),
        &mut bench.out,
    );
    assert_eq!((bench.take(), bench.reseq.expected()), (vec![6], 8), "all live links passed 8");
}

#[test]
fn the_deadline_is_the_spread_of_the_delays() {
    let mut bench = Bench::new(Config::default());
    let arrived = bench.now;
    bench.data(FAST, 1);
    let wait = bench.reseq.poll_timeout().expect("1 waits").since(arrived);
    let expected = Duration::from_millis(30) + GRANULARITY;
    assert!(wait >= expected && wait < expected + Duration::from_micros(100), "{wait:?}");
    bench.reseq.handle_timeout(arrived + wait - Duration::from_nanos(1), &mut bench.out);
    assert_eq!(bench.take(), [], "early calls do no harm");
    bench.time_out();
    assert_eq!(bench.take(), [1]);
    assert_eq!(bench.reseq.poll_timeout(), None);
}

#[test]
fn a_link_silent_for_long_neither_stretches_nor_freezes_the_deadline() {
    let mut bench = Bench::new(Config::default());
    let steps = u64::try_from(STALE_AFTER.as_millis()).unwrap() / 10 + 1;
    for global in 0..steps {
        bench.now += Duration::from_millis(10);
        bench.data(FAST, global);
    }
    bench.take();
    bench.data(FAST, steps + 1);
    let wait = bench.reseq.poll_timeout().expect("one waits").since(bench.now);
    assert!(wait < GRANULARITY + Duration::from_micros(100), "{wait:?}");
    bench.time_out();
    assert_eq!(bench.take(), [steps + 1]);
}

#[test]
fn a_link_that_was_idle_with_all_others_is_waited_for() {
    let mut bench = Bench::new(Config::default());
    bench.now += STALE_AFTER * 60;
    bench.data(FAST, 1);
    let wait = bench.reseq.poll_timeout().expect("1 waits").since(bench.now);
    assert!(wait >= Duration::from_millis(30), "{wait:?}");
}

#[test]
fn releasing_one_holds_what_follows_and_draining_does_not() {
    for (release, first, second) in
        [(Release::One, vec![5], vec![6]), (Release::Drain, vec![5, 6], vec![8])]
    {
        let mut bench = Bench::new(with(Settings { release, ..Settings::default() }));
        for global in [5, 6, 8, 10] {
            bench.data(FAST, global);
            bench.now += Duration::from_millis(5);
        }
        for (expiries, delivered) in [(1, first), (2, second)] {
            let (before, waiting) = (bench.now, bench.reseq.stats().held);
            bench.time_out();
            assert_eq!((bench.take(), bench.reseq.state()), (delivered, holding(expiries)));
            if release == Release::One && expiries == 2 {
                let wait = bench.now.since(before);
                assert!(wait >= Duration::from_millis(35), "the timer starts again: {wait:?}");
                assert_eq!(waiting, 3);
            }
        }
        bench.time_out();
        assert_eq!(bench.reseq.state(), State::InOrder);
    }
}

#[test]
fn a_full_buffer_releases_the_lowest() {
    let config = Config { max_packets: 8, ..Config::default() };
    let mut bench = Bench::new(config);
    for global in [2, 4, 7] {
        bench.data(FAST, global);
    }
    bench.data(FAST, 9);
    assert_eq!(bench.take(), [2], "2 goes, 9 fits");
    bench.data(FAST, 12);
    assert_eq!(bench.take(), [4], "12 is in reach of 5");
    bench.data(FAST, 5);
    assert_eq!(bench.take(), [5]);
    let bytes = with(Settings { buffer: 20, ..Settings::default() });
    let mut bench = Bench::new(bytes);
    for global in [5, 7, 3] {
        bench.data(FAST, global);
    }
    assert_eq!(bench.take(), [3], "the third is itself the lowest");
    bench.data(FAST, 9);
    assert_eq!(bench.take(), [5]);
    assert!(bench.reseq.stats().held_bytes <= 20);
}

#[test]
fn a_jump_far_ahead_releases_all_and_moves_on() {
    let mut bench = Bench::new(Config::default());
    for global in [3, 5] {
        bench.data(FAST, global);
    }
    let far = 1 << 40;
    bench.data(FAST, far);
    assert_eq!(bench.take(), [3, 5, far]);
    bench.data(FAST, far + 1);
    bench.data(SLOW, 1 << 30);
    bench.data(SLOW, 4);
    bench.data(SLOW, 4);
    assert_eq!(bench.take(), [far + 1, 1 << 30, 4], "late ones come through, once");
    bench.data(FAST, u64::MAX);
    bench.data_after(FAST, far + 3, Some(u64::MAX));
    bench.mark(FAST, NUMBER_LIMIT - 1);
    assert_eq!(bench.take(), []);
    bench.mark(SLOW, NUMBER_LIMIT - 1);
    assert_eq!(bench.take(), [far + 3]);
}

#[test]
fn buffers_are_recycled() {
    let mut bench = Bench::new(Config::default());
    let mut next = 0;
    for _ in 0..100 {
        for ahead in 1..50 {
            bench.data(FAST, next + ahead);
        }
        bench.data(SLOW, next);
        next += 50;
    }
    assert_eq!(bench.take(), (0..next).collect::<Vec<_>>());
    let stats = bench.reseq.stats();
    assert_eq!((stats.resequenced, stats.in_order, stats.held_peak), (4_900, 100, 49));
    let pooled = format!("{:?}", bench.reseq.buffer).matches("[]").count();
    assert!(pooled <= 52, "{pooled} buffers for 49 packets");
    bench.reseq.release_memory();
    assert_eq!((bench.reseq.has_spare(), bench.reseq.spare_bytes()), (false, 0));
}

#[test]
fn without_an_order_every_packet_comes_out_as_it_comes_in() {
    let mut bench = Bench::new(with(Settings { enabled: false, ..Settings::default() }));
    for (link, global) in [(FAST, 0), (FAST, 3), (SLOW, 1), (FAST, 9), (SLOW, 2)] {
        bench.data(link, global);
    }
    bench.mark(FAST, 12);
    bench.data(SLOW, 10);
    bench.reseq.link_down(bench.now, SLOW, &mut bench.out);
    bench.reseq.link_left(bench.now, FAST, Some(99), &mut bench.out);
    assert_eq!(bench.take(), [0, 3, 1, 9, 2, 10]);
    let stats = bench.reseq.stats();
    assert_eq!(stats, Stats { as_they_came: 6, ..Stats::default() });
    assert_eq!((bench.reseq.poll_timeout(), bench.reseq.next_unseen()), (None, 12));
    assert_eq!(bench.reseq.delay_spread(), Duration::from_millis(30), "links are still sensed");
}

#[test]
fn a_link_is_waited_for_from_the_first_packet_behind_its_hole_and_for_each_moment_once() {
    let mut bench = Bench::new(Config::default());
    let ms = Duration::from_millis;
    bench.data(SLOW, 0);
    bench.data(FAST, 1);
    bench.now += ms(5);
    // 2 and 4 are on the slow link, 3 and 5 came.
    bench.data(FAST, 3);
    bench.now += ms(2);
    bench.data(FAST, 5);
    bench.now += ms(8);
    bench.data(SLOW, 2);
    bench.now += ms(4);
    bench.data(SLOW, 4);
    assert_eq!(bench.take(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(bench.reseq.waited_for(SLOW), ms(14));
    assert_eq!(bench.reseq.waited_for(FAST), Duration::ZERO);
    bench.now += ms(50);
    bench.data(SLOW, 6);
    assert_eq!(bench.reseq.waited_for(SLOW), ms(14), "nothing waited");
}
