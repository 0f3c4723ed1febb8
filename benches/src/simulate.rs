//! Runs in virtual time, spread over threads. What comes out depends on no clock and no thread.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result};
use ropewalk_netlab::scenario::Folders;
use ropewalk_netlab::scenario_report::ScenarioReport;
use ropewalk_netlab::virtual_run;

use crate::error::BadInput;
use crate::plan::{Job, Plan};

/// Runs `jobs` on so many threads, and hands each report to `done` as it comes, on this thread.
///
/// # Errors
/// [`BadInput`] where a scenario makes no sense; what `done` says. Then no further job is begun.
pub fn run(
    plan: &Plan,
    jobs: &[Job],
    threads: usize,
    traces: Folders<'_>,
    mut done: impl FnMut(Job, &ScenarioReport) -> Result<()>,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let (reports, finished) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, jobs.len().max(1)) {
            let (reports, next) = (reports.clone(), &next);
            scope.spawn(move || {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // Nobody listens any more once something failed.
                    if reports.send((*job, one(plan, *job, traces))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(reports);
        // Moved in, so that it is gone where this returns early.
        let finished = finished;
        for (job, report) in finished {
            done(job, &report.with_context(|| plan.key(job))?)?;
        }
        Ok(())
    })
}

fn one(plan: &Plan, job: Job, traces: Folders<'_>) -> Result<ScenarioReport> {
    let scenario = plan.scenario(job, traces)?;
    virtual_run::run(&scenario).map_err(|error| BadInput(error.to_string()).into())
}
