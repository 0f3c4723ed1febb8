//! A client gone bad: it has keys that the proxy knows, and does with its session what no honest client does. What it costs the
//! proxy in memory and time, and another client in throughput.
//!
//! It is the core's client over a socket of its own, without the daemon around it: what comes is told to it or not as the malice
//! wants, and what it sends comes from no kernel.

mod inner;
mod peer;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use self::peer::{Malice, Peer, Spent};
use super::look::access;
use super::{Finding, Proof, Trial};
use crate::error::LabError;
use crate::http::body_sha256;
use crate::process::Usage;
use crate::stage::{Progress, Stage};
use crate::topology::TopologyConfig;

pub(super) const PROOF: Proof = Proof {
    name: "hostile-peer",
    shows: "a client gone bad costs the proxy bounded memory, and another client little",
    seconds: 120,
    run,
};

/// The most that one session makes the proxy keep, in MiB (docs/SECURITY.md, section 5): a queue of 8, packets until they are
/// confirmed 16, packets before their turn 16, buffers for those to come 16, segments of TCP 16.
const KEPT_MIB: f64 = 72.0;
/// Of the honest client's goodput, what must be left: on a machine that does nothing else, and in a test beside other work. The
/// machine has two cores for both clients, the proxy, the server and the emulator.
const LEFT: [f64; 2] = [0.7, 0.1];
/// What it must have done to be taken seriously is divided by this: a busy machine does less in a few seconds.
const DIVISOR: [u64; 2] = [1, 5];
/// Most of one core that the proxy may spend while one of two clients is bad, in percent: of a release, of which 17 to 26 are measured, and
/// in a test, whose program is hardly optimised (50 to 62).
const BUSY: [f64; 2] = [60.0, 120.0];
/// The honest client's links together, in Mbit/s, less the headers, make so many bytes a second.
const BYTES_A_SECOND: u64 = 4_500_000;
/// After its session, memory for packets to come is given back within 5 s.
const AFTER: Duration = Duration::from_secs(7);
/// What may stay of it, in MiB: allocators keep some.
const STAYS_MIB: f64 = 24.0;
/// How often the proxy's memory is read.
const POLL: Duration = Duration::from_millis(50);

fn run(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let config =
        TopologyConfig { clients: 2, ..TopologyConfig::new(vec![access(20, 20), access(20, 20)]) };
    let mut stage = Stage::build(trial.program, &config)?;
    stage.start([0, 1])?;
    let bytes = trial.either(8, 3) * BYTES_A_SECOND;
    // The first one warms up what is allocated once.
    stage.get(bytes, 1)?;
    let before = stage.get(bytes, 2)?.mbit;
    let mut findings = vec![Finding::at_least("honest client, alone", before, 20.0, "Mbit/s")];
    for malice in Malice::ALL {
        trial.say(malice.what());
        findings.extend(beside(&mut stage, trial, malice, (bytes, before))?);
    }
    Ok(findings)
}

/// What the honest client has left beside this malice, and what the proxy spends.
fn beside(
    stage: &mut Stage,
    trial: &Trial<'_>,
    malice: Malice,
    (bytes, before): (u64, f64),
) -> Result<Vec<Finding>, LabError> {
    let peer = Peer::new(stage, malice)?;
    let over = AtomicBool::new(false);
    let usage = |stage: &mut Stage| {
        stage.deployment.proxy().map(|proxy| Usage::of(proxy)).unwrap_or_default()
    };
    let (first, begun) = (usage(stage), Instant::now());
    let (download, spent, most) = thread::scope(|scope| -> Result<_, LabError> {
        let peer = scope.spawn(|| peer.run(&over));
        let (deployment, topology) = (&mut stage.deployment, &stage.topology);
        let url = stage.server.url(bytes, 3);
        let download =
            scope.spawn(move || super::look::patient().download(topology.client(), &url, |_| {}));
        let mut most = first.resident_kib;
        while !download.is_finished() {
            let now = deployment.proxy().map(|proxy| Usage::of(proxy)).unwrap_or_default();
            most = most.max(now.resident_kib);
            thread::sleep(POLL);
        }
        over.store(true, Ordering::Relaxed);
        let download = download.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let spent = peer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((download?, spent?, most))
    })?;
    let (last, seconds) = (usage(stage), begun.elapsed().as_secs_f64());
    thread::sleep(AFTER);
    let after = usage(stage);
    let mib = |kib: u64| kib.saturating_sub(first.resident_kib) as f64 / 1024.0;
    let name = malice.name();
    let Spent { sent, came, ignored, connections } = spent;
    let did =
        format!("{sent} datagrams sent, {came} came, {ignored} ignored, {connections} connections");
    let whole = download.sha256 == body_sha256(bytes, 3);
    let left = trial.either(LEFT[0], LEFT[1]);
    let divisor = trial.either(DIVISOR[0], DIVISOR[1]);
    Ok(vec![
        Finding::holds(
            format!("{name}: it did"),
            malice.has_acted(&spent, divisor),
            did,
            "its worst",
        ),
        Finding::at_most(
            format!("{name}: memory of the proxy, more by"),
            mib(most),
            KEPT_MIB,
            "MiB",
        ),
        Finding::at_most(
            format!("{name}: 7 s after, more by"),
            mib(after.resident_kib),
            STAYS_MIB,
            "MiB",
        ),
        Finding::at_most(
            format!("{name}: the proxy's time, of one core"),
            100.0 * (last.cpu_seconds - first.cpu_seconds) / seconds,
            trial.either(BUSY[0], BUSY[1]),
            "%",
        ),
        Finding::holds(format!("{name}: the honest download"), whole, download.message, "as sent"),
        Finding::at_least(
            format!("{name}: honest goodput, of that alone"),
            download.mbit / before,
            left,
            "",
        ),
    ])
}
