//! Faults of a proxy.

use std::thread;
use std::time::{Duration, Instant};

use ropewalk_netlab::privilege::lab_test;

use super::ward::{SOON, WITHOUT_NFT, Ward, only};

#[test]
fn planted_faults_of_a_proxy_are_found_and_their_advice_fixes_them() {
    let name = "proxy::planted_faults_of_a_proxy_are_found_and_their_advice_fixes_them";
    lab_test(name, || {
        let mut ward = Ward::open();
        let file = ward.proxy();
        let proxy =
            |ward: &Ward, before: &str| ward.examine(ward.stage.topology().proxy(), &file, before);
        let sh = |ward: &Ward, script: &str| {
            let output = ward.shell(ward.stage.topology().proxy(), script);
            assert!(
                output.status.success(),
                "{script}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        };
        let fixed = |ward: &Ward, what: &str| {
            let found = proxy(ward, "");
            assert!(Ward::faults(&found).is_empty(), "after {what}: {found:#?}");
        };
        let fix = |ward: &Ward| {
            ward.fix(ward.stage.topology().proxy(), &file, "");
        };
        fixed(&ward, "nothing, before the start");

        // 1. Somebody else has the port.
        let taken =
            ward.stage.topology().proxy().run(|| std::net::UdpSocket::bind(("0.0.0.0", 51900)));
        let fault = only(proxy(&ward, ""), "port.taken", &[]);
        assert_eq!(fault.commands, [format!("sudo kill {}", std::process::id())]);
        drop(taken);

        // 2. No nft: a proxy cannot do without.
        let fault = only(proxy(&ward, WITHOUT_NFT), "nft.missing", &[]);
        assert_eq!(fault.level, "fail");

        ward.stage.start([0, 1]).unwrap();
        fixed(&ward, "the start");
        let seen = proxy(&ward, "");
        let seen =
            seen.iter().filter(|(id, one)| id == "nat.seen" && one.subject.starts_with("client0 "));
        assert_eq!(seen.count(), 2);

        // 3. What comes in is not forwarded.
        sh(&ward, "sysctl -qw net.ipv4.conf.eth0.forwarding=0");
        let fault = only(proxy(&ward, ""), "forwarding.off", &[]);
        assert_eq!(fault.commands, ["sudo sysctl -w net.ipv4.conf.eth0.forwarding=1"]);
        fix(&ward);
        fixed(&ward, "forwarding");

        // 4. A firewall that lets in what it knows.
        let script = "table inet wall { chain in { type filter hook input priority 0; policy drop;\n\
                      ct state established,related accept\ntcp dport 22 accept\n}\n}";
        ward.stage.topology().proxy().nft(script).unwrap();
        let fault = only(proxy(&ward, ""), "firewall.policy", &[]);
        assert_eq!(fault.commands, ["sudo nft insert rule inet wall in udp dport 51900 accept"]);
        fix(&ward);
        fixed(&ward, "the rule");

        // 5. One that judges the tunnel's datagrams by the table of connections, in which they are not.
        let script = "table inet states {\n\
                      chain in { type filter hook input priority 0; policy drop;\n\
                      ct state established accept\nct state new udp dport 51900 accept\n}\n\
                      chain out { type filter hook output priority 0; policy drop;\n\
                      ct state new,established accept\n}\n}";
        ward.stage.topology().proxy().nft(script).unwrap();
        let found = proxy(&ward, "");
        let faults = found.iter().filter(|(id, _)| id == "firewall.policy");
        let commands: Vec<_> = faults.flat_map(|(_, fault)| fault.commands.clone()).collect();
        let allow = ["in udp dport", "out udp sport"]
            .map(|way| format!("sudo nft insert rule inet states {way} 51900 accept"));
        assert_eq!(commands, allow, "{found:#?}");
        fix(&ward);
        fixed(&ward, "both rules");
        ward.stage.topology().proxy().nft("delete table inet states").unwrap();

        // 6. One that forwards nothing.
        let script = "table inet docker { chain forward { type filter hook forward priority 0; policy drop;\n}\n}";
        ward.stage.topology().proxy().nft(script).unwrap();
        // The proxy itself warns of the policy, when it looks next, and whatever rules allow.
        let fault = only(proxy(&ward, ""), "firewall.policy", &["daemon.warns"]);
        assert!(fault.found.contains("packets between clients and eth0"), "{fault:?}");
        fix(&ward);
        let found = proxy(&ward, "");
        let rest: Vec<_> =
            Ward::faults(&found).into_iter().filter(|id| *id != "daemon.warns").collect();
        assert!(rest.is_empty(), "{found:#?}");
        ward.stage.topology().proxy().nft("delete table inet docker").unwrap();

        // 7. A client whose key is not known.
        let other = ward.stage.deployment().proxy_config().clone();
        ward.stage.deployment().proxy_config()["peer"][0]["public_key"] =
            "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=".into();
        ward.stage.start_proxy().unwrap();
        let (deployment, topology) = ward.stage.split();
        deployment.start_client(topology, 0).unwrap();
        let file = ward.file("client0.toml");
        let connecting = |ward: &Ward| {
            let status = ward.stage.client_status().unwrap_or_default();
            status.tunnel()["state"] == "connecting"
        };
        let begun = Instant::now();
        while !connecting(&ward) {
            assert!(begun.elapsed() < SOON, "{:?}", ward.stage.client_status());
            thread::sleep(Duration::from_millis(50));
        }
        let found = ward.examine(ward.stage.topology().client(), &file, "");
        let fault = found.iter().find(|(id, _)| id == "tunnel.unknown-key");
        let (_, fault) = fault.unwrap_or_else(|| unreachable!("{found:#?}"));
        assert!(fault.at_proxy && fault.commands[1] == "sudo ropewalk peer add NAME", "{fault:?}");
        // As `peer add` and `join` would make it known.
        *ward.stage.deployment().proxy_config() = other;
        ward.stage.start_proxy().unwrap();
        ward.stage.deployment().wait_up(0, 2).unwrap();
        let found = ward.examine(ward.stage.topology().client(), &file, "");
        assert!(Ward::faults(&found).is_empty(), "{found:#?}");
    });
}
