//! Tables for people: the experiments there are, and what came of those that ran.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;

use crate::plan::Plan;
use crate::progress::{expected, human};
use crate::results::{Case, Results};

/// Values shown, with the heads of their columns.
const COLUMNS: [(&str, &str); 10] = [
    ("goodput_mbit", "Mbit/s"),
    ("percent_of_limit", "% of limit"),
    ("coefficient_of_variation", "variation"),
    ("delay_p99_ms", "delay p99"),
    ("ping_p50_ms", "ping"),
    ("lost_percent", "lost %"),
    ("fetch_p50_ms", "fetch p50"),
    ("call_down_added_p95_ms", "call p95"),
    ("half_rate_after_s", "half rate"),
    ("outage_stall_ms", "stall"),
];

/// The experiments, each with its plan in both modes.
#[must_use]
pub fn list(plans: &[[Plan; 2]], threads: usize) -> String {
    let mut table = table(&["name", "runs", "simulated", "real", "shows"], 1..4);
    for [simulated, real] in plans {
        let time = |plan: &Plan| human(expected(plan, threads));
        let runs = format!("{} + {}", simulated.jobs().len(), real.jobs().len());
        let file = &simulated.experiment.file;
        let name = simulated.experiment.name.clone();
        table.add_row([name, runs, time(simulated), time(real), file.shows.clone()]);
    }
    table.trim_fmt()
}

/// What the list says of one experiment, for scripts.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// For a heading.
    pub title: String,
    /// Whose it is.
    pub source: String,
    /// What it shows.
    pub shows: String,
    /// Runs in virtual time.
    pub simulated_runs: usize,
    /// How long they take here.
    pub simulated_seconds: f64,
    /// Runs on the kernel.
    pub real_runs: usize,
    /// How long they take.
    pub real_seconds: f64,
}

/// The same as [`list`] for scripts.
#[must_use]
pub fn listed(plans: &[[Plan; 2]], threads: usize) -> Vec<Listed> {
    let one = |[simulated, real]: &[Plan; 2]| {
        let file = &simulated.experiment.file;
        Listed {
            name: simulated.experiment.name.clone(),
            title: file.title.clone(),
            source: file.source.clone(),
            shows: file.shows.clone(),
            simulated_runs: simulated.jobs().len(),
            simulated_seconds: expected(simulated, threads).as_secs_f64().round(),
            real_runs: real.jobs().len(),
            real_seconds: expected(real, threads).as_secs_f64().round(),
        }
    };
    plans.iter().map(one).collect()
}

/// What came of an experiment: medians, and the checks that failed.
#[must_use]
pub fn results(results: &Results) -> String {
    let mut heads = vec!["case", "runs"];
    heads.extend(COLUMNS.iter().map(|(_, head)| *head));
    heads.push("checks");
    let mut table = table(&heads, 1..2 + COLUMNS.len());
    for case in &results.cases {
        let sound = case.runs.iter().filter(|run| run.void.is_none()).count();
        let mut row = vec![case.id.clone(), sound.to_string()];
        row.extend(COLUMNS.iter().map(|(name, _)| {
            case.summary
                .get(*name)
                .map_or_else(String::new, |spread| format!("{:.4}", spread.median))
        }));
        row.push(checks(case));
        table.add_row(row);
    }
    let mode = results.mode.as_str();
    format!("{} ({}, {mode})\n\n{}\n", results.title, results.experiment, table.trim_fmt())
}

/// `ok`, or what failed.
fn checks(case: &Case) -> String {
    let failed = case.checks.iter().filter(|check| !check.ok).map(|check| {
        let measured =
            check.measured.map_or_else(|| "nothing".to_owned(), |value| value.to_string());
        let bound = |what: &str, bound: Option<f64>| {
            bound.map_or_else(String::new, |bound| format!(" {what} {bound}"))
        };
        let (least, most) = (bound("at least", check.at_least), bound("at most", check.at_most));
        format!("FAILED: {} is {measured}, must be{least}{most}", check.value)
    });
    match failed.collect::<Vec<_>>() {
        none if none.is_empty() && case.checks.is_empty() => String::new(),
        none if none.is_empty() => "ok".to_owned(),
        some => some.join("; "),
    }
}

/// With these heads; the columns `numbers` are aligned to the right.
fn table(heads: &[&str], numbers: std::ops::Range<usize>) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(heads);
    for place in numbers {
        if let Some(column) = table.column_mut(place) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}
