//! What goes on, on standard error: the plan before, how far it is and the time left while it runs.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use ropewalk_netlab::stage;

use crate::plan::{Job, Plan};
use crate::results::Mode;

/// CPU time of a simulated second, for the tunnel itself and for each Mbit/s through it, and of a run's
/// beginning: measured on 2 cores of 2025, for an expectation only.
const SIMULATED_SECOND: f64 = 0.001;
const SIMULATED_MBIT: f64 = 0.0005;
/// What a run on the kernel takes beside its traffic: namespaces, daemons, links coming up, the inner MTU
/// coming to rest.
const REAL_SETUP_SECONDS: f64 = 7.0;

/// How long a run takes, in seconds of one thread.
#[must_use]
pub fn cost(plan: &Plan, job: Job) -> f64 {
    let case = &plan.cases[job.case];
    let mbit: f64 =
        case.candidates[job.candidate].summaries.iter().map(|link| link.rate_mbit).sum();
    #[expect(clippy::cast_precision_loss, reason = "transfers are far below 2^52 bytes")]
    let transfer = case.bytes.map(|bytes| f64::from(case.times) * bytes as f64 * 8e-6 / mbit);
    let seconds = transfer.map_or(case.seconds, |seconds| seconds.min(case.seconds));
    match plan.asked.mode {
        Mode::Real => seconds + REAL_SETUP_SECONDS,
        Mode::Simulated => seconds * (SIMULATED_SECOND + SIMULATED_MBIT * mbit),
    }
}

/// How long a whole plan takes on so many threads.
#[must_use]
pub fn expected(plan: &Plan, threads: usize) -> Duration {
    let work: f64 = plan.jobs().into_iter().map(|job| cost(plan, job)).sum();
    #[expect(clippy::cast_precision_loss, reason = "a count of threads")]
    let beside = if plan.asked.mode == Mode::Real { 1.0 } else { threads.max(1) as f64 };
    Duration::from_secs_f64(work / beside)
}

/// A time as people say it: `40 s`, `12 min`, `1.5 h`.
#[must_use]
pub fn human(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds < 99.5 => format!("{seconds:.0} s"),
        seconds if seconds < 99.5 * 60.0 => format!("{:.0} min", seconds / 60.0),
        seconds => format!("{:.1} h", seconds / 3600.0),
    }
}

/// The runs of one plan as they end.
pub struct Progress {
    what: String,
    rewrites: bool,
    started: Instant,
    total: f64,
    done: f64,
    counted: usize,
    of: usize,
}

impl Progress {
    /// Of these runs, which may be fewer than those of the plan.
    #[must_use]
    pub fn new(plan: &Plan, jobs: &[Job]) -> Self {
        let all = plan.jobs().len();
        if jobs.len() < all {
            let (done, name) = (all - jobs.len(), &plan.experiment.name);
            let mut out = std::io::stderr().lock();
            let _ = writeln!(out, "{name}: {done} of {all} runs are finished already");
        }
        Self {
            what: format!("{} {}", plan.experiment.name, plan.asked.mode.as_str()),
            rewrites: std::io::stderr().is_terminal(),
            started: Instant::now(),
            total: jobs.iter().map(|job| cost(plan, *job)).sum(),
            done: 0.0,
            counted: 0,
            of: jobs.len(),
        }
    }

    /// A run has ended.
    pub fn step(&mut self, plan: &Plan, job: Job, remark: &str) {
        self.done += cost(plan, job);
        self.counted += 1;
        let elapsed = self.started.elapsed().as_secs_f64();
        let left = Duration::try_from_secs_f64(elapsed * (self.total / self.done - 1.0));
        let left = human(left.unwrap_or_default());
        let Self { what, counted, of, .. } = self;
        let key = plan.key(job);
        let line = format!("{what}: {counted} of {of} runs, {left} left; {key}{remark}");
        let mut out = std::io::stderr().lock();
        // Progress that does not show is no harm.
        let _ = if self.rewrites {
            let end = if counted == of { "\r\x1b[K" } else { "" };
            write!(out, "\r{line}\x1b[K{end}").and_then(|()| out.flush())
        } else if plan.asked.mode == Mode::Real {
            writeln!(out, "{line}")
        } else {
            Ok(())
        };
    }
}

/// Says nothing of the steps within a run.
#[derive(Clone, Copy, Debug)]
pub struct Quiet;

impl stage::Progress for Quiet {
    fn say(&self, _what: &str) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_a_unit_that_fits() {
        for (seconds, text) in
            [(0, "0 s"), (99, "99 s"), (100, "2 min"), (5_940, "99 min"), (7_200, "2.0 h")]
        {
            assert_eq!(human(Duration::from_secs(seconds)), text);
        }
    }
}
