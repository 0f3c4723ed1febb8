//! Daemons killed at many moments of their start: the next start takes over whatever is there, and after an orderly end the
//! machine's routing, firewall, settings and name servers are as they were before the first.

use std::collections::BTreeSet;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ropewalk_netlab::address::SERVER_V4;
use ropewalk_netlab::namespace::Namespace;
use ropewalk_netlab::privilege::lab_test_alone;
use ropewalk_netlab::process::Process;
use ropewalk_netlab::tool;

use super::machine::{PATIENCE, guest, stage, state};
use super::names::Machine;

/// Moments at which a start is cut: from its first millisecond until all is in place.
const MOMENTS: u32 = 16;

/// Moment `number` of a start that takes this long; the last is a little after it.
fn moment(whole: Duration, number: u32) -> Duration {
    whole * number * 11 / (10 * (MOMENTS - 1))
}

#[test]
fn a_client_killed_at_any_moment_of_its_start_costs_nothing() {
    lab_test_alone("crash::a_client_killed_at_any_moment_of_its_start_costs_nothing", || {
        let mut stage = stage(50, "kill_switch = true\nshare = [\"ap\"]");
        let _guest = guest(stage.topology().client());
        stage.topology().client().sysctl(&[("net.ipv4.conf.wan0.rp_filter", "1")]).unwrap();
        stage.deployment().proxy_config().insert("dns".into(), SERVER_V4.to_string().into());
        stage.start_proxy().unwrap();
        let machine = Machine::new(stage.deployment().folder(), false);
        let (deployment, topology) = stage.split();
        let all = || format!("{}{}", state(topology.client()), machine.resolv_conf());
        let before = all();
        let files = std::fs::read_dir(&machine.etc).unwrap().count();

        let begun = Instant::now();
        let mut client = machine.start(deployment, topology);
        let is_set = || machine.resolv_conf().contains("192.0.2.2");
        client.wait_until("everything in place", PATIENCE, is_set).unwrap();
        let whole = begun.elapsed();
        client.stop(PATIENCE).unwrap();
        assert_eq!(all(), before, "without any kill");

        let mut left = BTreeSet::new();
        for number in 0..MOMENTS {
            // Twice in a row, at two moments: what the second finds is the first one's.
            for number in [number, MOMENTS - 1 - number] {
                let mut client = machine.start(deployment, topology);
                thread::sleep(moment(whole, number));
                client.kill();
                left.insert(what_is_left(&all()));
            }
            let mut client = machine.start(deployment, topology);
            // It has begun: it listens for the signal to stop.
            let is_begun = || deployment.client_status(0).is_ok();
            client.wait_until("its begin", PATIENCE, is_begun).unwrap();
            thread::sleep(moment(whole, number));
            client.stop(PATIENCE).unwrap();
            assert_eq!(all(), before, "moment {number}; the client's log:\n{}", client.log());
            assert_eq!(machine.kept(), ["history.ring"], "half written files stayed");
            assert_eq!(std::fs::read_dir(&machine.etc).unwrap().count(), files);
        }
        println!(
            "a start takes {} ms; kills left {} different things:",
            whole.as_millis(),
            left.len()
        );
        left.iter().for_each(|left| println!("  {left}"));
        assert!(left.len() >= 3, "all kills hit the same moment: {left:?}");
    });
}

#[test]
fn a_proxy_killed_at_any_moment_of_its_start_costs_nothing() {
    lab_test_alone("crash::a_proxy_killed_at_any_moment_of_its_start_costs_nothing", || {
        let mut stage = stage(50, "");
        let folder = stage.deployment().folder().to_owned();
        let config = stage.deployment().proxy_config().clone();
        let proxy = "proxy9";
        let (deployment, topology) = stage.split();
        let before = state(topology.proxy());
        let start =
            || deployment.start_through(&[], topology.proxy(), "proxy", proxy, &config).unwrap();
        let in_place = |process: &mut Process| {
            let is_there = || {
                let state = state(topology.proxy());
                state.contains("masquerade") && state.contains("10.77.0.1")
            };
            process.wait_until("everything in place", PATIENCE, is_there).unwrap();
        };
        let begun = Instant::now();
        let mut process = start();
        in_place(&mut process);
        let whole = begun.elapsed();
        process.stop(PATIENCE).unwrap();
        purge(topology.proxy(), &folder, proxy);
        assert_eq!(state(topology.proxy()), before, "without any kill");

        let mut left = BTreeSet::new();
        for number in 0..MOMENTS {
            for number in [number, MOMENTS - 1 - number] {
                let mut process = start();
                thread::sleep(moment(whole, number));
                process.kill();
                left.insert(what_is_left(&state(topology.proxy())));
            }
            let mut process = start();
            in_place(&mut process);
            process.stop(PATIENCE).unwrap();
            purge(topology.proxy(), &folder, proxy);
            assert_eq!(state(topology.proxy()), before, "moment {number}:\n{}", process.log());
        }
        println!(
            "a start takes {} ms; kills left {} different things:",
            whole.as_millis(),
            left.len()
        );
        left.iter().for_each(|left| println!("  {left}"));
        assert!(left.len() >= 2, "all kills hit the same moment: {left:?}");
    });
}

/// The proxy's guard stays on purpose; this takes it away.
fn purge(namespace: &Namespace, folder: &Path, name: &str) {
    let config = folder.join(format!("{name}.toml")).display().to_string();
    let arguments = ["proxy", "--purge", "--config", &config];
    namespace.run(|| tool::run(env!("CARGO_BIN_EXE_ropewalk"), &arguments)).unwrap().unwrap();
}

/// Traces of a daemon in the state of a machine, in words.
fn what_is_left(state: &str) -> String {
    let traces = [
        ("rules and routes of links", "proto 114"),
        ("the way into the tunnel", "table 7700"),
        ("its firewall table", "table inet ropewalk_client"),
        ("sharing", "shared_sources"),
        ("the kill switch", "table inet ropewalk_lock"),
        ("name servers", "nameserver 192.0.2.2"),
        ("the guard", "proto 115"),
        ("the proxy's firewall table", "table inet ropewalk_proxy"),
        ("IPv4 forwarding", "ip_forward:1"),
        ("IPv6 forwarding", "ipv6/conf/all/forwarding:1"),
    ];
    let found = traces.iter().filter(|(_, trace)| state.contains(trace)).map(|(name, _)| *name);
    let found: Vec<_> = found.collect();
    if found.is_empty() { "nothing".to_owned() } else { found.join(", ") }
}
