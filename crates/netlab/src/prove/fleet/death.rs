//! A proxy that dies under its clients.

use std::thread;
use std::time::{Duration, Instant};

use super::{MANY, beside_pings, downloads, figure, gaps, running_with};
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
/// A client that starts without a session asks all proxies that it knows in turn.
const JOINS: Duration = Duration::from_secs(10);
const BEFORE: Duration = Duration::from_secs(3);

fn run(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let clients = trial.either(MANY.0, MANY.1);
    let mut fleet = running_with(trial, 2, clients, 1)?;
    let inner = fleet.inner_addresses()?;
    // Who was invited by the proxy that dies.
    let invitation = fleet.invite(clients, 0)?;
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
    (trial.say)("joining by an invitation of p-0");
    let begun = Instant::now();
    fleet.join_by(clients, &invitation)?;
    fleet.wait_up([clients])?;
    findings.push(Finding::at_most(
        "a client that joins by an invitation of p-0: its tunnel is up after",
        begun.elapsed().as_secs_f64(),
        JOINS.as_secs_f64(),
        "s",
    ));
    Ok(findings)
}
