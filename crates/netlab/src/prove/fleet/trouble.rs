//! What an operator of etcd may get wrong: it is full, holds what is not Ropewalk's, or a proxy looks in the wrong place.

use std::time::Duration;

use super::{begin, beside_pings, figure, gaps, invites};
use crate::error::LabError;
use crate::fleet::Fleet;
use crate::prove::{Finding, Proof, Trial};

pub(in crate::prove) const PROOF: Proof = Proof {
    name: "fleet-trouble",
    shows: "etcd holds values that are not Ropewalk's, then is full, and a proxy has the wrong prefix: tunnels go on, and each is told with \
            what to do",
    seconds: 90,
    run,
};

const CLIENTS: usize = 3;
/// Nobody on the tunnel notices anything: what a busy machine does to a ping is allowed for.
const UNNOTICED: Duration = Duration::from_millis(500);

/// Small, so that it is soon full; and values of 2 MiB are taken, which its default is too strict for.
const ETCD: [&str; 2] = ["--quota-backend-bytes=16777216", "--max-request-bytes=4194304"];

/// Values that are not Ropewalk's: the key below the prefix, the value, and what is said of it.
fn foreign() -> [(String, Vec<u8>, &'static str); 3] {
    // Base64 of keys that nobody has.
    let client = |letter: &str| format!("/ropewalk/clients/{}=", letter.repeat(43));
    [
        (client("Q"), vec![b'x'; 2 << 20], "it has 2097152 bytes, and ours have at most 16384"),
        (client("g"), b"# a playbook".to_vec(), "expected value"),
        ("/ropewalk/hosts/web-1".to_owned(), b"192.0.2.1".to_vec(), "keeps nothing there"),
    ]
}

fn run(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let mut fleet = Fleet::build(trial.program, 3, CLIENTS)?;
    fleet.set_etcd_arguments(&ETCD);
    begin(trial, &mut fleet, 2, CLIENTS)?;
    let mut findings = strangers(trial, &fleet)?;
    findings.extend(full(trial, &mut fleet)?);
    findings.extend(elsewhere(trial, &mut fleet)?);
    Ok(findings)
}

/// Another program writes below the prefix while proxies watch.
fn strangers(trial: &Trial<'_>, fleet: &Fleet) -> Result<Vec<Finding>, LabError> {
    (trial.say)("putting values of 2 MiB and of another program below the prefix");
    let foreign = foreign();
    for (key, value, _) in &foreign {
        fleet.put(key, value)?;
    }
    fleet.wait("both proxies to tell of all three", |fleet| {
        let told = |at| {
            let status = fleet.proxy_status(at)?;
            let told = status["proxy"]["registry"]["foreign"].as_object();
            Ok::<_, LabError>(told.is_some_and(|told| told.len() == foreign.len()))
        };
        Ok(told(0)? && told(1)?)
    })?;
    let report = fleet.report(0)?;
    let is_told = |(key, _, why): &&(String, Vec<u8>, &str)| {
        report["foreign"][key].as_str().is_some_and(|told| told.contains(why))
    };
    let told = foreign.iter().filter(is_told).count();
    let shown = fleet.ask(0, &["fleet"])?.contains("etcdctl del");
    let invited = invites(fleet, 0, "beside");
    for (key, ..) in &foreign {
        fleet.delete(key)?;
    }
    fleet.wait("nothing to tell of", |fleet| {
        let status = fleet.proxy_status(0)?;
        Ok(status["proxy"]["registry"].get("foreign").is_none())
    })?;
    Ok(vec![
        Finding::at_least("foreign values told of, with the reason", figure(told), 3.0, ""),
        holds("foreign values: what to do", shown, "told", "NOT TOLD"),
        holds("foreign values: an invitation", invited.is_ok(), "given", "REFUSED"),
    ])
}

/// etcd has no room.
fn full(trial: &Trial<'_>, fleet: &mut Fleet) -> Result<Vec<Finding>, LabError> {
    (trial.say)("filling etcd");
    let time = Duration::from_secs(trial.either(40, 15));
    let (echoes, (refused, problem)) = beside_pings(fleet, CLIENTS - 1, time, |fleet| {
        fleet.fill()?;
        let refused = invites(fleet, 0, "late").err().unwrap_or_default();
        fleet.start_client(CLIENTS - 1)?;
        fleet.wait_up([CLIENTS - 1])?;
        Ok((refused, fleet.report(0)?["members"].to_string()))
    })?;
    let connected = fleet.connected_to(0)? + fleet.connected_to(1)?;
    let way_out = "etcdctl alarm disarm";
    let mut findings = vec![
        Finding::holds(
            "etcd is full: an invitation",
            refused.contains("database is full") && refused.contains(way_out),
            if refused.contains(way_out) {
                "refused, with the way out".to_owned()
            } else {
                refused
            },
            "refused, with the way out",
        ),
        holds(
            "etcd is full: `ropewalk fleet`",
            problem.contains(way_out),
            "tells",
            "DOES NOT TELL",
        ),
        holds("etcd is full: a client that returns", true, "connected", ""),
        Finding::at_least(
            "etcd is full: clients with a session",
            figure(connected),
            figure(CLIENTS),
            "",
        ),
    ];
    findings.extend(gaps("etcd is full", &echoes, UNNOTICED));
    (trial.say)("making room in etcd");
    fleet.make_room()?;
    fleet.wait("an invitation", |fleet| Ok(invites(fleet, 0, "after").is_ok()))?;
    findings.push(holds("etcd has room again: an invitation", true, "given", ""));
    fleet.wait("all sessions in the registry", |fleet| {
        Ok(fleet.sessions_at(0, 0)? + fleet.sessions_at(0, 1)? == CLIENTS)
    })?;
    findings.push(holds("etcd has room again: sessions in the registry", true, "all", ""));
    Ok(findings)
}

/// A proxy looks for its fleet where nobody is, and where another program is.
fn elsewhere(trial: &Trial<'_>, fleet: &mut Fleet) -> Result<Vec<Finding>, LabError> {
    let mut findings = Vec::new();
    fleet.put("/taken/fleet", b"# a playbook")?;
    for (prefix, expected) in
        [("/other", "nobody had used this prefix"), ("/taken", "Another program uses this prefix")]
    {
        (trial.say)(&format!("starting p-2 with the prefix {prefix}"));
        fleet.stop_proxy(2)?;
        fleet.use_prefix(2, prefix);
        fleet.start_proxy(2)?;
        let within = Duration::from_secs(20);
        let told = match fleet.proxy(2) {
            Some(process) => process.wait_for_log(expected, within).is_ok(),
            None => false,
        };
        let what = format!("a proxy with the prefix {prefix}: what is wrong");
        findings.push(holds(&what, told, "told", "NOT TOLD"));
    }
    findings.push(Finding::at_most(
        "proxies in the fleet meanwhile",
        figure(fleet.listed(0)?),
        2.0,
        "",
    ));
    Ok(findings)
}

/// A fact that is so, in words, or in others.
fn holds(what: &str, is_so: bool, so: &str, otherwise: &str) -> Finding {
    Finding::holds(what, is_so, if is_so { so } else { otherwise }, so)
}
