//! A NAT that forgets its table in mid-download and gives other ports, then another public address:
//! the proxy follows each link by itself, and the download goes on.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::look::{access, link, patient};
use super::{Finding, Proof, Trial};
use crate::address::client_interface;
use crate::error::LabError;
use crate::http::body_sha256;
use crate::stage::{Progress, Stage};
use crate::topology::TopologyConfig;

/// NAT rebinding under a download.
pub(super) const REBIND: Proof = Proof {
    name: "rebind",
    shows: "NATs that change port, then address, in mid-download stall it for less than a second",
    seconds: 25,
    run,
};

/// What happens to which routers, in this order, [`SPACING`] apart.
const EVENTS: [(&str, Change, &[u8]); 5] = [
    ("both links: other ports at once", Change::Port, &[0, 1]),
    ("wan0: another address", Change::Address, &[0]),
    ("wan1: another address", Change::Address, &[1]),
    ("wan0: another port", Change::Port, &[0]),
    ("wan1: another port", Change::Port, &[1]),
];
const SPACING: Duration = Duration::from_secs(3);
/// Bytes a second of the two links together (8 and 4 Mbit/s).
const RATE: u64 = 12_000_000 / 8;
const MOST_STALL_MS: f64 = 1000.0;

#[derive(Clone, Copy)]
enum Change {
    /// Conntrack flushed, other source ports.
    Port,
    /// The same with another public address.
    Address,
}

fn run(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let mut stage =
        Stage::build(trial.program, &TopologyConfig::new(vec![access(8, 20), access(4, 60)]))?;
    stage.start([0, 1])?;
    let events = &EVENTS[..trial.either(EVENTS.len(), 2)];
    let seconds = SPACING.as_secs() * (events.len() as u64 + 1);
    let (bytes, seed) = (RATE * seconds, 11);
    let url = stage.server.url(bytes, seed);
    let Stage { topology, deployment, .. } = &mut stage;
    let remotes = |deployment: &crate::deployment::Deployment| -> Result<Vec<Value>, LabError> {
        let status = deployment.proxy_status()?;
        let remote = |wan| link(&status, &client_interface(wan))["remote"].clone();
        Ok([0, 1].map(remote).into())
    };
    let mut findings = Vec::new();
    let (clients, routers) = topology.clients_and_routers();
    let started = Instant::now();
    let download = thread::scope(|scope| -> Result<_, LabError> {
        let curl = patient();
        let download = scope.spawn(move || curl.download(&clients[0], &url, |_| {}));
        for (number, (what, change, wans)) in (1..).zip(events) {
            thread::sleep((started + SPACING * number).saturating_duration_since(Instant::now()));
            trial.say(what);
            let before = remotes(deployment)?;
            for wan in *wans {
                let router = &mut routers[usize::from(*wan)];
                match change {
                    Change::Port => router.rebind()?,
                    Change::Address => router.change_public_address()?,
                }
            }
            let moved = super::look::until(Duration::from_secs(2), || {
                let now = remotes(deployment).unwrap_or_default();
                wans.iter().map(|wan| usize::from(*wan)).all(|wan| now.get(wan) != before.get(wan))
            });
            findings.push(Finding::at_most(
                format!("{what}: the proxy followed within"),
                moved.map_or(f64::INFINITY, |moved| moved.as_secs_f64() * 1e3),
                MOST_STALL_MS,
                "ms",
            ));
        }
        match download.join() {
            Ok(download) => download,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })?;
    let last = started + SPACING * u32::try_from(events.len()).unwrap_or(u32::MAX);
    let after = download.seconds - (last - started).as_secs_f64();
    findings.extend([
        Finding::at_least("the download went on after the last event for", after, 0.5, "s"),
        Finding::at_most("longest stall", download.longest_stall_ms, MOST_STALL_MS, "ms"),
        Finding::told("goodput of 12 Mbit/s in all", download.mbit, "Mbit/s"),
        Finding::holds(
            "sha256",
            download.sha256 == body_sha256(bytes, seed),
            if download.complete { "complete".to_owned() } else { download.message },
            "as sent",
        ),
    ]);
    Ok(findings)
}
