//! How a link finds the proxy: by IPv4 or IPv6, at one of several UDP ports; and what it says where it finds none.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ropewalk_netlab::address::{PROXY_V4, PROXY_V6, gateway_v4};
use ropewalk_netlab::download::Curl;
use ropewalk_netlab::http::{HttpServer, body_sha256};
use ropewalk_netlab::privilege::lab_test;
use ropewalk_netlab::stage::{CONGESTION, Stage};
use ropewalk_netlab::status::Status;
use ropewalk_netlab::topology::{TopologyConfig, WanConfig};
use serde_json::Value;

const LONG: Duration = Duration::from_secs(60);

/// A network of so many WANs, and a proxy that listens at two ports for both families.
fn stage(wans: usize) -> Stage {
    let config = TopologyConfig::new(vec![WanConfig::default(); wans]);
    let mut stage = Stage::build(Path::new(env!("CARGO_BIN_EXE_ropewalk")), &config).unwrap();
    let deployment = stage.deployment();
    deployment.proxy_config().insert("more_ports".into(), vec![443].into());
    let addresses = vec![
        format!("{PROXY_V4}:51900"),
        format!("{PROXY_V4}:443"),
        format!("[{PROXY_V6}]:51900"),
        format!("[{PROXY_V6}]:443"),
    ];
    deployment.client_config(0)["proxy"]
        .as_table_mut()
        .unwrap()
        .insert("address".into(), addresses.into());
    stage.start_proxy().unwrap();
    stage
}

fn wait_for(stage: &Stage, what: &str, wanted: impl Fn(&Status) -> bool) -> Status {
    let begun = Instant::now();
    loop {
        let status = stage.client_status().unwrap_or_default();
        if wanted(&status) {
            return status;
        }
        assert!(begun.elapsed() < LONG, "waited in vain for {what}:\n{:#}", status.tunnel());
        thread::sleep(Duration::from_millis(50));
    }
}

/// Router `wan` lets no UDP to these ports through; `ports` is a set of nftables.
fn block(stage: &Stage, wan: usize, ports: &str) {
    let script = format!(
        "table inet block {{ chain forward {{ type filter hook forward priority 0;\n\
         udp dport {ports} drop\n}}\n}}"
    );
    stage.topology().routers()[wan].namespace().nft(&script).unwrap();
}

#[test]
fn each_link_uses_the_family_and_the_port_that_it_has_and_says_what_it_tried() {
    lab_test("each_link_uses_the_family_and_the_port_that_it_has_and_says_what_it_tried", || {
        let mut stage = stage(4);
        // The first as it is; the second lets only the other port through; the third has IPv6 only; the fourth no UDP.
        block(&stage, 1, "51900");
        stage.topology().client().ip("addr flush dev wan2 scope global\nlink set wan2 up").unwrap();
        stage
            .topology()
            .client()
            .ip("addr add 2001:db8:a00:c::2/64 dev wan2 nodad\n\
                 route replace default via 2001:db8:a00:c::1 dev wan2 metric 102")
            .unwrap();
        block(&stage, 3, "0-65535");
        let (deployment, topology) = stage.split();
        deployment.start_client(topology, 0).unwrap();
        let remote = |status: &Status, link: &str| -> Value {
            status.link(link).map(|link| link["remote"].clone()).unwrap_or_default()
        };
        let status = wait_for(&stage, "three links", |status| {
            ["wan0", "wan1", "wan2"].iter().all(|link| status.is_up(link))
        });
        let of_v4 = |status: &Status, link, port| {
            remote(status, link) == format!("{PROXY_V4}:{port}")
                || remote(status, link) == format!("[{PROXY_V6}]:{port}")
        };
        assert!(of_v4(&status, "wan1", 443), "{}", remote(&status, "wan1"));
        assert!(remote(&status, "wan2").as_str().unwrap().starts_with("[2001:db8:203::2]:"));
        let told = wait_for(&stage, "what was tried", |status| {
            let reason = status.link("wan3").map(|link| link["reason"].to_string());
            reason.is_some_and(|reason| reason.contains("sign-in"))
        });
        let reason = told.link("wan3").unwrap()["reason"].as_str().unwrap().to_owned();
        for part in [
            "no answer from the proxy for ",
            "203.0.113.2 at UDP 51900, 443",
            "2001:db8:203::2 at UDP 51900, 443",
            "UDP may be blocked here, or this network wants a sign-in first",
        ] {
            assert!(reason.contains(part), "{part}: {reason}");
        }
        assert_ne!(told.link("wan3").unwrap()["state"], "up");

        // The page at which one signs in stays reachable on that link, outside of the tunnel: by its own network, and for
        // what is bound to the interface also beyond.
        let gateway = gateway_v4(0, 3);
        let router = stage.topology().routers()[3].namespace();
        let listener = router.run(|| TcpListener::bind((gateway, 80))).unwrap().unwrap();
        let page = HttpServer::serve(listener, CONGESTION).unwrap();
        let client = stage.topology().client();
        let curl = |interface: Option<&str>, url: &str| {
            let interface = interface.map(str::to_owned);
            Curl { interface, limit: Some(LONG) }.download(client, url, |_| ()).unwrap()
        };
        let seen = curl(None, &page.url(3000, 1));
        assert_eq!(seen.sha256, body_sha256(3000, 1), "{}", seen.message);
        let beyond = curl(Some("wan3"), &stage.url(3000, 2));
        assert_eq!(beyond.sha256, body_sha256(3000, 2), "{}", beyond.message);
        let proxy = stage.proxy_status().unwrap();
        let at = |link: &str| proxy.link(link).unwrap()["local"].to_string();
        assert!(at("wan1").contains(":443"), "{}", at("wan1"));
    });
}

#[test]
fn a_network_that_wants_a_sign_in_is_told_with_its_page_and_used_after_it() {
    lab_test("a_network_that_wants_a_sign_in_is_told_with_its_page_and_used_after_it", || {
        let mut stage = stage(2);
        block(&stage, 1, "0-65535");
        // Whoever asks for any page is led to that of the network.
        let router = stage.topology().routers()[1].namespace();
        let script = "table ip portal { chain prerouting { type nat hook prerouting priority -100;\n\
                      iifname \"lan0\" ip daddr != 192.168.11.1 tcp dport 80 redirect to :8080\n}\n}";
        router.nft(script).unwrap();
        let listener = router.run(|| TcpListener::bind("0.0.0.0:8080")).unwrap().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let _ = stream.read(&mut [0; 1024]);
                let _ = stream.write_all(
                    b"HTTP/1.1 302 Found\r\nLocation: http://192.168.11.1/login\r\nContent-Length: 0\r\n\r\n",
                );
            }
        });
        let (deployment, topology) = stage.split();
        deployment.start_client(topology, 0).unwrap();
        let told = wait_for(&stage, "the page", |status| {
            let reason = status.link("wan1").map(|link| link["reason"].to_string());
            reason.is_some_and(|reason| reason.contains("http://192.168.11.1/login"))
        });
        assert!(told.is_up("wan0"), "the other link carries the tunnel");
        assert_eq!(told.link("wan1").unwrap()["sign_in"], "http://192.168.11.1/login");
        // Signed in.
        let router = stage.topology().routers()[1].namespace();
        router.nft("delete table inet block").unwrap();
        let signed_in = Instant::now();
        let up = wait_for(&stage, "the link", |status| status.is_up("wan1"));
        let took = signed_in.elapsed();
        assert!(took < Duration::from_secs(3), "{took:?}");
        let up = up.link("wan1").unwrap();
        assert!(up["reason"].is_null() && up["sign_in"].is_null());
    });
}
