//! One link only: nobody loses by switching the tunnel on.

use std::thread;
use std::time::Duration;

use super::{Finding, Proof, Trial, lateness, network};
use crate::address::{SERVER_V4, client_interface};
use crate::demo::LINKS;
use crate::error::LabError;
use crate::limit::{TCP_HEADERS, payload_share};
use crate::ping::Ping;
use crate::stage::{Progress, Stage};
use crate::stats::mbit;

pub(super) const PROOF: Proof = Proof {
    name: "single",
    shows: "one link alone: TCP at its limit, and no round trip noticeably longer",
    seconds: 70,
    run,
};

/// Of what TCP payload can have of the link.
const TCP_AIM: f64 = 95.0;
/// How much longer an idle round trip may be.
const RTT_AIM_MS: f64 = 1.0;
/// From one echo to the next: no two of an idle link meet.
const SPACING: Duration = Duration::from_millis(120);

fn run(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let (measure, echoes) =
        trial.either((Duration::from_secs(20), 60), (Duration::from_secs(6), 15));
    // In short, the start of TCP weighs three times as much, and other tests run beside.
    let (tcp_aim, rtt_aim) = trial.either((TCP_AIM, RTT_AIM_MS), (90.0, 5.0));
    let mut stage = Stage::build(trial.program, &network(&LINKS))?;
    stage.start_proxy()?;
    let mut findings = Vec::new();
    for (wan, (mbps, rtt_ms)) in (0u8..).zip(LINKS) {
        let what = format!("{mbps} Mbit/s, {rtt_ms} ms");
        stage.connect([wan])?;
        let mtu = stage.settled_mtu()?;
        stage.check_congestion()?;

        trial.say(&format!("{what}: idle round trips inside and outside"));
        let (inside, outside) = round_trips(&stage, wan, echoes)?;
        let before = carried(&stage, wan)?;
        let download = stage.download(u64::MAX, 1, measure, &what, trial)?;
        let carried = mbit(carried(&stage, wan)? - before, measure);
        let limit = f64::from(mbps) * payload_share(mtu, TCP_HEADERS);
        findings.extend([
            Finding::told(format!("{what}: TCP"), download.mbit, "Mbit/s"),
            Finding::at_least(
                format!("{what}: TCP, of the {limit:.3} possible"),
                100.0 * download.mbit / limit,
                tcp_aim,
                "%",
            ),
            Finding::told(
                format!("{what}: the link was busy"),
                100.0 * carried / f64::from(mbps),
                "%",
            ),
            Finding::told(format!("{what}: idle ping outside"), outside, "ms"),
            Finding::at_most(
                format!("{what}: idle ping, longer by the tunnel"),
                inside - outside,
                rtt_aim,
                "ms",
            ),
        ]);
    }
    findings.push(lateness(&stage)?);
    Ok(findings)
}

/// Bytes that the emulated link has carried to the client, at IP level.
fn carried(stage: &Stage, wan: u8) -> Result<u64, LabError> {
    let Some(emulator) = stage.topology().emulator() else { return Ok(0) };
    Ok(emulator.report()?.links[usize::from(wan)].downstream.delivered_bytes)
}

/// Median round trips in milliseconds, at the same time through the tunnel and beside it.
fn round_trips(stage: &Stage, wan: u8, count: u32) -> Result<(f64, f64), LabError> {
    let client = stage.topology().client();
    let inside = Ping { interval: SPACING, ..Ping::new(SERVER_V4.into(), count) };
    let outside = Ping { interface: Some(client_interface(wan)), ..inside.clone() };
    let (inside, outside) = thread::scope(|scope| {
        let outside = scope.spawn(|| {
            // Between the others, so that an echo never queues behind its twin.
            thread::sleep(SPACING / 2);
            outside.run(client)
        });
        let inside = inside.run(client);
        (inside, outside.join())
    });
    let outside = outside.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let median = |pinged: crate::ping::Pinged| match pinged.rtt.count {
        0 => f64::NAN,
        _ => pinged.rtt.p50_ms,
    };
    Ok((median(inside?), median(outside)))
}
