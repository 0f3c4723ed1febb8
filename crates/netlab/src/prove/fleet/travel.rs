//! A client that comes into another network, where another proxy is near.

use std::thread;
use std::time::{Duration, Instant};

use super::{begin, beside_pings, downloads, gaps};
use crate::error::LabError;
use crate::fleet::Fleet;
use crate::prove::{Finding, Proof, Trial};

pub(in crate::prove) const PROOF: Proof = Proof {
    name: "fleet-travel",
    shows: "a client comes into another network with an open download, where the proxy that it uses is far away and another one near: it \
            uses that one within a minute, and the download goes on",
    seconds: 110,
    run,
};

/// Round trips to the proxies before, and after in the other order.
const TRIPS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(150)];
const BEFORE: Duration = Duration::from_secs(3);
/// Twenty seconds for which the other proxy has to be nearer, five until it was asked, and the move.
const MOVES_WITHIN: Duration = Duration::from_secs(60);
/// Both links have other addresses in one moment: they join again over a proxy that is far away by then.
const PAUSE: Duration = Duration::from_secs(5);

fn run(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let mut fleet = Fleet::build_far(trial.program, &TRIPS, 1)?;
    begin(trial, &mut fleet, TRIPS.len(), 1)?;
    let inner = fleet.inner_addresses()?;
    // It lasts beyond the move.
    let time = Duration::from_secs(trial.either(80, 45));
    let (open, bytes) = downloads(&fleet, 1, time)?;
    let (echoes, moved) = beside_pings(&mut fleet, 1, time, |fleet| {
        thread::sleep(BEFORE);
        (trial.say)("the client comes into another network: p-0 is far away, p-1 near");
        fleet.set_trip(0, TRIPS[1])?;
        fleet.set_trip(1, TRIPS[0])?;
        fleet.move_client(0)?;
        let came = Instant::now();
        fleet.wait_for("the session with p-1", MOVES_WITHIN, |fleet| {
            let is_up = fleet.client_status(0)?["tunnels"][0]["state"] == "up";
            Ok(is_up && fleet.proxy_of(0)? == "p-1")
        })?;
        Ok(came.elapsed())
    })?;
    let why = fleet.why_of(0)?;
    let is_nearer = why.contains("nearer");
    (trial.say)("a download that begins now");
    let (new, new_bytes) = downloads(&fleet, 1, Duration::from_secs(3))?;
    let open = complete(open, bytes)?;
    let new = complete(new, new_bytes)?;
    let same = fleet.inner_addresses()? == inner;
    let word = |whole: bool| if whole { "complete" } else { "NOT COMPLETE" };
    let mut findings = vec![
        Finding::at_most("p-1 is used after", moved.as_secs_f64(), MOVES_WITHIN.as_secs_f64(), "s"),
        Finding::holds("why", is_nearer, why, "it is nearer"),
        Finding::holds("the download that was open", open, word(open), "complete"),
        Finding::holds("one that began after the move", new, word(new), "complete"),
        Finding::holds(
            "inner addresses",
            same,
            if same { "the same" } else { "OTHERS" },
            "the same",
        ),
    ];
    findings.extend(gaps("another network", &echoes, PAUSE));
    Ok(findings)
}

/// Whether the only one of these downloads came whole.
fn complete(downloads: Vec<std::process::Child>, bytes: u64) -> Result<bool, LabError> {
    let mut whole = true;
    for download in downloads {
        let ended = download.wait_with_output().map_err(LabError::io("waiting for curl"))?;
        whole &= String::from_utf8_lossy(&ended.stdout).trim() == bytes.to_string();
    }
    Ok(whole)
}
