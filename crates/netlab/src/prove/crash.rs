//! Daemons that are killed leave nothing that the next start does not take over or take away, and while
//! the proxy is down no packet for an inner address leaves by the host's default route.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::thread;
use std::time::Duration;

use super::look::{access, inner_v4};
use super::snapshot::Snapshot;
use super::{Finding, Proof, Trial};
use crate::address::{PROXY_V4, SERVER_V4};
use crate::capture::Capture;
use crate::error::LabError;
use crate::http::body_sha256;
use crate::stage::{Progress, Stage};
use crate::topology::TopologyConfig;

/// Kills, restarts, and a clean end.
pub(super) const CRASH: Proof = Proof {
    name: "crash",
    shows: "after kill -9 of both daemons and a restart nothing stale is left, and nothing leaks meanwhile",
    seconds: 40,
    run,
};

/// The interface of the Internet's namespace that leads to the proxy.
const TO_PROXY: &str = "proxy";
/// Inner addresses, as the proxy's default pool has them.
const POOL: [u8; 2] = [10, 77];
/// Packets sent to an inner address in each way.
const PACKETS: u32 = 20;
const SETTLE: Duration = Duration::from_secs(1);
/// Where the client says hello from and the server answers to.
const PORT: u16 = 6100;

fn run(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let mut stage =
        Stage::build(trial.program, &TopologyConfig::new(vec![access(20, 20), access(20, 40)]))?;
    let look = |stage: &Stage| -> Result<[Snapshot; 2], LabError> {
        // Until the inner MTU is found and stands in the routes of both ends.
        thread::sleep(SETTLE);
        Ok([Snapshot::of(stage.topology.client())?, Snapshot::of(stage.topology.proxy())?])
    };
    let untouched = look(&stage)?;
    let status = stage.start([0, 1])?.0;
    let inner = inner_v4(&status)?;
    let clean = look(&stage)?;
    let mut findings = vec![Finding::at_least(
        "lines that a running client changes (the comparison works)",
        clean[0].since(&untouched[0]).len() as f64,
        10.0,
        "",
    )];

    // A mapping in the proxy's NAT, by which the server's answers go on to the inner address.
    let server = stage.topology.server().run(|| UdpSocket::bind((SERVER_V4, PORT)))?;
    let server = server.map_err(LabError::io("the server's socket"))?;
    let mapped = hello(&stage, &server)?;

    kill(&mut stage);
    trial.say("both killed");
    findings.extend(guarded(&stage, inner, &server, mapped)?);

    for number in 0..trial.either(5, 1) {
        stage.deployment.start_proxy(&stage.topology)?;
        stage.deployment.start_client(&stage.topology, 0)?;
        // In the middle of what a start does, a little later each time.
        thread::sleep(Duration::from_millis(30 + 70 * number));
        kill(&mut stage);
    }
    stage.start([0, 1])?;
    let again = look(&stage)?;
    for ((who, again), clean) in ["client", "proxy"].into_iter().zip(&again).zip(&clean) {
        let what = format!("{who}: restarted after kills, against a clean start");
        findings.push(same(what, &again.since(clean)));
    }
    let download = stage.get(500_000, 41)?;
    let right = download.sha256 == body_sha256(500_000, 41);
    findings.push(Finding::holds("it works again", right, download.message, "a download"));

    stage.deployment.stop_client(0)?;
    stage.deployment.stop_proxy()?;
    let ended = look(&stage)?;
    findings.push(same("client: ended, against before".into(), &ended[0].since(&untouched[0])));
    let left = ended[1].since(&untouched[1]);
    let (documented, rest): (Vec<_>, Vec<_>) =
        left.into_iter().partition(|line| is_documented(line));
    findings.push(same("proxy: ended, against before, but for what is documented".into(), &rest));
    findings.push(Finding::at_least(
        "documented: guard routes, and the chain that keeps open connections",
        documented.len() as f64,
        1.0,
        "lines",
    ));
    Ok(findings)
}

fn kill(stage: &mut Stage) {
    // At the same moment: neither hears the other's end.
    for process in [stage.deployment.client(0)].into_iter().flatten() {
        process.signal(rustix::process::Signal::KILL);
    }
    if let Some(proxy) = stage.deployment.proxy() {
        proxy.kill();
    }
    if let Some(client) = stage.deployment.client(0) {
        client.kill();
    }
}

/// The client says hello to the server; returns where the server sees it.
fn hello(stage: &Stage, server: &UdpSocket) -> Result<std::net::SocketAddr, LabError> {
    let failed = || LabError::io("a UDP packet through the tunnel");
    let client = stage.topology.client().run(|| UdpSocket::bind("0.0.0.0:0"))?.map_err(failed())?;
    server.set_read_timeout(Some(Duration::from_secs(3))).map_err(failed())?;
    client.send_to(b"hello", (SERVER_V4, PORT)).map_err(failed())?;
    let (_, from) = server.recv_from(&mut [0; 16]).map_err(failed())?;
    Ok(from)
}

/// Packets for an inner address, in three ways, while the proxy is down: none may leave.
fn guarded(
    stage: &Stage,
    inner: Ipv4Addr,
    server: &UdpSocket,
    mapped: std::net::SocketAddr,
) -> Result<Vec<Finding>, LabError> {
    let leaked = Capture::start(stage.topology.internet(), TO_PROXY, 0_u64, |count, frame| {
        let is_inner = |address: IpAddr| match address {
            IpAddr::V4(v4) => v4.octets()[..2] == POOL,
            IpAddr::V6(v6) => v6.octets()[0] & 0xfe == 0xfc,
        };
        // Coming in from the proxy; what goes there is our own question.
        let packet = frame.ip().filter(|_| !frame.outgoing);
        *count += u64::from(packet.is_some_and(|(_, destination, ..)| is_inner(destination)));
    })?;
    let prefix = format!("{}.{}.0.0/16", POOL[0], POOL[1]);
    stage.topology.internet().ip(&format!("route add {prefix} via {PROXY_V4}"))?;
    let stranger = stage.topology.server().run(|| UdpSocket::bind("0.0.0.0:0"))?;
    let own = stage.topology.proxy().run(|| UdpSocket::bind("0.0.0.0:0"))?;
    let (stranger, own) =
        stranger.and_then(|stranger| Ok((stranger, own?))).map_err(LabError::io("a UDP socket"))?;
    let send = || {
        for _ in 0..PACKETS {
            // Refusals are what is wanted; what leaves is captured.
            let _ = own.send_to(b"from the proxy's host", (inner, PORT));
            let _ = stranger.send_to(b"forwarded", (inner, PORT));
            let _ = server.send_to(b"an answer, translated back", mapped);
            thread::sleep(Duration::from_millis(5));
        }
        thread::sleep(Duration::from_millis(100));
        leaked.look(std::mem::take)
    };
    let behind_the_guard = send();
    // Without the guard the same packets leave: the capture would have seen them.
    stage.topology.proxy().ip(&format!("route del unreachable {prefix}"))?;
    let without = send();
    stage.topology.internet().ip(&format!("route del {prefix}"))?;
    Ok(vec![
        Finding::at_most(
            "proxy down: packets for inner addresses on its uplink",
            behind_the_guard as f64,
            0.0,
            "",
        ),
        Finding::at_least(
            "the same with the guard route taken away (the capture works)",
            without as f64,
            f64::from(2 * PACKETS),
            "",
        ),
    ])
}

pub(super) fn same(what: String, differences: &[String]) -> Finding {
    let measured = match differences {
        [] => "no difference".to_owned(),
        some => format!("{} differences: {}", some.len(), some.join(" | ")),
    };
    Finding::holds(what, differences.is_empty(), measured, "no difference")
}

/// What `docs/operations/proxy-system.md` says that stays after a stop.
pub(crate) fn is_documented(line: &str) -> bool {
    let guard = line.contains("\"unreachable\"") && line.contains("4000000000");
    let at_rest = line.starts_with("+ nft") && line.contains("ropewalk_proxy");
    line.starts_with("+ ") && (guard || at_rest)
}
