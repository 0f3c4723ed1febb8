//! All experiments in a few lines: the index of results, and what the project's README shows.

use std::ops::RangeInclusive;

use anyhow::{Result, ensure};

use crate::results::{Mode, Results, Traffic};

use super::both::{Both, Place};
use super::checks::{apart, count, too_far};
use super::markdown::Table;
use super::page::{goodput, in_short, provenance};
use super::peers::Peers;
use super::picture;
use super::values::{LIMIT, MORE, Value, title};

/// Where the README's block begins.
pub const BEGIN: &str = "<!-- results -->";
/// And ends.
pub const END: &str = "<!-- /results -->";

/// The settings that stand for Ropewalk as it is shipped.
const OURS: &str = "default";
/// Those of the system that the papers describe.
const PAPER: &str = "paper";
/// The day since which [`OURS`] are the settings of the profile of that name. Before, they were what [`PAPER`]'s are.
const OURS_SINCE: &str = "2026-11-24";

/// Values that tell of an experiment whether it checks them or not.
const TOLD: [&str; 5] = [
    "half_rate_after_s",
    "outage_stall_ms",
    "fetch_p50_of_direct",
    "fetch_p95_of_direct",
    "call_down_added_p95_ms",
];

/// One line for each experiment.
#[must_use]
pub fn index(experiments: &[Both]) -> String {
    let mut table = Table::new(&[
        "experiment",
        "what",
        "with our default settings, or those named",
        "checks",
        "apart",
        "ran",
    ]);
    for experiment in experiments {
        let (checks, failed) = count(experiment);
        let held = match (checks, failed) {
            (0, _) => "none".to_owned(),
            (_, 0) => format!("{checks} hold"),
            _ => format!("**{failed} of {checks} failed** ✗"),
        };
        let modes: Vec<_> =
            experiment.results.iter().map(|results| results.mode.as_str()).collect();
        let link = format!("[{0}]({0}/README.md)", experiment.name);
        let ran =
            if modes == ["simulated"] { "simulated only".to_owned() } else { modes.join(", ") };
        table.row(&[
            &link,
            experiment.title(),
            &telling(experiment),
            &held,
            &furthest(experiment),
            &ran,
        ]);
    }
    format!(
        "# Results\n\n\
         Drawn by `ropewalk-benches report` from the files beside; do not edit. Figures are medians over runs, of the\n\
         lowest and the highest point. \"Apart\" is how far real and simulated are apart at most, in points of the limit.\n\
         Figures with a name beside them are of other settings than our default ones: `paper` is `profile = \"paper\"`, the\n\
         system that the papers describe, which was the default until {OURS_SINCE}.\n\n\
         {table}"
    )
}

/// The most telling figures: the share of the limit, and what else the experiment checks of our settings.
fn telling(experiment: &Both) -> String {
    let mut figures = Vec::new();
    for traffic in experiment.traffics() {
        let series = ours(experiment, traffic);
        let checked = |value: &Value| {
            let ours = experiment
                .cases()
                .filter(|(_, case)| case.traffic == traffic && case.series == series);
            ours.flat_map(|(_, case)| &case.checks).any(|check| check.value == value.name)
        };
        let told = |value: &Value| TOLD.contains(&value.name) || checked(value);
        for value in [LIMIT].into_iter().chain(MORE.into_iter().filter(told)) {
            let modes: Vec<_> = Mode::ALL
                .into_iter()
                .filter_map(|mode| {
                    Some(format!(
                        "{} ({})",
                        ends(&value, medians(experiment, traffic, mode, value.name)?),
                        in_words(experiment, mode, series)
                    ))
                })
                .collect();
            if !modes.is_empty() {
                figures.push(format!(
                    "{}, {}: {}",
                    title(traffic),
                    value.heading,
                    modes.join(", ")
                ));
            }
        }
    }
    figures.join("; ")
}

/// A mode, with the settings of a series in it where those are not our default ones.
fn in_words(experiment: &Both, mode: Mode, series: &str) -> String {
    let before = |results: &Results| results.date.as_str() < OURS_SINCE;
    let named = match series {
        OURS => experiment.mode(mode).is_some_and(before).then_some(PAPER),
        other => Some(other),
    };
    let mode = mode.as_str();
    named.map_or_else(|| mode.to_owned(), |named| format!("{mode}, `{named}`"))
}

/// The series that stands for us: the first where none has that name.
fn ours(experiment: &Both, traffic: Traffic) -> &str {
    let series = experiment.series(traffic);
    series.iter().find(|series| **series == OURS).or(series.first()).copied().unwrap_or(OURS)
}

/// Lowest and highest median over the points.
fn medians(
    experiment: &Both,
    traffic: Traffic,
    mode: Mode,
    value: &str,
) -> Option<RangeInclusive<f64>> {
    let series = ours(experiment, traffic);
    let points = experiment.points(traffic).into_iter();
    let medians = points.filter_map(|point| {
        Some(experiment.spread(mode, Place { traffic, point, series }, value)?.median)
    });
    medians
        .map(|median| median..=median)
        .reduce(|ends, one| ends.start().min(*one.start())..=ends.end().max(*one.end()))
}

fn ends(value: &Value, ends: RangeInclusive<f64>) -> String {
    let (low, high) = (value.show(*ends.start()), value.show(*ends.end()));
    if low == high { low } else { format!("{low} to {high}") }
}

/// How far the modes are apart at most.
fn furthest(experiment: &Both) -> String {
    let mut furthest: Option<(f64, bool)> = None;
    for traffic in experiment.traffics() {
        for place in experiment.places(traffic) {
            if let Some(apart) = apart(experiment, place) {
                let far = furthest.is_some_and(|known| known.1) || too_far(place, apart);
                let most = furthest.map_or(0.0, |known| known.0).max(apart.abs());
                furthest = Some((most, far));
            }
        }
    }
    match furthest {
        None => String::new(),
        Some((most, true)) => format!("**{}** ⚠", LIMIT.show(most)),
        Some((most, false)) => LIMIT.show(most),
    }
}

/// The block of the README: the experiment that stands beside most figures of others, else the first.
///
/// # Errors
/// When its picture cannot be drawn.
pub fn most_telling(experiments: &[Both], peers: &Peers) -> Result<String> {
    let beside = |experiment: &&Both| {
        let of = peers.figures.iter().filter(|figures| figures.experiment == experiment.name);
        of.flat_map(|figures| &figures.peers).map(|peer| peer.at.len()).sum::<usize>()
    };
    // Of equals the first: `max_by_key` would take the last.
    let most = experiments.iter().rev().max_by_key(beside);
    let chosen = most.and_then(|experiment| Some((experiment, chief(experiment)?)));
    let Some((experiment, traffic)) = chosen else { return Ok("No results yet.\n".to_owned()) };
    let pictures = picture::all(experiment, peers)?;
    let picture = pictures.iter().find(|picture| picture.traffic == traffic);
    let folder = format!("benches/results/{}", experiment.name);
    let table = peers.of(&experiment.name, traffic).map_or_else(
        || goodput(experiment, traffic).to_string(),
        |figures| {
            let table = in_short(experiment, traffic, figures, ours(experiment, traffic));
            format!(
                "{table}\nRTT in ms, ± its jitter. Bold: the most of the row. Others: {}.\n",
                figures.source
            )
        },
    );
    let shown = picture
        .map(|picture| format!("![{}]({folder}/{})\n\n", picture.title, picture.file))
        .unwrap_or_default();
    Ok(format!(
        "**{}** ({}; [all of it]({folder}/README.md), [all experiments](benches/results/README.md))\n\n\
         {shown}{table}\n{}",
        experiment.title(),
        title(traffic),
        provenance(experiment)
    ))
}

/// What most people would run: TCP cubic, else the first.
fn chief(experiment: &Both) -> Option<Traffic> {
    let traffics = experiment.traffics();
    let cubic = traffics.iter().find(|traffic| **traffic == Traffic::TcpCubic);
    cubic.or(traffics.first()).copied()
}

/// A text whose block between the markers is another one.
///
/// # Errors
/// Where the markers are not there once each, in their order.
pub fn replaced(text: &str, block: &str) -> Result<String> {
    let parts = |marker| text.matches(marker).count();
    ensure!(
        parts(BEGIN) == 1 && parts(END) == 1,
        "it must have one line `{BEGIN}` and, below, one line `{END}`"
    );
    let (before, rest) = text.split_once(BEGIN).unwrap_or_default();
    let (_, after) = rest.split_once(END).unwrap_or_default();
    ensure!(rest.contains(END), "`{END}` must come after `{BEGIN}`");
    Ok(format!("{before}{BEGIN}\n{block}{END}{after}"))
}
