//! A proxy that drains.

use std::thread;
use std::time::{Duration, Instant};

use super::{MANY, downloads, figure, running};
use crate::error::LabError;
use crate::fleet::Fleet;
use crate::machine;
use crate::prove::{Finding, Proof, Trial};
use crate::traffic::{UdpReceiver, UdpSender};

pub(in crate::prove) const PROOF: Proof = Proof {
    name: "fleet-drain",
    shows: "a proxy that drains under 50 clients: no packet is lost, downloads complete, and it is empty soon",
    seconds: 150,
    run,
};

const BEFORE: Duration = Duration::from_secs(3);
/// A packet of a stream, bytes of payload, every 20 ms.
const SIZE: usize = 160;
const BITS_PER_SECOND: u64 = 50 * SIZE as u64 * 8;
/// The longest pause in a stream.
const AIM_MS: f64 = 100.0;
/// After the last flow of the old session, and what is allowed for a busy machine.
const EMPTY_WITHIN: Duration = Duration::from_secs(100);

fn run(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let clients = trial.either(MANY.0, MANY.1);
    let time = Duration::from_secs(trial.either(30, 10));
    let fleet = running(trial, 2, clients)?;
    let inner = fleet.inner_addresses()?;
    let (begun, bytes) = downloads(&fleet, clients, time - BEFORE)?;
    let sockets: Vec<_> =
        (0..clients).map(|client| fleet.stream_sockets(client)).collect::<Result<_, _>>()?;
    let drain = || {
        thread::scope(|scope| {
            let streams: Vec<_> = sockets
                .iter()
                .map(|(near, far, at)| {
                    let sender = UdpSender {
                        to: Some(*at),
                        bits_per_second: BITS_PER_SECOND,
                        size: SIZE,
                        duration: time,
                    };
                    let receiver = UdpReceiver { hello_to: None, quiet: time, limit: 2 * time };
                    scope.spawn(move || sender.run(near));
                    scope.spawn(move || receiver.run(far))
                })
                .collect();
            thread::sleep(BEFORE);
            (trial.say)("draining p-0");
            let drained = fleet.ask(1, &["fleet", "drain", "p-0"]);
            let received = streams.into_iter().map(|thread| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            let received: Vec<_> = received.collect::<Result<_, LabError>>()?;
            drained.map(|_| received)
        })
    };
    let (streams, machine) = machine::watched(drain);
    let streams = streams?;
    let moved = fleet.moved_from("p-0", Duration::from_secs(5))?;
    let same = fleet.inner_addresses()? == inner;
    let whole = begun.into_iter().map(|child| {
        let ended = child.wait_with_output().map_err(LabError::io("waiting for curl"))?;
        Ok(String::from_utf8_lossy(&ended.stdout).trim() == bytes.to_string())
    });
    let whole: Vec<bool> = whole.collect::<Result<_, LabError>>()?;
    let lost: u64 = streams.iter().map(|stream| stream.lost).sum();
    let twice: u64 = streams.iter().map(|stream| stream.duplicates).sum();
    let sent: u64 = streams.iter().map(|stream| stream.sent).sum();
    let gap = streams.iter().map(|stream| stream.longest_gap_ms).fold(0.0, f64::max);
    let complete = whole.iter().filter(|whole| **whole).count();
    // Sender, both daemons and receiver may each be as late as an ordinary thread was.
    let late_ms = 4.0 * machine.wakes.max_ms;
    let count = |number: u64| figure(usize::try_from(number).unwrap_or(usize::MAX));
    let mut findings = vec![
        Finding::at_least("clients that moved", figure(moved), figure(clients), ""),
        Finding::told("numbered packets sent", count(sent), ""),
        Finding::at_most("of them lost", count(lost), 0.0, ""),
        Finding::at_most("of them twice", count(twice), 0.0, ""),
        Finding::at_most("longest gap in any stream", gap, AIM_MS + late_ms, "ms"),
        Finding::told("of it allowed for a late machine", late_ms, "ms"),
        Finding::at_least("downloads complete", figure(complete), figure(whole.len()), ""),
        Finding::holds(
            "inner addresses",
            same,
            if same { "the same" } else { "OTHERS" },
            "the same",
        ),
    ];
    if trial.short {
        findings.push(Finding::not_here("p-0 without a session", "at full length"));
    } else {
        (trial.say)("waiting until p-0 has no session");
        findings.push(emptied(&fleet)?);
    }
    fleet.ask(1, &["fleet", "undrain", "p-0"])?;
    Ok(findings)
}

/// How long it takes until no session is left at the first proxy.
fn emptied(fleet: &Fleet) -> Result<Finding, LabError> {
    let started = Instant::now();
    let mut left = usize::MAX;
    while left > 0 && started.elapsed() < EMPTY_WITHIN {
        thread::sleep(Duration::from_millis(500));
        left = fleet.connected_to(0)?;
    }
    let time = if left == 0 { started.elapsed().as_secs_f64() } else { f64::INFINITY };
    Ok(Finding::at_most("p-0 without a session after", time, EMPTY_WITHIN.as_secs_f64(), "s"))
}
