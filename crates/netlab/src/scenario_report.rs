//! What came of a scenario, under the same names whether it ran in virtual time or on the kernel.
//!
//! | name | meaning |
//! | --- | --- |
//! | `tcp_mbit` | goodput of the first stream of TCP or HTTP |
//! | `tcp_percent_of_sum` | the same, of the links' initial rates in its direction |
//! | `sha256_ok` | 1 if every body of known length arrived as sent |
//! | `longest_stall_ms` | longest time without a byte of the first stream |
//! | `udp_mbit`, `udp_percent_of_sum` | goodput of the first UDP stream |
//! | `udp_lost_percent` | packets of it that did not come |
//! | `in_order_percent` | packets of it that came in order, of those that came |
//! | `ping_p50_ms`, `ping_p99_ms`, `ping_lost_percent` | the first series of echoes |
//! | `seconds_to_reuse` | from an outage's end until the link carries data again, the longest |
//! | `late_percent` | packets the client's resequencer delivered late or dropped as doubles |
//! | `wait_p99_ms` | 99th percentile of its waits |
//!
//! A name whose traffic the scenario lacks is absent, and a check of it fails.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::prove::Finding;
use crate::scenario::Scenario;
use crate::virtual_run::KERNEL_ONLY;

/// Where a scenario ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Runner {
    /// The core, in virtual time.
    Virtual,
    /// The daemons, on this machine's kernel.
    Kernel,
}

/// The measured values by name, with what makes them worth something.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ScenarioReport {
    /// The scenario's name.
    pub scenario: String,
    /// Where it ran.
    pub runner: Runner,
    /// Decided losses and jitter.
    pub seed: u64,
    /// By name.
    pub values: BTreeMap<&'static str, f64>,
    /// Why nothing may be concluded from it, if so.
    pub void: Option<String>,
}

impl ScenarioReport {
    /// Without a value yet.
    #[must_use]
    pub fn new(scenario: &Scenario, runner: Runner) -> Self {
        Self {
            scenario: scenario.name.clone(),
            runner,
            seed: scenario.seed,
            values: BTreeMap::new(),
            void: None,
        }
    }

    /// Notes a value; the first of a name counts.
    pub fn note(&mut self, name: &'static str, value: f64) {
        self.values.entry(name).or_insert(value);
    }

    /// A value by its name; no number where it was not measured.
    #[must_use]
    pub fn value(&self, name: &str) -> f64 {
        self.values.get(name).copied().unwrap_or(f64::NAN)
    }

    /// The checks of the scenario, and what else was measured.
    #[must_use]
    pub fn findings(&self, scenario: &Scenario) -> Vec<Finding> {
        let mut findings = Vec::new();
        for check in &scenario.checks {
            let value = self.value(&check.name);
            let elsewhere = self.runner == Runner::Virtual && value.is_nan();
            if elsewhere && KERNEL_ONLY.contains(&check.name.as_str()) {
                findings.push(Finding::not_here(&check.name, "on the kernel only"));
                continue;
            }
            if let Some(minimum) = check.minimum {
                findings.push(Finding::at_least(&check.name, value, minimum, ""));
            }
            if let Some(maximum) = check.maximum {
                findings.push(Finding::at_most(&check.name, value, maximum, ""));
            }
        }
        let unchecked = self
            .values
            .iter()
            .filter(|(name, _)| scenario.checks.iter().all(|check| check.name != **name));
        findings.extend(unchecked.map(|(name, value)| Finding::told(*name, *value, "")));
        findings
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_check_of_what_was_not_measured_fails() {
        let text = "name = 'x'\nlinks = [{ name = 'a' }]\n\
            checks = [{ name = 'tcp_mbit', minimum = 1 }, { name = 'udp_mbit', maximum = 9 }]";
        let scenario = Scenario::parse(text, Path::new(".")).expect("a valid scenario");
        let mut report = ScenarioReport::new(&scenario, Runner::Kernel);
        report.note("tcp_mbit", 2.0);
        report.note("tcp_mbit", 0.5);
        report.note("wait_p99_ms", 7.0);
        let findings = report.findings(&scenario);
        let seen: Vec<_> = findings.iter().map(|f| (f.what.as_str(), f.ok)).collect();
        assert_eq!(seen, [("tcp_mbit", true), ("udp_mbit", false), ("wait_p99_ms", true)]);
    }
}
