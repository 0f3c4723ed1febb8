//! A link cut without notice in the middle of a download: the download goes on over the other, and
//! the link is used again soon after its return.

use std::thread;
use std::time::{Duration, Instant};

use super::{Finding, Proof, Trial, arrived, lateness, network};
use crate::address::client_interface;
use crate::demo::LINKS;
use crate::download::{Curl, Download};
use crate::error::LabError;
use crate::stage::{Progress, Stage};

pub(super) const PROOF: Proof = Proof {
    name: "cut",
    shows: "a link cut for 2 s and 30 s in mid-download: all arrives, and the link is used again",
    seconds: 120,
    run,
};

/// How soon after its return a link must carry data.
const REUSE_AIM: Duration = Duration::from_secs(2);
/// What counts as data: more than probes and keepalives make in that time.
const CARRIED: u64 = 20_000;
/// The download before the cut, and after the return.
const BEFORE: Duration = Duration::from_secs(3);
const AFTER: Duration = Duration::from_secs(6);
/// How often the status is asked.
const POLL: Duration = Duration::from_millis(50);
/// A link that is not used again by then is given up.
const PATIENCE: Duration = Duration::from_secs(15);
const SEED: u64 = 4;

fn run(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let seconds: &[u64] = trial.either(&[2, 30], &[2]);
    let wans: &[u8] = trial.either(&[0, 1], &[0]);
    let mut stage = Stage::build(trial.program, &network(&LINKS))?;
    stage.start([0, 1])?;
    let mut findings = Vec::new();
    for wan in wans {
        for seconds in seconds {
            findings.extend(cut(&stage, *wan, Duration::from_secs(*seconds), trial)?);
        }
    }
    findings.push(lateness(&stage)?);
    Ok(findings)
}

fn cut(
    stage: &Stage,
    wan: u8,
    time: Duration,
    trial: &Trial<'_>,
) -> Result<Vec<Finding>, LabError> {
    let link = client_interface(wan);
    let what = format!("{link} cut for {time:?}");
    trial.say(&what);
    let bytes = body_for(wan, time);
    let curl = Curl { interface: None, limit: Some(2 * (BEFORE + time + AFTER) + PATIENCE) };
    let (topology, url) = (stage.topology(), stage.url(bytes, SEED));
    let (download, reuse) = thread::scope(|scope| {
        let download = scope.spawn(|| curl.download(topology.client(), &url, |_| {}));
        thread::sleep(BEFORE);
        let reuse = topology.cut(0, wan).and_then(|()| {
            thread::sleep(time);
            topology.restore(0, wan)?;
            time_until_reuse(stage, &link)
        });
        (download.join(), reuse)
    });
    let download: Download = download.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let reuse = reuse?.map_or(f64::INFINITY, |time| time.as_secs_f64());
    Ok(vec![
        arrived(format!("{what}: download"), &download, bytes, SEED),
        Finding::at_most(
            format!("{what}: carries data again after"),
            reuse,
            REUSE_AIM.as_secs_f64(),
            "s",
        ),
        Finding::told(format!("{what}: longest stall"), download.longest_stall_ms, "ms"),
        Finding::told(format!("{what}: download"), download.mbit, "Mbit/s"),
    ])
}

/// As much as the links carry before, during and after the cut, with some to spare for the cut itself.
fn body_for(wan: u8, time: Duration) -> u64 {
    let bits_while = |(index, (mbps, _)): (usize, &(u32, u64))| {
        let time = BEFORE + AFTER + if index == usize::from(wan) { Duration::ZERO } else { time };
        u64::from(*mbps) * 1_000_000 * time.as_secs()
    };
    let bits: u64 = LINKS.iter().enumerate().map(bits_while).sum();
    bits / 8
}

/// How long after now the link has carried data to the client; `None` if it does not.
fn time_until_reuse(stage: &Stage, link: &str) -> Result<Option<Duration>, LabError> {
    let returned = Instant::now();
    let before = stage.client_status()?.bytes(link, "down");
    while returned.elapsed() < PATIENCE {
        let status = stage.client_status()?;
        if status.is_up(link) && status.bytes(link, "down") >= before + CARRIED {
            return Ok(Some(returned.elapsed()));
        }
        thread::sleep(POLL);
    }
    Ok(None)
}
