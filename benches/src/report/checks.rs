//! What does not hold: failed checks, modes that differ, runs that are missing or void.

use crate::results::{Case, Mode};

use super::both::{Both, Place};
use super::values::{LIMIT, Value, number, title, tolerance};

/// How many checks there are, and how many failed.
#[must_use]
pub fn count(experiment: &Both) -> (usize, usize) {
    let checks = || experiment.cases().flat_map(|(_, case)| &case.checks);
    (checks().count(), checks().filter(|check| !check.ok).count())
}

/// Real less simulated in points of the limit; `None` where one is missing.
#[must_use]
pub fn apart(experiment: &Both, place: Place<'_>) -> Option<f64> {
    let of = |mode| experiment.spread(mode, place, LIMIT.name).map(|spread| spread.median);
    Some(of(Mode::Real)? - of(Mode::Simulated)?)
}

/// Whether that is more than it may be.
#[must_use]
pub fn too_far(place: Place<'_>, apart: f64) -> bool {
    apart.abs() > tolerance(place.traffic)
}

/// Everything of an experiment that does not hold, a sentence each.
#[must_use]
pub fn faults(experiment: &Both) -> Vec<String> {
    let mut faults = Vec::new();
    for results in &experiment.results {
        let mode = results.mode.as_str();
        if results.quick {
            faults.push(format!(
                "The {mode} results are of a quick run: for a look, not for figures."
            ));
        }
        if results.dirty {
            faults.push(format!("The {mode} results are of code that no commit has."));
        }
    }
    for (mode, case) in experiment.cases() {
        let failed = case.checks.iter().filter(|check| !check.ok);
        faults.extend(failed.map(|check| {
            // With every digit: what misses a bound by little is not to look as if it held.
            let measured = check.measured.map_or_else(|| "nothing".to_owned(), |m| m.to_string());
            let least = check.at_least.map(|bound| format!("at least {bound}"));
            let most = check.at_most.map(|bound| format!("at most {bound}"));
            let must: Vec<_> = least.into_iter().chain(most).collect();
            // Beside a series of which no run counts.
            let must =
                if must.is_empty() { vec!["at least what is not known".to_owned()] } else { must };
            let value = Value::named(&check.value);
            let name = value.map_or(check.value.as_str(), |value| value.heading);
            let must = must.join(" and ");
            format!("**Failed**: {}: {name} is {measured}, must be {must}.", place_of(mode, case))
        }));
        let counted = case.runs.iter().filter(|run| run.void.is_none()).count();
        if counted < case.planned_runs {
            let reasons: Vec<&str> =
                case.runs.iter().filter_map(|run| run.void.as_deref()).collect();
            let why = if reasons.is_empty() {
                String::new()
            } else {
                format!(" ({})", reasons.join("; "))
            };
            faults.push(format!(
                "**Missing**: {}: {counted} of {} runs count{why}.",
                place_of(mode, case),
                case.planned_runs
            ));
        }
    }
    for traffic in experiment.traffics() {
        for place in experiment.places(traffic) {
            if let Some(apart) = apart(experiment, place).filter(|apart| too_far(place, *apart)) {
                faults.push(format!(
                    "**Differs**: {}, {}, {}: real is {} points of the limit {} simulated.",
                    title(traffic),
                    place.point.label,
                    place.series,
                    number(apart.abs(), 1),
                    if apart < 0.0 { "below" } else { "above" },
                ));
            }
        }
    }
    faults
}

fn place_of(mode: Mode, case: &Case) -> String {
    let (traffic, point, series) = (title(case.traffic), &case.point.label, &case.series);
    format!("{traffic}, {point}, {series}, {}", mode.as_str())
}
