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
        let report = until_sound(|| {
            kernel_run::run(&scenario, program, &Quiet).with_context(|| plan.key(*job))
        })?;
        done(*job, &report)?;
    }
    Ok(())
}

/// The first report that is not void, or the last one.
fn until_sound(mut once: impl FnMut() -> Result<ScenarioReport>) -> Result<ScenarioReport> {
    let mut report = once()?;
    for _ in 1..TRIES {
        if report.void.is_none() {
            break;
        }
        report = once()?;
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ropewalk_netlab::scenario::Scenario;
    use ropewalk_netlab::scenario_report::Runner;

    use super::*;

    #[test]
    fn a_void_run_is_repeated_twice_and_then_told() {
        let scenario =
            Scenario::parse("name = 'x'\nlinks = [{ name = 'a' }]", Path::new(".")).unwrap();
        for (sound_at, tries, void) in [(1, 1, false), (3, 3, false), (9, 3, true)] {
            let mut tried = 0;
            let report = until_sound(|| {
                tried += 1;
                let mut report = ScenarioReport::new(&scenario, Runner::Kernel);
                report.void = (tried < sound_at).then(|| "busy".to_owned());
                Ok(report)
            });
            assert_eq!((tried, report.unwrap().void.is_some()), (tries, void), "{sound_at}");
        }
    }
}
