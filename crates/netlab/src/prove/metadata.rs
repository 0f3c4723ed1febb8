//! What stands around the proxy is not the Internet: a client reaches neither the address at which a cloud tells a machine
//! its secrets, nor private networks behind the proxy, its neighbours, its other addresses; and is told so at once.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use super::look::{access, turned_away};
use super::{Finding, Proof, Trial};
use crate::address::{PROXY_GATEWAY_V4, PROXY_GATEWAY_V6, PROXY_V4, PROXY_V6, SERVER_V4};
use crate::deployment::CLIENT_TUN;
use crate::error::LabError;
use crate::stage::{Progress, Stage};
use crate::topology::TopologyConfig;

/// What clients reach around the proxy.
pub(super) const METADATA: Proof = Proof {
    name: "metadata",
    shows: "clients reach no cloud credentials, private networks or management of the proxy, unless `allow` lets them",
    seconds: 15,
    run,
};

/// Where clouds tell a machine its secrets.
const METADATA_V4: &str = "169.254.169.254";
const METADATA_V6: &str = "fd00:ec2::254";
/// A host in a private network behind the proxy.
const PRIVATE: &str = "192.168.207.5";
/// Another address of the proxy's host.
const OTHER: &str = "198.51.100.77";
/// The proxy's first inner address.
const INNER: &str = "10.77.0.1";
const PORT: u16 = 6500;
const PATIENCE: Duration = Duration::from_secs(3);
/// A refusal within this time is one that a person does not wait for.
const AT_ONCE: Duration = Duration::from_secs(1);

fn run(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let mut stage = Stage::build(trial.program, &TopologyConfig::new(vec![access(20, 20)]))?;
    let around = stage.topology.internet();
    let host = stage.topology.proxy();
    for address in [METADATA_V4, PRIVATE] {
        around.ip(&format!("addr add {address}/32 dev lo"))?;
        host.ip(&format!("route add {address}/32 via {PROXY_GATEWAY_V4}"))?;
    }
    around.ip(&format!("addr add {METADATA_V6}/128 dev lo nodad"))?;
    host.ip(&format!("route add {METADATA_V6}/128 via {PROXY_GATEWAY_V6}"))?;
    host.ip(&format!("addr add {OTHER}/32 dev lo"))?;
    let neighbour = PROXY_GATEWAY_V4.to_string();
    let own = PROXY_V4.to_string();
    let own_v6 = PROXY_V6.to_string();
    let mut listeners = Vec::new();
    for (namespace, address) in [
        (around, METADATA_V4),
        (around, METADATA_V6),
        (around, PRIVATE),
        (around, &neighbour),
        (host, "0.0.0.0"),
        (host, &own_v6),
    ] {
        let at = at(address)?;
        let listener = namespace.run(|| TcpListener::bind(at))?;
        listeners.push(listener.map_err(LabError::io(format!("listening at {at}")))?);
    }
    let server = stage.topology.server().run(|| TcpListener::bind((SERVER_V4, PORT)))?;
    let _server = server.map_err(LabError::io("listening at the server"))?;
    stage.start([0])?;

    let mut findings = Vec::new();
    for (what, address) in [
        ("a server on the Internet", &*SERVER_V4.to_string()),
        ("the proxy's inner address", INNER),
    ] {
        let (outcome, _) = tried(&stage, address)?;
        findings.push(Finding::holds(what, outcome == Ok(()), told(outcome), "connected"));
    }
    let closed = [
        ("the cloud's metadata", METADATA_V4),
        ("the cloud's metadata over IPv6", METADATA_V6),
        ("a private network", PRIVATE),
        ("a neighbour of the proxy", &neighbour),
        ("the proxy's public address", &own),
        ("its IPv6 address", &own_v6),
        ("another address of its host", OTHER),
    ];
    for (what, address) in closed {
        let (outcome, took) = tried(&stage, address)?;
        findings.push(Finding::holds(
            format!("{what}, {address}"),
            outcome == Err(ErrorKind::ConnectionRefused) && took < AT_ONCE,
            format!("{} after {} ms", told(outcome), took.as_millis()),
            "refused at once",
        ));
    }
    findings.push(Finding::at_least(
        "refusals that the proxy's status shows",
        turned_away(&stage, "refused")?,
        f64::from(u32::try_from(closed.len()).unwrap_or(u32::MAX)),
        "",
    ));

    trial.say("with all of them in `allow`");
    let entries = closed.map(|(_, address)| toml::Value::from(format!("{address} {PORT}/tcp")));
    stage.deployment.proxy_config().insert("allow".into(), entries.to_vec().into());
    stage.start([0])?;
    for (what, address) in closed {
        let (outcome, _) = tried(&stage, address)?;
        let what = format!("allowed: {what}");
        findings.push(Finding::holds(what, outcome == Ok(()), told(outcome), "connected"));
    }
    Ok(findings)
}

fn at(address: &str) -> Result<SocketAddr, LabError> {
    let address: IpAddr = address.parse().map_err(|_| LabError::Malformed {
        what: "an address of the proof",
        text: address.to_owned(),
    })?;
    Ok(SocketAddr::new(address, PORT))
}

fn told(outcome: Result<(), ErrorKind>) -> String {
    outcome.map_or_else(|error| error.to_string(), |()| "connected".to_owned())
}

/// A connection through the tunnel, whatever the client's routes say, and how long its outcome took.
fn tried(stage: &Stage, address: &str) -> Result<(Result<(), ErrorKind>, Duration), LabError> {
    let to = at(address)?;
    let connect = || {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
        socket.bind_device(Some(CLIENT_TUN.as_bytes()))?;
        socket.connect_timeout(&to.into(), PATIENCE)
    };
    let started = Instant::now();
    let outcome = stage.topology.client().run(connect)?;
    Ok((outcome.map_err(|error| error.kind()), started.elapsed()))
}
