//! A household behind the client: real devices in namespaces, lent addresses by a real `dnsmasq`, counted and limited by the real
//! kernel.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod lab;

use std::net::{Ipv4Addr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use ropewalk_netlab::address::{PROXY_V4, PROXY_V6, SERVER_V4};
use ropewalk_netlab::dhcp::Lent;
use ropewalk_netlab::download::Curl;
use ropewalk_netlab::ping::Ping;
use ropewalk_netlab::privilege::lab_test_alone;

use lab::{
    Device, HIDES_DNSMASQ, Household, NAME, PATIENCE, SEED, download, has_dnsmasq, household_test,
    of_device,
};

/// Some seconds over both links.
const BYTES: u64 = 8_000_000;

/// Some seconds at a limit.
const LIMITED_BYTES: u64 = 4_000_000;
const LIMIT_MBIT: f64 = 5.0;
const LIMITED_UPLOAD: u64 = 1_500_000;
const UPLOAD_LIMIT_MBIT: f64 = 2.0;

/// How far a rate may be from its limit.
const WITHIN: f64 = 0.15;

/// The client's machine, as its devices see it.
const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 168, 77, 1);

const SHARE: &str = "[share]
interfaces = [\"lan0\"]
address = \"192.168.77.1/24\"
dhcp = true
range = \"192.168.77.100-192.168.77.150\"
lease = \"1h\"
";

#[test]
fn three_devices_are_lent_addresses_counted_and_limited_and_nothing_is_left_of_it() {
    const TEST: &str =
        "three_devices_are_lent_addresses_counted_and_limited_and_nothing_is_left_of_it";
    household_test(TEST, SHARE, |mut house| {
        let before = house.state();
        house.start_proxy();
        let mut client = house.start("");
        house.wait_up(&mut client);
        house.wait_for_dhcp(&mut client, "on");

        let lent: Vec<Lent> = house.devices.iter().map(Device::join).collect();
        for one in &lent {
            assert!((100..=150).contains(&one.address.octets()[3]), "{one:?}");
            assert_eq!((one.prefix_len, one.seconds), (24, 3600), "{one:?}");
            assert_eq!((one.router, one.name_server), (ROUTER, ROUTER), "{one:?}");
        }
        let mut addresses: Vec<_> = lent.iter().map(|one| one.address).collect();
        addresses.sort_unstable();
        addresses.dedup();
        assert_eq!(addresses.len(), 3, "{lent:?}");

        // Names: of the Internet through the tunnel, and of each other.
        let [tv, phone, laptop] = [0, 1, 2].map(|at| &house.devices[at]);
        let answer = house.resolve(phone, NAME);
        assert!(answer.contains("192.0.2.99"), "{answer}\n{}", client.log());
        let asked = house.names.asked();
        let through_it = asked.iter().all(|one| one.from.ip() == PROXY_V4);
        assert!(!asked.is_empty() && through_it, "{asked:?}");
        let answer = house.resolve(phone, "tv.home.arpa");
        assert!(answer.contains(&lent[0].address.to_string()), "{answer}");

        let whole = download(tv, &house.url(BYTES), BYTES);
        assert!(whole.mbit > 2.0 * LIMIT_MBIT, "{:.1} Mbit/s", whole.mbit);
        let told = house.told();
        for (device, lent) in house.devices.iter().zip(&lent) {
            let known = of_device(&told, device.name);
            assert_eq!(known["mac"], device.mac_in_words(), "{told:#}");
            assert_eq!(known["addresses"][0], lent.address.to_string(), "{told:#}");
            assert_eq!(known["interface"], "lan0");
            let has_loaded = known["down"]["bytes"].as_u64().unwrap() >= BYTES;
            assert_eq!(has_loaded, device.name == "tv", "{told:#}");
        }
        assert!(of_device(&told, "tv")["up"]["packets"].as_u64().unwrap() > 100, "{told:#}");
        assert!(told["rates_over_s"].is_number(), "{told:#}");

        // A limit holds for one, and for no other.
        let file = house.config_file();
        let limit = ["devices", "limit", "tv", "--down", "5 Mbit/s", "--save", "--config", &file];
        let said = house.say(&limit);
        assert!(said.starts_with("tv at most 5 Mbit/s down\n"), "{said}");
        assert!(said.contains("This is saved in "), "{said}");
        assert!(std::fs::read_to_string(&file).unwrap().contains("down = \"5 Mbit/s\""));
        house.wait_for_lane(&mut client, "lan0");
        let (url, other) = (house.url(LIMITED_BYTES), house.url(BYTES));
        let (limited, free) = thread::scope(|scope| {
            let limited = scope.spawn(|| download(tv, &url, LIMITED_BYTES));
            let free = scope.spawn(|| download(laptop, &other, BYTES));
            (limited.join().unwrap(), free.join().unwrap())
        });
        println!("{:.2} Mbit/s of {LIMIT_MBIT} beside {:.2}", limited.mbit, free.mbit);
        assert_within(limited.mbit, LIMIT_MBIT);
        assert!(free.mbit > 1.5 * LIMIT_MBIT, "{:.1} Mbit/s", free.mbit);
        assert_eq!(of_device(&house.told(), "tv")["limit"]["down_bps"], 5_000_000);

        // So does one of what it sends, named by its hardware address.
        let mac = phone.mac_in_words();
        house.say(&["devices", "limit", &mac, "--up", "2 Mbit/s"]);
        house.wait_for_lane(&mut client, "ropewalk0");
        let curl = Curl { interface: None, limit: Some(PATIENCE) };
        let upload = curl.upload(&phone.namespace, &house.url(0), LIMITED_UPLOAD, SEED).unwrap();
        println!("{:.2} Mbit/s of {UPLOAD_LIMIT_MBIT} up", upload.mbit);
        assert_eq!(upload.bytes, LIMITED_UPLOAD);
        assert_within(upload.mbit, UPLOAD_LIMIT_MBIT);

        // What was not saved goes with a reload, and what the file says stays.
        let report = house.say(&["reload"]);
        assert!(report.contains("share.limit"), "{report}");
        let told = house.told();
        assert_eq!(of_device(&told, "tv")["limit"]["down_bps"], 5_000_000, "{told:#}");
        assert!(of_device(&told, "phone")["limit"].is_null(), "{told:#}");

        client.stop(PATIENCE).unwrap();
        assert_eq!(house.state(), before, "{}", client.log());
        assert!(house.processes().is_empty() && !house.folder().exists());
    });
}

#[test]
fn whatever_is_killed_the_next_start_serves_and_its_end_leaves_nothing() {
    const TEST: &str = "whatever_is_killed_the_next_start_serves_and_its_end_leaves_nothing";
    household_test(TEST, SHARE, |mut house| {
        let before = house.state();
        house.start_proxy();

        // The client alone: its helper ends, and dnsmasq with it.
        let mut client = house.start("");
        house.wait_up(&mut client);
        house.wait_for_dhcp(&mut client, "on");
        house.say(&["devices", "limit", "tv", "--down", "5 Mbit/s", "--up", "2 Mbit/s"]);
        client.kill();
        wait("no dnsmasq", || house.processes().is_empty());
        assert!(!house.folder().exists());

        // The client and its helper: a dnsmasq is left, and the next start ends it.
        let mut client = house.start("");
        house.wait_for_dhcp(&mut client, "on");
        let left = house.dnsmasq().unwrap();
        house.kill(house.helper().unwrap());
        client.kill();
        wait("no helper", || house.helper().is_none());
        assert_eq!(house.dnsmasq(), Some(left));
        let mut client = house.start("");
        house.wait_for_dhcp(&mut client, "on");
        assert_eq!(house.processes().len(), 2, "a helper, and its dnsmasq");
        assert_ne!(house.dnsmasq(), Some(left));
        house.wait_up(&mut client);
        let lent = house.devices[0].join();
        assert_eq!(lent.router, ROUTER);

        client.stop(PATIENCE).unwrap();
        assert_eq!(house.state(), before, "{}", client.log());
        assert!(house.processes().is_empty() && !house.folder().exists());

        // With all of it killed, `--purge` takes away what is left.
        let mut client = house.start("");
        house.wait_for_dhcp(&mut client, "on");
        house.kill(house.helper().unwrap());
        client.kill();
        house.purge();
        assert_eq!(house.state(), before);
        assert!(house.processes().is_empty() && !house.folder().exists());
    });
}

#[test]
fn a_reload_moves_the_household_to_another_network_and_ends_what_it_was_handed_out() {
    const TEST: &str =
        "a_reload_moves_the_household_to_another_network_and_ends_what_it_was_handed_out";
    household_test(TEST, SHARE, |mut house| {
        let before = house.state();
        house.start_proxy();
        let mut client = house.start("");
        house.wait_up(&mut client);
        house.wait_for_dhcp(&mut client, "on");
        assert_eq!(house.devices[0].join().router, ROUTER);

        let file = house.config_file();
        let change = |from: &str, to: &str| {
            let text = std::fs::read_to_string(&file).unwrap();
            assert!(text.contains(from), "{text}");
            std::fs::write(&file, text.replace(from, to)).unwrap();
            house.say(&["reload"])
        };
        let report = change("192.168.77.", "192.168.78.");
        assert!(report.contains("share.address") && report.contains("share.range"), "{report}");
        let has = |address: &str| {
            let list = ["-o", "addr", "show", "dev", "lan0"];
            house.router().tool("ip", &list).unwrap().contains(address)
        };
        wait("the other address", || has("192.168.78.1/24") && !has("192.168.77.1/24"));
        wait("dnsmasq there", || {
            let told = house.told();
            let lan = &told["lans"][0];
            lan["address"] == "192.168.78.1/24" && lan["dhcp"] == "on"
        });
        let lent = house.devices[1].join();
        assert_eq!(lent.router, Ipv4Addr::new(192, 168, 78, 1), "{lent:?}");

        let report = change("dhcp = true", "dhcp = false");
        assert!(report.contains("share.dhcp"), "{report}");
        house.wait_for_dhcp(&mut client, "off");
        wait("no dnsmasq", || house.dnsmasq().is_none());
        assert!(has("192.168.78.1/24") && house.helper().is_some());

        client.stop(PATIENCE).unwrap();
        assert_eq!(house.state(), before, "{}", client.log());
        assert!(house.processes().is_empty() && !house.folder().exists());
    });
}

#[test]
fn what_is_in_the_way_of_lending_addresses_is_told_and_over_when_it_is_gone() {
    const TEST: &str = "what_is_in_the_way_of_lending_addresses_is_told_and_over_when_it_is_gone";
    lab_test_alone(TEST, || {
        let mut house = Household::build(SHARE);
        house.start_proxy();

        // No dnsmasq on this machine.
        let mut client = house.start(HIDES_DNSMASQ);
        house.wait_for_dhcp(&mut client, "failed");
        let trouble = house.trouble();
        assert!(trouble.contains("install the package dnsmasq-base"), "{trouble}");
        house.wait_up(&mut client);
        let warned = || house.warnings().contains("dnsmasq-base");
        client.wait_until("a warning", PATIENCE, warned).unwrap();
        client.stop(PATIENCE).unwrap();

        if !has_dnsmasq(TEST) {
            return;
        }
        // Another server.
        let other = || UdpSocket::bind("0.0.0.0:67").unwrap();
        let other = house.router().run(other).unwrap();
        let mut client = house.start("");
        house.wait_for_dhcp(&mut client, "failed");
        let trouble = house.trouble();
        assert!(trouble.contains("another program hands out addresses there"), "{trouble}");
        drop(other);
        house.wait_for_dhcp(&mut client, "on");

        // A dnsmasq that ends.
        let first = house.dnsmasq().unwrap();
        house.kill(first);
        let is_another = || house.dnsmasq().is_some_and(|now| now != first);
        client.wait_until("another dnsmasq", PATIENCE, is_another).unwrap();
        house.wait_for_dhcp(&mut client, "on");
        house.devices[0].join();
        client.stop(PATIENCE).unwrap();
        assert!(house.processes().is_empty());
    });
}

#[test]
fn devices_have_addresses_of_their_own_where_the_proxy_routes_a_network_here() {
    const TEST: &str = "devices_have_addresses_of_their_own_where_the_proxy_routes_a_network_here";
    household_test(TEST, SHARE, |mut house| {
        let before = house.state();
        house.route_prefix("2001:db8:7:100::/63");
        house.internet().ip(&format!("route add 2001:db8:7:100::/63 via {PROXY_V6}")).unwrap();
        house
            .internet()
            .nft(
                "table inet count { chain forward { type filter hook forward priority 0; policy accept;
                    ip6 saddr 2001:db8:7:100::/64 counter
                }
                }",
            )
            .unwrap();
        house.start_proxy();
        let mut client = house.start("");
        house.wait_up(&mut client);
        house.wait_for_dhcp(&mut client, "on");
        wait("the prefix", || house.told()["lans"][0]["prefix"] == "2001:db8:7:100::/64");

        let tv = &house.devices[0];
        let mut own = None;
        wait("an address of the prefix", || {
            own = tv.address_in("2001:db8:7:100:");
            own.is_some()
        });
        wait("a router", || {
            tv.namespace.tool("ip", &["-6", "route", "show", "default"]).unwrap().contains("fe80::")
        });
        let loaded = download(tv, &house.url_v6(200_000), 200_000);
        println!("{:.1} Mbit/s with an address of its own", loaded.mbit);
        let counted = house.internet().tool("nft", &["list", "table", "inet", "count"]).unwrap();
        assert!(!counted.contains("packets 0 "), "{counted}");
        let own = own.unwrap();
        let told = house.told();
        let is_known = |device: &serde_json::Value| {
            device["mac"] == tv.mac_in_words() && device["addresses"].to_string().contains(&own)
        };
        assert!(told["devices"].as_array().unwrap().iter().any(is_known), "{own}: {told:#}");

        // Nobody begins anything from outside.
        let to = own.parse().unwrap();
        let ping = Ping { patience: Duration::from_millis(500), ..Ping::new(to, 2) };
        let pinged = ping.run(house.server()).unwrap();
        assert_eq!(pinged.lost, pinged.sent, "{pinged:?}");
        // And IPv4 has its one address, as before.
        tv.join();
        let ping = Ping::new(SERVER_V4.into(), 2).run(&tv.namespace).unwrap();
        assert_eq!(ping.lost, 0, "{ping:?}");

        client.stop(PATIENCE).unwrap();
        assert_eq!(house.state(), before, "{}", client.log());
    });
}

fn assert_within(mbit: f64, limit: f64) {
    let range = limit * (1.0 - WITHIN)..=limit * (1.0 + WITHIN);
    assert!(range.contains(&mbit), "{mbit:.2} Mbit/s, where {limit} are the limit");
}

fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(50));
    }
}
