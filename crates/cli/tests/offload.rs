//! Kernel TCP and UDP through the whole program, with every offload on, with every one off, and with ends that differ.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::thread;
use std::time::Duration;

use ropewalk_netlab::access::Access;
use ropewalk_netlab::address::{SERVER_V4, SERVER_V6, UPLINK};
use ropewalk_netlab::capture::{Capture, Frame};
use ropewalk_netlab::deployment::OFFLOAD_KEYS;
use ropewalk_netlab::download::Curl;
use ropewalk_netlab::http::body_sha256;
use ropewalk_netlab::namespace::{Namespace, next_number};
use ropewalk_netlab::privilege::{lab_test, lacking, require_tool};
use ropewalk_netlab::stage::Stage;
use ropewalk_netlab::tally::UdpReceived;
use ropewalk_netlab::topology::{TopologyConfig, WanConfig};
use ropewalk_netlab::traffic::{UdpReceiver, UdpSender};
use ropewalk_settings::Bitrate;
use serde_json::json;
use toml::Table;

const SEED: u64 = 3;
/// Bytes of the longest frame on an Ethernet.
const LONGEST: usize = 1514;

#[test]
fn kernel_tcp_passes_both_ways_with_offloads_on_off_and_different_at_the_ends() {
    let test = "kernel_tcp_passes_both_ways_with_offloads_on_off_and_different_at_the_ends";
    lab_test(test, || {
        let (rtt, queue) = (Duration::from_millis(10), Duration::from_millis(100));
        let wan = || Access::symmetric(Bitrate::from_mbps(100), rtt, queue).into();
        let mut stage = stage(vec![wan(), wan()]);
        for (client, proxy) in [("on", "on"), ("off", "off"), ("on", "off"), ("off", "on")] {
            let deployment = stage.deployment();
            switch(deployment.client_config(0), client);
            switch(deployment.proxy_config(), proxy);
            stage.start(0..2).unwrap();
            let at_ends = [stage.client_status().unwrap().0, stage.proxy_status().unwrap().0];
            for ((status, wish), other) in at_ends.iter().zip([client, proxy]).zip([proxy, client])
            {
                let shown = &status["daemon"]["offload"];
                assert_eq!(shown, &json!({ "tun": wish, "udp_gso": wish, "udp_gro": wish }));
                let leaves = &status["tunnels"][0]["session"]["leaves_checksums"];
                assert_eq!(leaves, &json!(other == "on"), "{client} {proxy}");
            }
            transfer(&stage, stage.topology().client(), 12_000_000);
            let deployment = stage.deployment();
            deployment.stop_client(0).unwrap();
            deployment.stop_proxy().unwrap();
        }
    });
}

#[test]
fn checksums_that_were_left_come_right_to_hosts_that_check_them_behind_either_end() {
    let test = "checksums_that_were_left_come_right_to_hosts_that_check_them_behind_either_end";
    lab_test(test, || {
        if let Err(missing) = require_tool(("ethtool", "ethtool")) {
            return lacking(test, &missing.to_string());
        }
        let mut stage = stage(vec![WanConfig::default(), WanConfig::default()]);
        let guest = guest(stage.topology().client());
        let share: Table = "share = [\"ap\"]".parse().unwrap();
        let deployment = stage.deployment();
        deployment.client_config(0).extend(share);
        switch(deployment.client_config(0), "auto");
        switch(deployment.proxy_config(), "auto");
        stage.start(0..2).unwrap();
        let mtu = stage.settled_mtu().unwrap();
        let topology = stage.topology();

        // As the interfaces are, none of them needs a checksum: what was left on the way in is left still.
        let seen = [checksums(topology.server()), checksums(&guest)];
        for is_up in [true, false] {
            let to = (topology.server(), SERVER_V4.into());
            stream(
                &guest,
                "0.0.0.0:0",
                to,
                usize::from(mtu) - 28,
                Duration::from_millis(500),
                is_up,
            );
        }
        for (seen, at) in seen.iter().zip(["server", "guest"]) {
            let Checksums { right, wrong } = seen.look(|seen| *seen);
            println!("{at}, before: {right} right, {wrong} left");
            // About 1300 come; on a busy machine most of them joined.
            assert!(wrong > 10, "{at}: {wrong} were left");
        }
        drop(seen);

        // The last interfaces on either way send no packet without one, and the receivers look for themselves.
        for (namespace, interface, way) in [
            (topology.proxy(), UPLINK, "tx"),
            (topology.internet(), "proxy", "rx"),
            (topology.internet(), "server", "tx"),
            (topology.server(), UPLINK, "rx"),
            (topology.client(), "ap", "tx"),
            (&guest, UPLINK, "rx"),
        ] {
            namespace.tool("ethtool", &["-K", interface, way, "off"]).unwrap();
        }
        let seen = [checksums(topology.server()), checksums(&guest)];
        transfer(&stage, &guest, 20_000_000);
        for (address, own, headers) in
            [(IpAddr::from(SERVER_V4), "0.0.0.0:0", 28), (SERVER_V6.into(), "[::]:0", 48)]
        {
            let size = usize::from(mtu) - headers;
            for is_up in [true, false] {
                let (to, duration) = ((topology.server(), address), Duration::from_secs(2));
                let UdpReceived { sent, received, .. } =
                    stream(&guest, own, to, size, duration, is_up);
                println!("UDP, {address}, up: {is_up}: {received} of {sent}");
                assert!(received * 2 > sent, "{received} of {sent}");
            }
        }
        let ends = [(topology.server(), "server"), (&guest, "guest")];
        for (seen, (namespace, at)) in seen.iter().zip(ends) {
            let Checksums { right, wrong } = seen.look(|seen| *seen);
            println!("{at}: {right} right, {wrong} wrong");
            assert!(right > 10_000 && wrong == 0, "{at}: {right} right, {wrong} wrong");
            assert_eq!(refused(namespace), 0, "{at}");
        }
    });
}

fn stage(wans: Vec<WanConfig>) -> Stage {
    let config = TopologyConfig::new(wans);
    Stage::build(Path::new(env!("CARGO_BIN_EXE_ropewalk")), &config).unwrap()
}

/// So many bytes each way by IPv4 and IPv6; they come right.
fn transfer(stage: &Stage, namespace: &Namespace, bytes: u64) {
    let curl = Curl { interface: None, limit: Some(Duration::from_secs(60)) };
    for url in [Some(stage.url(bytes, SEED)), stage.url_v6(bytes, SEED)] {
        let url = url.unwrap();
        let down = curl.download(namespace, &url, |_| ()).unwrap();
        assert!(down.complete, "{url}: {}", down.message);
        assert_eq!(down.sha256, body_sha256(bytes, SEED), "{url}");
        let up = curl.upload(namespace, &url, bytes, SEED).unwrap();
        assert_eq!((up.bytes, up.sha256), (bytes, body_sha256(bytes, SEED)), "{url}");
    }
}

/// A UDP stream between the guest and the server.
fn stream(
    guest: &Namespace,
    own: &str,
    (server, address): (&Namespace, IpAddr),
    size: usize,
    duration: Duration,
    is_up: bool,
) -> UdpReceived {
    let near = guest.run(|| UdpSocket::bind(own)).unwrap().unwrap();
    let far = server.run(|| UdpSocket::bind((address, 0))).unwrap().unwrap();
    let at = far.local_addr().unwrap();
    let (from, to) = if is_up { (&near, &far) } else { (&far, &near) };
    let sender = UdpSender { to: is_up.then_some(at), bits_per_second: 30_000_000, size, duration };
    let (quiet, limit) = (Duration::from_secs(2), Duration::from_secs(20));
    let receiver = UdpReceiver { hello_to: (!is_up).then_some(at), quiet, limit };
    thread::scope(|scope| {
        let sending = scope.spawn(|| sender.run(from));
        let received = receiver.run(to).unwrap();
        sending.join().unwrap().unwrap();
        received
    })
}

/// A host behind `ap` of this laptop.
fn guest(laptop: &Namespace) -> Namespace {
    let guest = Namespace::create(next_number(), "guest").unwrap();
    laptop.sysctl(&[("net.ipv6.conf.default.accept_dad", "0")]).unwrap();
    let name = guest.name();
    laptop
        .ip(&format!(
            "link add ap gso_max_segs 1 type veth peer name {UPLINK} gso_max_segs 1 netns {name}\n\
             addr add 10.42.0.1/24 dev ap\naddr add fd42::1/64 dev ap nodad\nlink set ap up"
        ))
        .unwrap();
    guest
        .ip(&format!(
            "addr add 10.42.0.2/24 dev {UPLINK}\naddr add fd42::2/64 dev {UPLINK} nodad\n\
             link set {UPLINK} up\nroute add default via 10.42.0.1\nroute add default via fd42::1"
        ))
        .unwrap();
    guest
}

/// What came of TCP and UDP, by its checksum.
#[derive(Clone, Copy, Default, Debug)]
struct Checksums {
    right: u64,
    wrong: u64,
}

/// Counts them at a host's uplink; not what came joined, whose checksum is left in any case.
fn checksums(host: &Namespace) -> Capture<Checksums> {
    Capture::start(host, UPLINK, Checksums::default(), |seen, frame| {
        if frame.outgoing || frame.bytes.len() > LONGEST {
            return;
        }
        match is_right(frame) {
            Some(true) => seen.right += 1,
            Some(false) => seen.wrong += 1,
            None => {}
        }
    })
    .unwrap()
}

/// Whether the checksum of a frame's TCP segment or UDP datagram is right, if it has one (RFC 1071).
fn is_right(frame: &Frame<'_>) -> Option<bool> {
    let (from, to, protocol, content) = frame.ip()?;
    if ![6, 17].contains(&protocol) {
        return None;
    }
    let mut covered = Vec::with_capacity(content.len() + 40);
    for address in [from, to] {
        match address {
            IpAddr::V4(address) => covered.extend(address.octets()),
            IpAddr::V6(address) => covered.extend(address.octets()),
        }
    }
    covered.extend(u32::try_from(content.len()).ok()?.to_be_bytes());
    covered.extend([0, 0, 0, protocol]);
    covered.extend(content);
    covered.resize(covered.len().next_multiple_of(2), 0);
    let sum: u64 = covered.chunks(2).map(|pair| u64::from(pair[0]) << 8 | u64::from(pair[1])).sum();
    Some(sum > 0 && sum.is_multiple_of(0xffff))
}

/// Packets that a host's kernel refused for their checksum, of whatever protocol.
fn refused(host: &Namespace) -> u64 {
    let text = host.tool("cat", &["/proc/net/snmp", "/proc/net/snmp6"]).unwrap();
    let lines: Vec<Vec<&str>> =
        text.lines().map(|line| line.split_whitespace().collect()).collect();
    // IPv4: a line of names, then one of values. IPv6: a name and its value.
    let pairs =
        lines.windows(2).filter(|pair| pair[0].len() > 2 && pair[0].first() == pair[1].first());
    let v4 = pairs.flat_map(|pair| pair[0].iter().zip(&pair[1]));
    let v6 = lines.iter().filter(|line| line.len() == 2).map(|line| (&line[0], &line[1]));
    let counts: Vec<u64> = v4
        .chain(v6)
        .filter(|(name, _)| name.ends_with("InCsumErrors"))
        .map(|(_, count)| count.parse().unwrap())
        .collect();
    assert!(counts.len() >= 4, "{text}");
    counts.iter().sum()
}

fn switch(config: &mut Table, to: &str) {
    let tunnel = config.entry("tunnel").or_insert_with(|| Table::new().into());
    for key in OFFLOAD_KEYS {
        tunnel.as_table_mut().unwrap().insert(key.to_owned(), to.into());
    }
}
