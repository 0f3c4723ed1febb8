//! Which cores of the machine do what while something is measured.
//!
//! The kernel does what a packet needs where the packet comes from: a segment that the server sends passes the
//! routers and reaches the proxy in one go, on the server's core, and under load that goes on for milliseconds. Whatever
//! thread is on that core waits, with any priority. So the emulator, which is to be late by less than that, has a core
//! on which nothing of the far end runs: no server, no proxy. The clients may use all cores.

use std::sync::OnceLock;

use rustix::io;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// How the cores are divided; empty in tests, which run side by side.
static DIVISION: OnceLock<Division> = OnceLock::new();

struct Division {
    all: CpuSet,
    emulator: CpuSet,
    others: CpuSet,
}

impl Division {
    /// `None` where there are fewer than two.
    fn of(all: CpuSet) -> Option<Self> {
        let first = (0..CpuSet::MAX_CPU).find(|core| all.is_set(*core))?;
        let (mut emulator, mut others) = (CpuSet::new(), all);
        emulator.set(first);
        others.unset(first);
        (others.count() > 0).then_some(Self { all, emulator, others })
    }
}

/// Divides the cores that this thread may use, once in the life of a process: it, and the threads and programs that
/// it starts from now on, keep off the first one; emulators that are made from now on keep to it. With one core nothing
/// changes.
///
/// # Errors
/// When the kernel refuses it.
pub fn divide() -> io::Result<()> {
    let Some(division) = Division::of(sched_getaffinity(None)?) else { return Ok(()) };
    let division = DIVISION.get_or_init(|| division);
    sched_setaffinity(None, &division.others)
}

/// This thread keeps to the emulators' core, if the cores are divided.
pub(crate) fn keep_to_the_emulators() {
    keep_to(|division| division.emulator);
}

/// This thread, and what it starts from now on, may use all cores, if they are divided.
pub(crate) fn use_all() {
    keep_to(|division| division.all);
}

fn keep_to(which: impl FnOnce(&Division) -> CpuSet) {
    if let Some(division) = DIVISION.get() {
        // Cores that were taken away meanwhile cannot be used; then it stays where it is.
        let _ = sched_setaffinity(None, &which(division));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cores(which: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        which.iter().for_each(|core| set.set(*core));
        set
    }

    #[test]
    fn the_emulator_has_the_first_core_and_the_far_end_the_others() {
        for (all, others) in [(vec![0, 1], vec![1]), (vec![2, 5, 7], vec![5, 7])] {
            let division = Division::of(cores(&all)).unwrap();
            assert!(division.all == cores(&all));
            assert!(division.emulator == cores(&all[..1]));
            assert!(division.others == cores(&others));
        }
    }

    #[test]
    fn one_core_is_not_divided() {
        assert!(Division::of(cores(&[3])).is_none());
        assert!(Division::of(cores(&[])).is_none());
    }
}
