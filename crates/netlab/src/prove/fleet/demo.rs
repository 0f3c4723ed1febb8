//! The demonstration: three members of etcd, three proxies and two clients; one of each is killed.

use std::time::{Duration, Instant};

use super::{beside_pings, figure, gaps, invites, running};
use crate::error::LabError;
use crate::fleet::Fleet;
use crate::prove::{Finding, Proof, Trial};

pub(in crate::prove) const PROOF: Proof = Proof {
    name: "fleet-demo",
    shows: "three members of etcd, three proxies, two clients; one of each is killed, and the tunnels go on",
    seconds: 40,
    run,
};

const CLIENTS: usize = 2;
const AIM: Duration = Duration::from_secs(3);

fn run(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let mut fleet = running(trial, 3, CLIENTS)?;
    show(trial, &fleet)?;
    let time = Duration::from_secs(18);
    let (echoes, returned) = beside_pings(&mut fleet, 1, time, |fleet| {
        let leader = fleet.leader(1)?;
        (trial.say)(&format!("kill -9 of etcd-{leader}, which leads"));
        if let Some(member) = fleet.member(leader) {
            member.kill();
        }
        fleet.wait("an invitation with another leader", |fleet| {
            Ok(invites(fleet, 1, "phone").is_ok())
        })?;
        (trial.say)("another member leads: an invitation was given");
        (trial.say)("kill -9 of p-0, which both clients use");
        let killed = Instant::now();
        fleet.kill_proxy(0);
        fleet.moved_from("p-0", time)?;
        (trial.say)(&format!("both use another after {:.1} s", killed.elapsed().as_secs_f64()));
        (trial.say)("kill -9 of client1, and its return");
        if let Some(client) = fleet.client(1) {
            client.kill();
        }
        let killed = Instant::now();
        fleet.start_client(1)?;
        fleet.wait_up([1])?;
        Ok(killed.elapsed())
    })?;
    show(trial, &fleet)?;
    let moved = fleet.moved_from("p-0", Duration::from_secs(5))?;
    let mut findings = vec![
        Finding::at_least("clients with a session elsewhere", figure(moved), figure(CLIENTS), ""),
        Finding::told("a client that was killed is back after", returned.as_secs_f64(), "s"),
    ];
    findings.extend(gaps("one of each killed", &echoes, AIM));
    Ok(findings)
}

/// What `ropewalk fleet` says.
fn show(trial: &Trial<'_>, fleet: &Fleet) -> Result<(), LabError> {
    fleet.ask(1, &["fleet"])?.lines().for_each(|line| (trial.say)(line));
    Ok(())
}
