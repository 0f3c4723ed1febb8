//! An etcd that loses members.

use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use super::{beside_pings, gaps, invites, running};
use crate::error::LabError;
use crate::fleet::{Fleet, MEMBERS};
use crate::prove::{Finding, Proof, Trial};

pub(in crate::prove) const PROOF: Proof = Proof {
    name: "fleet-registry",
    shows: "etcd loses its leader, then its quorum, then a member hangs: clients notice nothing, who cannot join is told why, and a \
            proxy that is started without a quorum knows its clients",
    seconds: 165,
    run,
};

const CLIENTS: usize = 3;
/// Nobody on the tunnel notices anything: what a busy machine does to a ping is allowed for.
const UNNOTICED: Duration = Duration::from_millis(500);

fn run(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let mut fleet = running(trial, 2, CLIENTS)?;
    let mut findings = Vec::new();
    let pings = CLIENTS - 1;

    (trial.say)("killing the leader of etcd");
    let leader = fleet.leader(0)?;
    let time = Duration::from_secs(trial.either(20, 8));
    let (echoes, ()) = beside_pings(&mut fleet, pings, time, |fleet| {
        if let Some(member) = fleet.member(leader) {
            member.kill();
        }
        returns(fleet)
    })?;
    findings.extend(gaps("the leader killed", &echoes, UNNOTICED));
    findings.push(returned("the leader killed"));
    fleet
        .wait("an invitation with another leader", |fleet| Ok(invites(fleet, 0, "one").is_ok()))?;
    findings.push(Finding::holds("the leader killed: an invitation", true, "given", "given"));

    (trial.say)("killing a second member: no quorum");
    let second = (leader + 1) % MEMBERS;
    let time = Duration::from_secs(trial.either(60, 10));
    let (echoes, refusal) = beside_pings(&mut fleet, pings, time, |fleet| {
        if let Some(member) = fleet.member(second) {
            member.kill();
        }
        returns(fleet)?;
        // What is refused is refused with the reason, and soon.
        Ok(invites(fleet, 0, "two"))
    })?;
    findings.extend(gaps("no quorum", &echoes, UNNOTICED));
    findings.push(returned("no quorum"));
    let told = refusal.err().unwrap_or_default();
    let reason = told.contains("nothing was changed");
    findings.push(Finding::holds(
        "no quorum: an invitation",
        reason,
        if reason { "refused with the reason".to_owned() } else { format!("`{told}`") },
        "refused with the reason",
    ));
    findings.push(restarted(trial, &mut fleet)?);
    fleet.start_member(leader)?;
    fleet.start_member(second)?;
    fleet.wait("an invitation with a quorum", |fleet| Ok(invites(fleet, 0, "three").is_ok()))?;
    findings.push(Finding::holds("the quorum is back: an invitation", true, "given", "given"));

    (trial.say)("stopping a member with SIGSTOP");
    let leader = fleet.leader(0)?;
    let time = Duration::from_secs(trial.either(20, 8));
    let (echoes, ()) = beside_pings(&mut fleet, pings, time, |fleet| {
        if let Some(member) = fleet.member(leader) {
            member.signal(Signal::STOP);
        }
        returns(fleet)?;
        thread::sleep(time / 4);
        if let Some(member) = fleet.member(leader) {
            member.signal(Signal::CONT);
        }
        Ok(())
    })?;
    findings.extend(gaps("the leader hangs", &echoes, UNNOTICED));
    findings.push(returned("the leader hangs"));
    fleet.wait("an invitation after that", |fleet| Ok(invites(fleet, 0, "four").is_ok()))?;
    Ok(findings)
}

/// A proxy is started without a quorum, and the last client moves to it: how old the copy is that it serves from.
fn restarted(trial: &Trial<'_>, fleet: &mut Fleet) -> Result<Finding, LabError> {
    (trial.say)("starting p-1 again: no quorum");
    fleet.stop_proxy(1)?;
    fleet.start_proxy(1)?;
    fleet.wait("all clients at p-1", |fleet| {
        let known = fleet.proxy_status(1)?["proxy"]["registry"]["clients"].as_u64();
        Ok(known == u64::try_from(CLIENTS).ok())
    })?;
    let copy = fleet.proxy_status(1)?["proxy"]["registry"]["copy_age_s"].as_u64();
    let client = CLIENTS - 1;
    fleet.use_proxy(client, "p-1")?;
    fleet.wait("the session of a client with p-1", |fleet| {
        let is_up = fleet.client_status(client)?["tunnels"][0]["state"] == "up";
        Ok(is_up && fleet.proxy_of(client)? == "p-1")
    })?;
    fleet.use_proxy(client, "auto")?;
    let told = match copy {
        Some(age) => format!("connected, by a copy {age} s old"),
        None => "connected, WITHOUT a copy".to_owned(),
    };
    Ok(Finding::holds(
        "no quorum: a client of a proxy that was started again",
        copy.is_some(),
        told,
        "connected, by a copy",
    ))
}

/// The last client ends and comes back.
fn returns(fleet: &mut Fleet) -> Result<(), LabError> {
    let client = CLIENTS - 1;
    fleet.start_client(client)?;
    fleet.wait_up([client])
}

fn returned(what: &str) -> Finding {
    Finding::holds(format!("{what}: a client that returns"), true, "connected", "connected")
}
