//! How the history looks: small charts of text, what was used by day, and what happened.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use ropewalk_control::api::{
    DayUse, HistoryEvent, HistoryQuery, HistoryReport, HistoryState, LinkPast, LinkUse, Past, Used,
};
use ropewalk_settings::figures::{rate, size};

use super::{Page, age, clean};

/// Columns beside a chart: a direction, and in words what it carried.
const BESIDE: u16 = 40;

/// Columns of the narrowest chart.
const LEAST_CHART: u16 = 40;

/// Days of the table at least: a week.
const LEAST_DAYS: usize = 7;

const SECONDS_OF_DAY: u64 = 86_400;

/// From little to much. What is not known is a blank.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// How many points a chart has room for.
pub(crate) fn chart_width(columns: u16) -> u16 {
    columns.saturating_sub(BESIDE).clamp(LEAST_CHART, *HistoryQuery::POINTS.end())
}

/// The whole answer, or only what happened.
pub(crate) fn history(report: &HistoryReport, only_events: bool, columns: u16) -> String {
    in_zone(report, only_events, columns, &TimeZone::system())
}

fn in_zone(report: &HistoryReport, only_events: bool, columns: u16, zone: &TimeZone) -> String {
    let mut page = Page::new(columns);
    match report.history.state {
        HistoryState::Off => {
            page.line(0, "Nothing is remembered: `days` in [history] of the daemon's config is 0.");
            return page.text;
        }
        HistoryState::NoClock => {
            page.line(0, "Nothing has a date yet: the clock of the daemon's machine is not set.");
            return page.text;
        }
        HistoryState::On | HistoryState::Memory => {}
    }
    if let Some(trouble) = &report.history.trouble {
        page.line(0, &format!("warning: {trouble}"));
        page.gap();
    }
    if !only_events {
        charts(&mut page, report, zone);
        used(&mut page, report);
        page.gap();
    }
    events(&mut page, &report.events, zone);
    page.text
}

fn charts(page: &mut Page, report: &HistoryReport, zone: &TimeZone) {
    let lasted = report.now.saturating_sub(report.from);
    let (lasted, until) = (seconds(lasted), time(report.now, zone, "%Y-%m-%d %H:%M"));
    let step = seconds(report.step_s);
    page.line(0, &format!("The last {lasted}, until {until}; a column is {step}:"));
    let all = [&report.all.down_bps, &report.all.up_bps].map(|rates| most(rates));
    chart(page, "all packets", &report.all, all);
    // One scale for all links, so that they can be compared.
    let of_links = |rates: fn(&Past) -> &Vec<Option<u64>>| {
        report.links.iter().map(|link| most(rates(&link.past))).max().unwrap_or(0)
    };
    let top = [of_links(|past| &past.down_bps), of_links(|past| &past.up_bps)];
    for link in &report.links {
        chart(page, &link.name, &link.past, top);
        page.line(2, &measured(link));
    }
}

fn chart(page: &mut Page, name: &str, past: &Past, [top_down, top_up]: [u64; 2]) {
    page.gap();
    page.line(0, name);
    for (way, rates, top, bytes) in [
        ("down", &past.down_bps, top_down, past.down_bytes),
        ("up  ", &past.up_bps, top_up, past.up_bytes),
    ] {
        let (bars, most, bytes) = (bars(rates, top), bits(most(rates)), size(bytes));
        page.text.push_str(&format!("  {way} {bars}  at most {most}, {bytes}\n"));
    }
}

/// A column for each rate; `top` fills it.
fn bars(rates: &[Option<u64>], top: u64) -> String {
    let bar = |rate: &Option<u64>| match rate {
        None => ' ',
        Some(rate) => {
            let eighths = rate.saturating_mul(8).div_ceil(top.max(1)).clamp(1, 8);
            usize::try_from(eighths - 1).ok().and_then(|at| BARS.get(at)).copied().unwrap_or(' ')
        }
    };
    rates.iter().map(bar).collect()
}

fn most(rates: &[Option<u64>]) -> u64 {
    rates.iter().flatten().copied().max().unwrap_or(0)
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn bits(bps: u64) -> String {
    rate(bps as f64)
}

fn measured(link: &LinkPast) -> String {
    let trips = || link.rtt_ms.iter().flatten().copied();
    let lost = link.loss.iter().flatten().copied();
    let trip = mean(trips()).map(|mean| {
        let most = trips().fold(0.0, f64::max);
        format!("RTT {mean:.1} ms on average, at most {most:.1} ms")
    });
    let lost = mean(lost).map(|lost| format!("{:.2} % lost", lost * 100.0));
    match (trip, lost) {
        (None, None) => "no RTT was measured".to_owned(),
        (trip, lost) => trip.into_iter().chain(lost).collect::<Vec<_>>().join("; "),
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.fold((0.0, 0.0), |(count, sum), value| (count + 1.0, sum + value));
    (count > 0.0).then(|| sum / count)
}

fn used(page: &mut Page, report: &HistoryReport) {
    let asked = report.now.saturating_sub(report.from) / SECONDS_OF_DAY + 1;
    let rows = usize::try_from(asked).unwrap_or(usize::MAX).max(LEAST_DAYS);
    let days = &report.used[report.used.len().saturating_sub(rows)..];
    let links = || report.used.iter().flat_map(|day| &day.links);
    let names: BTreeSet<&str> = links().map(|link| link.name.as_str()).collect();
    if days.is_empty() {
        return;
    }
    page.gap();
    let shown: Vec<_> = names.iter().map(|name| clean(name)).collect();
    let header: Vec<_> =
        ["used on", "packets"].into_iter().chain(shown.iter().map(String::as_str)).collect();
    let mut table = page.new_table(&header, 1);
    let this_month = month(&report.used);
    for day in days.iter().chain(&this_month) {
        let of = |name: &&str| {
            let link = day.links.iter().find(|link| link.name == **name);
            link.map_or_else(|| "-".to_owned(), |link| size(link.used.bytes()))
        };
        let row = [clean(&day.day), size(day.all.bytes())].into_iter();
        table.add_row(row.chain(names.iter().map(of)));
    }
    page.table(&table);
}

/// The month of the last day, as far as it is known.
fn month(days: &[DayUse]) -> Option<DayUse> {
    let month = days.last()?.day.get(..7)?;
    let mut all = Used::default();
    let mut links: BTreeMap<&str, Used> = BTreeMap::new();
    for day in days.iter().filter(|day| day.day.starts_with(month)) {
        all = plus(all, day.all);
        for link in &day.links {
            let sum = links.entry(&link.name).or_default();
            *sum = plus(*sum, link.used);
        }
    }
    let links = links.into_iter().map(|(name, used)| LinkUse { name: name.to_owned(), used });
    Some(DayUse { day: format!("all of {month}"), all, links: links.collect() })
}

const fn plus(one: Used, other: Used) -> Used {
    Used {
        down_bytes: one.down_bytes.saturating_add(other.down_bytes),
        up_bytes: one.up_bytes.saturating_add(other.up_bytes),
    }
}

fn events(page: &mut Page, events: &[HistoryEvent], zone: &TimeZone) {
    if events.is_empty() {
        page.line(0, "Nothing happened in this time.");
        return;
    }
    page.line(0, "What happened, the newest first:");
    for event in events {
        let at = time(event.at, zone, "%Y-%m-%d %H:%M:%S");
        page.line(2, &format!("{at} {}", event_in_words(event)));
    }
}

/// Such as `wlan0: link lost: nothing is confirmed any more`.
pub(crate) fn event_in_words(event: &HistoryEvent) -> String {
    let kind = event.kind.to_string();
    let text = Some(&event.text).filter(|text| !text.is_empty());
    let parts: Vec<_> = event.link.iter().chain([&kind]).chain(text).map(String::as_str).collect();
    parts.join(": ")
}

fn seconds(seconds: u64) -> String {
    age(Duration::from_secs(seconds).as_secs_f64())
}

/// A time of day of this machine.
pub(crate) fn local(unix: u64, format: &str) -> String {
    time(unix, &TimeZone::system(), format)
}

fn time(unix: u64, zone: &TimeZone, format: &str) -> String {
    let second = i64::try_from(unix).unwrap_or(i64::MAX);
    let time = Timestamp::from_second(second).unwrap_or(Timestamp::MAX);
    time.to_zoned(zone.clone()).strftime(format).to_string()
}

#[cfg(test)]
mod tests {
    use ropewalk_control::api::{EventKind, HistoryStatus};

    use super::*;

    /// 2026-11-27 12:00:00 UTC.
    const NOON: u64 = 1_795_780_800;

    fn past(down_bps: &[Option<u64>]) -> Past {
        Past {
            down_bps: down_bps.to_vec(),
            up_bps: vec![Some(0); down_bps.len()],
            down_bytes: 33_500_000_000,
            up_bytes: 0,
        }
    }

    fn report() -> HistoryReport {
        let link = |name: &str, rates: &[Option<u64>]| LinkPast {
            name: name.to_owned(),
            past: past(rates),
            rtt_ms: vec![None, Some(20.0), Some(40.0)],
            loss: vec![None, Some(0.001), Some(0.003)],
        };
        let used = |day: &str, bytes| DayUse {
            day: day.to_owned(),
            all: Used { down_bytes: bytes, up_bytes: 0 },
            links: vec![LinkUse {
                name: "wlan0".to_owned(),
                used: Used { down_bytes: bytes, up_bytes: bytes },
            }],
        };
        let event = |at, kind, link: Option<&str>, text: &str| HistoryEvent {
            at,
            kind,
            link: link.map(str::to_owned),
            text: text.to_owned(),
        };
        HistoryReport {
            history: HistoryStatus { state: HistoryState::On, days: 30, ..Default::default() },
            now: NOON,
            from: NOON - 86_400,
            step_s: 1200,
            all: past(&[None, Some(8_000_000), Some(1)]),
            links: vec![
                link("wlan0", &[None, Some(8_000_000), Some(0)]),
                link("wwan0\u{1b}[2J", &[Some(1_000_000), None, Some(4_000_000)]),
            ],
            used: vec![
                used("2026-10-31", 1_000_000),
                used("2026-11-26", 2_000_000),
                used("2026-11-27", 3_000_000),
            ],
            events: vec![
                event(NOON - 60, EventKind::LinkDown, Some("wwan0"), "no carrier"),
                event(NOON - 7200, EventKind::AllLinksLost, None, ""),
            ],
        }
    }

    #[test]
    fn charts_a_table_by_day_and_what_happened_are_shown() {
        let expected = "\
The last 1day, until 2026-11-27 12:00; a column is 20m:

all packets
  down  █▁  at most 8 Mbit/s, 33.5 GB
  up   ▁▁▁  at most 0 bit/s, 0 B

wlan0
  down  █▁  at most 8 Mbit/s, 33.5 GB
  up   ▁▁▁  at most 0 bit/s, 0 B
  RTT 30.0 ms on average, at most 40.0 ms; 0.20 % lost

wwan0\u{fffd}[2J
  down ▁ ▄  at most 4 Mbit/s, 33.5 GB
  up   ▁▁▁  at most 0 bit/s, 0 B
  RTT 30.0 ms on average, at most 40.0 ms; 0.20 % lost

TABLE

What happened, the newest first:
  2026-11-27 11:59:00 wwan0: link lost: no carrier
  2026-11-27 10:00:00 all links lost
";
        let text = in_zone(&report(), false, 80, &TimeZone::UTC);
        let begin = text.find(" used on").unwrap();
        let end = text.find("\n\nWhat happened").unwrap();
        let table = &text[begin..end];
        for part in ["packets", "wlan0", "2026-10-31", "6 MB", "all of 2026-11", "10 MB"] {
            assert!(table.contains(part), "{part} in\n{table}");
        }
        assert_eq!(table.lines().count(), 5, "{table}");
        assert_eq!(text.replace(table, "TABLE"), expected);
    }

    #[test]
    fn only_what_happened_is_shown_if_asked_for() {
        let text = in_zone(&report(), true, 80, &TimeZone::UTC);
        assert!(text.starts_with("What happened") && text.lines().count() == 3, "{text}");
        let quiet = HistoryReport { events: Vec::new(), ..report() };
        let text = in_zone(&quiet, true, 80, &TimeZone::UTC);
        assert_eq!(text, "Nothing happened in this time.\n");
    }

    #[test]
    fn that_there_is_nothing_and_why_is_said() {
        let of = |state, trouble: Option<&str>| {
            let trouble = trouble.map(str::to_owned);
            let history = HistoryStatus { state, trouble, ..Default::default() };
            in_zone(&HistoryReport { history, ..report() }, true, 120, &TimeZone::UTC)
        };
        assert!(of(HistoryState::Off, None).starts_with("Nothing is remembered: `days`"));
        assert!(of(HistoryState::NoClock, None).contains("clock of the daemon's machine"));
        let full = of(HistoryState::Memory, Some("no space left"));
        assert!(full.starts_with("warning: no space left\n\nWhat happened"), "{full}");
        let nothing = HistoryReport {
            history: HistoryStatus { state: HistoryState::On, ..Default::default() },
            ..HistoryReport::default()
        };
        let text = in_zone(&nothing, false, 80, &TimeZone::UTC);
        assert!(text.contains("all packets\n  down   at most 0 bit/s"), "{text}");
    }

    #[test]
    fn a_bar_is_as_high_as_its_share_of_the_top() {
        let rates = [None, Some(0), Some(1), Some(500), Some(501), Some(1000), Some(u64::MAX)];
        assert_eq!(bars(&rates, 1000), " ▁▁▄▅██");
        assert_eq!(bars(&[Some(0)], 0), "▁");
        assert_eq!([80, 100, 1000].map(chart_width), [40, 60, 400]);
    }
}
