//! A registry with many clients.

use std::time::{Duration, Instant};

use super::figure;
use crate::error::LabError;
use crate::fleet::Fleet;
use crate::process::Usage;
use crate::prove::{Finding, Proof, Trial};

pub(in crate::prove) const PROOF: Proof = Proof {
    name: "fleet-scale",
    shows: "10,000 clients are brought from files into the registry of three proxies: how soon one is ready, and what they cost",
    seconds: 60,
    run,
};

/// A proxy is ready, with all clients.
const START: Duration = Duration::from_secs(3);

fn run(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let clients = usize::try_from(trial.runs_or(trial.either(10_000, 500))).unwrap_or(usize::MAX);
    (trial.say)("starting an etcd of 3 members and 3 proxies");
    let mut fleet = Fleet::build(trial.program, 3, 0)?;
    fleet.allow_clients(clients);
    fleet.start()?;
    let empty = resident(&mut fleet);
    (trial.say)(&format!("importing {clients} clients"));
    fleet.file_clients(0, clients)?;
    let began = Instant::now();
    fleet.ask(0, &["fleet", "import"])?;
    let imported = began.elapsed();
    for proxy in 0..3 {
        wait_for_all(&fleet, proxy, clients)?;
    }
    let followed = began.elapsed();
    (trial.say)("starting a proxy that finds them there");
    fleet.kill_proxy(0);
    let began = Instant::now();
    fleet.start_proxy(0)?;
    wait_for_all(&fleet, 0, clients)?;
    let started = began.elapsed();
    let full = resident(&mut fleet);
    let each = figure(full.saturating_sub(empty)) / figure(clients);
    Ok(vec![
        Finding::told("clients", figure(clients), ""),
        Finding::told("imported after", imported.as_secs_f64(), "s"),
        Finding::told("known to all three running proxies after", followed.as_secs_f64(), "s"),
        Finding::at_most(
            "a proxy that starts knows them after",
            started.as_secs_f64(),
            START.as_secs_f64(),
            "s",
        ),
        Finding::told("memory of a proxy without clients", figure(empty) / 1e6, "MB"),
        Finding::told("memory for each client, session tables included", each, "B"),
    ])
}

fn wait_for_all(fleet: &Fleet, proxy: usize, clients: usize) -> Result<(), LabError> {
    fleet.wait("all clients at the proxy", |fleet| {
        let known = fleet.proxy_status(proxy)?["proxy"]["registry"]["clients"].as_u64();
        Ok(known == u64::try_from(clients).ok())
    })
}

/// Memory of the first proxy, in bytes.
fn resident(fleet: &mut Fleet) -> usize {
    let kib = fleet.proxy(0).map_or(0, |process| Usage::of(process).resident_kib);
    usize::try_from(kib * 1024).unwrap_or(usize::MAX)
}
