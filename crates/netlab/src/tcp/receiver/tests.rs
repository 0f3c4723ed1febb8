use super::*;

const MSS: u64 = 1000;

/// A receiver with an open window that acknowledged 30 segments.
fn settled() -> (Receiver, Instant, u64) {
    let mut receiver = Receiver::new(MSS);
    let mut now = Instant::from_millis(1000);
    for segment in 0..30 {
        now += Duration::from_millis(1);
        come(&mut receiver, now, segment);
        receiver.report();
    }
    (receiver, now, 30)
}

fn come(receiver: &mut Receiver, now: Instant, segment: u64) {
    static BYTES: std::sync::LazyLock<Vec<u8>> =
        std::sync::LazyLock::new(|| (0..=250).cycle().take(251 + 1000).collect());
    let start = usize::try_from(segment * MSS % 251).unwrap();
    let payload = &BYTES[start..start + 1000];
    let data = Data { offset: segment * MSS, payload, time: clock(now), echo: 1 };
    receiver.handle_data(now, &data, None);
}

fn sacks(report: &Report) -> Vec<(u64, u64)> {
    report.sacks.iter().map(|sack| (sack.start / MSS, sack.end / MSS)).collect()
}

#[test]
fn the_first_segments_are_acknowledged_at_once_and_later_every_second() {
    let mut receiver = Receiver::new(MSS);
    let now = Instant::from_millis(1000);
    for segment in 0..10 {
        come(&mut receiver, now, segment);
        assert!(receiver.wants_report(), "{segment}");
        receiver.report();
    }
    let (mut receiver, now, next) = settled();
    come(&mut receiver, now, next);
    assert!(!receiver.wants_report());
    let due = receiver.poll_timeout().unwrap();
    assert!((36..=40).contains(&due.since(now).as_millis()), "{due:?}");
    let mut waits = receiver.clone();
    waits.handle_timeout(due);
    assert!(waits.wants_report());
    come(&mut receiver, now, next + 1);
    assert!(receiver.wants_report());
    assert_eq!(receiver.report().number, (next + 2) * MSS);
    assert_eq!(receiver.wrong(), 0);
}

#[test]
fn a_hole_is_told_three_times_at_once_and_then_once_a_millisecond() {
    let (mut receiver, now, next) = settled();
    for early in 1..=3 {
        come(&mut receiver, now, next + early);
        assert!(receiver.wants_report());
        let report = receiver.report();
        assert_eq!(
            (report.number, sacks(&report)),
            (next * MSS, vec![(next + 1, next + early + 1)])
        );
    }
    come(&mut receiver, now, next + 4);
    assert!(!receiver.wants_report());
    assert!(receiver.poll_timeout().unwrap().since(now) <= Duration::from_millis(1));
    // When the hole is filled, all is acknowledged at once.
    come(&mut receiver, now, next);
    assert!(receiver.wants_report());
    let report = receiver.report();
    assert_eq!((report.number, sacks(&report)), ((next + 5) * MSS, vec![]));
}

#[test]
fn the_range_that_changed_last_is_told_first_and_three_at_most() {
    let (mut receiver, now, next) = settled();
    let at = |n: u64| next + n;
    for early in [2, 4, 6, 8] {
        come(&mut receiver, now, at(early));
    }
    let expected = [(at(8), at(9)), (at(6), at(7)), (at(4), at(5))];
    assert_eq!(sacks(&receiver.report()), expected);
    come(&mut receiver, now, at(5));
    let expected = [(at(4), at(7)), (at(8), at(9)), (at(2), at(3))];
    assert_eq!(sacks(&receiver.report()), expected);
}

#[test]
fn what_comes_twice_is_told_first_and_once() {
    let (mut receiver, now, next) = settled();
    come(&mut receiver, now, 3);
    assert!(receiver.wants_report());
    assert_eq!(sacks(&receiver.report()), [(3, 4)]);
    assert_eq!(sacks(&receiver.report()), []);
    come(&mut receiver, now, next + 2);
    come(&mut receiver, now, next + 3);
    come(&mut receiver, now, next + 2);
    assert_eq!(sacks(&receiver.report()), [(next + 2, next + 3), (next + 2, next + 4)]);
}

#[test]
fn an_altered_segment_is_noticed() {
    let (mut receiver, now, next) = settled();
    let data = Data { offset: next * MSS, payload: &[1; 1000], time: clock(now), echo: 1 };
    receiver.handle_data(now, &data, None);
    assert_eq!(receiver.wrong(), 1000);
}
