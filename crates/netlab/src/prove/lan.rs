//! Nobody in a network around the client reaches its inner addresses, whatever `rp_filter` is: of its links, and of one that
//! is none.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use super::look::{access, inner_v4, inner_v6};
use super::{Finding, Proof, Trial};
use crate::address::{client_v4, client_v6, router_lan};
use crate::error::LabError;
use crate::http::body_sha256;
use crate::namespace::{Namespace, next_number};
use crate::ping::Ping;
use crate::stage::{Progress as _, Stage};
use crate::topology::TopologyConfig;

/// Neighbours of the client.
pub(super) const LAN: Proof = Proof {
    name: "lan",
    shows: "no neighbour of the client reaches its inner addresses, whatever rp_filter is",
    seconds: 30,
    run,
};

/// Counts what comes to the inner addresses and is neither this machine's own nor the tunnel's, behind everything that
/// filters.
const WATCH: &str = "table inet watch {
    counter inner { }
    chain input {
        type filter hook input priority 300; policy accept;
        iifname { \"lo\", \"ropewalk0\" } return
        ip daddr V4 counter name inner
        ip6 daddr V6 counter name inner
    }
}";

/// A neighbour: where he is, his interface, and the client's addresses there.
type Neighbour<'a> = (&'a Namespace, String, IpAddr, IpAddr);

fn run(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let mut stage =
        Stage::build(trial.program, &TopologyConfig::new(vec![access(20, 20), access(20, 20)]))?;
    let aside = aside(stage.topology.client())?;
    let status = stage.start([0, 1])?.0;
    let inner: [IpAddr; 2] = [inner_v4(&status)?.into(), inner_v6(&status)?.into()];
    let [v4, v6] = inner.map(|address| address.to_string());
    stage.deployment.stop_client(0)?;
    stage.topology.client().nft(&WATCH.replace("V4", &v4).replace("V6", &v6))?;

    trial.say("the same addresses without a client");
    let client = stage.topology.client();
    client.ip(&format!("addr add {v4}/32 dev lo\naddr add {v6}/128 dev lo nodad"))?;
    let mut findings = Vec::new();
    set_filter(client, "0")?;
    for neighbour in neighbours(&stage, &aside) {
        let came = knock(client, &neighbour, inner)?;
        let what = format!("packets to inner addresses from {}, without a client", neighbour.1);
        findings.push(Finding::at_least(what, came as f64, 6.0, ""));
    }
    client.ip(&format!("addr del {v4}/32 dev lo\naddr del {v6}/128 dev lo"))?;

    stage.connect([0, 1])?;
    let client = stage.topology.client();
    for filter in ["0", "2"] {
        trial.say(&format!("rp_filter = {filter}"));
        set_filter(client, filter)?;
        for neighbour in neighbours(&stage, &aside) {
            let came = knock(client, &neighbour, inner)?;
            let what = format!("with one, from {}, rp_filter = {filter}", neighbour.1);
            findings.push(Finding::at_most(what, came as f64, 0.0, ""));
        }
    }
    let download = stage.get(200_000, 62)?;
    findings.push(Finding::holds(
        "a download through the tunnel",
        download.sha256 == body_sha256(200_000, 62),
        download.message,
        "as sent",
    ));
    Ok(findings)
}

/// A network that is no link, with one neighbour.
fn aside(client: &Namespace) -> Result<Namespace, LabError> {
    let aside = Namespace::create(next_number(), "aside")?;
    client.ip(&format!(
        "link add aside type veth peer name eth0 netns {}\naddr add 10.43.0.1/24 dev aside\n\
         addr add fd43::1/64 dev aside nodad\nlink set aside up",
        aside.name()
    ))?;
    aside.ip(
        "addr add 10.43.0.2/24 dev eth0\naddr add fd43::2/64 dev eth0 nodad\nlink set eth0 up",
    )?;
    Ok(aside)
}

fn neighbours<'a>(stage: &'a Stage, aside: &'a Namespace) -> Vec<Neighbour<'a>> {
    let router = |wan: u8| {
        let namespace = stage.topology.routers()[usize::from(wan)].namespace();
        (namespace, router_lan(0), client_v4(0, wan).into(), client_v6(0, wan).into())
    };
    let own = [IpAddr::from([10, 43, 0, 1]), IpAddr::from([0xfd43, 0, 0, 0, 0, 0, 0, 1])];
    vec![router(0), router(1), (aside, "eth0".to_owned(), own[0], own[1])]
}

fn set_filter(client: &Namespace, value: &str) -> Result<(), LabError> {
    let script =
        format!("for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo {value} > $f; done");
    client.tool("sh", &["-ec", &script]).map(drop)
}

/// Two echoes and a connection to each inner address; how many packets of them came that far.
fn knock(
    client: &Namespace,
    (namespace, interface, v4, v6): &Neighbour<'_>,
    inner: [IpAddr; 2],
) -> Result<u64, LabError> {
    let before = came(client)?;
    namespace.sysctl(&[("net.ipv4.ping_group_range", "0 2147483647")])?;
    for (to, by) in inner.into_iter().zip([v4, v6]) {
        namespace.ip(&format!("route replace {to} via {by} dev {interface}"))?;
        let ping = Ping { patience: Duration::from_millis(300), ..Ping::new(to, 2) };
        ping.run(namespace)?;
        namespace.run(|| {
            let to = SocketAddr::from((to, 9));
            let _ = TcpStream::connect_timeout(&to, Duration::from_millis(300));
        })?;
    }
    Ok(came(client)? - before)
}

fn came(client: &Namespace) -> Result<u64, LabError> {
    let list = client.tool("nft", &["-j", "list", "counter", "inet", "watch", "inner"])?;
    let json: Value = serde_json::from_str(&list).unwrap_or_default();
    let counters = json["nftables"].as_array().cloned().unwrap_or_default();
    Ok(counters.iter().filter_map(|one| one["counter"]["packets"].as_u64()).sum())
}
