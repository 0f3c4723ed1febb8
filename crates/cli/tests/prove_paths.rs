//! Acceptance in short: NATs that forget and change, links that carry less than they seem to.

#![cfg(target_os = "linux")]

use std::path::Path;

use ropewalk_netlab::privilege::lab_test_alone;
use ropewalk_netlab::prove::assert_short;

fn prove(test: &str, proof: &str) {
    lab_test_alone(test, || assert_short(proof, Path::new(env!("CARGO_BIN_EXE_ropewalk"))));
}

#[test]
fn an_idle_tunnel_stays_open_through_a_forgetful_nat() {
    prove("an_idle_tunnel_stays_open_through_a_forgetful_nat", "nat-idle");
}

#[test]
fn a_download_follows_changes_of_nats() {
    prove("a_download_follows_changes_of_nats", "rebind");
}

#[test]
fn black_holes_for_large_packets_are_found() {
    prove("black_holes_for_large_packets_are_found", "mtu");
}
