//! The window of `ccid2` over time for a scripted pattern of losses, against a table that was worked out by
//! hand from the RFCs (`data/ccid2_window.csv` says how), and drawn.
//!
//! The picture is `docs/pictures/ccid2-window.svg`; `ROPEWALK_DRAW=1 cargo test -p ropewalk-proto --test
//! ccid2_window` draws it again.

#![expect(clippy::unwrap_used, reason = "a test may panic in its helpers too")]

use std::fmt::Write as _;
use std::path::Path;

use ropewalk_proto::link::carried::Carried;
use ropewalk_proto::link::received::{MAX_REPORT_RANGES, Range, Ranges, Report};
use ropewalk_proto::link::sender::{LinkSender, Via};
use ropewalk_proto::link::sent::Sent;
use ropewalk_proto::time::{Duration, Instant};
use ropewalk_proto::units::LinkId;
use ropewalk_settings::ControllerKind;

const RTT: Duration = Duration::from_millis(100);

/// A line of the table, or a round of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Round {
    event: String,
    window: u32,
    threshold: Option<u32>,
}

#[test]
fn the_window_over_time_is_that_of_the_rfcs() {
    let expected = table(include_str!("data/ccid2_window.csv"));
    let run = run(expected.iter().map(|round| round.event.as_str()));
    for (number, (run, expected)) in run.iter().zip(&expected).enumerate() {
        assert_eq!(run, expected, "round {number}");
    }
    assert_eq!(run.len(), expected.len());
}

#[test]
fn the_picture_shows_the_window_as_it_is() {
    let expected = table(include_str!("data/ccid2_window.csv"));
    let run = run(expected.iter().map(|round| round.event.as_str()));
    let picture = draw(&run, &expected);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures/ccid2-window.svg");
    if std::env::var_os("ROPEWALK_DRAW").is_some() {
        std::fs::write(&path, &picture).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap();
    assert!(picture == committed, "{} is out of date: set ROPEWALK_DRAW=1", path.display());
}

fn table(csv: &str) -> Vec<Round> {
    csv.lines()
        .filter(|line| !line.starts_with('#') && !line.starts_with("round"))
        .map(|line| {
            let fields: Vec<_> = line.split(',').collect();
            Round {
                event: fields[1].to_owned(),
                window: fields[2].parse().unwrap(),
                threshold: fields[3].parse().ok(),
            }
        })
        .collect()
}

/// Plays the events against a real sender and notes the window at the beginning of every round.
fn run<'a>(events: impl Iterator<Item = &'a str>) -> Vec<Round> {
    let mut link = Scripted::new();
    let mut rounds = vec![];
    for event in events {
        let (first, count) = link.send(if event == "app-limited" { 5 } else { u64::MAX });
        rounds.push(Round {
            event: event.to_owned(),
            window: link.window_at_start,
            threshold: link.threshold_at_start,
        });
        let lost: &[u64] = match event {
            "loss" => &[0],
            "three-losses" => &[0, 4, 8],
            _ => &[],
        };
        match event {
            "timeout" => link.time_out(),
            _ => link.report(first, count, lost, event == "mark"),
        }
        if event == "idle" {
            // 300 ms since the last datagram: one and a half of the timeout's floor of 200 ms.
            link.now += Duration::from_millis(200);
        }
    }
    rounds
}

struct Scripted {
    sender: LinkSender,
    now: Instant,
    received: Vec<u64>,
    marks: u32,
    window_at_start: u32,
    threshold_at_start: Option<u32>,
}

impl Scripted {
    fn new() -> Self {
        Self {
            sender: LinkSender::new(ControllerKind::Ccid2, 0),
            now: Instant::from_millis(1),
            received: vec![],
            marks: 0,
            window_at_start: 0,
            threshold_at_start: None,
        }
    }

    /// Sends what the window has room for, but at most `limit`.
    fn send(&mut self, limit: u64) -> (u64, u64) {
        let first = self.sender.next_number();
        let mut count = 0;
        while self.sender.room() > 0 && count < limit {
            let window_limited = limit == u64::MAX;
            let sent = Sent {
                size: 1400,
                header: 28,
                places: 1,
                eliciting: true,
                window_limited,
                window_full: window_limited,
                paced: false,
                carried: Carried::default(),
            };
            self.sender.on_sent(self.now, sent);
            if count == 0 {
                // A window that idled decays when the first datagram after it is sent.
                self.window_at_start = self.sender.window();
                self.threshold_at_start = self.sender.stats().threshold;
            }
            count += 1;
        }
        (first, count)
    }

    /// After a round trip every datagram but the lost ones is reported, two in each report.
    fn report(&mut self, first: u64, count: u64, lost: &[u64], mark: bool) {
        self.now += RTT;
        self.marks += u32::from(mark);
        for pair in (0..count).step_by(2) {
            let new = (pair..count.min(pair + 2)).filter(|index| !lost.contains(index));
            self.received.extend(new.map(|index| first + index));
            let report = Report {
                link: LinkId(0),
                delay_us: 0,
                ce_count: self.marks,
                ranges: ranges(&self.received),
            };
            self.sender.on_report(self.now, &report, Via::Own, 0, |_| {}).unwrap();
        }
        assert_eq!(self.sender.in_flight(), 0, "the round is over");
    }

    fn time_out(&mut self) {
        self.now = self.sender.poll_timeout().unwrap();
        assert!(self.sender.handle_timeout(self.now, |_| {}));
    }
}

/// The highest ranges of ascending `numbers`.
fn ranges(numbers: &[u64]) -> Ranges {
    let mut ranges = Ranges::new();
    for &number in numbers.iter().rev().take(500) {
        if let Some(range) = ranges.last_mut().filter(|range| range.first == number + 1) {
            range.first = number;
        } else if ranges.len() < MAX_REPORT_RANGES {
            ranges.push(Range { first: number, last: number });
        } else {
            break;
        }
    }
    ranges
}

const LEFT: f64 = 56.0;
const BOTTOM: f64 = 300.0;
const X_STEP: f64 = 9.0;
const Y_STEP: f64 = 3.4;

/// The run as a line, the table as circles, the threshold dashed, the events named.
fn draw(run: &[Round], expected: &[Round]) -> String {
    let x = |round: usize| LEFT + X_STEP * f64::from(u32::try_from(round).unwrap());
    let y = |window: u32| BOTTOM - Y_STEP * f64::from(window);
    let mut svg = String::from(concat!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 360" font-family="sans-serif" "#,
        r#"font-size="12">"#,
        "\n",
        r#"<rect width="800" height="360" fill="white"/>"#,
        "\n",
    ));
    for window in (0..=80).step_by(20) {
        let (y, right) = (y(window), x(run.len()));
        let _ = writeln!(svg, r##"<path d="M{LEFT} {y:.1}H{right:.1}" stroke="#ddd"/>"##);
        let (x, y) = (LEFT - 8.0, y + 4.0);
        let _ = writeln!(svg, r#"<text x="{x}" y="{y:.1}" text-anchor="end">{window}</text>"#);
    }
    for round in (0..=run.len()).step_by(10) {
        let (x, y) = (x(round), BOTTOM + 18.0);
        let _ = writeln!(svg, r#"<text x="{x:.1}" y="{y}" text-anchor="middle">{round}</text>"#);
    }
    for (round, Round { event, window, .. }) in run.iter().enumerate() {
        let continued = round > 0 && run[round - 1].event == *event;
        if event != "-" && !continued {
            let (x, y) = (x(round), y(*window) - 20.0);
            let (line, text) = (BOTTOM, event.replace('-', " "));
            let _ = writeln!(
                svg,
                r##"<path d="M{x:.1} {y:.1}V{line}" stroke="#c33" stroke-dasharray="2 3"/>"##
            );
            let (x, y) = (x + 2.0, y - 4.0);
            let _ = writeln!(svg, r##"<text x="{x:.1}" y="{y:.1}" fill="#c33">{text}</text>"##);
        }
    }
    let line = |points: &mut dyn Iterator<Item = (usize, u32)>| {
        points.fold(String::new(), |mut line, (round, window)| {
            let _ = write!(line, "{:.1},{:.1} ", x(round), y(window));
            line
        })
    };
    let thresholds =
        line(&mut run.iter().enumerate().filter_map(|(i, round)| Some((i, round.threshold?))));
    let windows = line(&mut run.iter().enumerate().map(|(i, round)| (i, round.window)));
    let _ = writeln!(
        svg,
        r##"<polyline points="{thresholds}" fill="none" stroke="#888" stroke-dasharray="5 4"/>"##
    );
    let _ = writeln!(
        svg,
        r##"<polyline points="{windows}" fill="none" stroke="#06c" stroke-width="2"/>"##
    );
    for (round, Round { window, .. }) in expected.iter().enumerate() {
        let (x, y) = (x(round), y(*window));
        let _ =
            writeln!(svg, r##"<circle cx="{x:.1}" cy="{y:.1}" r="3" fill="none" stroke="#e80"/>"##);
    }
    let legend = [
        (540, "#06c", "window of ccid2, datagrams"),
        (540, "#e80", "table worked out from the RFCs"),
        (540, "#888", "slow-start threshold"),
    ];
    for (index, (x, colour, text)) in (0..).zip(legend) {
        let y = 30 + 18 * index;
        let _ = writeln!(
            svg,
            r#"<rect x="{x}" y="{}" width="14" height="4" fill="{colour}"/><text x="{}" y="{y}">{text}</text>"#,
            y - 6,
            x + 20
        );
    }
    let middle = x(run.len() / 2);
    let _ =
        writeln!(svg, r#"<text x="{middle:.1}" y="340" text-anchor="middle">round trips</text>"#);
    svg.push_str("</svg>\n");
    svg
}
