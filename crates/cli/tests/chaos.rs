//! Three minutes of chaos: upheavals of every kind to a tunnel in use. `scripts/test` runs this program beside all others, as it
//! mostly waits.

#![cfg(target_os = "linux")]
#![expect(clippy::print_stdout, reason = "the figures are what a reader wants to see")]

use std::path::Path;
use std::time::Duration;

use ropewalk_netlab::chaos::{self, Kind, Options};
use ropewalk_netlab::privilege::lab_test;
use ropewalk_netlab::stage::Progress;

/// The seed in place of the usual one, and the seconds.
const SEED: &str = "ROPEWALK_CHAOS_SEED";
const SECONDS: &str = "ROPEWALK_CHAOS_SECONDS";

/// Other tests and a compiler run beside it, on two cores.
const SLACK: u32 = 4;

struct Lines;

impl Progress for Lines {
    fn say(&self, what: &str) {
        println!("-- {what}");
    }
}

#[test]
fn after_each_upheaval_of_three_minutes_all_is_as_before() {
    lab_test("after_each_upheaval_of_three_minutes_all_is_as_before", || {
        let told = |name: &str, usual| {
            std::env::var(name).map_or(usual, |text| text.parse().expect("a number"))
        };
        let (seed, length) = (told(SEED, 1), Duration::from_secs(told(SECONDS, 180)));
        println!("seed {seed}: {SEED}={seed} cargo test -p ropewalk-cli --test chaos");
        let options = Options { seed, length, kinds: Kind::ALL.to_vec(), slack: SLACK };
        let program = Path::new(env!("CARGO_BIN_EXE_ropewalk"));
        let outcome = chaos::run(program, &options, &Lines).expect("the laboratory works");
        println!("{}", outcome.table());
        assert!(outcome.ok(), "seed {seed}: {}", outcome.faults.join("\n"));
    });
}
