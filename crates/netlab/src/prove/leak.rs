//! What must not pass beside the tunnel, and what must pass through it: no IPv6 leaks where the proxy
//! hands out none; a program bound to the TUN or to the inner address uses the tunnel whatever is
//! routed; strict reverse path filtering is no obstacle.

use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use socket2::SockRef;

use super::look::{access, dropped, inner_v4, link};
use super::{Finding, Proof, Trial};
use crate::address::{PROXY_V4, SERVER_V4, SERVER_V6, client_interface, public_v4, router_lan};
use crate::capture::Capture;
use crate::deployment::CLIENT_TUN;
use crate::error::LabError;
use crate::http::body_sha256;
use crate::namespace::Namespace;
use crate::ping::Ping;
use crate::stage::Stage;
use crate::topology::{ReversePath, TopologyConfig};

/// Leaks, bound programs, and `rp_filter`.
pub(super) const LEAK: Proof = Proof {
    name: "leak",
    shows: "no IPv6 leaks past a full tunnel, bound programs use it, strict rp_filter works",
    seconds: 20,
    run,
};

/// A port of the server where nobody listens for TCP.
const PORT: u16 = 6200;

fn run(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let mut findings = no_ipv6(trial)?;
    findings.extend(bound(trial)?);
    findings.extend(strict(trial)?);
    Ok(findings)
}

fn no_ipv6(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let mut stage =
        Stage::build(trial.program, &TopologyConfig::new(vec![access(20, 20), access(20, 20)]))?;
    stage.deployment.proxy_config().insert("pool_v6".into(), "off".into());
    let watch = |wan: usize| {
        let router = stage.topology.routers()[wan].namespace();
        Capture::start(router, &router_lan(0), Vec::new(), |seen, frame| {
            // Coming in from the client; what goes there is an answer.
            let packet = frame.ip().filter(|_| !frame.outgoing);
            if let Some((from, to, protocol, content)) = packet
                && to == IpAddr::from(SERVER_V6)
            {
                let begin = &content[..content.len().min(16)];
                seen.push(format!("protocol {protocol} from {from}: {begin:02x?}"));
            }
        })
    };
    let captures = [watch(0)?, watch(1)?];
    let seen = || -> Vec<String> {
        captures.iter().flat_map(|capture| capture.look(std::mem::take)).collect()
    };
    try_ipv6(stage.topology.client())?;
    let before = seen();
    let status = stage.start([0, 1])?.0;
    let _ = seen();
    try_ipv6(stage.topology.client())?;
    let refused = stage.topology.client().run(|| {
        TcpStream::connect_timeout(&SocketAddr::from((SERVER_V6, 80)), Duration::from_secs(2))
    })?;
    let during = seen();
    let refused = refused.map_or_else(|error| error.to_string(), |_| "connected".to_owned());
    let v4 = stage.get(200_000, 51)?;
    Ok(vec![
        Finding::at_least(
            "IPv6 packets on the WANs before (the capture works)",
            before.len() as f64,
            3.0,
            "",
        ),
        Finding::holds(
            "full tunnel without IPv6: inner_v6",
            status["tunnels"][0]["inner_v6"] == Value::Null,
            status["tunnels"][0]["inner_v6"].to_string(),
            "none",
        ),
        Finding::holds(
            "IPv6 packets to the server on the WANs",
            during.is_empty(),
            if during.is_empty() { "none".to_owned() } else { during.join("; ") },
            "none",
        ),
        Finding::holds(
            "an IPv6 connection is refused at once",
            refused.contains("unreachable") || refused.contains("route"),
            refused,
            "unreachable",
        ),
        Finding::holds(
            "IPv4 through the tunnel",
            v4.sha256 == body_sha256(200_000, 51),
            v4.message,
            "a download",
        ),
    ])
}

/// Echoes, a datagram and a connection to the server; whether they come back is not asked.
fn try_ipv6(client: &Namespace) -> Result<(), LabError> {
    let ping = Ping { patience: Duration::from_millis(300), ..Ping::new(SERVER_V6.into(), 3) };
    ping.run(client)?;
    client.run(|| {
        if let Ok(socket) = UdpSocket::bind("[::]:0") {
            let _ = socket.send_to(b"hello", (SERVER_V6, PORT));
        }
        let server = SocketAddr::from((SERVER_V6, 80));
        let _ = TcpStream::connect_timeout(&server, Duration::from_millis(300));
    })
}

fn bound(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let mut stage =
        Stage::build(trial.program, &TopologyConfig::new(vec![access(20, 20), access(20, 20)]))?;
    let mut tun = toml::Table::new();
    tun.insert("routes".into(), toml::Value::Array(Vec::new()));
    stage.deployment.client_config(0).insert("tun".into(), tun.into());
    let inner = inner_v4(&stage.start([0, 1])?.0)?;
    let server = stage.topology.server().run(|| UdpSocket::bind((SERVER_V4, PORT)))?;
    let server = server.map_err(LabError::io("the server's socket"))?;
    let expected = |how: &str, source: Option<IpAddr>, wanted: IpAddr| {
        let measured = source.map_or("nothing came".into(), |source| source.to_string());
        let what = format!("nothing routed, {how}: the server sees");
        Finding::holds(what, source == Some(wanted), measured, wanted.to_string())
    };
    let client = stage.topology.client();
    let plain = seen_as(client, &server, "0.0.0.0".parse().ok(), None)?;
    let by_tun = seen_as(client, &server, None, Some(CLIENT_TUN))?;
    let by_address = seen_as(client, &server, Some(inner.into()), None)?;
    Ok(vec![
        expected("not bound", plain, public_v4(0, 0).into()),
        expected("bound to the TUN", by_tun, PROXY_V4.into()),
        expected("bound to the inner address", by_address, PROXY_V4.into()),
    ])
}

/// From where the server sees a datagram of a client's socket.
fn seen_as(
    client: &Namespace,
    server: &UdpSocket,
    local: Option<IpAddr>,
    device: Option<&str>,
) -> Result<Option<IpAddr>, LabError> {
    let failed = || LabError::io("a bound UDP socket");
    let local = local.unwrap_or(IpAddr::from([0, 0, 0, 0]));
    let socket = client.run(|| UdpSocket::bind((local, 0)))?.map_err(failed())?;
    if let Some(device) = device {
        SockRef::from(&socket).bind_device(Some(device.as_bytes())).map_err(failed())?;
    }
    server.set_read_timeout(Some(Duration::from_millis(500))).map_err(failed())?;
    for _ in 0..4 {
        // Refused while something is not ready: tried again, and told by what did not come.
        let _ = socket.send_to(b"who am I", (SERVER_V4, PORT));
        if let Ok((_, from)) = server.recv_from(&mut [0; 16]) {
            return Ok(Some(from.ip()));
        }
    }
    Ok(None)
}

fn strict(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let wans = vec![access(8, 20), access(8, 20)];
    let config = TopologyConfig { reverse_path: ReversePath::Strict, ..TopologyConfig::new(wans) };
    let mut stage = Stage::build(trial.program, &config)?;
    stage.start([0, 1])?;
    let bytes = trial.either(6_000_000, 2_000_000);
    let download = stage.get(bytes, 52)?;
    thread::sleep(Duration::from_millis(200));
    let status = stage.deployment.client_status(0)?;
    let mut findings = vec![Finding::holds(
        "rp_filter = 1 (strict): a download",
        download.sha256 == body_sha256(bytes, 52),
        format!("{:.2} Mbit/s {}", download.mbit, download.message),
        "as sent",
    )];
    for wan in [0, 1] {
        let name = client_interface(wan);
        let came = link(&status, &name)["down"]["bytes"].as_f64().unwrap_or_default();
        let share = 100.0 * came / bytes as f64;
        findings.push(Finding::at_least(format!("{name} carried"), share, 20.0, "% of it"));
    }
    let lost = dropped(&status, "replayed");
    findings.push(Finding::at_most("replayed datagrams", lost as f64, 0.0, ""));
    Ok(findings)
}
