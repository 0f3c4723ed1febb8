//! A call of `run throughput`: what is finished already is taken from the store, the rest is measured.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::contender::{Contender, Part, Programs};
use super::figures::{Figures, Measured, SCHEMA};
use super::load::{Lengths, Values, measure};
use super::network::Network;
use super::plan::{Job, jobs};
use super::targets;
use crate::progress::human;
use crate::provenance::{Sources, machine, today};
use crate::results::Run;
use crate::store::Store;

/// Repetitions for figures.
pub const REPETITIONS: usize = 5;

/// What is asked.
#[derive(Clone, Debug)]
pub struct Asked {
    /// For a look, not for figures.
    pub quick: bool,
    /// How often each is measured.
    pub repetitions: usize,
    /// These parts; all if none is named.
    pub only: Vec<Part>,
}

/// Measures what is missing and returns all of it, with its checks. What was measured before of parts that are not asked for
/// now is taken from `before`, if it is of the same code.
///
/// # Errors
/// When something does not start or fails; what ended before it is stored.
pub fn run(
    contenders: &[Contender],
    asked: &Asked,
    programs: &Programs,
    sources: &Sources,
    store: &mut Store,
) -> Result<Figures> {
    let missing: Vec<Option<String>> =
        contenders.iter().map(|one| programs.of(one.kind).err()).collect();
    let all = jobs(contenders, asked.repetitions, &asked.only);
    let able = |job: &&Job| missing.get(job.contender).is_some_and(Option::is_none);
    let todo: Vec<Job> = all
        .iter()
        .filter(able)
        .filter(|job| store.get(&job.key(contenders)).is_none())
        .copied()
        .collect();
    for (contender, why) in contenders.iter().zip(&missing) {
        if let Some(why) = why {
            say(&format!("{} is left out: it {why}", contender.name));
        }
    }
    let started = Instant::now();
    for (done, job) in todo.iter().enumerate() {
        let key = job.key(contenders);
        let values = once(&contenders[job.contender], job.part, asked, programs)
            .with_context(|| key.clone())?;
        store.add(key.clone(), as_run(values))?;
        let left =
            started.elapsed() / u32::try_from(done + 1)? * u32::try_from(todo.len() - done - 1)?;
        say(&format!("throughput: {} of {}, {} left; {key}", done + 1, todo.len(), human(left)));
    }
    let mut figures = Figures {
        schema: SCHEMA,
        quick: asked.quick,
        commit: sources.commit.clone(),
        dirty: sources.dirty,
        date: today()?,
        machine: machine(),
        repetitions: asked.repetitions,
        contenders: Vec::new(),
        checks: Vec::new(),
    };
    // Also of parts that an earlier call with the same code measured.
    let every = jobs(contenders, asked.repetitions, &[]);
    for (index, (contender, missing)) in contenders.iter().zip(missing).enumerate() {
        let mut runs = vec![Values::new(); asked.repetitions];
        for job in every.iter().filter(|job| job.contender == index) {
            if let Some(run) = store.get(&job.key(contenders)) {
                runs[job.repetition].extend(run.values.clone());
            }
        }
        let Contender { name, kind, links, nat, .. } = contender.clone();
        let measured = Measured {
            name,
            kind,
            links,
            nat,
            missing,
            runs,
            summary: std::collections::BTreeMap::new(),
        };
        figures.contenders.push(measured.with_summary());
    }
    figures.checks = targets::checks(&figures);
    Ok(figures)
}

/// One contender and one part, on a network of its own.
fn once(contender: &Contender, part: Part, asked: &Asked, programs: &Programs) -> Result<Values> {
    /// For what a start leaves behind: probes, first reports.
    const REST: Duration = Duration::from_millis(300);
    let program = programs.of(contender.kind).map_err(anyhow::Error::msg)?;
    let network = Network::build()?;
    let running = contender.start(&network, &program)?;
    std::thread::sleep(REST);
    measure(part, &running, &network, Lengths::new(asked.quick))
}

fn as_run(values: Values) -> Run {
    Run {
        seed: 0,
        void: None,
        values,
        per_second: std::collections::BTreeMap::new(),
        flow_mbit: Vec::new(),
        drops: std::collections::BTreeMap::new(),
        share_percent: std::collections::BTreeMap::new(),
        congestion_control: None,
    }
}

fn say(line: &str) {
    // Progress that does not show is no harm.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
