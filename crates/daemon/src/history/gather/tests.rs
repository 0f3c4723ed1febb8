use super::*;
use crate::history::steps::Series;

/// 2026-11-27 00:00:00 UTC.
const MIDNIGHT: u64 = 1_795_737_600;

fn at(seconds: u64) -> Instant {
    Instant::from_millis(seconds * 1000)
}

fn of_utc(unix: u64) -> u64 {
    unix - unix % 86_400
}

/// A look so many seconds after the start at this date, when each way had so many bytes, on one link that carries.
fn sample(seconds: u64, unix: u64, bytes: u64) -> Sample {
    let counters = Counters { down: bytes, up: bytes / 10 };
    let link = LinkSample {
        name: "wlan".to_owned(),
        counters,
        carries: true,
        rtt: Some(Duration::from_millis(20)),
        loss: Some(0.01),
    };
    Sample { at: at(seconds), unix_ms: unix * 1000, all: counters, links: vec![link] }
}

/// Start and bytes down of each step of all together.
fn down(series: &Series) -> Vec<(u64, u64)> {
    series.iter().map(|(start, moment)| (*start, moment[""].down)).collect()
}

fn gathered(samples: impl IntoIterator<Item = Sample>) -> Gather {
    let mut gather = Gather::new(Instant::ZERO, 0);
    for sample in samples {
        gather.add(sample, of_utc);
    }
    gather
}

#[test]
fn what_was_gained_is_spread_over_the_steps_between_two_looks_and_adds_up() {
    // Looks that fall between the steps, as those of a loop do.
    let samples = (1..=12).map(|n| sample(n * 13, MIDNIGHT + 4 + n * 13, n * 1_000_003));
    let gather = gathered(samples);
    for steps in Steps::ALL {
        let series = gather.tables().of(steps);
        for name in ["", "wlan"] {
            let sum: u64 = series.values().map(|moment| moment[name].down).sum();
            assert_eq!(sum, 12 * 1_000_003, "{steps:?} {name}");
        }
        if steps != Steps::Days {
            let covered: u32 = series.values().map(|moment| moment[""].covered_ms).sum();
            assert_eq!(covered, 12 * 13_000, "{steps:?}");
        }
    }
    let fine = gather.tables().of(Steps::Fine);
    let whole = fine[&(MIDNIGHT + 20)]["wlan"];
    assert_eq!(whole.covered_ms, 10_000);
    assert!(whole.down.abs_diff(10 * 1_000_003 / 13) <= 1, "{whole:?}");
    assert_eq!((whole.rtt_us, whole.lost_ppm), (Some(20_000), Some(10_000)));
}

#[test]
fn a_day_ends_at_midnight_and_a_step_of_minutes_with_its_minute() {
    let before = MIDNIGHT + 86_400;
    let gather = gathered([
        sample(30, before - 30, 100),
        sample(60, before, 300),
        sample(90, before + 30, 700),
    ]);
    assert_eq!(
        down(gather.tables().of(Steps::Days)),
        [(MIDNIGHT, 100), (MIDNIGHT + 86_400, 600)],
        "what came until the look at midnight is of the new day"
    );
    assert_eq!(down(gather.tables().of(Steps::Minutes)), [(before - 60, 300), (before, 400)]);
}

#[test]
fn while_nobody_looked_there_is_a_gap_and_the_day_has_its_bytes() {
    let slept = 7200;
    let gather = gathered([
        sample(10, MIDNIGHT + 10, 100),
        sample(10 + slept, MIDNIGHT + 10 + slept, 150),
        sample(20 + slept, MIDNIGHT + 20 + slept, 250),
    ]);
    assert_eq!(
        down(gather.tables().of(Steps::Fine)),
        [(MIDNIGHT, 100), (MIDNIGHT + 10 + slept, 100)]
    );
    assert_eq!(down(gather.tables().of(Steps::Days)), [(MIDNIGHT, 250)]);
}

#[test]
fn a_link_that_carries_nothing_has_no_time_and_one_that_is_gone_no_step() {
    let mut quiet = sample(20, MIDNIGHT + 20, 100);
    quiet.links[0].carries = false;
    let mut probed = sample(30, MIDNIGHT + 30, 150);
    probed.links[0].carries = false;
    let gone = Sample { links: Vec::new(), ..sample(40, MIDNIGHT + 40, 150) };
    // It is back, with counters that went on.
    let back = sample(50, MIDNIGHT + 50, 160);
    let gather = gathered([sample(10, MIDNIGHT + 10, 100), quiet, probed, gone, back]);
    let fine = gather.tables().of(Steps::Fine);
    let of = |start: u64| fine[&(MIDNIGHT + start)].get("wlan").copied();
    assert_eq!(of(0).unwrap().covered_ms, 10_000);
    assert_eq!(of(10), None);
    let probes = of(20).unwrap();
    assert_eq!((probes.covered_ms, probes.down, probes.rtt_us), (0, 50, None));
    assert_eq!(of(30), None);
    assert_eq!(of(40).unwrap().down, 10);
    assert_eq!(gather.tables().of(Steps::Days)[&MIDNIGHT]["wlan"].down, 160);
}

#[test]
fn counters_that_begin_again_gain_nothing_until_they_grow() {
    let gather = gathered([
        sample(10, MIDNIGHT + 10, 1000),
        sample(20, MIDNIGHT + 20, 30),
        sample(30, MIDNIGHT + 30, 80),
    ]);
    let expected = [(MIDNIGHT, 1000), (MIDNIGHT + 10, 0), (MIDNIGHT + 20, 50)];
    assert_eq!(down(gather.tables().of(Steps::Fine)), expected);
}

#[test]
fn a_clock_that_is_set_late_dates_what_was_seen_before() {
    let mut gather = Gather::new(Instant::ZERO, 120_000);
    for n in 1..=6 {
        // Two minutes after the machine was switched on in 1970.
        assert_eq!(gather.add(sample(n * 10, 120 + n * 10, n * 100), of_utc), None);
    }
    assert_eq!((gather.present(), gather.date_of(at(10))), (None, None));
    assert!(gather.tables().of(Steps::Fine).is_empty(), "no step of 1970");
    let jump = gather.add(sample(70, MIDNIGHT + 70, 700), of_utc).unwrap();
    assert!(jump > 50 * 365 * 86_400, "{jump}");
    let expected: Vec<_> = (0..7).map(|n| (MIDNIGHT + n * 10, 100)).collect();
    assert_eq!(down(gather.tables().of(Steps::Fine)), expected);
    assert_eq!(gather.date_of(at(10)), Some(MIDNIGHT + 10));
    assert_eq!(gather.date_of(at(75)), Some(MIDNIGHT + 75));
}

#[test]
fn looks_without_a_date_are_bounded_and_no_byte_is_lost() {
    let mut gather = Gather::new(Instant::ZERO, 0);
    for n in 1..=2000 {
        gather.add(sample(n * 10, n * 10, n * 100), of_utc);
    }
    assert_eq!(gather.undated.len(), MOST_UNDATED);
    gather.add(sample(20_010, MIDNIGHT + 20_010, 200_100), of_utc);
    assert_eq!(down(gather.tables().of(Steps::Days)), [(MIDNIGHT, 200_100)]);
    let rates: u64 = down(gather.tables().of(Steps::Fine)).iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(rates, 720 * 100, "of the rest it is not known when");
}

#[test]
fn however_the_clock_jumps_no_step_gets_more_than_its_time() {
    let year = 365 * 86_400;
    let table: [(&str, [u64; 3], Option<i64>); 4] = [
        ("forward", [MIDNIGHT + 20, MIDNIGHT + 20 + year, MIDNIGHT + 30 + year], Some(31_535_990)),
        ("back", [MIDNIGHT + 20 + year, MIDNIGHT + 30, MIDNIGHT + 40], Some(-31_536_000)),
        ("back a little", [MIDNIGHT + 20, MIDNIGHT + 10, MIDNIGHT + 20], None),
        ("not at all", [MIDNIGHT + 20, MIDNIGHT + 30, MIDNIGHT + 40], None),
    ];
    for (what, dates, expected) in table {
        let mut gather = gathered([sample(10, dates[0] - 10, 100), sample(20, dates[0], 200)]);
        assert_eq!(gather.add(sample(30, dates[1], 300), of_utc), expected, "{what}");
        assert_eq!(gather.add(sample(40, dates[2], 400), of_utc), None, "{what}");
        let fine = gather.tables().of(Steps::Fine);
        assert_eq!(down(fine).iter().map(|(_, bytes)| bytes).sum::<u64>(), 400, "{what}");
        for (start, moment) in fine {
            let Cell { covered_ms, down, .. } = moment[""];
            assert_eq!(down * 100, u64::from(covered_ms), "{what}: the rate at {start}");
        }
    }
}

#[test]
fn names_without_end_are_forgotten() {
    let named = |n: u64| {
        let mut sample = sample(n * 10, MIDNIGHT + n * 10, n * 100);
        sample.links[0].name = format!("usb{n:04}");
        sample
    };
    let gather = gathered((1..=1000).map(named));
    assert_eq!(gather.links.len(), MOST_NAMES);
}

#[test]
fn a_link_that_is_there_is_not_forgotten_and_one_that_was_counts_nothing_twice() {
    // The first by name is always there, and others come for a moment, some of them again.
    let with_another = |n: u64| {
        let mut sample = sample(n * 10, MIDNIGHT + n * 10, n * 100);
        sample.links[0].name = "a".to_owned();
        let name = format!("usb{:04}", n % 600);
        let counters = Counters { down: 50, up: 0 };
        let other = LinkSample { name, counters, ..sample.links[0].clone() };
        sample.links.push(other);
        sample
    };
    let gather = gathered((1..=1200).map(with_another));
    assert_eq!(gather.links.len(), MOST_NAMES);
    let day = &gather.tables().of(Steps::Days)[&MIDNIGHT];
    assert_eq!(day["a"].down, 1200 * 100);
    let others = day.iter().filter(|(name, _)| name.starts_with("usb"));
    assert_eq!(others.map(|(_, cell)| cell.down).max(), Some(50));
}

#[test]
fn who_begins_again_gains_nothing_of_what_was_before() {
    let mut gather = gathered([sample(10, MIDNIGHT + 10, 100)]);
    gather.begin_again(sample(5000, MIDNIGHT + 5000, 90_000));
    assert_eq!(gather.tables(), &Tables::default());
    let mut next = sample(5010, MIDNIGHT + 5010, 90_700);
    // One that was not there then.
    let other = LinkSample { name: "lte".to_owned(), ..next.links[0].clone() };
    next.links.push(other);
    assert_eq!(gather.add(next, of_utc), None);
    let day = &gather.tables().of(Steps::Days)[&MIDNIGHT];
    assert_eq!(day["lte"].down, 0);
    for steps in Steps::ALL {
        let series = gather.tables().of(steps);
        let bytes: Vec<_> = series.values().map(|moment| moment["wlan"].down).collect();
        assert_eq!(bytes, [700], "{steps:?}");
    }
}
