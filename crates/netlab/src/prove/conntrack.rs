//! The kernel's table of connections at the proxy: strangers do not fill it, and a client fills no more than its share.

use std::net::{SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use super::look::{access, inner_v4, turned_away};
use super::{Finding, Proof, Trial};
use crate::address::{PROXY_V4, SERVER_V4};
use crate::deployment::PROXY_PORT;
use crate::error::LabError;
use crate::inject::Injector;
use crate::stage::{Progress, Stage};
use crate::topology::TopologyConfig;

/// The table of connections under floods.
pub(super) const CONNTRACK: Proof = Proof {
    name: "conntrack",
    shows: "spoofed datagrams leave the proxy's table of connections alone, and one client fills only its share of it",
    seconds: 45,
    run,
};

/// What an attack from one machine brought.
const FLOOD_PER_SECOND: u32 = 12_000;
/// More than what the daemons, their answers and the proof itself need.
const FLAT: f64 = 200.0;
/// The most of one client (`client_connections`), and some for what was there before.
const SHARE: f64 = 4096.0 + 200.0;

fn run(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let config = TopologyConfig { clients: 2, ..TopologyConfig::new(vec![access(100, 10)]) };
    let mut stage = Stage::build(trial.program, &config)?;
    let status = stage.start([0])?.0;
    let (deployment, topology) = stage.split();
    deployment.start_client(topology, 1)?;
    deployment.wait_up(1, 1)?;
    let own = inner_v4(&status)?;
    let mut findings = strangers(&stage, trial)?;
    findings.extend(one_client(&stage, trial, own)?);
    Ok(findings)
}

/// How many connections the proxy's host tracks.
fn tracked(stage: &Stage) -> Result<f64, LabError> {
    let read = || std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count");
    let text = stage.topology.proxy().run(read)?.map_err(LabError::io("nf_conntrack_count"))?;
    let count: u32 = text
        .trim()
        .parse()
        .map_err(|_| LabError::Malformed { what: "nf_conntrack_count", text: text.clone() })?;
    Ok(f64::from(count))
}

fn strangers(stage: &Stage, trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let before = tracked(stage)?;
    let seconds = trial.either(22, 2);
    trial.say(&format!("{FLOOD_PER_SECOND} spoofed datagrams a second for {seconds} s"));
    let sent = flood(stage, PROXY_PORT, FLOOD_PER_SECOND * seconds)?;
    let after = tracked(stage)?;
    // The same to a port that is not the tunnel's is tracked: the count is the right one.
    let other = flood(stage, PROXY_PORT + 1, 1000)?;
    let with_other = tracked(stage)?;
    Ok(vec![
        Finding::at_least("spoofed datagrams to the tunnel's port", f64::from(sent), 10_000.0, ""),
        Finding::at_most("connections that they added", after - before, FLAT, ""),
        Finding::at_least(
            format!("connections that {other} to another port added"),
            with_other - after,
            f64::from(other) / 2.0,
            "",
        ),
    ])
}

/// Sends so many from as many addresses, no faster than the attack; returns how many left.
fn flood(stage: &Stage, port: u16, count: u32) -> Result<u32, LabError> {
    let injector = Injector::open(stage.topology.internet())?;
    let to = SocketAddrV4::new(PROXY_V4, port);
    let started = Instant::now();
    let mut sent = 0;
    for number in 0..count {
        let [_, a, b, c] = number.to_be_bytes();
        let from = SocketAddrV4::new([198, 19 + a, b, c].into(), 1024 + (number % 60_000) as u16);
        sent += u32::from(injector.send(from, to, &[0x51; 64]).is_ok());
        if number % 100 == 0 {
            let due = Duration::from_secs_f64(f64::from(number) / f64::from(FLOOD_PER_SECOND));
            thread::sleep(due.saturating_sub(started.elapsed()));
        }
    }
    Ok(sent)
}

fn one_client(
    stage: &Stage,
    trial: &Trial<'_>,
    own: std::net::Ipv4Addr,
) -> Result<Vec<Finding>, LabError> {
    let before = tracked(stage)?;
    let wanted = trial.either(50_000_u32, 10_000);
    trial.say(&format!("one client begins {wanted} connections"));
    let socket = stage.topology.client().run(|| UdpSocket::bind((own, 0)))?;
    let socket = socket.map_err(LabError::io("the client's socket"))?;
    let started = Instant::now();
    let mut slowest = Duration::ZERO;
    let (mut begun, mut opened, mut tried) = (0, 0, 0);
    for number in 0..wanted {
        // A closed port at the server may answer here.
        let port = 1024 + (number % 60_000) as u16;
        begun += u32::from(socket.send_to(b"new", (SERVER_V4, port)).is_ok());
        if number % 100 == 0 {
            // Two thousand a second, four times what a client may.
            let due = Duration::from_micros(u64::from(number) * 500);
            thread::sleep(due.saturating_sub(started.elapsed()));
        }
        if number % (wanted / 10) == wanted / 20 {
            tried += 1;
            let now = Instant::now();
            opened += u32::from(connects(stage)?);
            slowest = slowest.max(now.elapsed());
        }
    }
    let after = tracked(stage)?;
    Ok(vec![
        Finding::at_least("connections that one client began", f64::from(begun), 9_000.0, ""),
        Finding::at_least("of them tracked", after - before, 1_000.0, ""),
        Finding::at_most("of them tracked", after - before, SHARE, ""),
        Finding::at_least(
            "meanwhile connections of another client that opened",
            f64::from(opened),
            f64::from(tried),
            "of 10",
        ),
        Finding::at_least(
            "connections that the proxy's status shows as beyond its bounds",
            turned_away(stage, "bounded")?,
            f64::from(wanted) / 10.0,
            "",
        ),
        Finding::told("the slowest of them", slowest.as_secs_f64() * 1e3, "ms"),
    ])
}

/// Whether another client's connection to the server opens.
fn connects(stage: &Stage) -> Result<bool, LabError> {
    let server = SocketAddr::from((SERVER_V4, 80));
    let other = &stage.topology.clients()[1];
    other.run(|| TcpStream::connect_timeout(&server, Duration::from_secs(5)).is_ok())
}
