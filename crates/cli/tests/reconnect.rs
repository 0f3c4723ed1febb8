//! Both daemons of the real program while something is missing: an interface for a while, the proxy at
//! first, the right key for good.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ropewalk_netlab::address::{SERVER_V4, gateway_v4};
use ropewalk_netlab::ping::Ping;
use ropewalk_netlab::privilege::lab_test;
use ropewalk_netlab::stage::Stage;
use ropewalk_netlab::topology::{TopologyConfig, WanConfig};
use serde_json::Value;

/// Longer than anything a daemon does at once, even on a busy machine.
const SOON: Duration = Duration::from_secs(20);

#[test]
fn a_link_whose_interface_goes_down_and_returns_is_used_again_within_two_seconds() {
    lab_test(
        "a_link_whose_interface_goes_down_and_returns_is_used_again_within_two_seconds",
        || {
            let mut stage = stage();
            stage.start([0, 1]).unwrap();
            let client = stage.topology().client();
            let link = |name: &str| stage.client_status().unwrap().link(name).unwrap().clone();
            let other = link("wan0");
            let pinged = thread::scope(|scope| {
                let ping = Ping { count: 80, ..Ping::new(SERVER_V4.into(), 0) };
                let pinging = scope.spawn(move || ping.run(client).unwrap());
                client.ip("link set wan1 down").unwrap();
                wait_until("the loss", || link("wan1")["reason"] == "interface is down");
                assert_eq!(link("wan1")["state"], "down");
                client
                    .ip(&format!(
                        "link set wan1 up\nroute add default via {} dev wan1 metric 101",
                        gateway_v4(0, 1)
                    ))
                    .unwrap();
                let returned = Instant::now();
                wait_until("the return", || link("wan1")["state"] == "up");
                let took = returned.elapsed();
                assert!(took < Duration::from_secs(2), "{took:?}");
                pinging.join().unwrap()
            });
            // What was under way on it is lost, no more.
            assert!(pinged.lost <= 2, "{pinged:?}");
            let still = link("wan0");
            assert_eq!((&still["id"], &still["local"]), (&other["id"], &other["local"]));
            assert!(still["state_age_s"].as_f64() > other["state_age_s"].as_f64());
        },
    );
}

#[test]
fn a_proxy_that_starts_later_is_found() {
    lab_test("a_proxy_that_starts_later_is_found", || {
        let mut stage = stage();
        let (deployment, topology) = stage.split();
        deployment.start_client(topology, 0).unwrap();
        wait_for(&stage, |tunnel| {
            tunnel["reason"].as_str().is_some_and(|r| r.contains("no answer"))
        });
        stage.start_proxy().unwrap();
        wait_for(&stage, |tunnel| tunnel["state"] == "up");
    });
}

#[test]
fn a_wrong_key_of_the_proxy_is_named_as_a_possible_reason() {
    lab_test("a_wrong_key_of_the_proxy_is_named_as_a_possible_reason", || {
        const OTHER: &str = "zo060cy2M+x7cMF4FKXHbs0CloUFDTRHRboFhw5YfVk=";
        let mut stage = stage();
        stage.start_proxy().unwrap();
        let (deployment, topology) = stage.split();
        deployment.client_config(0)["proxy"]["public_key"] = OTHER.into();
        deployment.start_client(topology, 0).unwrap();
        wait_for(&stage, |tunnel| {
            let reason = tunnel["reason"].as_str().unwrap_or_default();
            tunnel["state"] == "connecting" && reason.contains("public key is wrong")
        });
        wait_until("the proxy to count it", || {
            stage.proxy_status().unwrap().0["proxy"]["handshakes"]["unauthentic"] != 0
        });
    });
}

fn stage() -> Stage {
    let config = TopologyConfig::new(vec![WanConfig::default(); 2]);
    Stage::build(Path::new(env!("CARGO_BIN_EXE_ropewalk")), &config).unwrap()
}

/// Waits until the client's tunnel is as wanted.
fn wait_for(stage: &Stage, wanted: impl Fn(&Value) -> bool) {
    wait_until("the client", || stage.client_status().is_ok_and(|status| wanted(status.tunnel())));
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        if begun.elapsed() > SOON {
            panic!("waited in vain for {what}");
        }
        thread::sleep(Duration::from_millis(50));
    }
}
