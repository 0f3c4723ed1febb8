//! Acceptance in short: what strangers, observers and clients may not do.

#![cfg(target_os = "linux")]

use std::path::Path;

use ropewalk_netlab::privilege::lab_test_alone;
use ropewalk_netlab::prove::assert_short;

fn prove(test: &str, proof: &str) {
    lab_test_alone(test, || assert_short(proof, Path::new(env!("CARGO_BIN_EXE_ropewalk"))));
}

#[test]
fn the_wans_show_no_content_and_no_inner_address() {
    prove("the_wans_show_no_content_and_no_inner_address", "capture");
}

#[test]
fn foreign_sources_wrong_keys_and_versions_are_refused() {
    prove("foreign_sources_wrong_keys_and_versions_are_refused", "spoof");
}

#[test]
fn flipped_bits_change_nothing_and_are_counted() {
    prove("flipped_bits_change_nothing_and_are_counted", "flips");
}

#[test]
fn a_flood_of_first_messages_keeps_nobody_out() {
    prove("a_flood_of_first_messages_keeps_nobody_out", "flood");
}

#[test]
fn replayed_first_messages_make_no_session() {
    prove("replayed_first_messages_make_no_session", "replay");
}

#[test]
fn the_clients_user_gains_nothing_by_what_root_tidies_up() {
    prove("the_clients_user_gains_nothing_by_what_root_tidies_up", "purge");
}

#[test]
fn racing_copies_move_no_path() {
    prove("racing_copies_move_no_path", "race");
}

#[test]
fn a_neighbour_of_the_proxy_reaches_no_inner_address() {
    prove("a_neighbour_of_the_proxy_reaches_no_inner_address", "neighbour");
}

#[test]
fn clients_reach_nothing_around_the_proxy_that_is_not_the_internet() {
    prove("clients_reach_nothing_around_the_proxy_that_is_not_the_internet", "metadata");
}

#[test]
fn neither_strangers_nor_a_client_fill_the_table_of_connections() {
    prove("neither_strangers_nor_a_client_fill_the_table_of_connections", "conntrack");
}

#[test]
fn what_a_client_gone_bad_costs_is_bounded() {
    // By its name the last, so not beside the flood, which wants a processor for itself.
    prove("what_a_client_gone_bad_costs_is_bounded", "hostile-peer");
}
