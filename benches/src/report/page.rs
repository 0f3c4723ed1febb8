//! The page of one experiment: how it was run, what does not hold, pictures, tables.

use crate::results::{Case, LinkSummary, Mode, Spread, Traffic};

use super::both::{Both, Place};
use super::checks::{apart, count, faults, too_far};
use super::markdown::Table;
use super::peers::{Figures, PeerValue, Peers};
use super::picture::Picture;
use super::values::{GOODPUT, LIMIT, MORE, SINGLES, SUM, Value, number, title};

/// In the column of a case that did not run on the kernel.
const SIMULATED_ONLY: &str = "simulated only";
/// And of one that ran nowhere else.
const REAL_ONLY: &str = "real only";

/// The whole page.
#[must_use]
pub fn page(experiment: &Both, peers: &Peers, pictures: &[Picture]) -> String {
    let mut page = format!("# {}: {}\n", experiment.name, experiment.title());
    if let Some(results) = experiment.results.first() {
        page +=
            &format!("\n{}. Drawn by `ropewalk-benches report`; do not edit.\n", results.source);
    }
    for claim in peers.claims(&experiment.name) {
        page += &format!("\n> {} ({})\n", claim.text, claim.source);
    }
    page += &format!("\n{}", provenance(experiment));
    page += &holding(experiment);
    if let Some(findings) = &experiment.findings {
        page += &format!("\n## Findings\n\n{}\n", findings.trim());
    }
    for traffic in experiment.traffics() {
        page += &format!("\n## {}\n", title(traffic));
        for picture in pictures.iter().filter(|picture| picture.traffic == traffic) {
            page += &format!("\n![{}]({})\n", picture.title, picture.file);
        }
        if traffic.is_bulk() {
            page += &format!("\n{}", goodput(experiment, traffic));
        }
        if let Some(figures) = peers.of(&experiment.name, traffic) {
            page += &format!("\n{}", beside_peers(experiment, traffic, figures));
        }
        if let Some(tried) = tried(experiment, traffic) {
            page += &format!("\n### {}: what was tried\n\n{tried}", title(traffic));
        }
        page += &format!(
            "\n### {}: what else was measured\n\n{}",
            title(traffic),
            more(experiment, traffic)
        );
        page += &format!(
            "\n### {}: shares and drops of the first run\n\n{}",
            title(traffic),
            shares(experiment, traffic)
        );
    }
    page + &format!("\n## Links\n\n{}", links(experiment))
}

/// Commit, date, seed and machine of each mode.
#[must_use]
pub fn provenance(experiment: &Both) -> String {
    let mut table = Table::new(&[
        "mode",
        "commit",
        "date",
        "first seed",
        "runs of a case",
        "seconds",
        "machine",
    ]);
    for results in &experiment.results {
        let machine = results.machine.as_ref().map_or_else(
            || "virtual time".to_owned(),
            |machine| {
                let (cpu, cores, kernel, os) =
                    (&machine.cpu, machine.cores, &machine.kernel, &machine.os);
                format!("{cpu}, {cores} cores, Linux {kernel}, {os}")
            },
        );
        let runs = range(results.cases.iter().map(|case| case.planned_runs.to_string()));
        let seconds = range(results.cases.iter().map(|case| number(case.seconds, 0)));
        let commit = results.commit.get(..12).unwrap_or(&results.commit);
        let (mode, date, seed) = (results.mode.as_str(), &results.date, results.seed.to_string());
        table.row(&[mode, commit, date, &seed, &runs, &seconds, &machine]);
    }
    table.to_string()
}

/// The different ones, in order.
fn range(texts: impl Iterator<Item = String>) -> String {
    let mut different: Vec<String> = Vec::new();
    for text in texts {
        if !different.contains(&text) {
            different.push(text);
        }
    }
    different.join(", ")
}

fn holding(experiment: &Both) -> String {
    let (checks, failed) = count(experiment);
    let faults = faults(experiment);
    let mut section = match checks {
        0 => "\nNothing is checked.".to_owned(),
        _ => format!("\n{} of {checks} checks hold.", checks - failed),
    };
    if faults.is_empty() {
        return section + "\n";
    }
    section += " What does not hold, or is to be known:\n\n";
    for fault in faults {
        section += &format!("- {fault}\n");
    }
    section
}

/// What the links of each point are like, in the mode that ran first.
fn links(experiment: &Both) -> Table {
    let headings = ["point", "link", "Mbit/s", "RTT, ms", "loss, %", "jitter, ms", "follows"];
    let mut table = Table::new(&headings);
    let mut told: Vec<(&str, &str)> = Vec::new();
    for (_, case) in experiment.cases() {
        for link in &case.links {
            let place = (case.point.label.as_str(), link.name.as_str());
            if told.contains(&place) {
                continue;
            }
            told.push(place);
            let LinkSummary { rate_mbit, rtt_ms, loss, jitter_ms, .. } = link;
            let figures =
                [*rate_mbit, *rtt_ms, 100.0 * loss, *jitter_ms].map(|figure| number(figure, 1));
            let mut row = vec![place.0, place.1];
            row.extend(figures.iter().map(String::as_str));
            row.extend(link.follows.as_deref());
            table.row(&row);
        }
    }
    table
}

/// Goodput, simulated and real beside each other.
#[must_use]
pub fn goodput(experiment: &Both, traffic: Traffic) -> Table {
    let axis = experiment.points(traffic).first().map_or("point", |point| point.axis.as_str());
    let mut headings = vec![axis.to_owned(), "series".to_owned(), "limit, Mbit/s".to_owned()];
    for mode in Mode::ALL {
        headings.extend([GOODPUT, SUM, LIMIT].map(|v| format!("{}: {}", mode.as_str(), v.heading)));
    }
    headings.push("real − simulated, points".to_owned());
    let mut table = Table::new(&headings);
    for place in experiment.places(traffic) {
        let cases = Mode::ALL.map(|mode| experiment.case(mode, place));
        let limit = cases.into_iter().flatten().next().map(|case| number(case.limit_mbit, 2));
        let mut row =
            vec![place.point.label.clone(), place.series.to_owned(), limit.unwrap_or_default()];
        for case in cases {
            row.extend(
                [GOODPUT, SUM, LIMIT]
                    .map(|value| case.map_or_else(String::new, |case| cell(case, value))),
            );
        }
        row.push(difference(experiment, place, cases));
        table.row(&row);
    }
    table
}

fn difference(experiment: &Both, place: Place<'_>, cases: [Option<&Case>; 2]) -> String {
    match (cases, apart(experiment, place)) {
        ([Some(_), None], _) => SIMULATED_ONLY.to_owned(),
        ([None, _], _) => REAL_ONLY.to_owned(),
        (_, Some(apart)) if too_far(place, apart) => format!("**{}** ⚠", number(apart, 1)),
        (_, Some(apart)) => number(apart, 1),
        (_, None) => String::new(),
    }
}

/// A value of a case; marked where it did not reach what it must.
fn cell(case: &Case, value: Value) -> String {
    let Some(spread) = case.summary.get(value.name) else { return String::new() };
    let failed = case.checks.iter().any(|check| check.value == value.name && !check.ok);
    let text = value.spread(*spread);
    if failed { format!("**{text}** ✗") } else { text }
}

/// With more points than this a table has a line for each: it would be too wide to look at.
const MOST_COLUMNS: usize = 8;

/// Ours beside peers' figures, in the unit of the latter.
#[must_use]
fn beside_peers(experiment: &Both, traffic: Traffic, figures: &Figures) -> String {
    let value = value(figures);
    let points = experiment.points(traffic);
    let mut lines = Vec::new();
    for mode in Mode::ALL {
        for series in experiment.series(traffic) {
            let at = |point| experiment.spread(mode, Place { traffic, point, series }, value.name);
            let medians: Vec<_> = points.iter().map(|&point| at(point)).collect();
            if medians.iter().any(Option::is_some) {
                let told = |spread: &Option<_>| {
                    spread.map_or_else(String::new, |s: Spread| value.show(s.median))
                };
                let name = format!("**Ropewalk, {series}, {}**", mode.as_str());
                lines.push((name, medians.iter().map(told).collect()));
            }
        }
    }
    let mut others: Vec<_> =
        figures.peers.iter().map(|peer| (peer.name.as_str(), &peer.at)).collect();
    if !figures.goal.is_empty() {
        others.push(("*goal*", &figures.goal));
    }
    for (name, at) in others {
        let told = points.iter().map(|point| {
            at.get(&point.label).map_or_else(String::new, |figure| number(*figure, 0))
        });
        lines.push((name.to_owned(), told.collect::<Vec<_>>()));
    }
    let labels = points.iter().map(|point| point.label.as_str());
    let table = if points.len() <= MOST_COLUMNS {
        let headings: Vec<_> = [value.heading].into_iter().chain(labels).collect();
        let mut table = Table::new(&headings);
        for (name, told) in lines {
            table.row(&[vec![name], told].concat());
        }
        table
    } else {
        let names = lines.iter().map(|(name, _)| name.as_str());
        let mut table = Table::new(&[value.heading].into_iter().chain(names).collect::<Vec<_>>());
        for (at, label) in labels.enumerate() {
            let told = lines.iter().map(|(_, told)| told[at].clone());
            table.row(&[label.to_owned()].into_iter().chain(told).collect::<Vec<_>>());
        }
        table
    };
    format!("### {}: beside others\n\n{table}\nOthers: {}.\n", title(traffic), figures.source)
}

/// The value of ours that stands beside theirs.
fn value(figures: &Figures) -> Value {
    match figures.value {
        PeerValue::PercentOfSum => SUM,
        PeerValue::PercentOfSingles => SINGLES,
        PeerValue::GoodputMbit => GOODPUT,
    }
}

/// One figure of the short table: its digits, and whose it is where that is not said above it.
struct Figure {
    digits: String,
    name: String,
}

/// The same in short: what the links are like, the better of them alone, the best of the others, and ours with these
/// settings. The highest figures of a row are bold.
pub fn in_short(experiment: &Both, traffic: Traffic, figures: &Figures, series: &str) -> Table {
    let value = value(figures);
    let ours = Mode::ALL.map(|mode| format!("Ropewalk, {}", mode.as_str()));
    let mut headings = vec![value.heading, "links", "better link alone", "best of the others"];
    headings.extend(ours.iter().map(String::as_str));
    let mut table = Table::new(&headings);
    let short = |label: &String| figures.short.is_empty() || figures.short.contains(label);
    for point in experiment.points(traffic).into_iter().filter(|point| short(&point.label)) {
        let others = [true, false].map(|alone| best(figures, alone, &point.label));
        let own = Mode::ALL.map(|mode| {
            let spread = experiment.spread(mode, Place { traffic, point, series }, value.name)?;
            Some(Figure { digits: number(spread.median, 0), name: String::new() })
        });
        let cells: Vec<_> = others.into_iter().chain(own).collect();
        let read = |figure: &Figure| figure.digits.parse::<f64>().unwrap_or_default();
        let highest = cells.iter().flatten().map(read).fold(0.0, f64::max);
        let mut row = vec![point.label.clone(), links_in_words(experiment, traffic, &point.label)];
        row.extend(cells.iter().map(|cell| match cell {
            None => String::new(),
            Some(figure) if read(figure) >= highest => {
                format!("**{}**{}", figure.digits, figure.name)
            }
            Some(figure) => format!("{}{}", figure.digits, figure.name),
        }));
        table.row(&row);
    }
    table
}

/// The highest figure of the links alone, or of the other peers with its name.
fn best(figures: &Figures, alone: bool, label: &str) -> Option<Figure> {
    let peers = figures.peers.iter().filter(|peer| peer.alone == alone);
    let told = peers.filter_map(|peer| Some((*peer.at.get(label)?, peer)));
    let (figure, peer) = told.max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    let name = if alone { String::new() } else { format!(" ({})", peer.name) };
    Some(Figure { digits: number(figure, 0), name })
}

/// What the links of a point are like, in a few words.
fn links_in_words(experiment: &Both, traffic: Traffic, label: &str) -> String {
    let mut cases = experiment.cases().map(|(_, case)| case);
    let case = cases.find(|case| case.traffic == traffic && case.point.label == label);
    let each = case.into_iter().flat_map(|case| &case.links).map(|link| {
        let LinkSummary { rate_mbit, rtt_ms, loss, jitter_ms, .. } = link;
        let mut words = format!("{} Mbit/s ({} ms", number(*rate_mbit, 0), number(*rtt_ms, 0));
        if *jitter_ms > 0.0 {
            words += &format!(" ± {}", number(*jitter_ms, 0));
        }
        if *loss > 0.0 {
            words += &format!(", {} % lost", number(100.0 * loss, 1));
        }
        words + ")"
    });
    each.collect::<Vec<_>>().join(" + ")
}

fn more(experiment: &Both, traffic: Traffic) -> Table {
    let cases = || experiment.cases().filter(|(_, case)| case.traffic == traffic);
    let measured: Vec<Value> = MORE
        .into_iter()
        .filter(|value| cases().any(|(_, case)| case.summary.contains_key(value.name)))
        .collect();
    let mut headings = vec!["point", "series", "mode"];
    headings.extend(measured.iter().map(|value| value.heading));
    let mut table = Table::new(&headings);
    for (mode, case) in in_order(experiment, traffic) {
        let mut row = vec![case.point.label.clone(), case.series.clone(), mode.as_str().to_owned()];
        row.extend(measured.iter().map(|value| cell(case, *value)));
        table.row(&row);
    }
    table
}

/// Where the best of several weights counts, what each gave; `None` where there is no such series.
fn tried(experiment: &Both, traffic: Traffic) -> Option<Table> {
    let mut table = Table::new(&["point", "series", "mode", "best", "Mbit/s of each"]);
    let cases = in_order(experiment, traffic).filter(|(_, case)| case.tried.len() > 2);
    let mut any = false;
    for (mode, case) in cases {
        any = true;
        let best = case.tried.iter().find(|tried| tried.best).map(|tried| tried.name.as_str());
        let each = case.tried.iter().map(|tried| {
            let mbit = tried.goodput_mbit.map_or_else(String::new, |s| GOODPUT.show(s.median));
            format!("{}: {mbit}", tried.name)
        });
        table.row(&[
            &case.point.label,
            &case.series,
            mode.as_str(),
            best.unwrap_or_default(),
            &each.collect::<Vec<_>>().join(", "),
        ]);
    }
    any.then_some(table)
}

fn shares(experiment: &Both, traffic: Traffic) -> Table {
    let mut headings = vec!["point", "series", "mode", "share of each link, %"];
    let first = |case: &Case| case.runs.first().is_some_and(|run| !run.flow_mbit.is_empty());
    let several = in_order(experiment, traffic).any(|(_, case)| first(case));
    headings.extend(several.then_some("each connection, Mbit/s"));
    headings.extend(["packets dropped, by reason", "congestion control"]);
    let mut table = Table::new(&headings);
    for (mode, case) in in_order(experiment, traffic) {
        let Some(run) = case.runs.first() else { continue };
        let shares: Vec<_> = run
            .share_percent
            .iter()
            .map(|(link, share)| format!("{link} {}", number(*share, 1)))
            .collect();
        let drops: Vec<_> = run
            .drops
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(reason, count)| format!("{reason} {count}"))
            .collect();
        let congestion = run.congestion_control.as_deref().unwrap_or_default();
        let shares = shares.join(", ");
        let mut row = vec![case.point.label.as_str(), &case.series, mode.as_str(), &shares];
        let flows: Vec<_> = run.flow_mbit.iter().map(|mbit| number(*mbit, 2)).collect();
        let flows = flows.join(", ");
        row.extend(several.then_some(flows.as_str()));
        let drops = drops.join(", ");
        row.extend([drops.as_str(), congestion]);
        table.row(&row);
    }
    table
}

/// Cases of a traffic, both modes of a place one after the other.
fn in_order(experiment: &Both, traffic: Traffic) -> impl Iterator<Item = (Mode, &Case)> {
    experiment.places(traffic).into_iter().flat_map(move |place| {
        Mode::ALL.into_iter().filter_map(move |mode| Some((mode, experiment.case(mode, place)?)))
    })
}
