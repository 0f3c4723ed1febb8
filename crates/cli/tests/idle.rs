//! A tunnel without packets lets both machines sleep: beside its keepalives a daemon wakes for next to nothing.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use ropewalk_netlab::privilege::lab_test_alone;
use ropewalk_netlab::stage::Stage;
use ropewalk_netlab::topology::{TopologyConfig, WanConfig};

/// Until the path MTUs are found, the memory of the start is given back, and nobody asks for addresses any more.
const SETTLE: Duration = Duration::from_secs(25);
const LOOKED_AT: Duration = Duration::from_secs(30);
/// Two rounds of keepalives (every 15 s), each of them sent and answered on both links.
const KEEPALIVES: u64 = 2 * (2 + 2);
/// What else the kernel and the runtime have to say in that time.
const BESIDE: u64 = 4;

/// How often the threads of a process slept until something happened.
fn sleeps(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of = |task: fs::DirEntry| -> u64 {
        let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let mut lines = status.lines().filter_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
        lines.next().and_then(|count| count.trim().parse().ok()).unwrap_or_default()
    };
    tasks.map(|task| of(task.unwrap())).sum()
}

#[test]
fn without_packets_the_daemons_wake_for_their_keepalives() {
    lab_test_alone("without_packets_the_daemons_wake_for_their_keepalives", || {
        let config = TopologyConfig::new(vec![WanConfig::default(); 2]);
        let mut stage = Stage::build(Path::new(env!("CARGO_BIN_EXE_ropewalk")), &config).unwrap();
        stage.start([0, 1]).unwrap();
        thread::sleep(SETTLE);
        let deployment = stage.deployment();
        let client = deployment.client(0).unwrap().id();
        let proxy = deployment.proxy().unwrap().id();
        let before = [client, proxy].map(sleeps);
        thread::sleep(LOOKED_AT);
        let after = [client, proxy].map(sleeps);
        for ((end, before), after) in ["client", "proxy"].into_iter().zip(before).zip(after) {
            let wakes = after - before;
            println!("the {end} woke {wakes} times in {} s", LOOKED_AT.as_secs());
            assert!(wakes <= KEEPALIVES + BESIDE, "the {end} woke {wakes} times");
        }
    });
}
