//! A proxy that is cut off from etcd while its clients move away from it.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use super::{beside_pings, figure, gaps, running};
use crate::error::LabError;
use crate::prove::{Finding, Proof, Trial};

pub(in crate::prove) const PROOF: Proof = Proof {
    name: "fleet-partition",
    shows: "a proxy cut off from etcd while its clients move to another: the newest session wins, nobody ends without one",
    seconds: 110,
    run,
};

const CLIENTS: usize = 4;
const UNNOTICED: Duration = Duration::from_millis(500);

fn run(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let mut fleet = running(trial, 2, CLIENTS)?;
    let away = Duration::from_secs(trial.either(60, 14));
    let time = away + Duration::from_secs(10);
    (trial.say)("cutting p-0 off from etcd");
    let (echoes, ()) = beside_pings(&mut fleet, CLIENTS, time, |fleet| {
        fleet.cut_from_etcd(0, true)?;
        thread::sleep(Duration::from_secs(1));
        for client in 0..CLIENTS {
            fleet.use_proxy(client, "p-1")?;
        }
        thread::sleep(away);
        (trial.say)("joining it again");
        fleet.cut_from_etcd(0, false)
    })?;
    fleet.wait("both proxies in the registry", |fleet| {
        Ok(fleet.report(1)?["proxies"].as_array().is_some_and(|proxies| proxies.len() == 2))
    })?;
    let moved = fleet.moved_from("p-0", Duration::from_secs(10))?;
    let addresses: BTreeSet<String> = fleet.inner_addresses()?.into_iter().collect();
    let sessions = fleet.sessions_of(1)?;
    let mut findings = vec![
        Finding::at_least("clients with a session at p-1", figure(moved), figure(CLIENTS), ""),
        Finding::at_least("of them in the registry", figure(sessions), figure(CLIENTS), ""),
        Finding::at_least(
            "different inner addresses",
            figure(addresses.len()),
            figure(CLIENTS),
            "",
        ),
    ];
    findings.extend(gaps("p-0 cut off from etcd", &echoes, UNNOTICED));
    Ok(findings)
}
