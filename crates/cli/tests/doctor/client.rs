//! Faults of a client.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::thread;

use ropewalk_netlab::address::{PROXY_V4, gateway_v4};
use ropewalk_netlab::privilege::lab_test;

use super::ward::{PROGRAM, WITHOUT_NFT, WITHOUT_RIGHT, Ward, only};

/// No device to make a TUN with. What follows runs in the same place.
const WITHOUT_TUN: &str = "mount -t tmpfs tmpfs /dev/net; ";

/// Lets no UDP through, and leads who asks for a page at a public address to this machine's port 8080.
const PORTAL: &str = "table inet portal {
    chain forward { type filter hook forward priority 0; meta l4proto udp drop; }
    chain lead { type nat hook prerouting priority -100; iifname \"lan0\" tcp dport 80 redirect to :8080; }
}";

/// Every page is elsewhere.
fn sign_in(pages: &TcpListener) {
    for stream in pages.incoming() {
        let Ok(mut stream) = stream else { return };
        let _ = stream.read(&mut [0; 1024]);
        let answer = b"HTTP/1.1 302 Found\r\nLocation: http://192.168.11.1/login\r\nContent-Length: 0\r\n\r\n";
        let _ = stream.write_all(answer);
    }
}

#[test]
fn planted_faults_of_a_client_are_found_and_their_advice_fixes_them() {
    let name = "client::planted_faults_of_a_client_are_found_and_their_advice_fixes_them";
    lab_test(name, || {
        let mut ward = Ward::open();
        ward.stage.start_proxy().unwrap();
        let file = ward.client(|_| ());
        let shown = file.display().to_string();
        let client =
            |ward: &Ward, before: &str| ward.examine(ward.stage.topology().client(), &file, before);
        let sh = |ward: &Ward, script: &str| {
            let output = ward.shell(ward.stage.topology().client(), script);
            assert!(
                output.status.success(),
                "{script}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        };
        let fixed = |ward: &Ward, what: &str| {
            let found = client(ward, "");
            assert!(Ward::faults(&found).is_empty(), "after {what}: {found:#?}");
            found
        };
        let fix = |ward: &Ward, before: &str| {
            ward.fix(ward.stage.topology().client(), &file, before);
        };

        // Nothing is wrong: each link has an answer, and its sizes pass.
        let well = fixed(&ward, "nothing");
        let about = |id: &str| {
            well.iter().filter(|(one, _)| one == id).map(|(_, one)| &one.found).collect::<Vec<_>>()
        };
        assert_eq!(about("mtu"), ["packets of 1500 bytes pass"; 2]);
        assert!(
            about("reach").iter().all(|one| one.contains("203.0.113.2:51900 within ")),
            "{well:#?}"
        );

        // 1. A key that everybody can read.
        let key = ward.file("client0.key").display().to_string();
        sh(&ward, &format!("chmod 644 {key}"));
        let fault = only(client(&ward, ""), "files.open", &[]);
        assert_eq!(fault.commands, [format!("sudo chmod 600 {key}")]);
        fix(&ward, "");
        fixed(&ward, "chmod");

        // 2. No right to change the network.
        let fault = only(client(&ward, WITHOUT_RIGHT), "privileges.missing", &["buffers.small"]);
        assert!(fault.found.contains("lacks CAP_NET_ADMIN to make the TUN"), "{fault:?}");
        assert_eq!(fault.commands, ["sudo ropewalk doctor"]);

        // 3. No device to make a TUN with.
        let fault = only(client(&ward, WITHOUT_TUN), "tun.missing", &[]);
        assert!(fault.advice.contains("--device /dev/net/tun"), "{fault:?}");
        // Only the machine's own root can make a device.
        let try_it = format!("mknod {0} c 10 200; rm {0}", ward.tools.join("device").display());
        if ward.shell(ward.stage.topology().client(), &try_it).status.success() {
            let found = client(&ward, &format!("{WITHOUT_TUN}{}; ", fault.commands[1]));
            assert!(Ward::faults(&found).is_empty(), "{found:#?}");
        }

        // 4. No nft.
        let fault = only(client(&ward, WITHOUT_NFT), "nft.missing", &[]);
        assert_eq!(
            (fault.level.as_str(), fault.commands[0].as_str()),
            ("warn", "sudo apt install nftables")
        );

        // 5. Strict filtering where only a mark helps, and nothing that can set one.
        let gateway = gateway_v4(0, 0);
        sh(
            &ward,
            &format!(
                "ip route add {PROXY_V4} via {gateway} dev wan0 proto static\n\
                 sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.wan1.rp_filter=1"
            ),
        );
        let found = client(&ward, WITHOUT_NFT);
        assert!(
            found.iter().any(|(id, one)| id == "reach.deaf" && one.subject == "wan1"),
            "{found:#?}"
        );
        let fault = only(found, "rp-filter.strict", &["nft.missing"]);
        assert_eq!(fault.commands, ["sudo sysctl -w net.ipv4.conf.wan1.rp_filter=2"]);
        fix(&ward, WITHOUT_NFT);
        let found = client(&ward, WITHOUT_NFT);
        only(found, "nft.missing", &[]);
        sh(&ward, &format!("ip route del {PROXY_V4}; sysctl -qw net.ipv4.conf.wan1.rp_filter=0"));

        // 6. A firewall that drops the tunnel's datagrams on one link.
        let script = "table inet block { chain out { type filter hook output priority 0;\n\
                      oifname \"wan1\" udp dport 51900 counter drop\n}\n}";
        ward.stage.topology().client().nft(script).unwrap();
        let fault = only(client(&ward, ""), "firewall.rule", &[]);
        assert_eq!(fault.subject, "wan1");
        assert!(
            fault.commands[0].starts_with("sudo nft delete rule inet block out handle "),
            "{fault:?}"
        );
        fix(&ward, "");
        fixed(&ward, "the rule");

        // 7. The same beyond this machine: the proxy must listen elsewhere, too.
        let router = ward.stage.topology().routers()[1].namespace();
        router
            .nft("table inet block { chain forward { type filter hook forward priority 0;\nudp dport 51900 drop\n}\n}")
            .unwrap();
        let fault = only(client(&ward, ""), "reach.blocked", &[]);
        assert!(fault.subject == "wan1" && fault.at_proxy, "{fault:?}");
        let proxy = ward.proxy().display().to_string();
        assert!(fault.advice.contains("`more_ports = [443]`"), "{fault:?}");
        assert_eq!(fault.commands[0], "sudoedit /etc/ropewalk/proxy/proxy.toml");
        let ports = vec![toml::Value::from(443)];
        ward.stage.deployment().proxy_config().insert("more_ports".into(), ports.into());
        ward.stage.start_proxy().unwrap();
        ward.client(|config| {
            let both = vec![format!("{PROXY_V4}:51900"), format!("{PROXY_V4}:443")];
            config["proxy"].as_table_mut().unwrap().insert("address".into(), both.into());
        });
        let found = fixed(&ward, "another port");
        assert!(
            found.iter().any(|(id, one)| id == "reach.partly" && one.subject == "wan1"),
            "{found:#?}"
        );
        ward.stage.topology().routers()[1].namespace().nft("delete table inet block").unwrap();

        // 8. A network that wants a sign-in: no UDP, and every page leads to its own.
        let router = ward.stage.topology().routers()[1].namespace();
        router.nft(PORTAL).unwrap();
        let pages = router.run(|| TcpListener::bind("0.0.0.0:8080")).unwrap().unwrap();
        thread::spawn(move || sign_in(&pages));
        let fault = only(client(&ward, ""), "portal", &[]);
        assert_eq!(
            (fault.subject.as_str(), fault.commands[0].as_str()),
            ("wan1", "xdg-open http://192.168.11.1/login")
        );
        ward.stage.topology().routers()[1].namespace().nft("delete table inet portal").unwrap();
        fixed(&ward, "the sign-in");

        // 9. A wrong port.
        ward.client(|config| {
            config["proxy"]["address"] = format!("{PROXY_V4}:51999").into();
        });
        let fault = only(client(&ward, ""), "reach.port", &[]);
        let command = format!("sudo ropewalk doctor --fix --config {shown}");
        assert_eq!(fault.commands, [command]);
        let before = fs::read_to_string(&file).unwrap();
        // Nobody is there to agree, or somebody says no.
        let silent = ward.shell(ward.stage.topology().client(), &fault.commands[0]);
        assert_eq!(silent.status.code(), Some(2), "{silent:?}");
        let refusal = format!("echo n | script -qec '{}' /dev/null", fault.commands[0]);
        let refused = ward.shell(ward.stage.topology().client(), &refusal);
        let said = String::from_utf8_lossy(&refused.stdout);
        assert!(said.contains("do it? [y/N]") && said.contains("left as it is"), "{said}");
        assert_eq!(fs::read_to_string(&file).unwrap(), before);
        fix(&ward, "");
        fixed(&ward, "the port");
        assert_eq!(fs::read_to_string(ward.file("client0.toml.old")).unwrap(), before);

        // 10. Another proxy's key.
        let other = ward.shell(
            ward.stage.topology().client(),
            &format!("{PROGRAM} keygen other.key; rm other.key"),
        );
        let other = String::from_utf8(other.stdout).unwrap().trim().to_owned();
        ward.client(|config| {
            config["proxy"]["public_key"] = other.clone().into();
        });
        let fault = only(client(&ward, ""), "reach.key", &[]);
        assert!(fault.at_proxy && fault.found.contains(&other), "{fault:?}");
        assert_eq!(fault.commands, ["sudo ropewalk doctor"]);
        let at_proxy = ward.examine(ward.stage.topology().proxy(), Path::new(&proxy), "");
        let said = at_proxy
            .iter()
            .find(|(id, _)| id == "config")
            .map(|(_, one)| one.found.clone())
            .unwrap();
        let key = said.rsplit(' ').next().unwrap();
        sh(&ward, &format!("sed -i 's|{other}|{key}|' {shown}"));
        fixed(&ward, "the key");

        // 11. A name that nobody knows.
        ward.client(|config| {
            config["proxy"]["address"] = "nowhere.invalid:51900".into();
        });
        let fault = only(client(&ward, ""), "name.unknown", &[]);
        assert_eq!(fault.commands[1], format!("sudoedit {shown}"));
        ward.client(|config| config["proxy"]["address"] = PROXY_V4.to_string().into());
        fixed(&ward, "the name");

        // 12. A clock that is behind the time at which the config was written.
        sh(&ward, &format!("touch -d '+2 days' {shown}"));
        let fault = only(client(&ward, ""), "clock.behind", &[]);
        assert_eq!(fault.commands[0], "sudo timedatectl set-ntp true");
        sh(&ward, &fault.commands[1]);
        fixed(&ward, "touch");

        // 13. What a crash leaves.
        let (deployment, topology) = ward.stage.split();
        deployment.start_client(topology, 0).unwrap();
        deployment.wait_up(0, 2).unwrap();
        let running = fixed(&ward, "the start");
        assert_eq!(running.iter().filter(|(id, _)| id == "nat").count(), 2, "{running:#?}");
        ward.stage.deployment().client(0).unwrap().kill();
        let fault = only(client(&ward, ""), "leftovers.crash", &[]);
        assert!(fault.commands[0].starts_with("sudo ropewalk client --purge"), "{fault:?}");
        fix(&ward, "");
        fixed(&ward, "the clean-up");
        let left = ward.stage.topology().client().tool("ip", &["rule"]).unwrap();
        assert!(!left.contains("proto 114"), "{left}");

        // 14. A kill switch without its client.
        // The proxy forgets the killed one's session: it would warn of another machine with its key.
        ward.stage.start_proxy().unwrap();
        ward.stage.deployment().client_config(0).insert("kill_switch".into(), true.into());
        let (deployment, topology) = ward.stage.split();
        deployment.start_client(topology, 0).unwrap();
        deployment.wait_up(0, 2).unwrap();
        fixed(&ward, "the start with a kill switch");
        ward.stage.deployment().client(0).unwrap().kill();
        let fault = only(client(&ward, ""), "leftovers.lock", &[]);
        sh(&ward, &fault.commands[1]);
        fixed(&ward, "the end of the kill switch");

        // 15. Two links by one router.
        let address = gateway_v4(0, 0).octets();
        let twin = format!("{}.{}.{}.77/24", address[0], address[1], address[2]);
        sh(
            &ward,
            &format!(
                "ip link add twin0 link wan0 type macvlan mode bridge; ip address add {twin} dev twin0\n\
             ip link set twin0 up; ip route add default via {gateway} dev twin0 metric 300"
            ),
        );
        ward.client(|config| {
            config.insert("links".into(), "auto".into());
            config.remove("link");
        });
        let fault = only(client(&ward, ""), "gateways.same", &[]);
        assert_eq!(fault.subject, "twin0");
        fix(&ward, "");
        fixed(&ward, "leaving one out");
        sh(&ward, "ip link del twin0");

        // 16. Another tunnel that wants everything.
        sh(
            &ward,
            "ip tuntap add dev vpn9 mode tun; ip link set vpn9 up; ip route add default dev vpn9 metric 50",
        );
        let fault = only(client(&ward, ""), "vpn.default", &[]);
        assert_eq!(fault.commands, ["sudo ip link set dev vpn9 down"]);
        sh(&ward, &fault.commands[0]);
        fixed(&ward, "the other tunnel");

        // 17. Large packets that vanish without a word.
        let router = ward.stage.topology_mut().router_mut(1);
        router.set_mtu(1400).unwrap();
        router.set_icmp_errors(false).unwrap();
        let fault = only(client(&ward, ""), "mtu.black-hole", &[]);
        assert_eq!(fault.commands, ["sudo ip link set dev wan1 mtu 1400"]);
        fix(&ward, "");
        fixed(&ward, "the MTU");
    });
}
