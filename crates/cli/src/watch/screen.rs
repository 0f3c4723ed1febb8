//! How a view is drawn: for 80 columns and 24 lines, and more where there are more.
//!
//! ```text
//! whose it is, and how it does
//! all together: a graph up, a graph down
//! each row: name, state, figures; a graph up, a graph down
//! what limits the chosen row
//! keys, and the scale of the graphs
//! ```

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Sparkline, Wrap};
use ropewalk_settings::figures;

use super::history::{History, Way};
use super::view::{Health, Row, View};

/// Columns before a graph: a direction and a rate.
pub(super) const LABEL: u16 = 23;

/// Lines above the rows, and below.
const HEAD: u16 = 4;
const FOOT: u16 = 5;

/// Lines of a row with graphs of one line, and one between two rows.
const ROW: u16 = 4;

/// The tallest graph.
const TALLEST: u16 = 4;

/// Less cannot be read.
const LEAST: (u16, u16) = (60, 12);

/// What somebody chose, and whether there are colours.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Look {
    /// The chosen row.
    pub(crate) chosen: usize,
    /// Without: the same with no colours.
    pub(crate) colours: bool,
}

/// Draws it all.
pub(crate) fn draw(frame: &mut Frame<'_>, view: &View, history: &History, look: Look) {
    if is_too_small(frame) {
        return;
    }
    let area = frame.area();
    let width = usize::from(area.width - LABEL);
    let scale = [Way::Up, Way::Down].map(|way| history.most(way, width));
    head(frame, area, view, history, look);

    let room = area.height - HEAD - FOOT;
    let fits = usize::from((room + 1) / ROW).max(1);
    let chosen = look.chosen.min(view.rows.len().saturating_sub(1));
    let first = chosen.saturating_sub(fits - 1);
    let shown = view.rows.len().min(fits);
    let tall = match u16::try_from(shown.max(1)) {
        Ok(shown) => ((room / shown).saturating_sub(2) / 2).clamp(1, TALLEST),
        Err(_) => 1,
    };
    let mut y = area.y + HEAD;
    for (place, row) in view.rows.iter().enumerate().skip(first).take(shown) {
        let is_chosen = place == chosen;
        one(
            frame,
            Rect { y, height: 1 + 2 * tall, ..area },
            (row, is_chosen),
            history,
            scale,
            look,
        );
        y += 2 + 2 * tall;
    }
    foot(frame, area, view.rows.get(chosen), (view.rows.len(), first, shown), scale, look);
}

/// Whether nothing could be read; then that is said.
pub(super) fn is_too_small(frame: &mut Frame<'_>) -> bool {
    let area = frame.area();
    let is_too_small = area.width < LEAST.0 || area.height < LEAST.1;
    if is_too_small {
        let text = format!("{}x{} is too small: 80x24 is meant", area.width, area.height);
        frame.render_widget(Paragraph::new(text), area);
    }
    is_too_small
}

fn head(frame: &mut Frame<'_>, area: Rect, view: &View, history: &History, look: Look) {
    let title = match &view.trouble {
        Some(trouble) => Line::styled(format!(" {trouble}"), paint(look, Some(Color::Red), true)),
        None => Line::styled(format!(" {}", view.title), paint(look, None, true)),
    };
    frame.render_widget(Paragraph::new(title), line(area, 0));
    let width = usize::from(area.width - LABEL);
    for (y, way, rate, name) in
        [(1, Way::Up, view.up_bps, "all up"), (2, Way::Down, view.down_bps, "all down")]
    {
        let values = history.graph(None, way, width);
        let most = values.iter().copied().max().unwrap_or(0);
        graph(frame, line(area, y), (name, rate), &values, (most, way), look);
    }
}

fn one(
    frame: &mut Frame<'_>,
    area: Rect,
    (row, is_chosen): (&Row, bool),
    history: &History,
    scale: [u64; 2],
    look: Look,
) {
    let colour = match row.health {
        Health::Good => Some(Color::Green),
        Health::Waiting => Some(Color::Yellow),
        Health::Bad => Some(Color::Red),
        Health::Off => None,
    };
    let mark = if is_chosen { ">" } else { " " };
    let title = Line::from(vec![
        Span::styled(format!("{mark}{:<12.12} ", row.name), paint(look, None, true)),
        Span::styled(format!("{:<10.10}", row.state), paint(look, colour, false)),
        Span::raw(row.facts.clone()),
    ]);
    frame.render_widget(Paragraph::new(title), line(area, 0));
    let width = usize::from(area.width - LABEL);
    let tall = (area.height - 1) / 2;
    let ways = [(Way::Up, "up", row.up_bps, scale[0]), (Way::Down, "down", row.down_bps, scale[1])];
    let mut y = area.y + 1;
    for (way, name, rate, most) in ways {
        let values = history.graph(Some(&row.name), way, width);
        graph(frame, Rect { y, height: tall, ..area }, (name, rate), &values, (most, way), look);
        y += tall;
    }
}

fn foot(
    frame: &mut Frame<'_>,
    area: Rect,
    chosen: Option<&Row>,
    (all, first, shown): (usize, usize, usize),
    scale: [u64; 2],
    look: Look,
) {
    let y = area.y + area.height - FOOT;
    if let Some(row) = chosen {
        let mut lines: Vec<Line<'_>> = row.why.iter().map(|text| Line::raw(text.clone())).collect();
        if let Some(first) = lines.first_mut() {
            first.spans.insert(0, Span::styled(format!(" {} ", row.name), paint(look, None, true)));
        }
        let text = Paragraph::new(lines).wrap(Wrap { trim: true });
        frame.render_widget(text, Rect { y, height: FOOT - 1, ..area });
    }
    let below = all.saturating_sub(first + shown);
    let more = match (first, below) {
        (0, 0) => String::new(),
        (above, below) => format!("  {above} above, {below} below"),
    };
    #[expect(clippy::cast_precision_loss, reason = "rates have far less than 53 bits")]
    let [up, down] = scale.map(|most| figures::rate(most as f64));
    let keys = format!(
        " q ends  h history  \u{2191}\u{2193} choose{more}  full graph: {up} up, {down} down"
    );
    let keys = Line::styled(keys, paint(look, None, false).add_modifier(Modifier::DIM));
    frame.render_widget(Paragraph::new(keys), line(area, area.height - 1));
}

/// A direction, its rate, and its graph.
fn graph(
    frame: &mut Frame<'_>,
    area: Rect,
    (name, rate): (&str, f64),
    values: &[u64],
    (most, way): (u64, Way),
    look: Look,
) {
    let label = format!("  {name:<8} {:>11} ", figures::rate(rate));
    frame.render_widget(Paragraph::new(label), Rect { width: LABEL, height: 1, ..area });
    let colour = if way == Way::Up { Color::Magenta } else { Color::Cyan };
    let bars =
        Sparkline::default().data(values).max(most.max(1)).style(paint(look, Some(colour), false));
    let place = Rect { x: area.x + LABEL, width: area.width - LABEL, ..area };
    frame.render_widget(bars, place);
}

pub(super) fn line(area: Rect, y: u16) -> Rect {
    Rect { y: area.y + y, height: 1, ..area }
}

pub(super) fn paint(look: Look, colour: Option<Color>, bold: bool) -> Style {
    let style = match colour.filter(|_| look.colours) {
        Some(colour) => Style::new().fg(colour),
        None => Style::new(),
    };
    if bold { style.add_modifier(Modifier::BOLD) } else { style }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::buffer::Cell;

    use super::*;

    fn row(name: &str, health: Health, up: f64, down: f64) -> Row {
        Row {
            name: name.to_owned(),
            state: if health == Health::Good { "up" } else { "down" }.to_owned(),
            health,
            facts: "RTT   12.3 ms  loss  0.1 %  share  62 % up  58 % down".to_owned(),
            up_bps: up,
            down_bps: down,
            why: vec![
                "up: window: its window of 12 packets is full".to_owned(),
                "down: sender: 8.0 Mbit/s come".to_owned(),
            ],
        }
    }

    fn view(rows: usize) -> View {
        let rows = (0..rows).map(|n| row(&format!("wan{n}"), Health::Good, 1e6, 8e6)).collect();
        View {
            title: "ropewalk client".to_owned(),
            up_bps: 2e6,
            down_bps: 16e6,
            rows,
            trouble: None,
        }
    }

    fn drawn(
        view: &View,
        chosen: usize,
        (width, height): (u16, u16),
        colours: bool,
    ) -> (String, bool) {
        let mut history = History::default();
        for step in 0..30_u32 {
            let mut then = view.clone();
            let share = f64::from(step) / 30.0;
            then.rows.iter_mut().for_each(|row| row.down_bps *= share);
            history.note(&then);
        }
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, view, &history, Look { chosen, colours })).unwrap();
        let buffer = terminal.backend().buffer();
        let coloured = buffer.content.iter().any(|cell| cell.fg != Color::Reset);
        let lines = buffer.content.chunks(usize::from(width));
        let text = lines.map(|line| line.iter().map(Cell::symbol).collect::<String>());
        (text.map(|line| line.trim_end().to_owned() + "\n").collect(), coloured)
    }

    #[test]
    fn eighty_by_twenty_four_shows_all_of_three_links() {
        let (text, coloured) = drawn(&view(3), 1, (80, 24), true);
        assert!(coloured);
        for part in [
            " ropewalk client\n",
            "  all up      2 Mbit/s",
            "  all down   16 Mbit/s",
            " wan0         up        RTT   12.3 ms  loss  0.1 %  share  62 % up  58 % down\n",
            ">wan1         up ",
            " wan2 ",
            "  down        8 Mbit/s",
            "wan1 up: window: its window of 12 packets is full\n",
            "down: sender: 8.0 Mbit/s come",
            " q ends  h history  \u{2191}\u{2193} choose  full graph: 1 Mbit/s up, 7.73 Mbit/s down\n",
            "\u{2588}\n",
        ] {
            assert!(text.contains(part), "`{part}` is missing in\n{text}");
        }
        assert_eq!(text.lines().count(), 24);
        let (_, coloured) = drawn(&view(3), 1, (80, 24), false);
        assert!(!coloured, "NO_COLOR");
    }

    #[test]
    fn of_more_links_than_fit_the_chosen_one_is_shown_and_the_others_are_counted() {
        let (text, _) = drawn(&view(9), 6, (80, 24), true);
        assert!(
            text.contains(">wan6") && text.contains(" wan3 ") && !text.contains("wan2"),
            "{text}"
        );
        assert!(text.contains("3 above, 2 below"), "{text}");
        let (text, _) = drawn(&view(9), 99, (80, 24), true);
        assert!(text.contains(">wan8"), "{text}");
    }

    #[test]
    fn any_size_and_no_links_are_drawn_without_harm() {
        for size in [(1, 1), (59, 24), (80, 11), (80, 12), (60, 12), (300, 100)] {
            for rows in [0, 1, 40] {
                let (text, _) = drawn(&view(rows), 39, size, true);
                let too_small = size.0 < 60 || size.1 < 12;
                let expected =
                    if too_small { format!("{}", size.0) } else { "all down".to_owned() };
                assert!(size == (1, 1) || text.contains(&expected), "{size:?}\n{text}");
            }
        }
        let gone = View { trouble: Some("no daemon answers".to_owned()), ..view(1) };
        let (text, _) = drawn(&gone, 0, (80, 24), true);
        assert!(text.starts_with(" no daemon answers"), "{text}");
    }
}
