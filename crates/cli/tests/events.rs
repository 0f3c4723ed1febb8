//! What happens to a laptop's interfaces while a download runs over them: each event on a real kernel, with the time from
//! the event until the client has followed it, and the checksum of the download.
//!
//! The figures are of a shared machine; what is asserted leaves room for that.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]
#![expect(clippy::print_stdout, reason = "the figures are what a reader wants to see")]

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ropewalk_netlab::access::Access;
use ropewalk_netlab::address::gateway_v4;
use ropewalk_netlab::download::{Curl, Download};
use ropewalk_netlab::http::body_sha256;
use ropewalk_netlab::namespace::Namespace;
use ropewalk_netlab::privilege::lab_test;
use ropewalk_netlab::stage::Stage;
use ropewalk_netlab::status::Status;
use ropewalk_netlab::topology::TopologyConfig;
use ropewalk_settings::Bitrate;
use serde_json::Value;

/// An event is to be followed within a second; twice that on a machine that others use too.
const BOUND: Duration = Duration::from_secs(2);

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

/// About twelve seconds over both links.
const BYTES: u64 = 24_000_000;

/// A network of two WANs of 8 Mbit/s and 20 ms, with this client.
fn stage(configure: impl Fn(&mut toml::Table)) -> Stage {
    let (rtt, queue) = (Duration::from_millis(20), Duration::from_millis(100));
    let wan = || Access::symmetric(Bitrate::from_mbps(8), rtt, queue).into();
    let config = TopologyConfig::new(vec![wan(), wan()]);
    let mut stage = Stage::build(Path::new(env!("CARGO_BIN_EXE_ropewalk")), &config).unwrap();
    stage.start_proxy().unwrap();
    let (deployment, topology) = stage.split();
    configure(deployment.client_config(0));
    deployment.start_client(topology, 0).unwrap();
    stage
}

/// Every interface with a default route and such a name is a link. (The emulated ones are TAP devices, which `auto` alone
/// takes for tunnels.)
fn auto(config: &mut toml::Table) {
    config.remove("link");
    let names: toml::Table = "include_interfaces = [\"w*\", \"usb?\"]".parse().unwrap();
    config.extend(names);
}

/// Runs `event` a second after a download has begun; the download has to be right, and to outlast it.
fn beside_a_download(stage: &Stage, event: impl FnOnce()) -> Download {
    let url = stage.url(BYTES, 7);
    let client = stage.topology().client();
    thread::scope(|scope| {
        let downloading = scope.spawn(move || {
            Curl { interface: None, limit: Some(LONG) }.download(client, &url, |_| ()).unwrap()
        });
        thread::sleep(Duration::from_secs(1));
        event();
        assert!(!downloading.is_finished(), "the download was over before the event");
        let download = downloading.join().unwrap();
        assert!(download.complete, "{}", download.message);
        assert_eq!(download.bytes, BYTES);
        assert_eq!(download.sha256, body_sha256(BYTES, 7));
        download
    })
}

/// Waits until the status is as wanted, and says how long that took since `begun`.
fn after(stage: &Stage, begun: Instant, what: &str, wanted: impl Fn(&Status) -> bool) -> Duration {
    loop {
        let status = stage.client_status().unwrap_or_default();
        let took = begun.elapsed();
        if wanted(&status) {
            println!("{what}: after {} ms", took.as_millis());
            assert!(took < BOUND, "{what} took {took:?}");
            return took;
        }
        assert!(took < LONG, "waited in vain for {what}:\n{:#}", status.tunnel());
        thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until both links carry packets.
fn both_up(stage: &Stage) -> Status {
    let begun = Instant::now();
    loop {
        let status = stage.client_status().unwrap_or_default();
        if status.is_up("wan0") && status.is_up("wan1") && status.tunnel()["state"] == "up" {
            return status;
        }
        assert!(begun.elapsed() < LONG, "{:#}", status.tunnel());
        thread::sleep(Duration::from_millis(50));
    }
}

/// Whether a link is up with an address that begins so.
fn is_up_at(status: &Status, link: &str, local: &str) -> bool {
    let begins = |link: &Value| link["local"].as_str().is_some_and(|at| at.starts_with(local));
    status.is_up(link) && status.link(link).is_some_and(begins)
}

/// The other link was never disturbed: it is the same since before the event.
fn assert_untouched(stage: &Stage, before: &Status, link: &str) {
    let now = stage.client_status().unwrap();
    let (now, before) = (now.link(link).unwrap(), before.link(link).unwrap());
    assert_eq!((&now["id"], &now["local"]), (&before["id"], &before["local"]));
    assert!(now["state_age_s"].as_f64() > before["state_age_s"].as_f64(), "{now:#}");
}

fn client(stage: &Stage) -> &Namespace {
    stage.topology().client()
}

#[test]
fn another_address_on_an_interface_is_followed() {
    lab_test("another_address_on_an_interface_is_followed", || {
        let stage = stage(|_| ());
        let before = both_up(&stage);
        let download = beside_a_download(&stage, || {
            let begun = Instant::now();
            client(&stage)
                .ip(&format!(
                    "addr flush dev wan1 scope global\naddr add 192.168.11.77/24 dev wan1\n\
                     route replace default via {} dev wan1 metric 101",
                    gateway_v4(0, 1)
                ))
                .unwrap();
            after(&stage, begun, "another address", |s| is_up_at(s, "wan1", "192.168.11.77:"));
        });
        assert_untouched(&stage, &before, "wan0");
        println!("longest stall {:.0} ms", download.longest_stall_ms);
    });
}

#[test]
fn another_network_behind_an_interface_is_followed_even_with_the_same_address() {
    lab_test("another_network_behind_an_interface_is_followed_even_with_the_same_address", || {
        let stage = stage(|_| ());
        let before = both_up(&stage);
        let router = stage.topology().routers()[1].namespace();
        router.ip("addr add 192.168.55.1/24 dev lan0\naddr add 192.168.55.9/24 dev lan0").unwrap();
        let id = |status: &Status| status.link("wan1").unwrap()["id"].clone();
        beside_a_download(&stage, || {
            let begun = Instant::now();
            client(&stage)
                .ip("addr flush dev wan1 scope global\naddr add 192.168.55.2/24 dev wan1\n\
                     route replace default via 192.168.55.1 dev wan1 metric 101")
                .unwrap();
            after(&stage, begun, "another network", |s| is_up_at(s, "wan1", "192.168.55.2:"));
            let known = id(&stage.client_status().unwrap());
            let begun = Instant::now();
            client(&stage)
                .ip("route replace default via 192.168.55.9 dev wan1 metric 101")
                .unwrap();
            after(&stage, begun, "another gateway alone", |s| s.is_up("wan1") && id(s) != known);
        });
        assert_untouched(&stage, &before, "wan0");
    });
}

#[test]
fn an_interface_without_carrier_is_left_and_taken_up_again() {
    lab_test("an_interface_without_carrier_is_left_and_taken_up_again", || {
        let mut stage = stage(|_| ());
        let before = both_up(&stage);
        let download = beside_a_download(&stage, || {
            let begun = Instant::now();
            client(&stage).ip("link set wan1 carrier off").unwrap();
            after(&stage, begun, "carrier lost", |s| {
                s.link("wan1").is_some_and(|link| link["reason"] == "no carrier")
            });
            thread::sleep(Duration::from_secs(1));
            let begun = Instant::now();
            client(&stage).ip("link set wan1 carrier on").unwrap();
            after(&stage, begun, "carrier back", |s| s.is_up("wan1"));
        });
        assert_untouched(&stage, &before, "wan0");
        println!("longest stall {:.0} ms", download.longest_stall_ms);
        assert!(download.longest_stall_ms < 1000.0);
        assert_eq!(told_down(&mut stage), ["no carrier link=wan1"]);
    });
}

#[test]
fn a_renamed_interface_is_used_under_its_new_name() {
    lab_test("a_renamed_interface_is_used_under_its_new_name", || {
        let stage = stage(auto);
        let before = both_up(&stage);
        beside_a_download(&stage, || {
            let begun = Instant::now();
            client(&stage)
                .ip(&format!(
                    "link set wan1 down\nlink set wan1 name wlan9\nlink set wlan9 up\n\
                     route replace default via {} dev wlan9 metric 101",
                    gateway_v4(0, 1)
                ))
                .unwrap();
            after(&stage, begun, "renamed", |s| s.is_up("wlan9") && s.link("wan1").is_none());
        });
        assert_untouched(&stage, &before, "wan0");
    });
}

#[test]
fn a_phone_plugged_in_and_pulled_out_is_used_and_left() {
    lab_test("a_phone_plugged_in_and_pulled_out_is_used_and_left", || {
        let mut stage = stage(auto);
        let before = both_up(&stage);
        let router = stage.topology().routers()[1].namespace();
        beside_a_download(&stage, || {
            // As tethering does: the interface, then an address and a route by DHCP. (A slow one, or the download ends.)
            client(&stage)
                .ip(&format!(
                    "link add usb0 gso_max_segs 1 type veth peer name phone gso_max_segs 1 netns {}",
                    router.name()
                ))
                .unwrap();
            client(&stage)
                .tool("tc", &SLOW.map(|word| if word == "DEV" { "usb0" } else { word }))
                .unwrap();
            router
                .tool("tc", &SLOW.map(|word| if word == "DEV" { "phone" } else { word }))
                .unwrap();
            router.ip("addr add 192.168.42.129/24 dev phone\nlink set phone up").unwrap();
            // Only now there is a link to use; on a busy machine the tools before take a second.
            let begun = Instant::now();
            client(&stage)
                .ip("link set usb0 up\naddr add 192.168.42.2/24 dev usb0\n\
                     route add default via 192.168.42.129 dev usb0 metric 150")
                .unwrap();
            after(&stage, begun, "plugged in", |s| s.is_up("usb0"));
            after(&stage, begun, "and carries packets", |s| s.bytes("usb0", "down") > 5_000);
            let begun = Instant::now();
            client(&stage).ip("link del usb0").unwrap();
            after(&stage, begun, "pulled out", |s| s.link("usb0").is_none());
        });
        for link in ["wan0", "wan1"] {
            assert_untouched(&stage, &before, link);
        }
        assert_eq!(told_down(&mut stage), ["no such interface link=usb0"]);
    });
}

/// Why links were down, as the client's log has it, from its start on.
fn told_down(stage: &mut Stage) -> Vec<String> {
    let log = stage.deployment().client(0).unwrap().log();
    let lines = log.lines().filter_map(|line| line.split_once("link is down: "));
    lines.map(|(_, why)| why.trim_end().to_owned()).collect()
}

/// A queue of 4 Mbit/s.
const SLOW: [&str; 12] = [
    "qdisc", "add", "dev", "DEV", "root", "tbf", "rate", "4mbit", "burst", "16kb", "latency",
    "50ms",
];

#[test]
fn a_client_that_stood_still_asks_all_links_at_once() {
    lab_test("a_client_that_stood_still_asks_all_links_at_once", || {
        let mut stage = stage(|_| ());
        both_up(&stage);
        let pid = stage.deployment().client(0).unwrap().id();
        let pid = Pid::from_raw(i32::try_from(pid).unwrap());
        beside_a_download(&stage, || {
            // No clock stands still for it, as for a paused virtual machine; a sleeping laptop looks alike to a timer.
            kill(pid, Signal::SIGSTOP).unwrap();
            thread::sleep(Duration::from_secs(4));
            let begun = Instant::now();
            kill(pid, Signal::SIGCONT).unwrap();
            let before = stage.client_status().unwrap();
            after(&stage, begun, "woken", |s| {
                let flows = |link| s.bytes(link, "down") > before.bytes(link, "down") + 20_000;
                s.is_up("wan0") && s.is_up("wan1") && flows("wan0") && flows("wan1")
            });
        });
        let log = stage.deployment().client(0).unwrap().log();
        assert!(log.contains("stood still for"), "{log}");
    });
}

#[test]
fn a_link_used_when_needed_carries_nothing_until_the_other_link_fails() {
    lab_test("a_link_used_when_needed_carries_nothing_until_the_other_link_fails", || {
        let mut stage = stage(|config| {
            config["link"][1].as_table_mut().unwrap().insert("use".into(), "when-needed".into());
        });
        both_up(&stage);
        let rests = |status: &Status| status.link("wan1").unwrap()["backup"] == "rests";
        after(&stage, Instant::now(), "at rest once the other link carries", rests);
        // Pages, not downloads: each fills the first link for a tenth of a second, and a backup helps after half of one.
        // The pause is longer than a swing of the window, also where the machine is so slow that a page takes three times as long.
        let url = stage.url(100_000, 3);
        let small = Curl { interface: None, limit: Some(LONG) };
        for _ in 0..10 {
            let download = small.download(client(&stage), &url, |_| ()).unwrap();
            assert!(download.complete, "{}", download.message);
            thread::sleep(Duration::from_millis(300));
        }
        let at_rest = stage.client_status().unwrap();
        let resting = at_rest.bytes("wan1", "down");
        assert_eq!(at_rest.link("wan1").unwrap()["backup"], "rests");
        assert!(resting < 60_000, "{resting} bytes came over a backup at rest");
        beside_a_download(&stage, || {
            let begun = Instant::now();
            client(&stage).ip("link set wan0 carrier off").unwrap();
            after(&stage, begun, "the backup carries", |s| {
                s.link("wan1").unwrap()["backup"] == "carries"
                    && s.bytes("wan1", "down") > resting + 50_000
            });
            thread::sleep(Duration::from_secs(1));
            client(&stage).ip("link set wan0 carrier on").unwrap();
        });
        let seen = stage.proxy_status().unwrap();
        assert!(seen.link("wan1").unwrap()["backup"].is_string(), "the proxy was told");
        assert!(stage.deployment().client(0).is_some());
    });
}
