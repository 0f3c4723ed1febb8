//! Random operations on two real tunnels over emulated links, against the reference model.
//!
//! `NETLAB_SEED=n` reruns one seed, `ROPEWALK_SEEDS=n` runs more of them. A failure is shortened and
//! printed as a list of operations.

#![expect(clippy::print_stdout, reason = "a failing seed is printed to be run again")]

use std::sync::atomic::{AtomicU64, Ordering};

use ropewalk_netlab::model::Breach;
use ropewalk_netlab::operation::Mood;
use ropewalk_netlab::play::{Happened, Script};

/// Seeds of each mood.
const SEEDS: u64 = 1_000;

#[test]
fn whatever_happens_packets_come_once_unaltered_and_in_order() {
    let happened = run_all(Mood::Wild, 30);
    assert_happened(&[
        ("resequenced", happened.resequenced),
        ("late", happened.late),
        ("datagrams with several packets", happened.bundles),
        ("proven losses", happened.by_proof),
        ("deadlines", happened.by_deadline),
        ("links that left", happened.leaves),
        ("links that fell", happened.falls),
        ("rebindings", happened.moves),
        ("rekeys", happened.rekeys),
        ("datagrams played in", happened.injected),
    ]);
}

#[test]
fn what_is_in_flight_on_live_links_is_never_skipped_by_proof() {
    let happened = run_all(Mood::Orderly, 30);
    assert_happened(&[
        ("resequenced", happened.resequenced),
        ("proven losses", happened.by_proof),
        ("deadlines", happened.by_deadline),
        ("packets in two parts", happened.joined),
        ("datagrams with several packets", happened.bundles),
    ]);
}

#[test]
fn links_that_come_and_go_leave_no_trace_and_use_no_nonce_twice() {
    let happened = run_all(Mood::Restless, 30);
    assert_happened(&[("joins", happened.joins), ("leaves", happened.leaves)]);
}

/// The test would be empty if these did not happen.
fn assert_happened(counts: &[(&str, u64)]) {
    if std::env::var_os("NETLAB_SEED").is_none() {
        for (what, count) in counts {
            assert!(*count > 100, "{what}: only {count}");
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn run_all(mood: Mood, operations: usize) -> Happened {
    let seeds = match number("NETLAB_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("ROPEWALK_SEEDS").unwrap_or(SEEDS),
    };
    let next = AtomicU64::new(seeds.start);
    let worker = || {
        let mut sum = Happened::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return Ok(sum);
            }
            let script = Script::draw(seed, mood, operations);
            match script.play() {
                Ok(happened) => sum.add(&happened),
                Err(_) => return Err(script),
            }
        }
    };
    let results = std::thread::scope(|scope| {
        let workers = [scope.spawn(worker), scope.spawn(worker)];
        workers.map(|worker| worker.join().expect("a worker catches what it plays"))
    });
    let mut sum = Happened::default();
    for result in results {
        match result {
            Ok(happened) => sum.add(&happened),
            Err(script) => {
                shortened(mood, script).expect("no rule is broken");
            }
        }
    }
    println!("{mood:?}: {sum:?}");
    sum
}

/// Prints the shortest list of operations that breaks the rule; returns what is broken.
fn shortened(mood: Mood, script: Script) -> Result<(), Breach> {
    let (seed, all) = (script.seed, script.operations.len());
    let script = script.shrunk();
    let left = script.operations.len();
    println!("{mood:?} fails with NETLAB_SEED={seed}; {left} of {all} operations:");
    println!("{} links, rekey after {:?}", script.links, script.rekey_after);
    for operation in &script.operations {
        println!("    {operation:?},");
    }
    script.play().map(|_| ())
}
