//! Acceptance in short: what the tunnel carries.

#![cfg(target_os = "linux")]

use std::path::Path;

use ropewalk_netlab::privilege::{lab_test_alone, lacking, require_tool};
use ropewalk_netlab::prove::assert_short;

fn prove(test: &str, proof: &str) {
    lab_test_alone(test, || assert_short(proof, Path::new(env!("CARGO_BIN_EXE_ropewalk"))));
}

#[test]
fn one_link_alone_loses_nothing_by_the_tunnel() {
    prove("one_link_alone_loses_nothing_by_the_tunnel", "single");
}

#[test]
fn an_upload_uses_both_links() {
    prove("an_upload_uses_both_links", "upload");
}

#[test]
fn a_link_over_tls_carries_most_of_its_rate() {
    prove("a_link_over_tls_carries_most_of_its_rate", "tls-link");
}

#[test]
fn a_download_managers_connections_have_a_link_each() {
    let test = "a_download_managers_connections_have_a_link_each";
    match require_tool(("aria2c", "aria2")) {
        Ok(()) => prove(test, "several"),
        Err(missing) => lacking(test, &missing.to_string()),
    }
}
