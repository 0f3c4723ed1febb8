//! What a process used: its time on a CPU, its wake-ups, its memory.

use std::fs;
use std::io;
use std::time::Duration;

/// What a process used since it began, all threads together.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Usage {
    /// On a CPU, in user and kernel mode. From `schedstat`, which is the sum of `utime` and `stime` without
    /// their rounding to hundredths of a second.
    pub cpu: Duration,
    /// How often a thread slept until something happened.
    pub sleeps: u64,
}

impl Usage {
    /// Of a process that runs. What threads that have ended used is not in it; daemons keep theirs.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn of(pid: u32) -> io::Result<Self> {
        let mut usage = Self::default();
        for task in fs::read_dir(format!("/proc/{pid}/task"))? {
            let task = task?.path();
            // A thread may end meanwhile.
            let read = |file| fs::read_to_string(task.join(file)).unwrap_or_default();
            usage.cpu += Duration::from_nanos(first_number(&read("schedstat")));
            usage.sleeps += field(&read("status"), "voluntary_ctxt_switches:");
        }
        Ok(usage)
    }

    /// What was used since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(earlier.cpu),
            sleeps: self.sleeps.saturating_sub(earlier.sleeps),
        }
    }
}

/// Resident memory of a process in bytes.
///
/// # Errors
/// When there is no such process.
pub fn resident(pid: u32) -> io::Result<u64> {
    Ok(1024 * field(&fs::read_to_string(format!("/proc/{pid}/status"))?, "VmRSS:"))
}

/// How long all CPUs of the machine were busy since it started, in seconds; steps of 10 ms.
#[must_use]
pub fn machine_busy() -> f64 {
    /// Columns of `/proc/stat` that are no work: idle, waiting for a disk. What guests used is in `user`, too.
    const REST: [usize; 4] = [3, 4, 8, 9];
    /// Of the times in `/proc`: the same on every machine that Linux has (`USER_HZ`).
    const TICKS_PER_SECOND: f64 = 100.0;
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let columns = text.lines().next().unwrap_or_default().split_whitespace().skip(1).enumerate();
    let work = columns.filter(|(column, _)| !REST.contains(column));
    work.filter_map(|(_, ticks)| ticks.parse::<f64>().ok()).sum::<f64>() / TICKS_PER_SECOND
}

fn first_number(text: &str) -> u64 {
    text.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or_default()
}

fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.map(first_number).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Instant;

    use super::*;

    #[test]
    fn work_and_sleep_of_this_process_are_counted() {
        let own = std::process::id();
        let before = Usage::of(own).unwrap();
        // On a thread of its own, which other tests of the process share the count with.
        let (worked, used) = thread::spawn(move || {
            let started = Instant::now();
            while started.elapsed() < Duration::from_millis(50) {
                std::hint::spin_loop();
            }
            thread::sleep(Duration::from_millis(1));
            (started.elapsed(), Usage::of(own).unwrap().since(before))
        })
        .join()
        .unwrap();
        assert!(used.cpu > Duration::ZERO && used.sleeps >= 1, "{used:?} in {worked:?}");
        assert!(resident(own).unwrap() > 1 << 20);
        assert!(machine_busy() > 0.0);
        assert!(Usage::of(u32::MAX).is_err());
    }

    #[test]
    fn fields_are_read_by_name() {
        assert_eq!(field("a: 1\nVmRSS:\t  12 kB\n", "VmRSS:"), 12);
        assert_eq!((field("", "VmRSS:"), first_number("7 8"), first_number("x")), (0, 7, 0));
    }
}
