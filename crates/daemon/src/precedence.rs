//! Before the programs that it carries packets for: a busy machine must not make a call stutter.
//!
//! A tunnel in the kernel runs ahead of all programs, and so does a daemon with this precedence. It takes no more than its
//! packets cost: who waits for the tunnel is kept waiting for less. Beside a full-speed download on two busy cores a ping
//! through both ends takes half the time.

use rustix::process::{getpriority_process, setpriority_process};

/// How much before others: about nine times the share of a program without any, where both want the processor. Sound servers
/// take about the same.
const NICE: i32 = -10;

/// What a program has that nobody gave another.
const USUAL: i32 = 0;

/// Gives this thread, and those that it starts from now on, precedence. Whoever started it with a nice value of his
/// own (`nice`, `Nice=` of systemd) keeps that; whoever may not (that needs `CAP_SYS_NICE`) runs as others do.
pub fn take() {
    // Linux has a value for each thread, whatever POSIX says; `None` is this one.
    if getpriority_process(None) != Ok(USUAL) {
        return;
    }
    if let Err(error) = setpriority_process(None, NICE) {
        tracing::debug!(%error, "no precedence before other programs");
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// What a thread has that starts with `given`, after it asked for precedence, and one that it starts.
    fn after(given: i32) -> [i32; 2] {
        let nice = || getpriority_process(None).unwrap();
        let started = move || {
            setpriority_process(None, given).unwrap();
            take();
            [nice(), thread::spawn(nice).join().unwrap()]
        };
        thread::spawn(started).join().unwrap()
    }

    #[test]
    fn a_daemon_goes_first_unless_its_user_said_how_nice_it_is() {
        let may = thread::spawn(|| setpriority_process(None, NICE).is_ok()).join().unwrap();
        let first = if may { NICE } else { USUAL };
        assert_eq!(after(USUAL), [first; 2]);
        assert_eq!(after(5), [5; 2], "as it was started");
    }
}
