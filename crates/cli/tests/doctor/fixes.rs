//! What `ropewalk doctor --fix` does beside what it does for the faults of `client` and `proxy`: the fault, the fix, what is there
//! afterwards; and what it says where it may not.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ropewalk_link_io::tun::{TunOptions, TunQueue};
use ropewalk_netlab::address::PROXY_V4;
use ropewalk_netlab::deployment::{CLIENT_TUN, PROXY_TUN};
use ropewalk_netlab::namespace::Namespace;
use ropewalk_netlab::privilege::lab_test;
use ropewalk_settings::Switch;
use toml::Table;

use super::ward::{Found, SOON, WITHOUT_RIGHT, Ward, only};

#[test]
fn what_stands_in_the_place_of_a_tun_goes_if_the_right_is_there() {
    let name = "fixes::what_stands_in_the_place_of_a_tun_goes_if_the_right_is_there";
    lab_test(name, || {
        let mut ward = Ward::open();
        let file = ward.proxy();
        give_way(&ward, ward.stage.topology().proxy(), &file, PROXY_TUN);
        ward.stage.start_proxy().unwrap();
        let file = ward.client(|_| ());
        give_way(&ward, ward.stage.topology().client(), &file, CLIENT_TUN);
        ward.stage.connect([0, 1]).unwrap();
    });
}

/// An interface of another kind has the name of a daemon's TUN.
fn give_way(ward: &Ward, namespace: &Namespace, file: &Path, tun: &str) {
    let interfaces = || namespace.tool("sh", &["-c", "ip -o link | cut -d' ' -f2"]).unwrap();
    let before = interfaces();
    namespace.ip(&format!("link add {tun} type veth peer name other0")).unwrap();
    let there = interfaces();
    let fault = only(ward.examine(namespace, file, ""), "leftovers.tun", &[]);
    assert_eq!(fault.commands, [format!("sudo ip link delete {tun}")]);

    let tried = ward.try_to_fix(namespace, file, WITHOUT_RIGHT);
    let said = String::from_utf8_lossy(&tried.stdout);
    assert_eq!(tried.status.code(), Some(1), "{tried:?}");
    let refused = format!("failed: `sudo ip link delete {tun}` failed");
    for part in ["lacks CAP_NET_ADMIN", "sudo ropewalk doctor", refused.as_str(), "not permitted"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("  done"), "{said}");
    assert_eq!(interfaces(), there);

    ward.fix(namespace, file, "");
    assert_eq!(interfaces(), before);
    none(&ward.examine(namespace, file, ""));
}

#[test]
fn a_link_that_lets_no_udp_through_is_left_out_as_the_config_speaks_of_it() {
    let name = "fixes::a_link_that_lets_no_udp_through_is_left_out_as_the_config_speaks_of_it";
    lab_test(name, || {
        let mut ward = Ward::open();
        let ports = vec![toml::Value::from(443)];
        ward.stage.deployment().proxy_config().insert("more_ports".into(), ports.into());
        ward.stage.start_proxy().unwrap();
        let router = ward.stage.topology().routers()[1].namespace();
        router
            .nft("table inet block { chain forward { type filter hook forward priority 0;\nudp dport { 51900, 443 } drop\n}\n}")
            .unwrap();
        for (is_listed, kept) in [(true, "client0.toml.old"), (false, "client0.toml.old.2")] {
            let file = ward.client(|config| {
                let both = vec![format!("{PROXY_V4}:51900"), format!("{PROXY_V4}:443")];
                config["proxy"].as_table_mut().unwrap().insert("address".into(), both.into());
                if !is_listed {
                    config.insert("links".into(), "auto".into());
                    config.insert("exclude_interfaces".into(), "usb9".into());
                    config.remove("link");
                }
            });
            let before = format!("# my laptop\n{}", fs::read_to_string(&file).unwrap());
            fs::write(&file, &before).unwrap();
            let client = ward.stage.topology().client();
            let fault = only(ward.examine(client, &file, ""), "reach.blocked", &[]);
            assert!(fault.subject == "wan1" && !fault.at_proxy, "{fault:?}");
            assert_eq!(fault.commands, [by_itself(&file)]);

            // Nobody may write where the config is.
            let folder = file.parent().unwrap().display().to_string();
            let closed =
                format!("mount --bind {folder} {folder}; mount -o remount,bind,ro {folder}; ");
            let tried = ward.try_to_fix(client, &file, &closed);
            let said = String::from_utf8_lossy(&tried.stdout);
            assert_eq!(tried.status.code(), Some(1), "{tried:?}");
            for part in ["failed: cannot keep a copy of", "Read-only file system"] {
                assert!(said.contains(part), "{part}: {said}");
            }
            assert!(!said.contains("  done"), "{said}");
            assert_eq!(fs::read_to_string(&file).unwrap(), before);

            let said = ward.fix(client, &file, "");
            assert!(said.contains("needs `sudo ropewalk reload`, or a restart"), "{said}");
            let found = ward.examine(client, &file, "");
            none(&found);
            let alone = |(id, one): &(String, Found)| {
                id == "links.one" && one.found.starts_with("wan0 alone")
            };
            assert!(found.iter().any(alone), "{found:#?}");
            let after = fs::read_to_string(&file).unwrap();
            assert!(after.starts_with("# my laptop\n"), "{after}");
            let config: Table = after.parse().unwrap();
            if is_listed {
                assert_eq!(config["link"][1]["enabled"].as_bool(), Some(false), "{after}");
                assert!(!config.contains_key("exclude_interfaces"), "{after}");
            } else {
                let excluded: Vec<String> =
                    config["exclude_interfaces"].clone().try_into().unwrap();
                assert_eq!(excluded, ["usb9", "wan1"], "{after}");
            }
            assert_eq!(fs::read_to_string(file.with_file_name(kept)).unwrap(), before);
        }
    });
}

#[test]
fn a_tun_that_may_be_an_uplink_becomes_a_link_beside_the_others() {
    let name = "fixes::a_tun_that_may_be_an_uplink_becomes_a_link_beside_the_others";
    lab_test(name, || {
        let mut ward = Ward::open();
        ward.stage.start_proxy().unwrap();
        let file = ward.client(|config| {
            config.insert("links".into(), "auto".into());
            config.remove("link");
        });
        let client = ward.stage.topology().client();
        let options = TunOptions { name: "modem0".to_owned(), mtu: 1400, offload: Switch::Off };
        let modem = client.run(|| TunQueue::open(&options, 1).unwrap()).unwrap();
        client
            .ip("addr add 100.64.7.2/30 dev modem0\nlink set modem0 up\n\
                 route add default via 100.64.7.1 dev modem0 metric 400")
            .unwrap();
        let fault = only(ward.examine(client, &file, ""), "links.tunnel", &[]);
        assert_eq!((fault.level.as_str(), fault.subject.as_str()), ("warn", "modem0"));
        assert_eq!(fault.commands, [by_itself(&file)]);

        let tried = ward.try_to_fix(client, &file, "");
        let said = String::from_utf8_lossy(&tried.stdout);
        assert!(said.contains("  done") && said.contains("Examined again"), "{tried:?}");
        let config: Table = fs::read_to_string(&file).unwrap().parse().unwrap();
        let included: Vec<String> = config["include_interfaces"].clone().try_into().unwrap();
        assert_eq!(included, ["modem0", "wan0", "wan1"]);
        // It leads nowhere here, which is told of a link only.
        let found = ward.examine(client, &file, "");
        assert!(!Ward::faults(&found).contains(&"links.tunnel"), "{found:#?}");
        let is_asked =
            |(id, one): &(String, Found)| id.starts_with("reach.") && one.subject == "modem0";
        assert!(found.iter().any(is_asked), "{found:#?}");
        drop(modem);
    });
}

#[test]
fn a_sandbox_that_is_off_is_on_from_the_next_start() {
    lab_test("fixes::a_sandbox_that_is_off_is_on_from_the_next_start", || {
        let mut ward = Ward::open();
        ward.stage.deployment().client_config(0).insert("sandbox".into(), false.into());
        ward.stage.start([0, 1]).unwrap();
        let file = ward.file("client0.toml");
        let written = fs::read_to_string(&file).unwrap();
        let before = written.replace("sandbox = false\n", "sandbox = false # for a day\n");
        assert_ne!(before, written);
        fs::write(&file, &before).unwrap();
        let client = ward.stage.topology().client();
        let fault = only(ward.examine(client, &file, ""), "sandbox.off", &[]);
        let restart = "sudo systemctl restart ropewalk-client".to_owned();
        assert_eq!(fault.commands, [by_itself(&file), restart]);

        let restart = "must be restarted: `sudo systemctl restart ropewalk-client`";
        let said = ward.fix(client, &file, "");
        assert!(said.contains(restart) && !said.contains("sudo ropewalk reload"), "{said}");
        let after = fs::read_to_string(&file).unwrap();
        assert_eq!(after, before.replace("sandbox = false", "sandbox = true"));
        assert_eq!(fs::read_to_string(file.with_file_name("client0.toml.old")).unwrap(), before);
        // What the running one gave up, and what not, stays as it is.
        only(ward.examine(client, &file, ""), "sandbox.off", &[]);
        // To write it once more would not help.
        let tried = ward.try_to_fix(client, &file, "");
        let said = String::from_utf8_lossy(&tried.stdout);
        assert!(tried.status.success(), "{tried:?}");
        assert!(said.contains(restart) && !said.contains("  done"), "{said}");
        assert_eq!(fs::read_to_string(&file).unwrap(), after);
        assert!(!file.with_file_name("client0.toml.old.2").exists(), "{said}");

        *ward.stage.deployment().client_config(0) = after.parse().unwrap();
        ward.stage.connect([0, 1]).unwrap();
        none(&ward.examine(ward.stage.topology().client(), &file, ""));
    });
}

#[test]
fn limits_of_buffers_are_raised_for_who_may_not_pass_them() {
    lab_test("fixes::limits_of_buffers_are_raised_for_who_may_not_pass_them", || {
        let mut ward = Ward::open();
        ward.stage.start_proxy().unwrap();
        let file = ward.client(|_| ());
        // The real ones are the whole machine's, and no namespace may set them: files stand for them.
        let limits = ward.file("limits");
        fs::create_dir(&limits).unwrap();
        let names = ["rmem_max", "wmem_max"];
        for name in names {
            fs::write(limits.join(name), "212992\n").unwrap();
        }
        let before =
            format!("mount --bind {} /proc/sys/net/core; {WITHOUT_RIGHT}", limits.display());
        let client = ward.stage.topology().client();
        let found = ward.examine(client, &file, &before);
        let faults = found.iter().filter(|(id, _)| id == "buffers.small");
        let commands: Vec<_> = faults.flat_map(|(_, fault)| fault.commands.clone()).collect();
        let raise = ["rmem_max=4194304", "wmem_max=1048576"]
            .map(|setting| format!("sudo sysctl -w net.core.{setting}"));
        assert_eq!(commands, raise, "{found:#?}");

        let tried = ward.try_to_fix(client, &file, &before);
        let said = String::from_utf8_lossy(&tried.stdout);
        assert_eq!(tried.status.code(), Some(1), "the right is missing still: {tried:?}");
        assert_eq!(said.matches("  done\n").count(), 2, "{said}");
        let limit = |name: &str| fs::read_to_string(limits.join(name)).unwrap();
        assert_eq!(names.map(limit), ["4194304", "1048576"]);
        only(ward.examine(client, &file, &before), "privileges.missing", &[]);
    });
}

#[test]
fn a_proxy_hears_clients_by_an_uplink_with_strict_filtering_and_leaves_it_so() {
    let name = "fixes::a_proxy_hears_clients_by_an_uplink_with_strict_filtering_and_leaves_it_so";
    lab_test(name, || {
        let mut ward = Ward::open();
        let file = ward.proxy();
        let proxy = ward.stage.topology().proxy();
        proxy
            .ip("link add eth1 type veth peer name far1\naddr add 198.51.100.2/24 dev eth1\n\
                 link set eth1 up")
            .unwrap();
        proxy.sysctl(&[("net.ipv4.conf.eth1.rp_filter", "1")]).unwrap();
        let fault = only(ward.examine(proxy, &file, ""), "rp-filter.strict", &[]);
        assert_eq!(fault.subject, "eth1");
        assert_eq!(fault.commands, ["sudo sysctl -w net.ipv4.conf.eth1.rp_filter=2"]);

        ward.fix(proxy, &file, "");
        none(&ward.examine(proxy, &file, ""));
        ward.stage.start_proxy().unwrap();
        ward.stage.deployment().stop_proxy().unwrap();
        let filter = "/proc/sys/net/ipv4/conf/eth1/rp_filter";
        assert_eq!(read(ward.stage.topology().proxy(), &[filter]), "2\n");
    });
}

#[test]
fn what_is_shared_is_forwarded_again_until_the_client_ends() {
    lab_test("fixes::what_is_shared_is_forwarded_again_until_the_client_ends", || {
        let mut ward = Ward::open();
        ward.stage
            .topology()
            .client()
            .ip("link add lan0 type veth peer name far0\naddr add 192.168.77.1/24 dev lan0\n\
                 link set far0 up\nlink set lan0 up")
            .unwrap();
        ward.stage.deployment().client_config(0).insert("share".into(), "lan0".into());
        ward.stage.start([0, 1]).unwrap();
        let file = ward.file("client0.toml");
        let client = ward.stage.topology().client();
        let own = "/proc/sys/net/ipv4/conf/lan0/forwarding";
        let both = [own, "/proc/sys/net/ipv6/conf/all/forwarding"];
        let begun = Instant::now();
        while read(client, &both) != "1\n1\n" {
            assert!(begun.elapsed() < SOON, "{}", read(client, &both));
            thread::sleep(Duration::from_millis(50));
        }
        none(&ward.examine(client, &file, ""));

        client.sysctl(&[("net.ipv4.conf.lan0.forwarding", "0")]).unwrap();
        let fault = only(ward.examine(client, &file, ""), "forwarding.off", &[]);
        assert_eq!(fault.commands, ["sudo sysctl -w net.ipv4.conf.lan0.forwarding=1"]);
        ward.fix(client, &file, "");
        assert_eq!(read(client, &both), "1\n1\n");
        none(&ward.examine(client, &file, ""));

        ward.stage.deployment().stop_client(0).unwrap();
        assert_eq!(read(ward.stage.topology().client(), &both), "0\n0\n");
    });
}

/// The command that has the doctor fix it.
fn by_itself(file: &Path) -> String {
    format!("sudo ropewalk doctor --fix --config {}", file.display())
}

/// Nothing stands out.
fn none(found: &[(String, Found)]) {
    assert!(Ward::faults(found).is_empty(), "{found:#?}");
}

/// Settings of the kernel in a namespace, a line each.
fn read(namespace: &Namespace, settings: &[&str]) -> String {
    namespace.tool("cat", settings).unwrap()
}
