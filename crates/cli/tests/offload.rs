//! Kernel TCP through the whole program, with every offload on, with every one off, and with ends that differ.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::path::Path;
use std::time::Duration;

use ropewalk_netlab::access::Access;
use ropewalk_netlab::download::Curl;
use ropewalk_netlab::http::body_sha256;
use ropewalk_netlab::privilege::lab_test;
use ropewalk_netlab::stage::Stage;
use ropewalk_netlab::topology::TopologyConfig;
use ropewalk_proto::units::Bitrate;
use toml::Table;

const KEYS: [&str; 3] = ["tun_offload", "udp_gso", "udp_gro"];

#[test]
fn kernel_tcp_passes_both_ways_with_offloads_on_off_and_different_at_the_ends() {
    let test = "kernel_tcp_passes_both_ways_with_offloads_on_off_and_different_at_the_ends";
    lab_test(test, || {
        let (rtt, queue) = (Duration::from_millis(10), Duration::from_millis(100));
        let wan = || Access::symmetric(Bitrate::from_mbps(100), rtt, queue).into();
        let config = TopologyConfig::new(vec![wan(), wan()]);
        let mut stage = Stage::build(Path::new(env!("CARGO_BIN_EXE_ropewalk")), &config).unwrap();
        for (client, proxy) in [("on", "on"), ("off", "off"), ("on", "off"), ("off", "on")] {
            let deployment = stage.deployment();
            switch(deployment.client_config(0), client);
            switch(deployment.proxy_config(), proxy);
            stage.start(0..2).unwrap();
            let at_ends = [stage.client_status().unwrap().0, stage.proxy_status().unwrap().0];
            for (status, wish) in at_ends.iter().zip([client, proxy]) {
                let shown = &status["daemon"]["offload"];
                let expected = serde_json::json!({ "tun": wish, "udp_gso": wish, "udp_gro": wish });
                assert_eq!(shown, &expected);
            }
            let curl = Curl { interface: None, limit: Some(Duration::from_secs(60)) };
            let namespace = stage.topology().client();
            let (bytes, seed) = (12_000_000, 3);
            for url in [Some(stage.url(bytes, seed)), stage.url_v6(bytes, seed)] {
                let down = curl.download(namespace, &url.unwrap(), |_| ()).unwrap();
                assert!(down.complete, "{client} {proxy}: {}", down.message);
                assert_eq!(down.sha256, body_sha256(bytes, seed), "{client} {proxy}");
            }
            let up = curl.upload(namespace, &stage.url(0, 0), bytes, seed).unwrap();
            assert_eq!(
                (up.bytes, up.sha256),
                (bytes, body_sha256(bytes, seed)),
                "{client} {proxy}"
            );
            let deployment = stage.deployment();
            deployment.stop_client(0).unwrap();
            deployment.stop_proxy().unwrap();
        }
    });
}

fn switch(config: &mut Table, to: &str) {
    let tunnel = config.entry("tunnel").or_insert_with(|| Table::new().into());
    for key in KEYS {
        tunnel.as_table_mut().unwrap().insert(key.to_owned(), to.into());
    }
}
