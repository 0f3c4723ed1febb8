//! A laptop with two links, and a guest behind it, in the emulated Internet.

use std::net::UdpSocket;
use std::path::Path;
use std::time::Duration;

use ropewalk_netlab::access::Access;
use ropewalk_netlab::address::{SERVER_V4, SERVER_V6};
use ropewalk_netlab::download::{Curl, Download};
use ropewalk_netlab::http::body_sha256;
use ropewalk_netlab::namespace::{Namespace, next_number};
use ropewalk_netlab::stage::Stage;
use ropewalk_netlab::topology::TopologyConfig;
use ropewalk_settings::Bitrate;
use serde_json::Value;
use toml::Table;

/// Longer than anything a daemon does at once, even on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

/// Seed of every body that is downloaded.
const SEED: u64 = 7;

/// Everything that a client may change, as the system's own tools print it.
const STATE: &str =
    "ip rule; ip -6 rule; ip route show table all; ip -6 route show table all; nft list ruleset
    ip -o addr; ip -o link | cut -d' ' -f2
    grep . /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv6/conf/*/forwarding /proc/sys/net/ipv6/conf/*/accept_ra \
      /proc/sys/net/ipv4/conf/*/src_valid_mark /proc/sys/net/ipv4/conf/*/rp_filter";

/// Two links of this rate and 20 ms; this config besides the least that works.
pub(crate) fn stage(mbit: u64, config: &str) -> Stage {
    let (rtt, queue) = (Duration::from_millis(20), Duration::from_millis(100));
    let wan = || Access::symmetric(Bitrate::from_mbps(mbit), rtt, queue).into();
    let network = TopologyConfig::new(vec![wan(), wan()]);
    let mut stage = Stage::build(Path::new(env!("CARGO_BIN_EXE_ropewalk")), &network).unwrap();
    let config: Table = config.parse().unwrap();
    stage.deployment().client_config(0).extend(config);
    stage
}

/// What the client could have changed.
pub(crate) fn state(namespace: &Namespace) -> String {
    namespace.tool("sh", &["-c", STATE]).unwrap()
}

/// A guest behind `ap` (10.42.0.1, fd42::1) of this laptop, with the usual addresses of a hotspot and no knowledge of it.
pub(crate) fn guest(laptop: &Namespace) -> Namespace {
    let guest = Namespace::create(next_number(), "guest").unwrap();
    laptop.sysctl(&[("net.ipv6.conf.default.accept_dad", "0")]).unwrap();
    laptop
        .ip(&format!(
            "link add ap type veth peer name eth0 netns {}\naddr add 10.42.0.1/24 dev ap\n\
             addr add fd42::1/64 dev ap nodad\nlink set ap up",
            guest.name()
        ))
        .unwrap();
    guest
        .ip(
            "addr add 10.42.0.2/24 dev eth0\naddr add fd42::2/64 dev eth0 nodad\nlink set eth0 up\n\
             route add default via 10.42.0.1\nroute add default via fd42::1",
        )
        .unwrap();
    guest
}

/// Downloads so many bytes; they are right, or it failed as a whole.
pub(crate) fn download(namespace: &Namespace, url: &str, bytes: u64) -> Result<Download, String> {
    let limit = Some(PATIENCE);
    let download = Curl { interface: None, limit }.download(namespace, url, |_| ()).unwrap();
    if !download.complete {
        return Err(download.message);
    }
    assert_eq!((download.bytes, &download.sha256), (bytes, &body_sha256(bytes, SEED)));
    Ok(download)
}

/// Where bodies of this length are, by IPv4 and by IPv6.
pub(crate) fn urls(stage: &Stage, bytes: u64) -> [String; 2] {
    [stage.url(bytes, SEED), stage.url_v6(bytes, SEED).unwrap()]
}

/// Tries to send something to the server in every way that there is.
pub(crate) fn try_to_leave(stage: &Stage, namespace: &Namespace, interface: Option<&str>) {
    for url in urls(stage, 1000) {
        for interface in [None, interface.map(str::to_owned)] {
            let limit = Some(Duration::from_secs(1));
            let tried = Curl { interface, limit }.download(namespace, &url, |_| ()).unwrap();
            assert!(!tried.complete, "{url}");
        }
    }
    let send = || {
        for (own, to) in [("0.0.0.0:0", SERVER_V4.into()), ("[::]:0", SERVER_V6.into())] {
            let to: std::net::IpAddr = to;
            // That it is refused, or has no way, is as well.
            let _ = UdpSocket::bind(own).and_then(|socket| socket.send_to(b"out", (to, 9)));
        }
    };
    namespace.run(send).unwrap();
}

/// Counts at both routers what comes from the laptop and is none of the tunnel's, the LAN's, the providers', or of neighbours, nor the question
/// whether the network wants a sign-in.
pub(crate) fn watch(stage: &Stage) {
    for router in stage.topology().routers() {
        router
            .namespace()
            .nft(
                "table inet watch {
                    counter leaks { }
                    chain from_laptop {
                        type filter hook prerouting priority -300; policy accept;
                        iifname != \"lan0\" return
                        udp dport 51900 return
                        ip daddr 203.0.113.2 tcp dport 80 return
                        ip6 daddr 2001:db8:203::2 tcp dport 80 return
                        ip daddr { 192.168.0.0/16, 198.18.0.0/15, 224.0.0.0/4 } return
                        ip6 daddr { fe80::/10, ff02::/16, 2001:db8:a00::/48, 2001:db8:18::/48 } return
                        counter name leaks
                    }
                }",
            )
            .unwrap();
    }
}

/// How many packets that was.
pub(crate) fn leaks(stage: &Stage) -> u64 {
    let of = |router: &ropewalk_netlab::router::Router| {
        let list = ["-j", "list", "counter", "inet", "watch", "leaks"];
        let text = router.namespace().tool("nft", &list).unwrap();
        let json: Value = serde_json::from_str(&text).unwrap();
        let counters = json["nftables"].as_array().unwrap().iter();
        counters.filter_map(|one| one["counter"]["packets"].as_u64()).sum::<u64>()
    };
    stage.topology().routers().iter().map(of).sum()
}

/// The same once nothing of what went before is under way any more: ends of connections, say.
pub(crate) fn leaks_at_rest(stage: &Stage) -> u64 {
    let mut before = leaks(stage);
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let now = leaks(stage);
        if now == before {
            return now;
        }
        before = now;
    }
}

/// Waits until the first client is up with both links.
pub(crate) fn wait_up(stage: &mut Stage) {
    stage.deployment().wait_up(0, 2).unwrap();
}

/// Starts the client again and waits until it is up.
pub(crate) fn start(stage: &mut Stage) {
    let (deployment, topology) = stage.split();
    deployment.start_client(topology, 0).unwrap();
    wait_up(stage);
}
