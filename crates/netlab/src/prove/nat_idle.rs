//! Keepalives keep a NAT's mapping alive: after a long silence the first packet from the other side
//! arrives at once, on each link. Without keepalives it does not.
//!
//! One client for each link with keepalives and one for each link without, all at the same time. The
//! packet comes from the proxy's own namespace, since the proxy's source NAT would forget an idle flow
//! of its own. No IPv6, whose router solicitations would be traffic.

use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use super::look::{access, inner_v4, ms, until};
use super::{Finding, Proof, Trial};
use crate::address::client_interface;
use crate::error::LabError;
use crate::namespace::Namespace;
use crate::stage::{Progress, Stage};
use crate::topology::{Ipv6, TopologyConfig, WanConfig};

/// Idle tunnels behind NAT routers that forget fast.
pub(super) const IDLE: Proof = Proof {
    name: "nat-idle",
    shows: "after 60 s of silence behind NATs that forget in 10 s the first packet arrives at once",
    seconds: 75,
    run: idle,
};

/// The search for an interval.
pub(super) const AUTO: Proof = Proof {
    name: "nat-auto",
    shows: "`keepalive = \"auto\"` finds an interval that NATs with timeouts of 10 and 30 s bear",
    seconds: 500,
    run: auto,
};

const WANS: u8 = 2;
/// Where the inner packet goes to.
const PORT: u16 = 7000;
/// How long a packet that may not come is waited for.
const NEVER: Duration = Duration::from_secs(3);
/// The links' one-way delay of 10 ms, and what a busy machine adds; a keepalive would take longer.
const AT_ONCE_MS: f64 = 200.0;

fn idle(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let (timeout, keepalive, silence) = trial.either((10, "4s", 60), (3, "1s", 8));
    let mut stage = stage(trial, [timeout; 2], 2 * WANS)?;
    for client in 0..2 * WANS {
        let keepalive = if client < WANS { keepalive } else { "off" };
        stage.deployment.client_config(client).insert("keepalive".into(), keepalive.into());
        stage.deployment.set_links(client, [client % WANS]);
    }
    let receivers = connect(&mut stage)?;
    trial.say(&format!("{silence} s of silence"));
    thread::sleep(Duration::from_secs(silence));
    let mut findings = Vec::new();
    for (client, receiver) in (0..).zip(&receivers) {
        let arrived = first_packet(stage.topology.proxy(), receiver)?;
        let link = client_interface(client % WANS);
        findings.push(if client < WANS {
            let what = format!("{link}, keepalive {keepalive}: the first packet took");
            Finding::at_most(what, arrived.map_or(f64::INFINITY, ms), AT_ONCE_MS, "ms")
        } else {
            let what = format!("{link}, keepalive off: the first packet arrived");
            let measured = if arrived.is_some() { "yes" } else { "no" };
            Finding::holds(
                what,
                arrived.is_none(),
                measured,
                "no (else the silence proves nothing)",
            )
        });
    }
    Ok(findings)
}

fn auto(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    // Six silences that prove themselves, up to 50 s, and three that fail, twice each.
    let patience = Duration::from_secs(600);
    let timeouts = [10, trial.either(30, 10)];
    let mut stage = stage(trial, timeouts, WANS)?;
    for client in 0..WANS {
        stage.deployment.client_config(client).insert("keepalive".into(), "auto".into());
        stage.deployment.set_links(client, [client]);
    }
    let receivers = connect(&mut stage)?;
    // Interval, and whether a longer one is looked for.
    let look = |stage: &Stage| -> Result<Vec<(f64, bool)>, LabError> {
        let of = |client| -> Result<(f64, bool), LabError> {
            let status = stage.deployment.client_status(client)?;
            let link = &status["tunnels"][0]["links"][0];
            let searching = link["keepalive_searching"].as_bool().unwrap_or(true);
            Ok((link["keepalive_s"].as_f64().unwrap_or(f64::NAN), searching))
        };
        (0..WANS).map(of).collect()
    };
    let started = Instant::now();
    let mut found = look(&stage)?;
    while found.iter().any(|(_, searching)| *searching) && started.elapsed() < patience {
        thread::sleep(Duration::from_secs(1));
        let before = std::mem::replace(&mut found, look(&stage)?);
        if found != before {
            let told: Vec<_> = found.iter().map(|(interval, _)| interval).collect();
            trial.say(&format!("{:.0} s: intervals {told:?} s", started.elapsed().as_secs_f64()));
        }
    }
    let took = started.elapsed().as_secs_f64();
    let mut findings =
        vec![Finding::at_most("the search took", took.round(), patience.as_secs_f64(), "s")];
    let longest = timeouts.iter().max().copied().unwrap_or_default();
    thread::sleep(Duration::from_secs(2 * longest));
    for (((client, receiver), (interval, _)), timeout) in
        (0..).zip(&receivers).zip(&found).zip(timeouts)
    {
        let link = client_interface(client);
        let what = format!("{link}, NAT of {timeout} s: interval found");
        let timeout = timeout as f64;
        findings.push(Finding::at_most(&what, *interval, 0.95 * timeout, "s"));
        findings.push(Finding::at_least(what, *interval, 0.5 * timeout, "s"));
        let arrived = first_packet(stage.topology.proxy(), receiver)?;
        let what = format!("{link}: the first packet after {} s of silence took", 2 * longest);
        findings.push(Finding::at_most(what, arrived.map_or(f64::INFINITY, ms), AT_ONCE_MS, "ms"));
    }
    Ok(findings)
}

fn stage(trial: &Trial<'_>, timeouts: [u64; 2], clients: u8) -> Result<Stage, LabError> {
    let wan =
        |timeout| WanConfig { udp_timeout: Some(Duration::from_secs(timeout)), ..access(20, 20) };
    let wans = timeouts.map(wan).into();
    let config = TopologyConfig { clients, ipv6: Ipv6::Off, ..TopologyConfig::new(wans) };
    Stage::build(trial.program, &config)
}

/// Starts everything and listens at each client's inner address.
fn connect(stage: &mut Stage) -> Result<Vec<UdpSocket>, LabError> {
    stage.deployment.start_proxy(&stage.topology)?;
    let clients = 0..u8::try_from(stage.topology.clients().len()).unwrap_or(u8::MAX);
    for client in clients.clone() {
        stage.deployment.start_client(&stage.topology, client)?;
    }
    let listen = |client: u8| -> Result<UdpSocket, LabError> {
        let inner = inner_v4(&stage.deployment.wait_up(client, 1)?)?;
        let namespace = &stage.topology.clients()[usize::from(client)];
        let socket = namespace.run(|| UdpSocket::bind((inner, PORT)))?;
        socket.map_err(LabError::io(format!("listening at {inner}")))
    };
    clients.map(listen).collect()
}

/// Sends one packet from the proxy's namespace; how long it took, if it came.
fn first_packet(proxy: &Namespace, to: &UdpSocket) -> Result<Option<Duration>, LabError> {
    let failed = || LabError::io("sending to a client's inner address");
    let address = to.local_addr().map_err(failed())?;
    let from = proxy.run(|| UdpSocket::bind("0.0.0.0:0"))?.map_err(failed())?;
    to.set_nonblocking(true).map_err(failed())?;
    from.send_to(b"the first packet", address).map_err(failed())?;
    let started = Instant::now();
    let came = until(NEVER, || to.recv_from(&mut [0; 64]).is_ok());
    Ok(came.map(|_| started.elapsed()))
}
