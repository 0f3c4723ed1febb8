//! The demo, several times: nobody is shown a lucky run.

use super::{Finding, Proof, Trial};
use crate::demo::{self, LATE_AIM};
use crate::error::LabError;

pub(super) const PROOF: Proof = Proof {
    name: "demo",
    shows: "five demos: the sum of two unequal links, in order, in every run",
    seconds: 300,
    run,
};

/// As often as the acceptance asks for.
const RUNS: u32 = 5;

fn run(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let mut findings = Vec::new();
    for number in 1..=trial.runs_or(trial.either(RUNS, 1)) {
        let outcome = demo::run(trial.program, trial)?;
        let machine = outcome.machine_late.clone().unwrap_or_else(|| "in time".to_owned());
        let best = outcome.best_single_mbit();
        let of = |what: &str| format!("run {number}: {what}");
        findings.extend([
            Finding::at_least(of("TCP, of the sum"), outcome.tcp_percent_of_sum, 80.0, "%"),
            Finding::holds(
                of("TCP, against the best link alone"),
                outcome.tcp_mbit > best,
                format!("{:.2} Mbit/s", outcome.tcp_mbit),
                format!("> {best:.2} Mbit/s"),
            ),
            Finding::holds(of("file"), outcome.sha256_ok, outcome.sha256_ok.to_string(), "sha256"),
            Finding::at_least(of("UDP, of the sum"), outcome.udp_percent_of_sum, 90.0, "%"),
            Finding::at_least(of("UDP in order"), outcome.in_order_percent, 99.9, "%"),
            Finding::at_most(of("late or dropped in order"), outcome.late_percent, LATE_AIM, "%"),
            Finding::told(
                of("links' delays apart, with queues, p99"),
                outcome.delay_difference_ms,
                "ms",
            ),
            Finding::at_most(
                of("wait for order, p99"),
                outcome.wait_p99_ms,
                outcome.wait_aim_ms(),
                "ms",
            ),
            Finding::told(of("ping beside the download"), outcome.ping_ms_beside, "ms"),
            Finding::holds(of("this machine"), true, machine, ""),
        ]);
    }
    Ok(findings)
}
