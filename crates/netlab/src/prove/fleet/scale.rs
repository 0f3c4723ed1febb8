//! A registry with many clients.

use std::time::{Duration, Instant};

use super::figure;
use crate::error::LabError;
use crate::fleet::Fleet;
use crate::process::Usage;
use crate::prove::{Finding, Proof, Trial};

pub(in crate::prove) const PROOF: Proof = Proof {
    name: "fleet-scale",
    shows: "10,000 clients (--runs 1000000: a million, which takes long) are brought from files into the registry of three proxies: how \
            soon one is ready, and what they cost",
    seconds: 60,
    run,
};

/// A proxy is ready, with all of 10,000 clients, and with more.
const START: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(60));

/// Clients that a proxy's files have at a time.
const FILED: u32 = 50_000;

/// How long all proxies may take to hear of each thousand clients, at most.
const A_THOUSAND: Duration = Duration::from_secs(5);

fn run(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let clients = trial.runs_or(trial.either(10_000, 500));
    let count = usize::try_from(clients).unwrap_or(usize::MAX);
    (trial.say)("starting an etcd of 3 members and 3 proxies");
    let mut fleet = Fleet::build(trial.program, 3, 0)?;
    fleet.allow_clients(count);
    fleet.start()?;
    let empty = resident(&mut fleet);
    let mut imported = Duration::ZERO;
    let began = Instant::now();
    for first in (1..=clients).step_by(usize::try_from(FILED).unwrap_or(usize::MAX)) {
        let last = clients.min(first.saturating_add(FILED - 1));
        (trial.say)(&format!("importing clients {first} to {last} of {clients}"));
        fleet.file_clients(0, first..=last)?;
        let began = Instant::now();
        fleet.ask(0, &["fleet", "import"])?;
        imported += began.elapsed();
    }
    let within = Duration::from_secs(30) + A_THOUSAND * (clients / 1000);
    for proxy in 0..3 {
        wait_for_all(&fleet, proxy, count, within)?;
    }
    let followed = began.elapsed();
    (trial.say)("starting a proxy that finds them there");
    fleet.kill_proxy(0);
    let began = Instant::now();
    fleet.start_proxy(0)?;
    wait_for_all(&fleet, 0, count, within)?;
    let started = began.elapsed();
    let full = resident(&mut fleet);
    let each = figure(full.saturating_sub(empty)) / figure(count);
    let start = if clients <= 10_000 { START.0 } else { START.1 };
    Ok(vec![
        Finding::told("clients", figure(count), ""),
        Finding::told("imported in", imported.as_secs_f64(), "s"),
        Finding::told("known to all three running proxies after", followed.as_secs_f64(), "s"),
        Finding::at_most(
            "a proxy that starts knows them after",
            started.as_secs_f64(),
            start.as_secs_f64(),
            "s",
        ),
        Finding::told("memory of a proxy without clients", figure(empty) / 1e6, "MB"),
        Finding::told("memory for each client, session tables included", each, "B"),
    ])
}

fn wait_for_all(
    fleet: &Fleet,
    proxy: usize,
    clients: usize,
    within: Duration,
) -> Result<(), LabError> {
    fleet.wait_for("all clients at the proxy", within, |fleet| {
        let known = fleet.proxy_status(proxy)?["proxy"]["registry"]["clients"].as_u64();
        Ok(known == u64::try_from(clients).ok())
    })
}

/// Memory of the first proxy, in bytes.
fn resident(fleet: &mut Fleet) -> usize {
    let kib = fleet.proxy(0).map_or(0, |process| Usage::of(process).resident_kib);
    usize::try_from(kib * 1024).unwrap_or(usize::MAX)
}
