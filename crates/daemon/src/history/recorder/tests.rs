use ropewalk_control::api::{HistoryQuery, HistoryState, Request, Response};
use ropewalk_control::server::Command;

use super::*;
use crate::history::gather::{Counters, LinkSample};
use crate::history::ring::NAME;

/// 2026-11-27 12:00:00 UTC.
const NOON: u64 = 1_795_780_800;

fn at(seconds: u64) -> Instant {
    Instant::from_millis(seconds * 1000)
}

fn seen(seconds: u64) -> Sample {
    let counters = Counters { down: seconds * 100, up: seconds * 10 };
    let name = "wlan".to_owned();
    let link = LinkSample { name, counters, carries: true, rtt: None, loss: None };
    let unix_ms = (NOON + seconds) * 1000;
    Sample { at: at(seconds), unix_ms, all: counters, links: vec![link] }
}

fn start(folder: &Path, days: HistoryDays) -> (Recorder, Ending) {
    Recorder::start(folder, days, at(0), Duration::from_secs(NOON)).unwrap()
}

fn end(recorder: Recorder, ending: Ending) {
    drop(recorder);
    crate::service::runtime().unwrap().block_on(ending.wait());
}

#[test]
fn it_looks_every_ten_seconds_and_wakes_a_loop_at_rest_every_ninety() {
    let folder = tempfile::tempdir().unwrap();
    let (mut recorder, ending) = start(folder.path(), HistoryDays::default());
    assert!(!recorder.is_due(at(9)) && recorder.is_due(at(10)));
    assert_eq!(recorder.poll_timeout(), Some(at(90)));
    recorder.look(seen(15));
    assert!(!recorder.is_due(at(24)) && recorder.is_due(at(25)));
    assert_eq!(recorder.poll_timeout(), Some(at(90)), "nothing was told yet");
    recorder.look(seen(61));
    assert_eq!(recorder.poll_timeout(), Some(at(61 + 90)));
    end(recorder, ending);
}

#[test]
fn what_was_seen_until_the_end_is_there_at_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let (mut recorder, ending) = start(folder.path(), HistoryDays::default());
    recorder.look(seen(10));
    recorder.note(at(11), EventKind::LinkUp, Some("wlan"), "");
    recorder.stop(seen(15));
    end(recorder, ending);

    let (mut recorder, ending) = start(folder.path(), HistoryDays::default());
    let query = HistoryQuery { since_s: 3600, ..HistoryQuery::default() };
    let (asked, answer) = Command::new(Request::History(query));
    // Another run, whose counters begin at zero.
    let nothing = Sample { all: Counters::default(), links: Vec::new(), ..seen(20) };
    recorder.ask(asked, nothing);
    let Ok(Ok(Response::History(report))) = answer.blocking_recv() else { panic!("no answer") };
    assert_eq!((report.all.down_bytes, report.all.up_bytes), (1500, 150));
    let kinds: Vec<_> = report.events.iter().map(|event| event.kind).collect();
    let [started, stopped] = [EventKind::DaemonStarted, EventKind::DaemonStopped];
    assert_eq!(kinds, [started, stopped, EventKind::LinkUp, started]);
    assert!(report.events[0].text.starts_with("version "), "{:?}", report.events[0]);
    assert_eq!(recorder.status().state, HistoryState::On);
    end(recorder, ending);
}

#[test]
fn a_stop_is_noted_although_there_is_no_room_for_the_message() {
    let folder = tempfile::tempdir().unwrap();
    let (tell, queue) = mpsc::sync_channel(1);
    let (status, told) = watch::channel(HistoryStatus::default());
    let (days, ring) = (HistoryDays::default(), Ring::of(folder.path()));
    let stopped = Arc::new(OnceLock::new());
    let keeper = Keeper::new(days, ring, (at(0), NOON * 1000), status, Arc::clone(&stopped));
    let line = Line { tell, told, stopped };
    let mut recorder = Recorder { line: Some(line), ..Recorder::off() };
    recorder.days = days;
    recorder.note(at(5), EventKind::LinkUp, Some("wlan"), "");
    recorder.stop(seen(15));
    assert!(recorder.status().left_out > 0, "the thread did not take the first yet");
    drop(recorder);
    keeper.run(queue);

    let (mut recorder, ending) = start(folder.path(), days);
    let query = HistoryQuery { since_s: 3600, ..HistoryQuery::default() };
    let (asked, answer) = Command::new(Request::History(query));
    recorder.ask(asked, seen(20));
    let Ok(Ok(Response::History(report))) = answer.blocking_recv() else { panic!("no answer") };
    let told: Vec<_> = report.events.iter().map(|event| (event.kind, event.at - NOON)).collect();
    let expected =
        [(EventKind::DaemonStarted, 0), (EventKind::DaemonStopped, 15), (EventKind::LinkUp, 5)];
    assert_eq!(told, expected);
    end(recorder, ending);
}

#[test]
fn off_it_never_wakes_anybody_and_can_be_switched_on() {
    let folder = tempfile::tempdir().unwrap();
    let (mut recorder, ending) = start(folder.path(), HistoryDays::OFF);
    assert!(!recorder.is_due(at(1000)) && recorder.poll_timeout().is_none());
    recorder.look(seen(20));
    recorder.note(at(20), EventKind::LinkUp, None, "");
    recorder.keep(HistoryDays::at_most(3), seen(100));
    assert!(!recorder.is_due(at(109)) && recorder.is_due(at(110)));
    recorder.look(seen(110));
    recorder.stop(seen(120));
    end(recorder, ending);
    assert!(folder.path().join(NAME).exists());
    let (recorder, ending) = start(folder.path(), HistoryDays::OFF);
    end(recorder, ending);
    assert!(!folder.path().join(NAME).exists());
}

#[test]
fn without_a_thread_nobody_waits() {
    let mut recorder = Recorder::off();
    assert!(!recorder.is_due(at(10)) && recorder.poll_timeout().is_none());
    recorder.look(seen(10));
    recorder.stop(seen(20));
    let (asked, answer) = Command::new(Request::History(HistoryQuery::default()));
    recorder.ask(asked, seen(30));
    let error = answer.blocking_recv().unwrap().unwrap_err();
    assert_eq!(error.code, ErrorCode::Failed);
    assert_eq!(recorder.status(), HistoryStatus::default());
}

#[test]
fn a_thread_that_hangs_holds_nothing_up_and_what_is_left_out_is_counted() {
    let (tell, queue) = mpsc::sync_channel(2);
    let (_status, told) = watch::channel(HistoryStatus::default());
    let line = Line { tell, told, stopped: Arc::default() };
    let mut recorder = Recorder { line: Some(line), ..Recorder::off() };
    recorder.days = HistoryDays::default();
    for second in 1..=5 {
        recorder.note(at(second), EventKind::LinkUp, Some("wlan"), "");
    }
    assert_eq!(recorder.status().left_out, 3);
    for second in (10..=100_000).step_by(10) {
        recorder.look(seen(second));
    }
    assert_eq!(recorder.looks.len(), MOST_LOOKS, "the newest wait for the thread");
    let (asked, answer) = Command::new(Request::History(HistoryQuery::default()));
    recorder.ask(asked, seen(100_001));
    let error = answer.blocking_recv().unwrap().unwrap_err();
    assert_eq!(error.code, ErrorCode::Busy);
    recorder.keep(HistoryDays::OFF, seen(100_002));
    assert_eq!(recorder.days, HistoryDays::default(), "it was not heard");
    // The thread goes on.
    assert_eq!(queue.try_iter().count(), 2);
    recorder.stop(seen(100_010));
    assert!(matches!(queue.try_recv(), Ok(Message::Samples(looks)) if looks.len() == MOST_LOOKS));
    drop(queue);
    recorder.note(at(100_020), EventKind::LinkUp, None, "");
    let trouble = recorder.status().trouble.unwrap();
    assert!(trouble.contains("its thread failed"), "{trouble}");
}
