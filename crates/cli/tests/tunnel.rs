//! The whole program: two daemons, real TUNs, two WANs behind NAT routers, IPv4 and IPv6 inside.

#![cfg(target_os = "linux")]

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use ropewalk_netlab::access::Access;
use ropewalk_netlab::address::{PROXY_V4, SERVER_V4, SERVER_V6, public_v4};
use ropewalk_netlab::deployment::Deployment;
use ropewalk_netlab::ping::Ping;
use ropewalk_netlab::privilege::lab_test;
use ropewalk_netlab::topology::{Topology, TopologyConfig};
use ropewalk_settings::Bitrate;
use serde_json::Value;

#[test]
fn packets_pass_over_two_links_behind_nat_and_both_ends_tell_of_them() {
    lab_test("packets_pass_over_two_links_behind_nat_and_both_ends_tell_of_them", || {
        let wan = |mbit, rtt_ms| {
            let (rtt, queue) = (Duration::from_millis(rtt_ms), Duration::from_millis(100));
            Access::symmetric(Bitrate::from_mbps(mbit), rtt, queue).into()
        };
        let topology =
            Topology::build(&TopologyConfig::new(vec![wan(8, 10), wan(2, 100)])).unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_ropewalk"));
        let mut deployment = Deployment::prepare(&topology, program).unwrap();
        deployment.start_proxy(&topology).unwrap();
        deployment.start_client(&topology, 0).unwrap();
        let client = deployment.wait_up(0, 2).unwrap();
        let tunnel = &client["tunnels"][0];
        assert_eq!(tunnel["inner_v4"], "10.77.0.2");

        // The whole Internet, and the proxy's own inner address.
        for target in [SERVER_V4.into(), SERVER_V6.into(), IpAddr::from([10, 77, 0, 1])] {
            let pinged = Ping::new(target, 10).run(&topology.clients()[0]).unwrap();
            assert_eq!(pinged.lost, 0, "{target}: {pinged:?}\n{}", logs(&mut deployment));
        }

        let client = deployment.client_status(0).unwrap();
        let proxy = deployment.proxy_status().unwrap();
        assert_eq!(proxy["proxy"]["handshakes"]["completed"], 1);
        let seen = &proxy["tunnels"][0];
        assert_eq!((&seen["peer"], &seen["state"]), (&"client0".into(), &"up".into()));
        assert_eq!(seen["inner_v6"], client["tunnels"][0]["inner_v6"]);
        for (wan, link) in (0u8..).zip(seen["links"].as_array().unwrap()) {
            assert_eq!(link["state"], "up", "{link:#}");
            assert_eq!(link["name"], format!("wan{wan}"));
            // Behind a NAT the proxy sees the router.
            let remote = link["remote"].as_str().unwrap();
            assert!(remote.starts_with(&format!("{}:", public_v4(wan, 0))), "{remote}");
            assert_eq!(link["local"], format!("{PROXY_V4}:51900"));
            for counted in ["up", "down"] {
                assert!(number(&link[counted]["datagrams"]) > 0.0, "{link:#}");
            }
        }
        let links = client["tunnels"][0]["links"].as_array().unwrap();
        let rtts: Vec<f64> = links.iter().map(|link| number(&link["srtt_ms"])).collect();
        assert!((10.0..40.0).contains(&rtts[0]) && (100.0..140.0).contains(&rtts[1]), "{rtts:?}");
        assert!(number(&seen["up"]["packets"]) >= 30.0, "{seen:#}");
        assert!(number(&seen["down"]["packets"]) >= 30.0, "{seen:#}");

        // A clean end tells the proxy at once.
        deployment.stop_client(0).unwrap();
        let told = || deployment.proxy_status().unwrap()["tunnels"][0].clone();
        let mut waited = 0;
        while told()["state"] != "closed" && waited < 50 {
            std::thread::sleep(Duration::from_millis(100));
            waited += 1;
        }
        assert_eq!(told()["reason"], "the client was stopped", "{:#}", told());
        deployment.stop_proxy().unwrap();
    });
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

fn logs(deployment: &mut Deployment) -> String {
    let client = deployment.client(0).map(|client| client.log()).unwrap_or_default();
    let proxy = deployment.proxy().map(|proxy| proxy.log()).unwrap_or_default();
    format!("client:\n{client}\nproxy:\n{proxy}")
}
