use std::cell::Cell;
use std::collections::VecDeque;

use ropewalk_proto::tunnel::Traffic;
use ropewalk_proto::units::LinkId;
use ropewalk_settings::{Direction, Usage};

use super::figures::tests::fresh;
use super::*;

/// How finely the world moves.
const MOVE: Duration = Duration::from_millis(10);

/// Bytes of a datagram of a full packet as UDP payload, and with the headers of IPv4 and UDP.
const PAYLOAD: u64 = 1432;
const ON_WIRE: u64 = 1460;

/// Bits of packets in one.
const BITS: f64 = 1400.0 * 8.0;

/// A link that carries so many datagrams in each move.
struct Line {
    name: &'static str,
    down: u64,
    up: u64,
    /// Of these are packets of others, which go whatever is tested.
    others: u64,
    /// Of a hundred datagrams of test data down so many are lost.
    lost_percent: u64,
    /// Moves after which the others of them arrive, and what is under way.
    delay: usize,
    under_way: VecDeque<u64>,
    /// Bytes of test data that were sent, both ways.
    given: u64,
    reading: Option<Reading>,
    /// What is left of its allowance.
    left: Option<u64>,
    /// Whether there was test data when nothing was.
    overdrawn: bool,
    /// Test data that it may still carry in this phase.
    most: u64,
}

impl Line {
    fn new(name: &'static str, down: u64, up: u64) -> Self {
        Self {
            name,
            down,
            up,
            others: 0,
            lost_percent: 0,
            delay: 0,
            under_way: VecDeque::new(),
            given: 0,
            reading: Some(fresh()),
            left: None,
            overdrawn: false,
            most: 0,
        }
    }

    fn candidate(&self, key: u32) -> Candidate {
        Candidate {
            name: self.name.to_owned(),
            key: Ok(LinkKey(key)),
            direction: Direction::Both,
            usage: Usage::Always,
            costs: false,
            allowance: self.left.map(|left| (left, left)),
        }
    }

    /// Some time passes, in which test data may be so many bytes.
    fn pass(&mut self, load: SpeedLoad, all: &Cell<u64>) {
        let Some(reading) = &mut self.reading else { return };
        let room = |rate: u64| {
            let fits = self.most.min(all.get()) / ON_WIRE;
            rate.saturating_sub(self.others).min(fits)
        };
        let (down, up) = match load {
            SpeedLoad::Idle => (0, 0),
            SpeedLoad::Down => (room(self.down), 0),
            SpeedLoad::Up => (0, room(self.up)),
        };
        let others = self.others;
        let carry = |traffic: &mut Traffic, datagrams: u64| {
            traffic.datagrams += datagrams;
            traffic.bytes += datagrams * PAYLOAD;
        };
        self.under_way.push_back(down);
        let is_due = self.under_way.len() > self.delay;
        let due = if is_due { self.under_way.pop_front().unwrap_or(0) } else { 0 };
        let come = due - due * self.lost_percent / 100;
        carry(&mut reading.received, come + others);
        carry(&mut reading.filler.received, come);
        carry(&mut reading.sent, up + others);
        carry(&mut reading.filler.sent, up);
        carry(&mut reading.confirmed, up + others);
        reading.came += come + others;
        reading.numbered += due + others;
        self.given += (down + up) * ON_WIRE;
        self.most -= (down + up) * ON_WIRE;
        all.set(all.get() - (down + up) * ON_WIRE);
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub((down + up + 2 * others) * ON_WIRE);
            self.overdrawn |= *left == 0 && down + up > 0;
        }
    }
}

/// A session with these links, whose keys are their places.
struct World {
    lines: Vec<Line>,
    session: Option<SessionIndex>,
    too_old: bool,
    /// What the proxy says to a phase.
    says: Option<SpeedAnswer>,
    /// From when on it says nothing any more.
    silent_since: Option<Instant>,
    phase: Option<SpeedPhase<LinkKey>>,
    begun: Vec<SpeedLoad>,
    forgotten: usize,
    now: Instant,
}

impl Engine for World {
    fn session(&self) -> Option<SessionIndex> {
        self.session
    }

    fn reading(&self, link: LinkKey) -> Option<Reading> {
        self.lines.get(link.0 as usize)?.reading
    }

    fn left(&self, link: &str) -> Option<u64> {
        self.lines.iter().find(|line| line.name == link)?.left
    }

    fn begin(&mut self, _now: Instant, phase: &SpeedPhase<LinkKey>) -> Result<(), SpeedError> {
        if self.session.is_none() {
            return Err(SpeedError::NoSession);
        }
        if self.too_old {
            return Err(SpeedError::TooOld);
        }
        self.lines.iter_mut().for_each(|line| line.most = 0);
        for (key, most) in &phase.links {
            self.lines[key.0 as usize].most = *most;
        }
        self.begun.push(phase.load);
        self.phase = Some(phase.clone());
        Ok(())
    }

    fn answer(&self) -> Option<SpeedAnswer> {
        self.says
    }

    fn answered_at(&self) -> Option<Instant> {
        self.says.map(|_| self.silent_since.unwrap_or(self.now))
    }

    fn trip(&self, link: LinkKey, percent: u8) -> Option<Duration> {
        // A queue of so many percent of 100 ms, while the link is filled.
        let phase = self.phase.as_ref()?;
        let of_phase = phase.links.iter().any(|(key, _)| *key == link);
        let queue = if phase.load == SpeedLoad::Idle { 0 } else { u64::from(percent) };
        of_phase.then_some(Duration::from_millis(20 + queue))
    }

    fn forget_trips(&mut self) {
        self.forgotten += 1;
    }

    fn end(&mut self) {
        self.phase = None;
    }
}

impl World {
    fn new(lines: Vec<Line>) -> Self {
        Self {
            lines,
            session: Some(SessionIndex::new(7)),
            too_old: false,
            says: Some(SpeedAnswer::Granted),
            silent_since: None,
            phase: None,
            begun: Vec::new(),
            forgotten: 0,
            now: Instant::from_millis(1000),
        }
    }

    fn test(&mut self, wish: &SpeedTestWish) -> Result<SpeedTest, String> {
        self.numbered(3, wish)
    }

    fn numbered(&mut self, id: u64, wish: &SpeedTestWish) -> Result<SpeedTest, String> {
        let lines = self.lines.iter().zip(0..);
        let candidates: Vec<_> = lines.map(|(line, key)| line.candidate(key)).collect();
        SpeedTest::begin(self.now, id, wish, "vps".to_owned(), &candidates, self)
    }

    /// Time passes, and somebody asks how far the test is.
    fn pass(&mut self, test: &mut SpeedTest, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.step(test);
            test.report(self.now);
        }
    }

    fn step(&mut self, test: &mut SpeedTest) {
        self.now += MOVE;
        let granted = self.says == Some(SpeedAnswer::Granted);
        let phase = self.phase.as_ref().filter(|phase| granted && self.now < phase.until);
        let (load, all) = phase.map_or((SpeedLoad::Idle, 0), |phase| (phase.load, phase.bytes));
        let all = Cell::new(all);
        self.lines.iter_mut().for_each(|line| line.pass(load, &all));
        if let Some(phase) = &mut self.phase {
            phase.bytes = phase.bytes.min(all.get());
        }
        if test.poll_timeout().is_some_and(|at| at <= self.now) {
            test.tick(self.now, self);
        }
    }

    fn run_to_the_end(&mut self, test: &mut SpeedTest) -> SpeedTestReport {
        while test.goes_on() {
            self.pass(test, MOVE);
            assert!(self.now < Instant::from_millis(200_000), "it never ends");
        }
        assert!(self.phase.is_none(), "the core was told");
        test.report(self.now)
    }
}

fn wish() -> SpeedTestWish {
    SpeedTestWish {
        links: Vec::new(),
        seconds: 5,
        down: true,
        up: true,
        max_bytes: None,
        metered: false,
    }
}

fn two_links() -> World {
    World::new(vec![Line::new("wlan0", 40, 20), Line::new("lte", 10, 5)])
}

/// Bits per second of so many datagrams in each move.
fn bps(datagrams: u64) -> f64 {
    f64::from(u32::try_from(datagrams).unwrap()) * 100.0 * BITS
}

#[track_caller]
fn assert_near(found: f64, expected: f64) {
    assert!((found - expected).abs() <= expected * 0.005, "{found}, not {expected}");
}

#[test]
fn every_link_is_measured_alone_and_then_all_together_as_fast_as_they_are() {
    let mut world = two_links();
    let mut test = world.test(&wish()).unwrap();
    let report = world.run_to_the_end(&mut test);
    assert_eq!((report.state, report.trouble, report.id), (SpeedTestState::Done, None, 3));
    let [wlan, lte] = &report.links[..] else { panic!("{:?}", report.links) };
    for (link, down, up) in [(wlan, 40, 20), (lte, 10, 5)] {
        for (speed, rate) in [(&link.down, down), (&link.up, up)] {
            let speed = speed.as_ref().unwrap();
            assert_near(speed.rate_bps, bps(rate));
            assert_near(speed.wire_bps, bps(rate) * 1460.0 / 1400.0);
            assert_near(speed.over_s, 3.5);
            assert_eq!((speed.other_bps, speed.loss), (0.0, Some(0.0)));
            assert_eq!((speed.rtt_p50_ms, speed.rtt_p95_ms), (Some(70.0), Some(115.0)));
            assert!(!speed.cut_short);
        }
        assert_eq!((link.idle_rtt_ms, &link.skipped), (Some(20.0), &None));
    }
    let together = report.together.unwrap();
    for (sum, alone, of_lte) in [(together.down, 50, 10), (together.up, 25, 5)] {
        let sum = sum.unwrap();
        assert_near(sum.sum.rate_bps, bps(alone));
        assert_near(sum.alone_bps, bps(alone));
        assert_near(sum.by_link["lte"].rate_bps, bps(of_lte));
    }
    let of_line = |line: &Line| {
        let filler = line.reading.unwrap().filler;
        (filler.sent.datagrams + filler.received.datagrams) * ON_WIRE
    };
    let bytes: u64 = world.lines.iter().map(of_line).sum();
    assert_eq!(report.test_bytes, bytes);
    assert_eq!(report.links.iter().map(|link| link.test_bytes).sum::<u64>(), bytes);
    assert!(report.summary[0].contains("100 % of their sum"), "{:?}", report.summary);
    let (idle, down, up) = (SpeedLoad::Idle, SpeedLoad::Down, SpeedLoad::Up);
    assert_eq!(world.begun, [idle, down, idle, up, idle, down, idle, up, idle, down, idle, up]);
    assert_eq!(world.forgotten, world.begun.len(), "what came in the run-in counts nowhere");
}

#[test]
fn packets_beside_the_test_are_part_of_the_rate_and_told() {
    let mut world = two_links();
    world.lines[0].others = 8;
    let mut test = world.test(&SpeedTestWish { up: false, ..wish() }).unwrap();
    let report = world.run_to_the_end(&mut test);
    let down = report.links[0].down.as_ref().unwrap();
    assert_near(down.rate_bps, bps(40));
    assert_near(down.other_bps, bps(8));
    assert_eq!(report.links[0].up, None);
    assert!(report.summary.iter().any(|text| text.contains("beside the test")), "{report:?}");
}

#[test]
fn a_bound_of_data_holds_and_what_it_cuts_short_is_told() {
    let mut world = two_links();
    let bounded = SpeedTestWish { max_bytes: Some(6_000_000), ..wish() };
    let mut test = world.test(&bounded).unwrap();
    let report = world.run_to_the_end(&mut test);
    assert_eq!(report.state, SpeedTestState::Done);
    assert!((4_000_000..6_000_000).contains(&report.test_bytes), "{}", report.test_bytes);
    let wlan = report.links[0].down.as_ref().unwrap();
    assert!(wlan.cut_short);
    assert!((wlan.rate_bps - bps(40)).abs() < bps(40) * 0.3, "roughly: {}", wlan.rate_bps);
    assert!(report.summary.iter().any(|text| text.contains("ended early")), "{report:?}");
}

#[test]
fn of_a_download_what_was_lost_or_came_late_is_used_up_too() {
    let line = Line { lost_percent: 25, delay: 30, ..Line::new("wlan0", 40, 20) };
    let mut world = World::new(vec![line]);
    let mut test = world.test(&wish()).unwrap();
    let report = world.run_to_the_end(&mut test);
    assert_eq!(report.test_bytes, world.lines[0].given);
    assert_eq!(report.links[0].test_bytes, report.test_bytes);
    // So the bound holds.
    let mut world = two_links();
    world.lines[0].lost_percent = 50;
    let bounded = SpeedTestWish { max_bytes: Some(6_000_000), up: false, ..wish() };
    let mut test = world.test(&bounded).unwrap();
    world.run_to_the_end(&mut test);
    let given: u64 = world.lines.iter().map(|line| line.given).sum();
    assert!((5_000_000..=6_000_000).contains(&given), "{given}");
}

#[test]
fn an_allowance_is_tested_with_a_small_part_of_it_and_never_used_up() {
    let mut world = two_links();
    world.lines[1].left = Some(200_000_000);
    let mut test = world.test(&wish()).unwrap();
    let report = world.run_to_the_end(&mut test);
    let [wlan, lte] = &report.links[..] else { panic!("{:?}", report.links) };
    assert!((1_000_000..2_000_000).contains(&lte.test_bytes), "{}", lte.test_bytes);
    assert!(lte.down.as_ref().unwrap().cut_short);
    assert!(!wlan.down.as_ref().unwrap().cut_short, "its own step has no bound");
    let metered = SpeedTestWish { metered: true, ..wish() };
    // Others use it up meanwhile.
    world.lines[1] = Line { left: Some(30_000_000), others: 4, ..Line::new("lte", 10, 9) };
    let mut test = world.test(&metered).unwrap();
    let report = world.run_to_the_end(&mut test);
    assert!(!world.lines[1].overdrawn, "{:?}", world.lines[1].left);
    let lte = &report.links[1];
    assert!(!lte.down.as_ref().unwrap().cut_short && lte.up.as_ref().unwrap().cut_short);
    assert_eq!((report.state, report.together), (SpeedTestState::Done, None), "lte is spared");
}

#[test]
fn what_the_proxy_says_ends_the_test_with_its_reason() {
    let wait = Some(Duration::from_secs(1234));
    let table = [
        (SpeedRefusal::Forbidden, None, "the proxy's owner allows no speed tests"),
        (SpeedRefusal::Busy, Some(Duration::from_secs(5)), "try again in 5 s"),
        (SpeedRefusal::UsedUp, wait, "in an hour: try again in 21 min"),
    ];
    for (why, wait, expected) in table {
        let mut world = two_links();
        let mut test = world.test(&wish()).unwrap();
        world.pass(&mut test, Duration::from_secs(5));
        world.says = Some(SpeedAnswer::Refused { why, wait });
        let report = world.run_to_the_end(&mut test);
        assert_eq!(report.state, SpeedTestState::Stopped);
        let trouble = report.trouble.unwrap();
        assert!(trouble.ends_with(expected), "{trouble}");
        let down = report.links[0].down.as_ref();
        let is_told = down.is_some_and(|down| down.cut_short);
        assert_eq!(is_told, why == SpeedRefusal::UsedUp, "{why}: {down:?}");
        assert!(report.test_bytes > 0, "what it cost is told");
    }
}

#[test]
fn an_old_proxy_one_that_is_silent_and_none_are_told_apart() {
    let mut world = two_links();
    world.too_old = true;
    let why = world.test(&wish()).unwrap_err();
    assert_eq!(why, "the proxy is too old for speed tests: update it");
    world.session = None;
    assert_eq!(world.test(&wish()).unwrap_err(), "there is no session with a proxy");
    let mut world = two_links();
    world.says = None;
    let mut test = world.test(&wish()).unwrap();
    let report = world.run_to_the_end(&mut test);
    assert_eq!(report.trouble.as_deref(), Some("the proxy does not answer"));
    assert!(world.now < Instant::from_millis(6000 + 1000), "{:?}", world.now);
    let mut world = World::new(Vec::new());
    assert_eq!(world.test(&wish()).unwrap_err(), "there is no link to test");
}

#[test]
fn a_proxy_that_falls_silent_while_links_are_filled_ends_the_test_with_its_grant() {
    let mut world = two_links();
    let mut test = world.test(&wish()).unwrap();
    world.silent_since = Some(world.now);
    world.pass(&mut test, SPEED_LIFETIME + TICK * 2);
    assert!(test.goes_on(), "nothing is sent yet, and nothing has to be granted");
    world.silent_since = None;
    world.pass(&mut test, Duration::from_secs(2));
    let silent = world.now;
    world.silent_since = Some(silent);
    let report = world.run_to_the_end(&mut test);
    let took = world.now.since(silent);
    assert!((SPEED_LIFETIME..SPEED_LIFETIME + TICK * 2).contains(&took), "{took:?}");
    assert_eq!(report.trouble.as_deref(), Some("the proxy does not answer"));
    assert_eq!((&report.links[0].down, report.state), (&None, SpeedTestState::Stopped));
}

#[test]
fn answers_that_wait_while_the_daemon_stands_still_end_no_test() {
    let mut world = two_links();
    let mut test = world.test(&wish()).unwrap();
    world.pass(&mut test, Duration::from_secs(3));
    world.silent_since = Some(world.now);
    world.now += Duration::from_secs(1);
    test.tick(world.now, &mut world);
    assert!(test.goes_on());
    world.silent_since = None;
    world.pass(&mut test, TICK * 2);
    assert!(test.goes_on());
}

#[test]
fn a_test_that_nobody_asks_for_ends_and_so_does_one_without_its_session() {
    let mut world = two_links();
    let mut test = world.test(&wish()).unwrap();
    world.pass(&mut test, Duration::from_secs(3));
    let from = world.now;
    while test.goes_on() {
        world.step(&mut test);
    }
    let gone = world.now.since(from);
    assert!((PATIENCE..PATIENCE + TICK * 2).contains(&gone), "{gone:?}");
    assert!(world.phase.is_none(), "the core was told");
    let mut test = world.test(&wish()).unwrap();
    world.pass(&mut test, Duration::from_secs(3));
    world.session = Some(SessionIndex::new(8));
    world.pass(&mut test, TICK);
    let report = test.report(world.now);
    assert!(!test.goes_on() && report.trouble.unwrap().contains("session"));
}

#[test]
fn what_a_test_found_is_known_for_a_moment_after_another_began() {
    let mut world = two_links();
    let mut known = KnownTests::default();
    let mut first = world.numbered(known.next_id(), &wish()).unwrap();
    first.stop(&mut world, "it was stopped".to_owned());
    known.begin(world.now, first);
    assert!(known.running().is_none() && known.poll_timeout().is_none());
    let second = world.numbered(known.next_id(), &wish()).unwrap();
    known.begin(world.now, second);
    assert_eq!(known.running().map(|test| test.id()), Some(2));
    let report = known.of(world.now, 1).map(|test| test.report(world.now)).unwrap();
    assert_eq!(report.trouble.as_deref(), Some("it was stopped"));
    let end = world.now + PATIENCE;
    let late = end + TICK;
    let table =
        [(end, 1, true), (end, 2, true), (end, 3, false), (late, 1, false), (late, 2, true)];
    for (now, id, is_known) in table {
        let found = known.of(now, id).map(|test| test.id());
        assert_eq!(found, is_known.then_some(id), "{id} at {now:?}");
    }
}

#[test]
fn a_link_that_goes_away_has_no_figures_and_the_others_have() {
    let mut world = two_links();
    let mut test = world.test(&wish()).unwrap();
    world.pass(&mut test, Duration::from_secs(3));
    world.lines[0].reading = Some(Reading { id: LinkId(9), ..fresh() });
    world.pass(&mut test, Duration::from_secs(4));
    world.lines[0].reading = None;
    let report = world.run_to_the_end(&mut test);
    let [wlan, lte] = &report.links[..] else { panic!("{:?}", report.links) };
    assert_eq!((&wlan.down, &wlan.up), (&None, &None));
    assert!(wlan.skipped.as_ref().unwrap().contains("went down"));
    assert!(lte.down.is_some() && lte.up.is_some());
    assert_eq!(report.together, None, "one link is no bundle");
}

#[test]
fn how_far_it_is_can_be_seen_meanwhile() {
    let mut world = two_links();
    let mut test = world.test(&wish()).unwrap();
    let first = test.report(world.now).phase.unwrap();
    assert_eq!((first.number, first.of, first.way), (1, 7, None));
    world.pass(&mut test, Duration::from_secs(4));
    let report = test.report(world.now);
    let phase = report.phase.unwrap();
    assert_eq!((phase.number, phase.of), (2, 7));
    assert_eq!((phase.link.as_deref(), phase.way), (Some("wlan0"), Some(SpeedWay::Down)));
    assert_near(phase.rate_bps, bps(40));
    assert_near(phase.elapsed_s, 2.5);
    assert_near(phase.of_s, 5.0);
    test.stop(&mut world, "it was stopped".to_owned());
    let report = test.report(world.now);
    assert_eq!((report.state, report.phase), (SpeedTestState::Stopped, None));
    assert_eq!(report.trouble.as_deref(), Some("it was stopped"));
}
