//! A hotspot: a guest behind the laptop downloads over both links of it at once.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use ropewalk_netlab::address::{PROXY_V4, SERVER_V4, SERVER_V6};
use ropewalk_netlab::dns::NameServer;
use ropewalk_netlab::namespace::{Namespace, next_number};
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

            // Hosts on a link's network, and behind an interface that is neither link nor shared, are no guests: neither the
            // tunnel, nor the guests, nor the other link's network is theirs.
            let laptop = stage.topology().client();
            let router = stage.topology().routers()[0].namespace();
            let stranger = stranger(laptop);
            for target in [SERVER_V4, GUEST, OTHER_ROUTER] {
                let way = format!("route replace {target}/32 via 192.168.10.2 dev lan0");
                router.ip(&way).unwrap();
            }
            let mut sent = 0;
            for (namespace, own) in [(router, "192.168.10.1:0"), (&stranger, "10.43.0.2:0")] {
                for target in [SERVER_V4, GUEST, OTHER_ROUTER] {
                    let send = || {
                        UdpSocket::bind(own).unwrap().send_to(b"in", (target, 9)).unwrap();
                    };
                    namespace.run(send).unwrap();
                    sent += 1;
                    let begun = Instant::now();
                    while dropped(laptop) != sent {
                        assert!(
                            begun.elapsed() < PATIENCE,
                            "{own} to {target}: {}",
                            forwarded(laptop)
                        );
                        std::thread::sleep(Duration::from_millis(50));
                    }
                }
            }
            laptop.ip("link del stray").unwrap();

            stage.deployment().stop_client(0).unwrap();
            stage.topology().client().nft("delete table inet count").unwrap();
            assert_eq!(state(stage.topology().client()), before);
        },
    );
}

/// The guest, and the router of the second link.
const GUEST: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 2);
const OTHER_ROUTER: Ipv4Addr = Ipv4Addr::new(192, 168, 11, 1);

/// A host behind `stray`, of which the client is told nothing.
fn stranger(laptop: &Namespace) -> Namespace {
    let stranger = Namespace::create(next_number(), "stranger").unwrap();
    laptop
        .ip(&format!(
            "link add stray type veth peer name eth0 netns {}\naddr add 10.43.0.1/24 dev stray\nlink set stray up",
            stranger.name()
        ))
        .unwrap();
    stranger
        .ip("addr add 10.43.0.2/24 dev eth0\nlink set eth0 up\nroute add default via 10.43.0.1")
        .unwrap();
    stranger
}

fn forwarded(laptop: &Namespace) -> String {
    laptop.tool("nft", &["list", "chain", "inet", "ropewalk_client", "shared_forward"]).unwrap()
}

/// How many packets were not forwarded.
fn dropped(laptop: &Namespace) -> u64 {
    let chain = forwarded(laptop);
    let counts = chain.split("counter packets ").skip(1);
    counts.map(|rest| rest.split(' ').next().unwrap().parse::<u64>().unwrap()).sum()
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
