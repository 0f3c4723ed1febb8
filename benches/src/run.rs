//! One experiment from its plan to its results: what is finished already is taken from the store, the rest
//! is run, and each run is stored as it ends.

use std::path::Path;

use anyhow::Result;
use ropewalk_netlab::scenario::Folders;
use ropewalk_netlab::scenario_report::ScenarioReport;

use crate::compared::{note_direct, note_singles};
use crate::measure::{case_of, check, completion, run_of};
use crate::plan::{Job, Plan};
use crate::progress::Progress;
use crate::provenance::{Sources, machine, today};
use crate::results::{Mode, Results, Run, SCHEMA};
use crate::store::Store;
use crate::{real, simulate};

/// With what to run.
#[derive(Clone, Copy, Debug)]
pub struct Means<'a> {
    /// Threads of simulated runs.
    pub threads: usize,
    /// Where traces lie.
    pub traces: Folders<'a>,
    /// The `ropewalk` of real runs.
    pub program: Option<&'a Path>,
    /// What the code is.
    pub sources: &'a Sources,
}

/// Runs what is missing and returns the results with their checks.
///
/// # Errors
/// When a run cannot be made; those that ended before it are stored.
pub fn run(plan: &Plan, store: &mut Store, means: &Means<'_>) -> Result<Results> {
    let jobs: Vec<Job> =
        plan.jobs().into_iter().filter(|job| store.get(&plan.key(*job)).is_none()).collect();
    let mut progress = Progress::new(plan, &jobs);
    let finished = |job: Job, report: &ScenarioReport| {
        let case = &plan.cases[job.case];
        let capacity = plan.capacity(job, completion(report), means.traces)?;
        let run =
            run_of(report, case, &case.candidates[job.candidate], capacity.as_ref(), job.run == 0);
        let remark = run.void.as_ref().map_or_else(String::new, |why| format!(" (void: {why})"));
        store.add(plan.key(job), run)?;
        progress.step(plan, job, &remark);
        Ok(())
    };
    match (plan.asked.mode, means.program) {
        (Mode::Real, Some(program)) => real::run(plan, &jobs, program, means.traces, finished)?,
        _ => simulate::run(plan, &jobs, means.threads, means.traces, finished)?,
    }
    results(plan, store, means.sources)
}

fn results(plan: &Plan, store: &Store, sources: &Sources) -> Result<Results> {
    let mut runs: Vec<Vec<Vec<Run>>> =
        plan.cases.iter().map(|case| vec![Vec::new(); case.candidates.len()]).collect();
    for job in plan.jobs() {
        runs[job.case][job.candidate].extend(store.get(&plan.key(job)).cloned());
    }
    note_singles(&plan.cases, &mut runs);
    note_direct(&plan.cases, &mut runs);
    let mut cases: Vec<_> =
        plan.cases.iter().zip(runs).map(|(case, runs)| case_of(case, runs)).collect();
    check(&plan.cases, &mut cases);
    let real = plan.asked.mode == Mode::Real;
    Ok(Results {
        schema: SCHEMA,
        experiment: plan.experiment.name.clone(),
        title: plan.experiment.file.title.clone(),
        source: plan.experiment.file.source.clone(),
        mode: plan.asked.mode,
        quick: plan.asked.quick,
        commit: sources.commit.clone(),
        dirty: sources.dirty,
        date: if real { today()? } else { sources.date.clone() },
        seed: plan.asked.seed,
        machine: real.then(machine),
        by_second: plan.experiment.file.by_second,
        one_by_one: plan.experiment.file.one_by_one,
        cases,
    })
}
