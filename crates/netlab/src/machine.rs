//! Whether this machine kept up with what was measured on it: how late an ordinary thread woke up, and how
//! busy the processors were.
//!
//! The emulator tells how late it was itself, but where it may it runs before all ordinary threads. The
//! daemons and the traffic are ordinary: on a busy machine they are late while the emulator is in time.

use std::fmt;
use std::fs;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::emulator::Bound;
use crate::stats::{Percentiles, percent};

/// How long the thread sleeps that notes when it wakes up: short enough to see a pause of 20 ms, and long
/// enough to take nothing from what is measured.
const SLEEP: Duration = Duration::from_millis(5);

/// How the machine was while something ran on it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Machine {
    /// How late an ordinary thread woke up.
    pub wakes: Percentiles,
    /// What the processors did meanwhile; `None` where the system does not say.
    pub load: Option<Load>,
}

/// What the processors did, in percent of their time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Load {
    /// They were not idle.
    pub busy_percent: f64,
    /// They waited for the host of this virtual machine.
    pub stolen_percent: f64,
}

/// Does `work` and meanwhile watches the machine.
pub fn watched<T>(work: impl FnOnce() -> T) -> (T, Machine) {
    let before = Ticks::now();
    let (done, wakes) = thread::scope(|scope| {
        // Dropped when the work is over, also by a panic: that ends the watching.
        let (working, over) = mpsc::channel::<()>();
        let watching = scope.spawn(move || {
            let mut lateness = Vec::new();
            loop {
                let asleep = Instant::now();
                if over.recv_timeout(SLEEP) != Err(RecvTimeoutError::Timeout) {
                    return Percentiles::of(lateness);
                }
                lateness.push(asleep.elapsed().saturating_sub(SLEEP));
            }
        });
        let done = work();
        drop(working);
        let wakes = watching.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (done, wakes)
    });
    let load = before.zip(Ticks::now()).and_then(|(before, after)| after.since(before));
    (done, Machine { wakes, load })
}

/// How often [`in_time`] does its work at most.
const MOST_RUNS: u32 = 4;

/// Does `work`, and again while the machine was late meanwhile, four times at most: what it measures shows the machine
/// then. What the last run found, late or not.
pub fn in_time<T>(mut work: impl FnMut() -> T) -> T {
    let mut run = 1;
    loop {
        let (done, machine) = watched(&mut work);
        match machine.late_because(None, &Bound::default()) {
            Some(_) if run < MOST_RUNS => {}
            _ => return done,
        }
        run += 1;
    }
}

impl Machine {
    /// Why what was measured may show the machine; `None` where it was in time. `emulator` is why the
    /// emulator was not, if so. How busy the processors were is told and not judged: what keeps them busy
    /// may leave the others their turn.
    #[must_use]
    pub fn late_because(&self, emulator: Option<String>, bound: &Bound) -> Option<String> {
        let Self { wakes: Percentiles { p99_ms, max_ms, .. }, load } = self;
        let [p99_bound, max_bound] = [bound.p99, bound.max].map(|time| time.as_secs_f64() * 1e3);
        let ordinary = (*p99_ms > p99_bound || *max_ms > max_bound).then(|| {
            format!(
                "an ordinary thread woke up late by p99 {p99_ms:.1} ms, max {max_ms:.1} ms (allowed \
                 are p99 {p99_bound} ms, max {max_bound} ms)"
            )
        });
        let emulator = emulator.map(|why| format!("the emulator was late ({why})"));
        let reasons: Vec<_> = [ordinary, emulator].into_iter().flatten().collect();
        if reasons.is_empty() {
            return None;
        }
        let load = load.map(|load| load.to_string());
        Some([reasons, load.into_iter().collect()].concat().join("; "))
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { busy_percent, stolen_percent } = self;
        write!(
            f,
            "the processors were busy for {busy_percent:.0} % of the time and taken by the host for \
             {stolen_percent:.0} %"
        )
    }
}

/// What all processors did since the start of the system, in its ticks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ticks {
    idle: u64,
    stolen: u64,
    all: u64,
}

impl Ticks {
    fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// From the first line of `/proc/stat` (proc(5)): user, nice, system, idle, iowait, irq, softirq,
    /// steal; what follows is contained in user and nice.
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> =
            line.split_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
        let &[_, _, _, idle, waiting, _, _, stolen] = ticks.as_slice() else { return None };
        Some(Self { idle: idle + waiting, stolen, all: ticks.iter().sum() })
    }

    fn since(self, before: Self) -> Option<Load> {
        // The time spent waiting for disks may shrink (proc(5)).
        let all = self.all.checked_sub(before.all).filter(|all| *all > 0)?;
        let idle = self.idle.saturating_sub(before.idle).min(all);
        let stolen = self.stolen.saturating_sub(before.stolen);
        Some(Load { busy_percent: percent(all - idle, all), stolen_percent: percent(stolen, all) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY: Load = Load { busy_percent: 99.6, stolen_percent: 12.3 };

    fn wakes(p99_ms: f64, max_ms: f64) -> Percentiles {
        Percentiles { count: 1_000, p99_ms, max_ms, ..Percentiles::default() }
    }

    #[test]
    fn what_a_late_machine_measured_is_measured_again_a_few_times() {
        let mut runs = 0;
        let found = in_time(|| {
            runs += 1;
            runs
        });
        assert_eq!(found, runs);
        assert!((1..=MOST_RUNS).contains(&runs), "{runs}");
    }

    #[test]
    fn the_machine_was_late_where_an_ordinary_thread_or_the_emulator_was() {
        let bound = Bound::default();
        let emulator = || Some("devices were not looked at for 70000 µs".to_owned());
        for (wakes, emulator, expected) in [
            (wakes(0.23, 0.76), None, vec![]),
            (wakes(1.0, 20.0), None, vec![]),
            (wakes(1.1, 5.0), None, vec!["thread", "p99 1.1 ms, max 5.0 ms", "12 %"]),
            (wakes(0.23, 20.1), None, vec!["thread", "max 20.1 ms", "busy for 100 %"]),
            (wakes(0.23, 0.76), emulator(), vec!["the emulator", "70000 µs", "busy for 100 %"]),
            (wakes(8.84, 200.59), emulator(), vec!["thread", "max 200.6 ms", "the emulator"]),
        ] {
            let machine = Machine { wakes, load: Some(BUSY) };
            let told = machine.late_because(emulator, &bound);
            assert_eq!(told.is_some(), !expected.is_empty(), "{wakes:?}: {told:?}");
            let told = told.unwrap_or_default();
            assert!(expected.iter().all(|part| told.contains(part)), "{expected:?}: {told}");
        }
    }

    #[test]
    fn a_load_that_is_not_known_is_not_told() {
        let machine = Machine { wakes: wakes(2.0, 3.0), load: None };
        let told = machine.late_because(None, &Bound::default()).unwrap_or_default();
        assert!(told.starts_with("an ordinary thread") && !told.contains("processors"), "{told}");
        assert_eq!(machine.late_because(None, &Bound { p99: SLEEP, max: SLEEP }), None);
    }

    #[test]
    fn load_is_what_the_system_counted_meanwhile() {
        let at = |line: &str| Ticks::parse(&format!("{line}\ncpu0 1 1 1 1 1 1 1 1 0 0\n"));
        let before = at("cpu  100 0 50 800 50 0 0 0 7 7").expect("a line of /proc/stat");
        let after = at("cpu  160 10 60 900 60 0 0 10 9 9").expect("a line of /proc/stat");
        let load = Load { busy_percent: 45.0, stolen_percent: 5.0 };
        assert_eq!(after.since(before), Some(load));
        assert_eq!(before.since(before), None);
        for malformed in ["", "cpu  1 2 3", "cpu  1 2 3 x 5 6 7 8", "intr 1 2 3 4 5 6 7 8"] {
            assert_eq!(at(malformed), None, "{malformed}");
        }
    }

    #[test]
    fn a_thread_is_watched_while_the_work_is_done() {
        let (done, machine) = watched(|| {
            thread::sleep(20 * SLEEP);
            7
        });
        assert_eq!(done, 7);
        // How often it woke up is up to the machine; that it did is not.
        assert!((1..=20).contains(&machine.wakes.count), "{machine:?}");
    }

    #[test]
    fn a_panic_of_the_work_ends_the_watching() {
        let panicked =
            std::panic::catch_unwind(|| watched(|| std::panic::resume_unwind(Box::new(3))));
        assert!(panicked.is_err());
    }
}
