use std::os::unix::fs::PermissionsExt as _;

use ropewalk_control::api::EventKind;

use super::*;
use crate::history::steps::Cell;

/// 2026-11-27 00:00:00 UTC.
const MIDNIGHT: u64 = 1_795_737_600;

fn cell(bytes: u64) -> Cell {
    let (rtt_us, lost_ppm) = (Some(20_000), Some(100));
    Cell { covered_ms: 10_000, down: bytes, up: bytes / 10, rtt_us, lost_ppm }
}

fn happened(at: u64) -> HistoryEvent {
    let (kind, link) = (EventKind::LinkDown, Some("wwan0".to_owned()));
    HistoryEvent { at, kind, link, text: "nothing is confirmed any more".to_owned() }
}

fn run(alive: u64) -> Run {
    Run { goes_on: true, alive }
}

/// One step of each length at this time.
fn tables(at: u64, bytes: u64) -> Tables {
    let mut tables = Tables::default();
    for steps in Steps::ALL {
        for name in ["", "wlan"] {
            tables.add(steps, at - at % steps.seconds(), name, &cell(bytes));
        }
    }
    tables
}

fn begun(folder: &Path) -> Ring {
    let mut ring = Ring::of(folder);
    assert_eq!(ring.begin().unwrap(), Found::default());
    ring
}

fn all(ring: &Ring, steps: Steps) -> Series {
    ring.series(steps, &(0..=u64::MAX)).unwrap()
}

#[test]
fn what_is_written_is_read_again_and_more_of_a_step_is_added() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let mut ring = begun(&state);
    let mut events = VecDeque::from([happened(MIDNIGHT), happened(MIDNIGHT + 1)]);
    let mut written = tables(MIDNIGHT, 1000);
    ring.write(&mut written, &mut events, run(MIDNIGHT)).unwrap();
    assert_eq!((written, events.len()), (Tables::default(), 0), "what is written is taken");
    ring.write(&mut tables(MIDNIGHT, 500), &mut VecDeque::new(), run(MIDNIGHT)).unwrap();
    // By another process.
    let ring = Ring::of(&state);
    for steps in Steps::ALL {
        let series = all(&ring, steps);
        assert_eq!(series.len(), 1, "{steps:?}");
        let sum = series[&MIDNIGHT]["wlan"];
        assert_eq!((sum.down, sum.up, sum.covered_ms), (1500, 150, 20_000), "{steps:?}");
    }
    assert_eq!(ring.events().unwrap(), [happened(MIDNIGHT + 1), happened(MIDNIGHT)]);
    let metadata = std::fs::metadata(ring.path()).unwrap();
    assert_eq!((metadata.permissions().mode() & 0o777, metadata.len()), (0o600, FILE_LEN));
}

#[test]
fn sixty_days_take_no_more_than_one_and_the_last_month_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let mut ring = begun(folder.path());
    let mut tables = Tables::default();
    let days = 60;
    for minute in 0..days * 1440 {
        let now = MIDNIGHT + minute * 60;
        for second in (0..60).step_by(10) {
            for steps in Steps::ALL {
                let start = now + second;
                tables.add(steps, start - start % steps.seconds(), "", &cell(7));
            }
        }
        // Once in ten minutes, to be quick; what is written is the same.
        if minute % 10 == 9 {
            let mut events = VecDeque::from([happened(now)]);
            ring.write(&mut tables, &mut events, run(now)).unwrap();
        }
    }
    assert_eq!(std::fs::metadata(ring.path()).unwrap().len(), FILE_LEN);
    let end = MIDNIGHT + days * 86_400;
    for (steps, kept_s) in [
        (Steps::Fine, 3600),
        (Steps::Minutes, 86_400),
        (Steps::Quarters, 31 * 86_400),
        (Steps::Days, 31 * 86_400),
    ] {
        let series = all(&ring, steps);
        assert_eq!(series.len() as u64, steps.slots(), "{steps:?}");
        let length = usize::try_from(steps.seconds()).unwrap();
        let starts: Vec<_> = (end - kept_s..end).step_by(length).collect();
        let asked = ring.series(steps, &(end - kept_s..=end)).unwrap();
        assert_eq!(asked.keys().copied().collect::<Vec<_>>(), starts, "{steps:?}");
        let each = steps.seconds() / 10 * 7;
        assert!(asked.values().all(|moment| moment[""].down == each), "{steps:?}");
    }
    let events = ring.events().unwrap();
    assert_eq!((events.len() as u64, events[0].at), (EVENTS, end - 60));
}

#[test]
fn a_daemon_that_was_not_told_to_stop_is_found_at_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let mut ring = begun(folder.path());
    let stopped = Run { goes_on: false, alive: MIDNIGHT + 9 };
    for (run, crashed) in [(run(MIDNIGHT), Some(MIDNIGHT)), (stopped, None)] {
        ring.write(&mut Tables::default(), &mut VecDeque::new(), run).unwrap();
        let found = Ring::of(folder.path()).begin().unwrap();
        assert_eq!(found, Found { crashed, told: None });
    }
}

#[test]
fn events_go_on_behind_those_of_the_run_before() {
    let folder = tempfile::tempdir().unwrap();
    for n in 0..3 {
        let mut ring = begun(folder.path());
        let mut events: VecDeque<_> = (0..600).map(|m| happened(n * 600 + m)).collect();
        let run = Run { goes_on: false, alive: n };
        ring.write(&mut Tables::default(), &mut events, run).unwrap();
    }
    let seconds: Vec<_> =
        Ring::of(folder.path()).events().unwrap().iter().map(|event| event.at).collect();
    let expected: Vec<_> = (1800 - EVENTS..1800).rev().collect();
    assert_eq!(seconds, expected);
}

#[test]
fn what_is_no_history_is_put_aside_and_another_begins() {
    let whole = {
        let folder = tempfile::tempdir().unwrap();
        let ring = begun(folder.path());
        std::fs::read(ring.path()).unwrap()
    };
    let mut older = whole.clone();
    older[8] = 0;
    let mut damaged = whole.clone();
    damaged[15] ^= 1;
    for content in [&b""[..], b"Rope", &[0xff; 4096], &[0; 9000], &older[..], &damaged[..]] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        std::fs::write(&path, content).unwrap();
        let mut ring = Ring::of(folder.path());
        let told = ring.begin().unwrap().told.unwrap();
        assert!(told.contains("put aside as history.damaged"), "{told}");
        assert_eq!(std::fs::read(folder.path().join(ASIDE)).unwrap(), content);
        ring.write(&mut tables(MIDNIGHT, 1), &mut VecDeque::new(), run(MIDNIGHT)).unwrap();
        assert_eq!(all(&ring, Steps::Fine).len(), 1);
        ring.remove().unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "both are removed");
        ring.remove().unwrap();
    }
}

#[test]
fn a_file_of_a_newer_program_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let mut content = b"RopeHist".to_vec();
    content.extend(2_u32.to_le_bytes());
    content.extend([0x5a; 5000]);
    let path = folder.path().join(NAME);
    std::fs::write(&path, &content).unwrap();
    let mut ring = Ring::of(folder.path());
    let errors = [
        ring.begin().unwrap_err(),
        ring.write(&mut tables(MIDNIGHT, 1), &mut VecDeque::new(), run(MIDNIGHT)).unwrap_err(),
        ring.series(Steps::Fine, &(0..=u64::MAX)).unwrap_err(),
    ];
    for error in errors {
        assert!(error.to_string().contains("newer version of ropewalk (format 2"), "{error}");
    }
    assert_eq!(std::fs::read(&path).unwrap(), content);
}

#[test]
fn a_file_that_is_cut_anywhere_has_a_gap_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut ring = begun(folder.path());
    let mut events = VecDeque::from([happened(MIDNIGHT)]);
    ring.write(&mut tables(MIDNIGHT, 1), &mut events, run(MIDNIGHT)).unwrap();
    let whole = std::fs::read(ring.path()).unwrap();
    for len in [16, 513, 1024, 205_000, 205_824 + 300, 2_509_824, 2_526_208 + 100, 2_788_351] {
        std::fs::write(ring.path(), &whole[..len]).unwrap();
        // Before the daemon begins, and after.
        ring.series(Steps::Fine, &(0..=u64::MAX)).unwrap();
        let told = ring.begin().unwrap().told.unwrap();
        assert!(told.contains("cut short") || told.contains("damaged"), "{len}: {told}");
        ring.write(&mut tables(MIDNIGHT + 900, 2), &mut VecDeque::new(), run(MIDNIGHT)).unwrap();
        assert!(all(&ring, Steps::Fine).contains_key(&(MIDNIGHT + 900)), "{len}");
        assert_eq!(std::fs::metadata(ring.path()).unwrap().len(), FILE_LEN);
    }
}

#[test]
fn damaged_records_are_gaps_and_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut ring = begun(folder.path());
    let mut events = VecDeque::from([happened(MIDNIGHT), happened(MIDNIGHT + 1)]);
    let mut two = tables(MIDNIGHT, 1);
    two.add(Steps::Fine, MIDNIGHT + 10, "", &cell(2));
    ring.write(&mut two, &mut events, run(MIDNIGHT)).unwrap();
    let file = File::options().write(true).open(ring.path()).unwrap();
    for at in [place_of(Steps::Fine, MIDNIGHT), place_of_event(0), RUN_AT] {
        file.write_all_at(&[0x99; 3], at + 2).unwrap();
    }
    let found = ring.begin().unwrap();
    let told = found.told.unwrap();
    assert!(told.starts_with("2 records of ") && told.contains(NAME), "{told}");
    assert_eq!(found.crashed, None, "it is not known any more");
    assert_eq!(all(&ring, Steps::Fine).keys().copied().collect::<Vec<_>>(), [MIDNIGHT + 10]);
    assert_eq!(ring.events().unwrap(), [happened(MIDNIGHT + 1)]);
    // What comes takes its place.
    ring.write(&mut tables(MIDNIGHT, 5), &mut VecDeque::new(), run(MIDNIGHT)).unwrap();
    assert_eq!(all(&ring, Steps::Fine)[&MIDNIGHT]["wlan"].down, 5);
}

#[test]
fn that_no_daemon_runs_any_more_is_noted_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let mut ring = begun(folder.path());
    let mut events = VecDeque::from([happened(MIDNIGHT)]);
    ring.write(&mut tables(MIDNIGHT, 5), &mut events, run(MIDNIGHT)).unwrap();
    assert_eq!(ring.begin().unwrap().crashed, Some(MIDNIGHT));
    ring.note_run(Run { goes_on: false, alive: 0 }).unwrap();
    assert_eq!(ring.begin().unwrap(), Found::default());
    assert_eq!(all(&ring, Steps::Fine)[&MIDNIGHT]["wlan"].down, 5);
    assert_eq!(ring.events().unwrap(), [happened(MIDNIGHT)]);
    // What is no history is not written to.
    std::fs::write(ring.path(), "mine").unwrap();
    ring.note_run(run(MIDNIGHT)).unwrap_err();
    assert_eq!(std::fs::read(ring.path()).unwrap(), b"mine");
}

#[test]
fn an_event_with_a_number_that_none_can_have_is_damaged_and_others_are_counted_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut ring = begun(folder.path());
    let file = File::options().write(true).open(ring.path()).unwrap();
    for number in [u64::MAX, MOST_NUMBER + 500] {
        let record = record::event(number, &happened(MIDNIGHT));
        file.write_all_at(&record, place_of_event(number)).unwrap();
    }
    for second in 1..4 {
        let told = ring.begin().unwrap().told.unwrap();
        assert!(told.starts_with("2 records of "), "{told}");
        let mut events = VecDeque::from([happened(MIDNIGHT + second)]);
        let ended = Run { goes_on: false, ..run(MIDNIGHT) };
        ring.write(&mut Tables::default(), &mut events, ended).unwrap();
        let seconds: Vec<_> = ring.events().unwrap().iter().map(|event| event.at).collect();
        let expected: Vec<_> = (1..=second).rev().map(|second| MIDNIGHT + second).collect();
        assert_eq!(seconds, expected);
    }
}

#[test]
fn what_cannot_be_written_stays_with_who_wrote_it_and_is_written_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut ring = begun(folder.path());
    let (mut tables, mut events) = (tables(MIDNIGHT, 9), VecDeque::from([happened(MIDNIGHT)]));
    let before = tables.clone();
    let away = folder.path().join("away");
    std::fs::rename(ring.path(), &away).unwrap();
    ring.write(&mut tables, &mut events, run(MIDNIGHT)).unwrap_err();
    assert_eq!((&tables, events.len()), (&before, 1));
    std::fs::create_dir(ring.path()).unwrap();
    ring.write(&mut tables, &mut events, run(MIDNIGHT)).unwrap_err();
    ring.begin().unwrap_err();
    assert_eq!((&tables, events.len()), (&before, 1));
    std::fs::remove_dir(ring.path()).unwrap();
    std::fs::rename(&away, ring.path()).unwrap();
    ring.write(&mut tables, &mut events, run(MIDNIGHT)).unwrap();
    assert_eq!(all(&ring, Steps::Fine)[&MIDNIGHT]["wlan"].down, 9);
}

#[test]
fn what_is_not_to_be_kept_is_wiped() {
    let folder = tempfile::tempdir().unwrap();
    let mut ring = begun(folder.path());
    let day = 86_400;
    for n in 0..3 {
        let mut events = VecDeque::from([happened(MIDNIGHT + n * day)]);
        let mut tables = tables(MIDNIGHT + n * day + 300, n);
        ring.write(&mut tables, &mut events, run(MIDNIGHT)).unwrap();
    }
    let (oldest, newest) = (MIDNIGHT + day, MIDNIGHT + 2 * day);
    let is_kept = |start| (oldest..newest).contains(&start);
    ring.retain(|_, start| is_kept(start), is_kept).unwrap();
    for steps in [Steps::Quarters, Steps::Days] {
        assert_eq!(all(&ring, steps).len(), 1, "{steps:?}");
        assert!(all(&ring, steps).contains_key(&oldest), "{steps:?}");
    }
    assert_eq!(ring.events().unwrap(), [happened(MIDNIGHT + day)]);
    let text = std::fs::read(ring.path()).unwrap();
    assert_eq!(text.windows(5).filter(|bytes| *bytes == b"wwan0").count(), 1, "not a byte stays");
    assert_eq!(ring.begin().unwrap().told, None, "nothing is damaged");
}
