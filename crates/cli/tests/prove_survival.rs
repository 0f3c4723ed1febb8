//! Acceptance in short: what the tunnel survives.

#![cfg(target_os = "linux")]

use std::path::Path;

use ropewalk_netlab::privilege::lab_test_alone;
use ropewalk_netlab::prove::assert_short;

fn prove(test: &str, proof: &str) {
    lab_test_alone(test, || assert_short(proof, Path::new(env!("CARGO_BIN_EXE_ropewalk"))));
}

#[test]
fn a_download_survives_a_cut_link() {
    prove("a_download_survives_a_cut_link", "cut");
}

#[test]
fn a_download_survives_a_restart_of_the_proxy() {
    prove("a_download_survives_a_restart_of_the_proxy", "restart");
}

#[test]
fn new_keys_every_second_lose_no_datagram() {
    prove("new_keys_every_second_lose_no_datagram", "rekey");
}

#[test]
fn both_families_pass_inside_and_outside() {
    prove("both_families_pass_inside_and_outside", "both");
}
