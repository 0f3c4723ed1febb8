//! A proxy that dies under its clients.

use std::thread;
use std::time::Duration;

use super::{MANY, beside_pings, downloads, figure, gaps, running};
use crate::error::LabError;
use crate::prove::{Finding, Proof, Trial};

pub(in crate::prove) const PROOF: Proof = Proof {
    name: "fleet-death",
    shows: "a proxy killed under 50 clients: each has a session with another one soon, and the same inner address",
    seconds: 60,
    run,
};

/// Pings pass again.
const AIM: Duration = Duration::from_secs(3);
const BEFORE: Duration = Duration::from_secs(3);

fn run(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let clients = trial.either(MANY.0, MANY.1);
    let mut fleet = running(trial, 2, clients)?;
    let inner = fleet.inner_addresses()?;
    let time = BEFORE + Duration::from_secs(trial.either(15, 8));
    let (echoes, moved) = beside_pings(&mut fleet, clients, time, |fleet| {
        // They are load: behind another proxy they cannot go on.
        let (begun, _) = downloads(fleet, clients, 2 * time)?;
        thread::sleep(BEFORE);
        (trial.say)("killing p-0");
        fleet.kill_proxy(0);
        let moved = fleet.moved_from("p-0", time - BEFORE);
        for mut download in begun {
            // It may have ended by itself.
            drop(download.kill().and_then(|()| download.wait()));
        }
        moved
    })?;
    let same = fleet.inner_addresses()? == inner;
    let refused =
        (0..clients).filter(|client| fleet.log_of(*client).contains("no session:")).count();
    let mut findings = vec![
        Finding::at_least("clients with a session elsewhere", figure(moved), figure(clients), ""),
        Finding::at_most("clients that were refused", figure(refused), 0.0, ""),
        Finding::holds(
            "inner addresses",
            same,
            if same { "the same" } else { "OTHERS" },
            "the same",
        ),
    ];
    findings.extend(gaps("p-0 killed", &echoes, AIM));
    Ok(findings)
}
