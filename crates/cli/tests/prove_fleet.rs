//! Acceptance in short: what clients of a fleet notice of the loss of a proxy, or of etcd.

#![cfg(target_os = "linux")]

use std::path::Path;

use ropewalk_netlab::privilege::lab_test_alone;
use ropewalk_netlab::prove::assert_short;

fn prove(test: &str, proof: &str) {
    lab_test_alone(test, || assert_short(proof, Path::new(env!("CARGO_BIN_EXE_ropewalk"))));
}

#[test]
fn clients_survive_the_death_of_their_proxy() {
    prove("clients_survive_the_death_of_their_proxy", "fleet-death");
}

#[test]
fn a_proxy_that_drains_loses_no_packet() {
    prove("a_proxy_that_drains_loses_no_packet", "fleet-drain");
}

#[test]
fn clients_notice_nothing_of_what_befalls_etcd() {
    prove("clients_notice_nothing_of_what_befalls_etcd", "fleet-registry");
}

#[test]
fn what_an_operator_of_etcd_gets_wrong_is_told_and_tunnels_go_on() {
    prove("what_an_operator_of_etcd_gets_wrong_is_told_and_tunnels_go_on", "fleet-trouble");
}

#[test]
fn a_client_in_another_network_uses_the_proxy_that_is_near_there_and_its_download_goes_on() {
    prove(
        "a_client_in_another_network_uses_the_proxy_that_is_near_there_and_its_download_goes_on",
        "fleet-travel",
    );
}

#[test]
fn a_proxy_that_is_cut_off_from_etcd_keeps_no_client_that_moved() {
    prove("a_proxy_that_is_cut_off_from_etcd_keeps_no_client_that_moved", "fleet-partition");
}

#[test]
fn clients_of_files_are_known_to_all_proxies_of_a_fleet_and_to_one_that_starts_later() {
    prove(
        "clients_of_files_are_known_to_all_proxies_of_a_fleet_and_to_one_that_starts_later",
        "fleet-scale",
    );
}
