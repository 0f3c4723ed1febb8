//! One scenario file in virtual time and on the kernel: both tell the same.

#![cfg(target_os = "linux")]

use std::path::Path;

use ropewalk_netlab::privilege::lab_test_alone;
use ropewalk_netlab::scenario::Scenario;
use ropewalk_netlab::stage::Progress;
use ropewalk_netlab::{kernel_run, virtual_run};

/// How far apart the shares may be, in percentage points.
const POINTS: f64 = 5.0;

#[test]
fn a_scenario_gives_the_same_figures_in_virtual_time_and_on_the_kernel() {
    lab_test_alone("a_scenario_gives_the_same_figures_in_virtual_time_and_on_the_kernel", || {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../netlab/scenarios/returns.toml");
        let scenario = Scenario::open(&file).unwrap();
        let thought = virtual_run::run(&scenario).unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_ropewalk"));
        let seen = kernel_run::run(&scenario, program, &Quiet).unwrap();
        for finding in seen.findings(&scenario) {
            assert!(finding.ok, "on the kernel: {finding:?}\n{seen:?}");
        }
        for name in ["udp_percent_of_sum", "udp_lost_percent"] {
            let apart = (thought.value(name) - seen.value(name)).abs();
            assert!(apart <= POINTS, "{name}:\n{thought:?}\n{seen:?}");
        }
        println!("{thought:?}\n{seen:?}");
    });
}

struct Quiet;

impl Progress for Quiet {
    fn say(&self, _: &str) {}
}
