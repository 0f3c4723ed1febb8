//! A machine on the proxy's own network (another customer of its provider) that routes the inner addresses via the proxy:
//! it reaches no client and not the proxy's inner address, and is not heard where it sends from an inner address.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use super::look::{access, inner_v4, inner_v6};
use super::{Finding, Proof, Trial};
use crate::address::{PROXY_GATEWAY_V4, PROXY_GATEWAY_V6, PROXY_V4, PROXY_V6};
use crate::error::LabError;
use crate::namespace::Namespace;
use crate::ping::Ping;
use crate::stage::{Progress, Stage};
use crate::topology::TopologyConfig;

/// What a neighbour of the proxy reaches.
pub(super) const NEIGHBOUR: Proof = Proof {
    name: "neighbour",
    shows: "a neighbour of the proxy reaches no inner address, nor does it send from one, unless `inbound` lets it",
    seconds: 20,
    run,
};

const PORT: u16 = 6400;
/// Inner addresses that are nobody's.
const SPOOFED_V4: [u8; 4] = [10, 77, 200, 10];
/// How long an answer may take; the tunnel's links take 20 ms.
const PATIENCE: Duration = Duration::from_secs(1);
const ECHOES: u32 = 3;

fn run(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let mut stage = Stage::build(trial.program, &TopologyConfig::new(vec![access(20, 20)]))?;
    let status = stage.start([0])?.0;
    let inner = [IpAddr::from(inner_v4(&status)?), inner_v6(&status)?.into()];
    let own = own_addresses(&stage)?;
    let neighbour = stage.topology.internet();
    for address in own {
        let via = if address.is_ipv4() { IpAddr::from(PROXY_V4) } else { PROXY_V6.into() };
        let net = if address.is_ipv4() { 16 } else { 64 };
        neighbour.ip(&format!("route add {}/{net} via {via}", network(address)))?;
    }
    let mut findings = Vec::new();
    for address in inner {
        let found = reached(&stage, stage.topology.client(), address)?;
        findings.push(unreached(&format!("the client at {address}"), &found));
    }
    for address in own {
        let found = reached(&stage, stage.topology.proxy(), address)?;
        findings.push(unreached(&format!("the proxy at {address}"), &found));
    }
    for (from, to) in
        [(IpAddr::from(SPOOFED_V4), IpAddr::from(PROXY_V4)), (spoofed_v6(own[1]), PROXY_V6.into())]
    {
        let came = heard(&stage, from, to)?;
        findings.push(Finding::at_most(
            format!("datagrams from {from} that the proxy's host hears"),
            f64::from(came),
            0.0,
            "of 5",
        ));
    }

    trial.say("with the neighbour in `inbound`");
    let inbound = [PROXY_GATEWAY_V4.to_string() + "/32", PROXY_GATEWAY_V6.to_string() + "/128"];
    let list = inbound.map(toml::Value::from).to_vec();
    stage.deployment.proxy_config().insert("inbound".into(), list.into());
    let status = stage.start([0])?.0;
    let inner = [IpAddr::from(inner_v4(&status)?), inner_v6(&status)?.into()];
    for address in inner {
        let found = reached(&stage, stage.topology.client(), address)?;
        // A host that was not asked before may miss the first one.
        findings.push(Finding::holds(
            format!("allowed, the client at {address}: echoes, a connection"),
            found.0 > 0 && found.1,
            format!("{found:?}"),
            format!("{:?}", (ECHOES, true)),
        ));
    }
    let found = reached(&stage, stage.topology.proxy(), own[0])?;
    findings.push(unreached("allowed, the proxy's inner address", &found));
    Ok(findings)
}

fn unreached(what: &str, found: &(usize, bool)) -> Finding {
    Finding::holds(
        format!("{what}: echoes, a connection"),
        *found == (0, false),
        format!("{found:?}"),
        format!("{:?}", (0, false)),
    )
}

/// The proxy's own inner addresses, IPv4 first.
fn own_addresses(stage: &Stage) -> Result<[IpAddr; 2], LabError> {
    let status = stage.proxy_status()?.0;
    let pools = status["proxy"]["pools"].as_array().into_iter().flatten();
    let gateways: Vec<IpAddr> = pools
        .filter_map(|pool| pool["gateway"].as_str())
        .filter_map(|gateway| gateway.parse().ok())
        .collect();
    <[IpAddr; 2]>::try_from(gateways).map_err(|found| LabError::Malformed {
        what: "the pools of the proxy's status",
        text: format!("{found:?}"),
    })
}

/// The inner prefix (a /16, a /64) of the proxy's own address.
fn network(own: IpAddr) -> IpAddr {
    match own {
        IpAddr::V4(own) => (u32::from(own) & 0xffff_0000).to_be_bytes().into(),
        IpAddr::V6(own) => Ipv6Addr::from_bits(own.to_bits() >> 64 << 64).into(),
    }
}

fn spoofed_v6(own: IpAddr) -> IpAddr {
    match network(own) {
        IpAddr::V6(net) => Ipv6Addr::from_bits(net.to_bits() | 0x9999).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// How many echoes the neighbour gets from an address, and whether a connection to it opens.
fn reached(stage: &Stage, host: &Namespace, address: IpAddr) -> Result<(usize, bool), LabError> {
    let neighbour = stage.topology.internet();
    let listener = host.run(|| TcpListener::bind((address, PORT)))?;
    let _listener = listener.map_err(LabError::io(format!("listening at {address}")))?;
    let ping = Ping { patience: PATIENCE, ..Ping::new(address, ECHOES) };
    let lost = ping.run(neighbour)?.lost;
    let to = SocketAddr::new(address, PORT);
    let echoes = (ECHOES as usize).saturating_sub(lost);
    let opened = neighbour.run(|| TcpStream::connect_timeout(&to, PATIENCE).is_ok())?;
    Ok((echoes, opened))
}

/// How many of five datagrams from an inner address the proxy's host hears from its uplink.
fn heard(stage: &Stage, from: IpAddr, to: IpAddr) -> Result<u32, LabError> {
    let failed = || LabError::io(format!("sending from {from}"));
    let socket = stage.topology.proxy().run(|| UdpSocket::bind((to, PORT)))?.map_err(failed())?;
    socket.set_read_timeout(Some(PATIENCE)).map_err(failed())?;
    let neighbour = stage.topology.internet();
    let (length, nodad) = if from.is_ipv4() { (32, "") } else { (128, "nodad") };
    neighbour.ip(&format!("addr add {from}/{length} dev lo {nodad}"))?;
    let spoofed = neighbour.run(|| UdpSocket::bind((from, 0)))?.map_err(failed())?;
    for _ in 0..5 {
        spoofed.send_to(b"spoofed", (to, PORT)).map_err(failed())?;
    }
    let mut came = 0;
    while came < 5 && socket.recv(&mut [0; 16]).is_ok() {
        came += 1;
    }
    neighbour.ip(&format!("addr del {from}/{length} dev lo"))?;
    Ok(came)
}
