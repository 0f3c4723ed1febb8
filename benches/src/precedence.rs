//! Real runs come before whatever else this machine does, so that its other work does not show in them.

use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

/// Puts this thread, and the threads and programs it starts from now on, among those that the kernel runs
/// first. They share the lowest of these priorities; the emulator, whose links are elsewhere, has a higher one.
/// Returns whether the kernel allows it: only the machine's root may.
pub fn take() -> bool {
    let policy = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::RoundRobin);
    set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, policy).is_ok()
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread;

    use super::*;

    /// The scheduling policy of a program that this thread starts: field 41 of `proc(5)`'s `stat`.
    fn policy_of_a_child() -> u32 {
        let stat = Command::new("cat").arg("/proc/self/stat").output().unwrap().stdout;
        let stat = String::from_utf8(stat).unwrap();
        let after_name = stat.rsplit_once(") ").unwrap().1;
        after_name.split(' ').nth(41 - 3).unwrap().parse().unwrap()
    }

    #[test]
    fn the_programs_of_a_run_inherit_its_precedence() {
        const OTHER: u32 = 0;
        const ROUND_ROBIN: u32 = 2;
        // A thread of its own, so that no other test gains by it.
        let (taken, policy) = thread::spawn(|| (take(), policy_of_a_child())).join().unwrap();
        assert_eq!(policy, if taken { ROUND_ROBIN } else { OTHER });
    }
}
