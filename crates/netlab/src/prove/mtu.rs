//! Links that carry less than 1500 bytes and do not say so: the path MTU is found by probing, and the
//! inner MTU follows while a download runs.

use std::ops::RangeInclusive;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::look::{access, link, patient, until};
use super::{Finding, Proof, Trial};
use crate::deployment::CLIENT_TUN;
use crate::download::Download;
use crate::error::LabError;
use crate::http::body_sha256;
use crate::stage::{Progress, Stage};
use crate::topology::TopologyConfig;

/// Small MTUs without ICMP.
pub(super) const MTU: Proof = Proof {
    name: "mtu",
    shows: "a black hole above 1400 bytes, and one above 1300 in mid-download, are found and told",
    seconds: 60,
    run,
};

/// The MTU of wan0 from the beginning.
const SMALL: u16 = 1400;
/// The MTU of wan1 from the middle of a download on.
const LOWERED: u16 = 1300;
/// The search ends when it is this near.
const STEP: u16 = 20;
/// A search takes some probes, each with its timeout.
const FOUND_WITHIN: Duration = Duration::from_secs(20);

fn run(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let mut stage =
        Stage::build(trial.program, &TopologyConfig::new(vec![access(4, 20), access(12, 30)]))?;
    for router in stage.topology.routers() {
        router.set_icmp_errors(false)?;
    }
    stage.topology.router_mut(0).set_mtu(SMALL)?;
    stage.start([0, 1])?;
    let mut findings = vec![
        found(&stage, "wan0", "at rest", near(SMALL)),
        found(&stage, "wan1", "at rest", near(1500)),
    ];
    let bytes = trial.either(9_000_000, 3_000_000);
    findings.extend(downloaded(&stage.get(bytes, 21)?, bytes, 21, "IPv4, 1400 and 1500"));
    findings.extend(downloaded(&stage.get_v6(bytes, 22)?, bytes, 22, "IPv6, 1400 and 1500"));

    let bytes = trial.either(18_000_000, 9_000_000);
    let url = stage.server.url(bytes, 23);
    let (clients, routers) = stage.topology.clients_and_routers();
    let download = thread::scope(|scope| -> Result<Download, LabError> {
        let curl = patient();
        let download = scope.spawn(move || curl.download(&clients[0], &url, |_| {}));
        thread::sleep(Duration::from_millis(1500));
        trial.say("wan1: 1300 bytes from here on");
        routers[1].set_mtu(LOWERED)?;
        match download.join() {
            Ok(download) => download,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })?;
    findings.extend(downloaded(&download, bytes, 23, "IPv4, lowered to 1300 on the way"));
    findings.push(Finding::told("its longest stall", download.longest_stall_ms, "ms"));
    findings.push(found(&stage, "wan0", "afterwards", near(SMALL)));
    findings.push(found(&stage, "wan1", "afterwards", near(LOWERED)));
    findings.push(tun_follows(&stage)?);
    let bytes = bytes / 3;
    findings.extend(downloaded(&stage.get_v6(bytes, 24)?, bytes, 24, "IPv6, 1400 and 1300"));
    findings.extend(lowered_while_idle(trial)?);
    Ok(findings)
}

/// A new connection over IPv6 finds the black hole itself, with inner packets that are too long from then on.
fn lowered_while_idle(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let mut stage =
        Stage::build(trial.program, &TopologyConfig::new(vec![access(4, 20), access(12, 30)]))?;
    for router in stage.topology.routers() {
        router.set_icmp_errors(false)?;
    }
    stage.topology.router_mut(0).set_mtu(SMALL)?;
    stage.start([0, 1])?;
    let mut findings = vec![found(&stage, "wan1", "at rest", near(1500))];
    trial.say("wan1: 1300 bytes while nothing flows");
    stage.topology.router_mut(1).set_mtu(LOWERED)?;
    let bytes = trial.either(9_000_000, 3_000_000);
    findings.extend(downloaded(&stage.get_v6(bytes, 25)?, bytes, 25, "IPv6, 1300 since before"));
    findings.push(found(&stage, "wan1", "found by it", near(LOWERED)));
    Ok(findings)
}

const fn near(mtu: u16) -> RangeInclusive<u16> {
    mtu - STEP..=mtu
}

/// Waits until both ends tell a path MTU in this range.
fn found(stage: &Stage, name: &str, when: &str, range: RangeInclusive<u16>) -> Finding {
    let told = |status: Result<Value, LabError>| -> Option<u16> {
        link(&status.ok()?, name)["path_mtu"].as_u64()?.try_into().ok()
    };
    let both = || (told(stage.deployment.client_status(0)), told(stage.deployment.proxy_status()));
    let mut seen = (None, None);
    let took = until(FOUND_WITHIN, || {
        seen = both();
        [seen.0, seen.1].iter().all(|mtu| mtu.is_some_and(|mtu| range.contains(&mtu)))
    });
    let show = |mtu: Option<u16>| mtu.map_or("-".to_owned(), |mtu| mtu.to_string());
    let seconds = took.unwrap_or(FOUND_WITHIN).as_secs_f64();
    Finding::holds(
        format!("{name} {when}: path MTU at client and proxy"),
        took.is_some(),
        format!("{} and {} after {seconds:.1} s", show(seen.0), show(seen.1)),
        format!("{} to {}", range.start(), range.end()),
    )
}

fn downloaded(download: &Download, bytes: u64, seed: u64, what: &str) -> [Finding; 2] {
    let right = download.sha256 == body_sha256(bytes, seed);
    let measured = match (right, download.complete) {
        (true, _) => "complete, sha256 right".to_owned(),
        (false, true) => "altered".to_owned(),
        (false, false) => format!("{} of {bytes} bytes: {}", download.bytes, download.message),
    };
    [
        Finding::holds(format!("download over {what}"), right, measured, "complete, as sent"),
        Finding::told("its goodput (16 Mbit/s in all)", download.mbit, "Mbit/s"),
    ]
}

/// The TUN's MTU is the inner MTU that the status tells, and fits the smaller link.
fn tun_follows(stage: &Stage) -> Result<Finding, LabError> {
    let status = stage.deployment.client_status(0)?;
    let inner = status["tunnels"][0]["inner_mtu"].as_u64();
    let shown = stage.topology.client().tool("ip", &["-j", "link", "show", CLIENT_TUN])?;
    let shown: Value = serde_json::from_str(&shown)
        .map_err(|_| LabError::Malformed { what: "the output of ip -j link", text: shown })?;
    let tun = shown[0]["mtu"].as_u64();
    // IPv6 needs 1280 inside: below that the kernel would take it off the TUN.
    let fits = inner.is_some_and(|inner| (1200..=u64::from(LOWERED)).contains(&inner));
    let same = inner == tun || inner.is_some_and(|inner| inner < 1280 && tun == Some(1280));
    Ok(Finding::holds(
        "inner MTU in the status, MTU of the TUN",
        fits && same,
        format!("{inner:?}, {tun:?}"),
        "the same, and fits 1300 outside",
    ))
}
