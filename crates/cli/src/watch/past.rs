//! The history in the terminal: what each link carried over the last hour, day or month, and what happened.
//!
//! ```text
//! which time
//! all together, each link: name, figures; a graph down, a graph up
//! what happened, the newest first
//! keys
//! ```

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Sparkline};
use ropewalk_control::api::{HistoryEvent, HistoryReport, HistoryState, LinkPast, Past};
use ropewalk_settings::figures;

use super::history::Way;
use super::screen::{LABEL, Look, is_too_small, line, paint};
use crate::render::{age, clean, event_in_words, local};

/// Lines of each link, without a gap: three links and all together fit into 24 with some events.
const ROW: u16 = 3;

/// Lines for what happened, at least.
const LEAST_EVENTS: u16 = 4;

/// A time that somebody looks back at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Range {
    Hour,
    Day,
    Month,
}

impl Range {
    /// Its seconds.
    pub(crate) const fn seconds(self) -> u64 {
        match self {
            Self::Hour => 3600,
            Self::Day => 86_400,
            Self::Month => 31 * 86_400,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Month => "month",
        }
    }

    /// What a key turns to next; `None` is the present.
    pub(crate) const fn after(range: Option<Self>) -> Option<Self> {
        match range {
            None => Some(Self::Hour),
            Some(Self::Hour) => Some(Self::Day),
            Some(Self::Day) => Some(Self::Month),
            Some(Self::Month) => None,
        }
    }
}

/// What a daemon remembers of a time.
#[derive(Debug)]
pub(crate) struct Remembered {
    pub(crate) range: Range,
    /// `None`: it has not answered yet.
    pub(crate) answer: Option<Result<HistoryReport, String>>,
}

/// Draws it all.
pub(crate) fn draw_past(frame: &mut Frame<'_>, past: &Remembered, look: Look) {
    if is_too_small(frame) {
        return;
    }
    let area = frame.area();
    let (title, colour) = match &past.answer {
        None => (format!("the last {}: asking the daemon", past.range.name()), None),
        Some(Err(trouble)) => (clean(trouble), Some(Color::Red)),
        Some(Ok(report)) => (title(past.range, report), None),
    };
    let title = Line::styled(format!(" {title}"), paint(look, colour, true));
    frame.render_widget(Paragraph::new(title), line(area, 0));
    if let Some(Ok(report)) = &past.answer {
        let below = rows(frame, area, report, look);
        let room = usize::from(area.height.saturating_sub(below + 1));
        for (y, event) in (below..).zip(report.events.iter().take(room)) {
            let text = format!("  {}", happened(past.range, event));
            frame.render_widget(Paragraph::new(text), line(area, y));
        }
    }
    let next = Range::after(Some(past.range)).map_or("live", Range::name);
    let keys = Line::styled(
        format!(" q ends  h {next}"),
        paint(look, None, false).add_modifier(Modifier::DIM),
    );
    frame.render_widget(Paragraph::new(keys), line(area, area.height - 1));
}

fn title(range: Range, report: &HistoryReport) -> String {
    match report.history.state {
        HistoryState::Off => "nothing is remembered: `days` in [history] of the config is 0".into(),
        HistoryState::NoClock => "nothing has a date before this machine's clock is set".into(),
        HistoryState::On | HistoryState::Memory => {
            let step = age(Duration::from_secs(report.step_s).as_secs_f64());
            let until = local(report.now, "%H:%M");
            format!("the last {} until {until}; a column is {step}", range.name())
        }
    }
}

/// All together and the links, as many as fit. Returns the line below them.
fn rows(frame: &mut Frame<'_>, area: Rect, report: &HistoryReport, look: Look) -> u16 {
    let fits = usize::from((area.height.saturating_sub(2 + LEAST_EVENTS) / ROW).max(1));
    let width = usize::from(area.width - LABEL);
    let all = [&report.all.down_bps, &report.all.up_bps].map(|rates| most(rates));
    let of_links =
        |way| report.links.iter().map(|link| most(rates(&link.past, way))).max().unwrap_or(0);
    let top = [Way::Down, Way::Up].map(of_links);
    let total = ("all packets".to_owned(), String::new(), &report.all, all);
    let links = report.links.iter().map(|link| (clean(&link.name), facts(link), &link.past, top));
    let mut y = 1;
    for (name, facts, past, top) in std::iter::once(total).chain(links).take(fits) {
        let name = Span::styled(format!(" {name:<12} "), paint(look, None, true));
        let title = Line::from(vec![name, Span::raw(facts)]);
        frame.render_widget(Paragraph::new(title), line(area, y));
        for (below, way, top) in [(1, Way::Down, top[0]), (2, Way::Up, top[1])] {
            let place = line(area, y + below);
            graph(frame, place, (way, rates(past, way)), (top, width), look);
        }
        y += ROW;
    }
    y
}

fn rates(past: &Past, way: Way) -> &[Option<u64>] {
    match way {
        Way::Down => &past.down_bps,
        Way::Up => &past.up_bps,
    }
}

fn most(rates: &[Option<u64>]) -> u64 {
    rates.iter().flatten().copied().max().unwrap_or(0)
}

fn facts(link: &LinkPast) -> String {
    let bytes = [link.past.down_bytes, link.past.up_bytes].map(figures::size);
    let [down, up] = bytes;
    let worst = link.rtt_ms.iter().flatten().copied().fold(0.0, f64::max);
    let lost = link.loss.iter().flatten().copied().fold(0.0, f64::max) * 100.0;
    format!("{down} down, {up} up, RTT at most {worst:.0} ms, loss at most {lost:.1} %")
}

/// A direction, its largest rate, and its graph; what is not known is blank.
fn graph(
    frame: &mut Frame<'_>,
    area: Rect,
    (way, rates): (Way, &[Option<u64>]),
    (top, width): (u64, usize),
    look: Look,
) {
    let (name, colour) = match way {
        Way::Down => ("down max", Color::Cyan),
        Way::Up => ("up max", Color::Magenta),
    };
    #[expect(clippy::cast_precision_loss, reason = "rates have far less than 53 bits")]
    let label = format!("  {name:<8} {:>11} ", figures::rate(most(rates) as f64));
    frame.render_widget(Paragraph::new(label), Rect { width: LABEL, ..area });
    let newest = rates.iter().skip(rates.len().saturating_sub(width)).copied();
    let values = std::iter::repeat_n(None, width.saturating_sub(rates.len())).chain(newest);
    let bars = Sparkline::default()
        .data(values)
        .absent_value_symbol(" ")
        .max(top.max(1))
        .style(paint(look, Some(colour), false));
    frame.render_widget(bars, Rect { x: area.x + LABEL, width: area.width - LABEL, ..area });
}

fn happened(range: Range, event: &HistoryEvent) -> String {
    let format = match range {
        Range::Hour | Range::Day => "%H:%M:%S",
        Range::Month => "%m-%d %H:%M",
    };
    format!("{} {}", local(event.at, format), clean(&event_in_words(event)))
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::buffer::Cell;
    use ropewalk_control::api::{EventKind, HistoryStatus};

    use super::*;

    fn report(links: usize) -> HistoryReport {
        let past = |bps: u64| Past {
            down_bps: (0..200).map(|n| (n % 10 != 0).then_some(bps)).collect(),
            up_bps: vec![Some(1_000_000); 200],
            down_bytes: 3_000_000_000,
            up_bytes: 5_000_000,
        };
        let link = |n| LinkPast {
            name: format!("wan{n}"),
            past: past(4_000_000),
            rtt_ms: vec![Some(20.0), None, Some(81.0)],
            loss: vec![Some(0.012)],
        };
        let event = |n: u64| HistoryEvent {
            at: 1_795_780_800 - n,
            kind: EventKind::LinkDown,
            link: Some(format!("wan{n}\u{1b}[2J")),
            text: "no carrier".to_owned(),
        };
        HistoryReport {
            history: HistoryStatus { state: HistoryState::On, ..Default::default() },
            now: 1_795_780_800,
            from: 1_795_777_200,
            step_s: 18,
            all: past(8_000_000),
            links: (0..links).map(link).collect(),
            used: Vec::new(),
            events: (0..50).map(event).collect(),
        }
    }

    fn drawn(past: &Remembered, (width, height): (u16, u16)) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let look = Look { chosen: 0, colours: true };
        terminal.draw(|frame| draw_past(frame, past, look)).unwrap();
        let lines = terminal.backend().buffer().content.chunks(usize::from(width));
        let text = lines.map(|line| line.iter().map(Cell::symbol).collect::<String>());
        text.map(|line| line.trim_end().to_owned() + "\n").collect()
    }

    fn answered(range: Range, report: HistoryReport) -> Remembered {
        Remembered { range, answer: Some(Ok(report)) }
    }

    #[test]
    fn eighty_by_twenty_four_shows_three_links_and_what_happened() {
        let text = drawn(&answered(Range::Hour, report(3)), (80, 24));
        for part in [
            " the last hour until ",
            "; a column is 18s\n",
            " all packets\n",
            "  down max    8 Mbit/s ",
            " wan2 ",
            "3 GB down, 5 MB up, RTT at most 81 ms, loss at most 1.2 %\n",
            "wan0\u{fffd}[2J: link lost: no carrier\n",
            " q ends  h day\n",
        ] {
            assert!(text.contains(part), "`{part}` is missing in\n{text}");
        }
        assert_eq!(text.lines().count(), 24);
        assert_eq!(text.matches("link lost").count(), 24 - 1 - 4 * 3 - 1);
        // Of 200 points the newest 57, with a gap each tenth.
        let graph = text.lines().find(|line| line.starts_with("  down max")).unwrap();
        assert!(graph.contains(&"\u{2588}".repeat(9)) && !graph.contains(&"\u{2588}".repeat(10)));
    }

    #[test]
    fn any_size_any_answer_and_any_number_of_links_are_drawn() {
        for size in [(1, 1), (60, 12), (80, 24), (300, 100)] {
            for links in [0, 1, 40] {
                for range in [Range::Hour, Range::Day, Range::Month] {
                    drawn(&answered(range, report(links)), size);
                }
            }
        }
        let asking = Remembered { range: Range::Day, answer: None };
        assert!(drawn(&asking, (80, 24)).starts_with(" the last day: asking the daemon\n"));
        let trouble = Remembered { answer: Some(Err("no daemon answers".to_owned())), ..asking };
        let text = drawn(&trouble, (80, 24));
        assert!(text.starts_with(" no daemon answers\n") && text.contains("h month"), "{text}");
        let off = drawn(&answered(Range::Month, HistoryReport::default()), (80, 24));
        assert!(off.starts_with(" nothing is remembered") && off.contains("h live"), "{off}");
    }

    #[test]
    fn the_key_goes_around() {
        let (mut range, mut seen) = (None, Vec::new());
        for _ in 0..4 {
            range = Range::after(range);
            seen.push(range);
        }
        assert_eq!(seen, [Some(Range::Hour), Some(Range::Day), Some(Range::Month), None]);
    }
}
