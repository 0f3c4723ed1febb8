//! One line of a proof: what was looked at, what was measured, what must be, and whether it is so.

use std::fmt::Write as _;

use serde::Serialize;

/// One measured fact beside its bound.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub what: String,
    /// What came out, with its unit.
    pub measured: String,
    /// What must come out; empty where the figure is only reported.
    pub must: String,
    /// Whether it did.
    pub ok: bool,
}

impl Finding {
    /// A figure with a lower bound.
    #[must_use]
    pub fn at_least(what: impl Into<String>, measured: f64, bound: f64, unit: &str) -> Self {
        Self::bounded(what, measured, bound, unit, ">=", measured >= bound)
    }

    /// A figure with an upper bound.
    #[must_use]
    pub fn at_most(what: impl Into<String>, measured: f64, bound: f64, unit: &str) -> Self {
        Self::bounded(what, measured, bound, unit, "<=", measured <= bound)
    }

    /// A fact, in words.
    #[must_use]
    pub fn holds(
        what: impl Into<String>,
        ok: bool,
        measured: impl Into<String>,
        must: impl Into<String>,
    ) -> Self {
        Self { what: what.into(), measured: measured.into(), must: must.into(), ok }
    }

    /// A figure that is told and has no bound.
    #[must_use]
    pub fn told(what: impl Into<String>, measured: f64, unit: &str) -> Self {
        let measured = with_unit(measured, unit);
        Self { what: what.into(), measured, must: String::new(), ok: true }
    }

    /// A figure that this run cannot give, and where it is given.
    #[must_use]
    pub fn not_here(what: impl Into<String>, place: &str) -> Self {
        Self { what: what.into(), measured: "-".to_owned(), must: place.to_owned(), ok: true }
    }

    fn bounded(
        what: impl Into<String>,
        measured: f64,
        bound: f64,
        unit: &str,
        relation: &str,
        ok: bool,
    ) -> Self {
        let (measured, bound) = (with_unit(measured, unit), with_unit(bound, unit));
        Self { what: what.into(), measured, must: format!("{relation} {bound}"), ok }
    }
}

/// The findings as a table for people.
#[must_use]
pub fn table(findings: &[Finding]) -> String {
    let width = |of: fn(&Finding) -> &str, least: usize| {
        findings.iter().map(|finding| of(finding).chars().count()).fold(least, usize::max)
    };
    let (what, measured, must) =
        (width(|f| &f.what, 4), width(|f| &f.measured, 8), width(|f| &f.must, 4));
    let mut text = format!("  {:<what$}  {:<measured$}  {:<must$}\n", "what", "measured", "must");
    for finding in findings {
        let mark = match (finding.ok, finding.must.is_empty()) {
            (true, true) => "",
            (true, false) => "ok",
            (false, _) => "NOT SO",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "  {:<what$}  {:<measured$}  {:<must$}  {mark}",
            finding.what, finding.measured, finding.must
        );
    }
    text
}

/// Counts without decimals, small figures with enough of them.
fn with_unit(value: f64, unit: &str) -> String {
    let number = if value.fract() == 0.0 && value.abs() < 1e15 {
        format!("{value:.0}")
    } else if value.abs() < 1.0 {
        format!("{value:.3}")
    } else {
        format!("{value:.2}")
    };
    if unit.is_empty() { number } else { format!("{number} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_itself_is_within_and_what_is_no_number_is_not() {
        for (finding, ok, measured, must) in [
            (Finding::at_least("a", 80.0, 80.0, "%"), true, "80 %", ">= 80 %"),
            (Finding::at_least("a", 79.999, 80.0, "%"), false, "80.00 %", ">= 80 %"),
            (Finding::at_least("a", f64::NAN, 80.0, "%"), false, "NaN %", ">= 80 %"),
            (Finding::at_most("a", 0.05, 0.1, ""), true, "0.050", "<= 0.100"),
            (Finding::at_most("a", f64::NAN, 0.1, ""), false, "NaN", "<= 0.100"),
            (Finding::told("a", 3.0, "s"), true, "3 s", ""),
        ] {
            assert_eq!((finding.ok, &*finding.measured, &*finding.must), (ok, measured, must));
        }
    }

    #[test]
    fn the_table_shows_what_failed() {
        let findings = [Finding::at_most("one", 2.0, 1.0, "s"), Finding::told("two", 1.0, "")];
        let table = table(&findings);
        assert_eq!(table.matches("NOT SO").count(), 1, "{table}");
        assert_eq!(table.lines().count(), 3, "{table}");
    }
}
