//! Runs on this machine's kernel, one after the other: real daemons in network namespaces.

use std::path::Path;

use anyhow::{Context, Result};
use ropewalk_netlab::kernel_run;
use ropewalk_netlab::scenario::Folders;
use ropewalk_netlab::scenario_report::ScenarioReport;

use crate::plan::{Job, Plan};
use crate::progress::Quiet;

/// How often a run is tried of which nothing may be concluded, because the machine was too busy.
const TRIES: usize = 3;

/// Runs `jobs` with the `ropewalk` at `program`, and hands each report to `done` as it comes.
///
/// # Errors
/// When a scenario makes no sense, a network or a daemon cannot be started, or `done` fails.
pub fn run(
    plan: &Plan,
    jobs: &[Job],
    program: &Path,
    traces: Folders<'_>,
    mut done: impl FnMut(Job, &ScenarioReport) -> Result<()>,
) -> Result<()> {
    for job in jobs {
        let scenario = plan.scenario(*job, traces)?;
        let once = || kernel_run::run(&scenario, program, &Quiet).with_context(|| plan.key(*job));
        let mut report = once()?;
        for _ in 1..TRIES {
            if report.void.is_some() {
                report = once()?;
            }
        }
        done(*job, &report)?;
    }
    Ok(())
}
