use std::path::Path;

use ropewalk_control::api::{ErrorCode, Used};
use ropewalk_control::server::Command;

use super::*;
use crate::history::gather::{Counters, LinkSample};
use crate::history::ring::NAME;
use crate::history::steps::Tables;

/// 2026-11-27 12:00:00 UTC: the same day in most time zones.
const NOON: u64 = 1_795_780_800;

fn at(seconds: u64) -> Instant {
    Instant::from_millis(seconds * 1000)
}

fn days(days: u8) -> HistoryDays {
    HistoryDays::at_most(days)
}

/// A look so many seconds after the start at this date: a link carried 100 bytes down in each second.
fn sample(seconds: u64, unix: u64) -> Sample {
    let counters = Counters { down: seconds * 100, up: 0 };
    let (name, rtt, loss) = ("wlan".to_owned(), Some(Duration::from_millis(20)), None);
    let link = LinkSample { name, counters, carries: true, rtt, loss };
    Sample { at: at(seconds), unix_ms: unix * 1000, all: counters, links: vec![link] }
}

/// Looks every ten seconds within a time after the start, which was at noon.
fn looks(seconds: RangeInclusive<u64>) -> Message {
    let looks = seconds.step_by(10).map(|second| sample(second, NOON + second));
    Message::Samples(looks.collect())
}

fn happened(seconds: u64, kind: EventKind, link: Option<&str>, text: &str) -> Message {
    let (at, link, text) = (at(seconds), link.map(str::to_owned), text.to_owned());
    Message::Happened(Happened { at, kind, link, text })
}

/// A keeper of a daemon that began at noon, which has opened its file.
fn keeper(folder: &Path, kept: HistoryDays) -> (Keeper, watch::Receiver<HistoryStatus>) {
    keeper_from(folder, kept, NOON)
}

fn keeper_from(
    folder: &Path,
    kept: HistoryDays,
    unix: u64,
) -> (Keeper, watch::Receiver<HistoryStatus>) {
    let (tell, told) = watch::channel(HistoryStatus::default());
    let clocks = (at(0), unix * 1000);
    let mut keeper = Keeper::new(kept, Ring::of(folder), clocks, tell, Arc::default());
    keeper.begin();
    (keeper, told)
}

fn ask(keeper: &mut Keeper, since_s: u64) -> HistoryReport {
    try_ask(keeper, HistoryQuery { since_s, ..HistoryQuery::default() }).unwrap()
}

fn try_ask(keeper: &mut Keeper, query: HistoryQuery) -> Result<HistoryReport, ApiError> {
    let (asked, mut answer) = Command::new(Request::History(query));
    keeper.handle(Message::Ask(asked, Vec::new()));
    match answer.try_recv().expect("it answers at once")? {
        Response::History(report) => Ok(*report),
        other => panic!("{other:?}"),
    }
}

fn bytes(report: &HistoryReport) -> u64 {
    report.all.down_bytes
}

fn kinds(report: &HistoryReport) -> Vec<EventKind> {
    report.events.iter().map(|event| event.kind).collect()
}

#[test]
fn what_is_written_and_what_waits_are_answered_as_one() {
    let folder = tempfile::tempdir().unwrap();
    let (mut keeper, told) = keeper(folder.path(), days(30));
    keeper.handle(looks(10..=60));
    keeper.handle(happened(30, EventKind::LinkUp, Some("wlan"), ""));
    // Seen, and not written yet.
    let (asked, mut answer) = Command::new(Request::History(HistoryQuery::default()));
    keeper.handle(Message::Ask(asked, vec![sample(70, NOON + 70)]));
    let Ok(Ok(Response::History(report))) = answer.try_recv() else { panic!("no answer") };
    assert_eq!((report.now, bytes(&report)), (NOON + 70, 7000));
    assert_eq!(report.links[0].name, "wlan");
    let last = report.links[0].past.down_bps.iter().flatten().next_back();
    assert_eq!(last, Some(&800));
    assert_eq!(kinds(&report), [EventKind::LinkUp]);
    assert_eq!(report.events[0].at, NOON + 30);
    let used = Used { down_bytes: 7000, up_bytes: 0 };
    assert_eq!((report.used.len(), report.used[0].all), (1, used));
    assert_eq!(told.borrow().state, HistoryState::On);
    // The next run has what was written.
    keeper.handle(looks(80..=80));
    drop(keeper);
    let (mut next, _) = keeper_from(folder.path(), days(30), NOON + 100);
    let report = ask(&mut next, 3600);
    assert_eq!((bytes(&report), report.step_s), (8000, 10));
    assert_eq!(report.all.down_bps.iter().flatten().count(), 8);
}

#[test]
fn a_run_that_was_not_told_to_stop_is_told_by_the_next() {
    let folder = tempfile::tempdir().unwrap();
    for (ends, expected) in [
        (None, &[][..]),
        (Some(EventKind::DaemonStopped), &[EventKind::DaemonCrashed][..]),
        (None, &[EventKind::DaemonStopped, EventKind::DaemonCrashed][..]),
    ] {
        let (mut keeper, _) = keeper(folder.path(), days(30));
        assert_eq!(kinds(&ask(&mut keeper, 3600)), expected);
        if let Some(kind) = ends {
            keeper.handle(happened(50, kind, None, ""));
        }
        keeper.handle(looks(10..=60));
    }
    let (mut last, _) = keeper(folder.path(), days(30));
    let report = ask(&mut last, 3600);
    assert_eq!(report.events[0].kind, EventKind::DaemonCrashed);
    assert_eq!(report.events[0].at, NOON + 60, "when it was last seen");
    let text = &report.events[0].text;
    assert!(text.starts_with("it could not note that it ended"), "{text}");
}

#[test]
fn a_stop_is_noted_also_where_nothing_else_can_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let (mut keeper, _) = keeper(folder.path(), days(30));
    keeper.handle(looks(10..=60));
    // The clock has lost its date: nothing has a place.
    keeper.handle(Message::Samples(vec![sample(70, 100)]));
    keeper.handle(happened(75, EventKind::DaemonStopped, None, ""));
    keeper.end();
    drop(keeper);
    let (mut next, _) = keeper_from(folder.path(), days(30), NOON + 100);
    let report = ask(&mut next, 3600);
    assert_eq!((bytes(&report), report.events.len()), (6000, 0), "{:?}", report.events);
}

#[test]
fn what_cannot_be_written_is_told_and_kept_in_memory_until_it_can() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    // A file where the folder should be: so it is on a disk that is full, read-only or away, too.
    std::fs::write(&state, "").unwrap();
    let (mut keeper, told) = keeper(&state, days(30));
    keeper.handle(looks(10..=60));
    keeper.handle(happened(30, EventKind::LinkUp, Some("wlan"), ""));
    let status = told.borrow().clone();
    assert_eq!(status.state, HistoryState::Memory);
    let trouble = status.trouble.unwrap();
    assert!(trouble.contains("is lost with the daemon") && trouble.contains(NAME), "{trouble}");
    let report = ask(&mut keeper, 3600);
    assert_eq!((bytes(&report), kinds(&report).len()), (6000, 1));
    // Two days of it: no more than the file would hold.
    for minute in 1..2880_u64 {
        keeper.handle(looks(minute * 60 + 10..=minute * 60 + 60));
    }
    assert_eq!(keeper.gather.tables().of(Steps::Fine).len() as u64, Steps::Fine.slots());
    let before = ask(&mut keeper, 86_400);

    std::fs::remove_file(&state).unwrap();
    keeper.handle(looks(2880 * 60 + 10..=2880 * 60 + 60));
    assert_eq!((told.borrow().state, told.borrow().trouble.clone()), (HistoryState::On, None));
    assert_eq!(keeper.gather.tables(), &Tables::default());
    let after = ask(&mut keeper, 86_400);
    assert_eq!(before.all.down_bps.len(), after.all.down_bps.len());
    assert!(after.all.down_bps.iter().all(|rate| *rate == Some(800)), "no gap");
    assert_eq!(ask(&mut keeper, 31 * 86_400).events.len(), 1);

    // And when it fails while it runs.
    std::fs::remove_dir_all(&state).unwrap();
    std::fs::write(&state, "").unwrap();
    keeper.handle(looks(2881 * 60 + 10..=2881 * 60 + 60));
    assert_eq!(told.borrow().state, HistoryState::Memory);
    assert_eq!(bytes(&ask(&mut keeper, 120)), 6000);
}

#[test]
fn a_file_of_a_newer_program_is_left_alone_and_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(NAME);
    let mut newer = b"RopeHist".to_vec();
    newer.extend(7_u32.to_le_bytes());
    newer.extend([1; 600]);
    std::fs::write(&path, &newer).unwrap();
    let (mut keeper, told) = keeper(folder.path(), days(30));
    keeper.handle(looks(10..=60));
    let trouble = told.borrow().trouble.clone().unwrap();
    assert!(trouble.contains("written by a newer version of ropewalk (format 7"), "{trouble}");
    assert_eq!(bytes(&ask(&mut keeper, 3600)), 6000);
    assert_eq!(std::fs::read(&path).unwrap(), newer);
}

#[test]
fn without_a_clock_nothing_is_dated_until_it_is_set() {
    let folder = tempfile::tempdir().unwrap();
    let (mut keeper, told) = keeper_from(folder.path(), days(30), 100);
    keeper.handle(happened(5, EventKind::DaemonStarted, None, "version 1"));
    keeper.handle(Message::Samples(vec![sample(10, 110), sample(20, 120)]));
    assert_eq!(told.borrow().state, HistoryState::NoClock);
    let report = ask(&mut keeper, 3600);
    assert_eq!((report.now, report.events.len()), (0, 0));
    assert_eq!(report.history.state, HistoryState::NoClock);
    keeper.handle(Message::Samples(vec![sample(30, NOON + 30)]));
    assert_eq!(told.borrow().state, HistoryState::On);
    let report = ask(&mut keeper, 3600);
    assert_eq!(bytes(&report), 3000);
    assert_eq!(kinds(&report), [EventKind::DaemonStarted, EventKind::ClockSet]);
    assert_eq!(report.events[0].at, NOON + 5);
    assert!(report.events[1].text.starts_with("forward by 56years"), "{:?}", report.events[1]);
}

#[test]
fn a_clock_that_is_ahead_for_a_while_takes_nothing_away() {
    let folder = tempfile::tempdir().unwrap();
    let (mut keeper, _) = keeper(folder.path(), days(30));
    keeper.handle(looks(10..=3600));
    let year = 365 * 86_400;
    let ahead = (3610..=5400).step_by(10).map(|second| sample(second, NOON + year + second));
    keeper.handle(Message::Samples(ahead.collect()));
    assert_eq!(bytes(&ask(&mut keeper, 3600)), 180_000, "of the half hour in that year");
    let back = (5410..=9100).step_by(10).map(|second| sample(second, NOON + second));
    keeper.handle(Message::Samples(back.collect()));
    let report = ask(&mut keeper, 10_000);
    assert_eq!(bytes(&report), 360_000 + 370_000);
    // It has been right for an hour: what that year has is forgotten, its events too.
    let set: Vec<_> = report.events.iter().map(|event| event.text.as_str()).collect();
    assert_eq!(set, ["back by 11months 30days"]);
    let later = keeper.ring.series(Steps::Quarters, &(NOON + 86_400..=u64::MAX)).unwrap();
    assert_eq!(later.len(), 0);
}

#[test]
fn what_is_older_than_it_is_kept_is_neither_told_nor_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (mut keeper, _) = keeper(folder.path(), days(2));
    keeper.handle(looks(10..=60));
    keeper.handle(happened(30, EventKind::LinkUp, Some("wlan"), ""));
    let later = 5 * 86_400;
    keeper.handle(looks(later + 10..=later + 60));
    let report = ask(&mut keeper, 31 * 86_400);
    // What came in the gap is of no known time.
    assert_eq!((bytes(&report), report.events.len(), report.used.len()), (5000, 0, 1));
    let kept = keeper.ring.series(Steps::Quarters, &(0..=u64::MAX)).unwrap();
    assert_eq!(kept.len(), 1, "it is wiped, too: {kept:?}");
}

#[test]
fn switched_off_it_leaves_no_file_and_switched_on_it_begins_from_then() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(NAME);
    let (mut keeper, told) = keeper(folder.path(), days(30));
    keeper.handle(looks(10..=60));
    assert!(file.exists());
    keeper.handle(Message::Keep(HistoryDays::OFF, sample(70, NOON + 70)));
    assert!(!file.exists());
    assert_eq!(told.borrow().state, HistoryState::Off);
    keeper.handle(happened(75, EventKind::LinkUp, None, ""));
    keeper.handle(looks(80..=90));
    let report = ask(&mut keeper, 3600);
    assert_eq!(report.history.state, HistoryState::Off);
    assert_eq!((report.all.down_bps.len(), report.events.len()), (0, 0));
    assert!(!file.exists());
    keeper.handle(Message::Keep(days(7), sample(1000, NOON + 1000)));
    keeper.handle(looks(1010..=1060));
    let report = ask(&mut keeper, 3600);
    assert_eq!((bytes(&report), report.history.days), (6000, 7));
    assert_eq!(report.used[0].all.bytes(), 6000, "what was carried while it was off is nowhere");
    // At a start, what an earlier run kept goes, too.
    drop(keeper);
    let (_, told) = keeper_from(folder.path(), HistoryDays::OFF, NOON);
    assert!(!file.exists() && told.borrow().state == HistoryState::Off);
}

#[test]
fn fewer_days_wipe_what_is_older_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (mut keeper, _) = keeper(folder.path(), days(30));
    keeper.handle(looks(10..=60));
    let later = 3 * 86_400;
    keeper.handle(looks(later + 10..=later + 60));
    assert_eq!(bytes(&ask(&mut keeper, 31 * 86_400)), 6000 + 5000);
    keeper.handle(Message::Keep(days(1), sample(later + 70, NOON + later + 70)));
    let kept = keeper.ring.series(Steps::Quarters, &(0..=u64::MAX)).unwrap();
    assert_eq!(kept.len(), 1, "{kept:?}");
}

#[test]
fn one_link_is_asked_for_with_its_events() {
    let folder = tempfile::tempdir().unwrap();
    let (mut keeper, _) = keeper(folder.path(), days(30));
    keeper.handle(looks(10..=60));
    keeper.handle(happened(20, EventKind::LinkUp, Some("wlan"), ""));
    keeper.handle(happened(30, EventKind::LinkDown, Some("lte"), ""));
    keeper.handle(happened(40, EventKind::ConfigReloaded, None, ""));
    let of = |link: &str| HistoryQuery {
        since_s: 3600,
        link: Some(link.to_owned()),
        ..HistoryQuery::default()
    };
    let report = try_ask(&mut keeper, of("wlan")).unwrap();
    assert_eq!((report.links.len(), kinds(&report)), (1, vec![EventKind::LinkUp]));
    let error = try_ask(&mut keeper, of("wlam")).unwrap_err();
    assert_eq!(error.code, ErrorCode::NotFound);
    assert!(error.message.contains("did you mean `wlan`?"), "{}", error.message);
    let none = HistoryQuery { events: 1, ..HistoryQuery::default() };
    assert_eq!(kinds(&try_ask(&mut keeper, none).unwrap()), [EventKind::ConfigReloaded]);
}

#[test]
fn a_link_that_flaps_for_a_day_leaves_the_other_events_there() {
    let folder = tempfile::tempdir().unwrap();
    let (mut keeper, _) = keeper(folder.path(), days(30));
    keeper.handle(happened(1, EventKind::ProxyChanged, None, "fra-1"));
    for hour in 0..24 {
        for second in (hour * 3600 + 10..(hour + 1) * 3600).step_by(10) {
            for kind in [EventKind::LinkDown, EventKind::LinkUp] {
                keeper.handle(happened(second, kind, Some("lte"), "no carrier"));
            }
        }
        let second = (hour + 1) * 3600;
        keeper.handle(Message::Samples(vec![sample(second, NOON + second)]));
    }
    let query = HistoryQuery { events: 500, since_s: 2 * 86_400, ..HistoryQuery::default() };
    let report = try_ask(&mut keeper, query).unwrap();
    assert!(report.events.len() <= 1 + 24 * 10, "{}", report.events.len());
    assert_eq!(report.events.last().unwrap().kind, EventKind::ProxyChanged);
    let told = "no carrier (35";
    assert!(report.events.iter().any(|event| event.text.starts_with(told)), "{report:?}");
}
