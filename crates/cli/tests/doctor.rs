//! `ropewalk doctor` on a real kernel: faults are planted one by one; each must be found, with the advice that fixes it, and
//! be gone when that advice was followed, word for word, or by `ropewalk doctor --fix`.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "the helpers of the tests fail as the tests do")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ropewalk_netlab::address::{PROXY_V4, gateway_v4};
use ropewalk_netlab::namespace::Namespace;
use ropewalk_netlab::privilege::lab_test;
use ropewalk_netlab::process::bound_to_parent;
use ropewalk_netlab::stage::Stage;
use ropewalk_netlab::topology::{TopologyConfig, WanConfig};
use serde_json::Value;
use toml::Table;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ropewalk");

/// Longer than a start takes, even on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// Everything that could be `nft` is hidden.
const WITHOUT_NFT: &str = "mount -t tmpfs tmpfs /usr/sbin; PATH=$PATH:/nowhere; ";

/// No device to make a TUN with. What follows runs in the same place.
const WITHOUT_TUN: &str = "mount -t tmpfs tmpfs /dev/net; ";

/// Lets no UDP through, and leads who asks for a page at a public address to this machine's port 8080.
const PORTAL: &str = "table inet portal {
    chain forward { type filter hook forward priority 0; meta l4proto udp drop; }
    chain lead { type nat hook prerouting priority -100; iifname \"lan0\" tcp dport 80 redirect to :8080; }
}";

/// One finding, as the JSON document has it.
#[derive(Debug)]
struct Found {
    level: String,
    subject: String,
    found: String,
    advice: String,
    commands: Vec<String>,
    at_proxy: bool,
}

/// A network with a client and a proxy, and what their users type.
struct Ward {
    stage: Stage,
    tools: PathBuf,
}

impl Ward {
    fn open() -> Self {
        let wans = vec![WanConfig::default(); 2];
        let config = TopologyConfig::new(wans);
        let mut stage = Stage::build(Path::new(PROGRAM), &config).unwrap();
        let tools = stage.deployment().folder().join("tools");
        fs::create_dir(&tools).unwrap();
        // Everybody here is root already; and `ropewalk` is the program under test.
        let script = |name: &str, text: &str| {
            use std::os::unix::fs::PermissionsExt as _;
            fs::write(tools.join(name), format!("#!/bin/sh\n{text}\n")).unwrap();
            fs::set_permissions(tools.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        };
        script("sudo", "exec \"$@\"");
        script("ropewalk", &format!("exec {PROGRAM} \"$@\""));
        Self { stage, tools }
    }

    fn file(&mut self, name: &str) -> PathBuf {
        self.stage.deployment().folder().join(name)
    }

    /// Writes the client's config, changed so.
    fn client(&mut self, change: impl FnOnce(&mut Table)) -> PathBuf {
        let mut config = self.stage.deployment().client_config(0).clone();
        change(&mut config);
        self.write("client0.toml", &config)
    }

    fn write(&mut self, name: &str, config: &Table) -> PathBuf {
        let file = self.file(name);
        fs::write(&file, config.to_string()).unwrap();
        file
    }

    fn proxy(&mut self) -> PathBuf {
        let config = self.stage.deployment().proxy_config().clone();
        self.write("proxy.toml", &config)
    }

    /// Runs a shell's script in a namespace, with mounts of its own.
    fn shell(&self, namespace: &Namespace, script: &str) -> Output {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = bound_to_parent("unshare");
        command.args(["--mount", "sh", "-ec", &format!("mount --make-rprivate /; {script}")]);
        command.env("PATH", format!("{}:{path}:/usr/sbin:/sbin", self.tools.display()));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        namespace.spawn(command).unwrap().wait_with_output().unwrap()
    }

    /// Examines in a namespace, behind what the script `before` does there.
    fn examine(&self, namespace: &Namespace, file: &Path, before: &str) -> Vec<(String, Found)> {
        let script = format!("{before}{PROGRAM} doctor --json --config {}", file.display());
        let output = self.shell(namespace, &script);
        let (out, err) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let document: Value =
            serde_json::from_str(&out).unwrap_or_else(|error| unreachable!("{error}: {out}{err}"));
        assert_eq!(document["version"], 1);
        let findings = document["examinations"][0]["findings"].as_array().unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let found: Vec<(String, Found)> = findings
            .iter()
            .map(|one| {
                let commands = one["commands"].as_array().unwrap().iter().map(text).collect();
                let found = Found {
                    level: text(&one["level"]),
                    subject: text(&one["subject"]),
                    found: text(&one["found"]),
                    advice: text(&one["advice"]),
                    commands,
                    at_proxy: one["at_proxy"] == true,
                };
                (text(&one["id"]), found)
            })
            .collect();
        let fails = found.iter().any(|(_, one)| one.level == "fail");
        assert_eq!(output.status.code(), Some(i32::from(fails)), "{out}{err}");
        found
    }

    /// Has the faults fixed without a question, behind what the script `before` does there.
    fn fix(&self, namespace: &Namespace, file: &Path, before: &str) -> String {
        let script = format!("{before}{PROGRAM} doctor --fix --yes --config {}", file.display());
        let output = self.shell(namespace, &script);
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !out.contains("failed"), "{out}{err}");
        assert!(out.contains("  done") && out.contains("Examined again"), "{out}{err}");
        out
    }

    /// What stands out: no note, and not as it should be.
    fn faults(found: &[(String, Found)]) -> Vec<&str> {
        let stands_out = |(_, one): &&(String, Found)| one.level == "warn" || one.level == "fail";
        found.iter().filter(stands_out).map(|(id, _)| id.as_str()).collect()
    }
}

/// The finding of this kind, which alone must stand out, but for `beside`.
fn only(found: Vec<(String, Found)>, id: &str, beside: &[&str]) -> Found {
    let faults = Ward::faults(&found);
    let others: Vec<_> =
        faults.iter().filter(|one| **one != id && !beside.contains(*one)).collect();
    assert!(faults.contains(&id) && others.is_empty(), "wanted {id} alone: {found:#?}");
    found.into_iter().find(|(one, _)| one == id).unwrap().1
}

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
fn without_a_config_it_says_how_to_get_one_whoever_asks() {
    let table = [
        ("client", "sudo ropewalk join"),
        ("proxy", "sudo ropewalk proxy --config /nonexistent/x.toml"),
    ];
    for (role, command) in table {
        let arguments = ["doctor", "--config", "/nonexistent/x.toml", "--role", role];
        let output = Command::new(PROGRAM).args(arguments).output().unwrap();
        let (out, err) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{out}{err}");
        assert!(out.contains("there is no /nonexistent/x.toml"), "{out}");
        assert!(out.contains(command), "{out}");
        assert!(err.contains("fail"), "{err}");
        for line in out.lines().filter(|line| !line.contains("sudo")) {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}

#[test]
fn planted_faults_of_a_client_are_found_and_their_advice_fixes_them() {
    let name = "planted_faults_of_a_client_are_found_and_their_advice_fixes_them";
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
        let drop = "exec setpriv --bounding-set -net_admin --inh-caps -net_admin ";
        let fault = only(client(&ward, drop), "privileges.missing", &["buffers.small"]);
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

#[test]
fn planted_faults_of_a_proxy_are_found_and_their_advice_fixes_them() {
    let name = "planted_faults_of_a_proxy_are_found_and_their_advice_fixes_them";
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
