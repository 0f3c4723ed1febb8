//! Acceptance in short: what the daemons do to a host, and what a host may lack.

#![cfg(target_os = "linux")]

use std::path::Path;

use ropewalk_netlab::privilege::lab_test_alone;
use ropewalk_netlab::prove::assert_short;

fn prove(test: &str, proof: &str) {
    lab_test_alone(test, || assert_short(proof, Path::new(env!("CARGO_BIN_EXE_ropewalk"))));
}

#[test]
fn kills_leave_nothing_stale_and_leak_nothing() {
    prove("kills_leave_nothing_stale_and_leak_nothing", "crash");
}

#[test]
fn nothing_passes_beside_a_full_tunnel() {
    prove("nothing_passes_beside_a_full_tunnel", "leak");
}

#[test]
fn routes_of_a_hostile_network_lead_nothing_past_the_tunnel() {
    prove("routes_of_a_hostile_network_lead_nothing_past_the_tunnel", "routes");
}

#[test]
fn no_neighbour_reaches_an_inner_address() {
    prove("no_neighbour_reaches_an_inner_address", "lan");
}

#[test]
fn in_their_sandbox_both_daemons_do_all_that_they_did_before() {
    prove("in_their_sandbox_both_daemons_do_all_that_they_did_before", "sandbox");
}

#[test]
fn wrong_input_and_missing_things_are_told() {
    prove("wrong_input_and_missing_things_are_told", "bad-input");
}
