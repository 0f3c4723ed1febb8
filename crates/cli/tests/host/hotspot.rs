//! A hotspot: a guest behind the laptop downloads over both links of it at once.

use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use ropewalk_netlab::address::{PROXY_V4, SERVER_V4, SERVER_V6};
use ropewalk_netlab::dns::NameServer;
use ropewalk_netlab::namespace::Namespace;
use ropewalk_netlab::privilege::lab_test_alone;

use super::machine::{PATIENCE, download, guest, stage, start, state, urls};

/// About six seconds over both links.
const BYTES: u64 = 12_000_000;
/// Of each link.
const MBIT: u64 = 10;

const NAME: &str = "www.lab.test";

#[test]
fn a_guest_downloads_over_both_links_with_ipv4_and_ipv6_and_its_names_are_answered() {
    lab_test_alone(
        "hotspot::a_guest_downloads_over_both_links_with_ipv4_and_ipv6_and_its_names_are_answered",
        || {
            let mut stage = stage(MBIT, "share = [\"ap\"]");
            let guest = guest(stage.topology().client());
            let before = state(stage.topology().client());
            let addresses: Vec<IpAddr> = vec![[192, 0, 2, 99].into()];
            let names = stage
                .topology()
                .server()
                .run(|| {
                    NameServer::serve(UdpSocket::bind((SERVER_V4, 53)).unwrap(), NAME, addresses)
                })
                .unwrap()
                .unwrap();
            stage.start_proxy().unwrap();
            start(&mut stage);
            let mtu = stage.settled_mtu().unwrap();
            count_segments(stage.topology().client());

            for (family, url) in ["IPv4", "IPv6"].into_iter().zip(urls(&stage, BYTES)) {
                let download = download(&guest, &url, BYTES).unwrap();
                println!(
                    "{family}: {:.1} Mbit/s of 2 x {MBIT} in {:.1} s, longest stall {:.0} ms, sha256 right",
                    download.mbit, download.seconds, download.longest_stall_ms
                );
                // One link alone carries 10 less its headers. A busy machine may cost some.
                assert!(download.mbit > 11.0, "{family}: {:.1} Mbit/s", download.mbit);
            }

            // The announced segments fit the tunnel: 1460 and 1440 came from the guest.
            let counted =
                stage.topology().client().tool("nft", &["list", "table", "inet", "count"]).unwrap();
            println!("inner MTU {mtu}; segments announced into the tunnel:\n{counted}");
            for name in ["whole", "small"] {
                let line = counted.split(&format!("counter {name} ")).nth(1).unwrap();
                let none = line.split_once('}').unwrap().0.contains("packets 0 ");
                assert_eq!(none, name == "whole", "{counted}");
            }

            // A datagram that is too long for the tunnel is answered, and the guest learns the path's MTU.
            for (own, to, header) in [
                ("0.0.0.0:0", IpAddr::from(SERVER_V4), 28),
                ("[::]:0", IpAddr::from(SERVER_V6), 48),
            ] {
                let send = || {
                    let socket = UdpSocket::bind(own).unwrap();
                    socket.send_to(&vec![0; 1500 - header], (to, 9)).unwrap();
                };
                guest.run(send).unwrap();
                let begun = Instant::now();
                loop {
                    let way = guest.tool("ip", &["route", "get", &to.to_string()]).unwrap();
                    if way.contains(&format!("mtu {mtu}")) {
                        println!("{to}: path MTU {mtu} learned by the guest");
                        break;
                    }
                    assert!(begun.elapsed() < PATIENCE, "{way}");
                    std::thread::sleep(Duration::from_millis(50));
                }
            }

            // A name, asked at the server that a hotspot would hand out.
            let answer = resolve(&guest, stage.deployment().folder());
            assert!(answer.contains("192.0.2.99"), "{answer}");
            let asked = names.asked();
            assert!(
                !asked.is_empty() && asked.iter().all(|one| one.from.ip() == PROXY_V4),
                "{asked:?}"
            );

            // A host on a link's network is no guest.
            let router = stage.topology().routers()[0].namespace();
            router.ip(&format!("route replace {SERVER_V4}/32 via 192.168.10.2 dev lan0")).unwrap();
            let list = ["list", "chain", "inet", "ropewalk_client", "shared_forward"];
            let send = || {
                UdpSocket::bind("192.168.10.1:0").unwrap().send_to(b"in", (SERVER_V4, 9)).unwrap()
            };
            router.run(send).unwrap();
            let begun = Instant::now();
            loop {
                let chain = stage.topology().client().tool("nft", &list).unwrap();
                if chain.contains("counter packets 1 ") {
                    break;
                }
                assert!(begun.elapsed() < PATIENCE, "{chain}");
                std::thread::sleep(Duration::from_millis(50));
            }

            stage.deployment().stop_client(0).unwrap();
            stage.topology().client().nft("delete table inet count").unwrap();
            assert_eq!(state(stage.topology().client()), before);
        },
    );
}

/// Counts what the guest announces into the tunnel, behind the client's own chains.
fn count_segments(laptop: &Namespace) {
    laptop
        .nft(
            "table inet count {
                counter whole { }
                counter small { }
                chain forward {
                    type filter hook forward priority 10; policy accept;
                    iifname ap tcp flags syn tcp option maxseg size >= 1440 counter name whole
                    iifname ap tcp flags syn tcp option maxseg size < 1440 counter name small
                }
            }",
        )
        .unwrap();
}

fn resolve(guest: &Namespace, folder: &Path) -> String {
    let etc = folder.join("etc-of-the-guest");
    std::fs::create_dir(&etc).unwrap();
    std::fs::write(etc.join("nsswitch.conf"), "hosts: files dns\n").unwrap();
    std::fs::write(etc.join("resolv.conf"), format!("nameserver {SERVER_V4}\n")).unwrap();
    let script = "mount --make-rprivate /; mount --bind \"$1\" /etc; shift; exec \"$@\"";
    let etc = etc.display().to_string();
    let words = ["--mount", "sh", "-ec", script, "sh", &etc, "getent", "ahostsv4", NAME];
    guest.tool("unshare", &words).unwrap()
}
