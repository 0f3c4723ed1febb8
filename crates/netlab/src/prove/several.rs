//! A real download manager with three connections, each on a link of its own: what stands for the file splitter
//! of SAFIRE's authors.

use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use ring::digest::{SHA256, digest};
use toml::Table;

use super::{Finding, Proof, Trial, lateness, network};
use crate::address::{SERVER_V4, client_interface};
use crate::error::LabError;
use crate::http::{body_sha256, hex};
use crate::privilege::require_tool;
use crate::process::bound_to_parent;
use crate::scratch::Scratch;
use crate::stage::Stage;
use crate::stats::mbit;

pub(super) const PROOF: Proof = Proof {
    name: "several",
    shows: "a download manager's three connections, each on its own link by `safire`, have most of the sum",
    seconds: 35,
    run,
};

/// The download manager, and Debian's package of it.
const ARIA2: (&str, &str) = ("aria2c", "aria2");
/// Three links, in Mbit/s and round-trip milliseconds.
const LINKS: [(u32, u64); 3] = [(5, 20), (5, 20), (5, 20)];
const CONNECTIONS: usize = LINKS.len();
/// Of the sum of the links.
const AIM: f64 = 80.0;
/// The least share of the bytes that each link carries; a third would be even.
const SHARE: f64 = 20.0;
const SEED: u64 = 11;
/// By then all connections exist, and none is near its end.
const BEFORE_LOOK: Duration = Duration::from_secs(2);

fn run(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    require_tool(ARIA2).map_err(LabError::Missing)?;
    let bytes: u64 = trial.either(36_000_000, 9_000_000);
    // In short, the start of TCP is a quarter of the time, and other tests run beside.
    let aim = trial.either(AIM, 60.0);
    let mut stage = Stage::build(trial.program, &network(&LINKS))?;
    let mut tunnel = Table::new();
    tunnel.insert("scheduler".into(), "safire".into());
    stage.deployment().proxy_config().insert("tunnel".into(), tunnel.clone().into());
    stage.deployment().client_config(0).insert("tunnel".into(), tunnel.into());
    stage.start([0, 1, 2])?;
    stage.settled_mtu()?;
    let before = carried(&stage)?;

    (trial.say)(&format!("downloading {} MB over {CONNECTIONS} connections", bytes / 1_000_000));
    let folder = Scratch::create().map_err(LabError::io("a folder for the download"))?;
    let (fetched, seen) = thread::scope(|scope| {
        let seen = scope.spawn(|| {
            thread::sleep(BEFORE_LOOK);
            connections(&stage)
        });
        (fetch(&stage, &folder, &stage.url(bytes, SEED)), seen.join())
    });
    let time = fetched?;
    let seen = seen.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let body = std::fs::read(folder.path().join("body"));
    let body = body.map_err(LabError::io("reading what aria2c wrote"))?;
    let complete = hex(digest(&SHA256, &body).as_ref()) == body_sha256(bytes, SEED);

    let sum: u32 = LINKS.iter().map(|(mbps, _)| *mbps).sum();
    let goodput = mbit(bytes, time);
    let mut findings = vec![
        Finding::at_least("connections to the server", as_f64(seen), as_f64(CONNECTIONS), ""),
        Finding::told("all connections together", goodput, "Mbit/s"),
        Finding::at_least("of the sum of the links", 100.0 * goodput / f64::from(sum), aim, "%"),
        Finding::holds("the file", complete, complete.to_string(), "sha256 as sent"),
    ];
    let after = carried(&stage)?;
    let of_link: Vec<u64> =
        after.iter().zip(before).map(|(after, before)| after - before).collect();
    let all = of_link.iter().sum();
    findings.extend((0u8..).zip(of_link).map(|(wan, bytes)| {
        let what = format!("share of {}", client_interface(wan));
        Finding::at_least(what, crate::stats::percent(bytes, all), SHARE, "%")
    }));
    findings.push(lateness(&stage)?);
    Ok(findings)
}

/// Downloads to `body` in the folder, in as many parts as there are links. Returns how long it took.
fn fetch(stage: &Stage, folder: &Scratch, url: &str) -> Result<Duration, LabError> {
    let mut command = bound_to_parent(ARIA2.0);
    let split = CONNECTIONS.to_string();
    command.args(["--no-conf", "--quiet", "--file-allocation=none", "--async-dns=false"]);
    command.args(["--split", &split, "--max-connection-per-server", &split]);
    command.args(["--min-split-size", "1M", "--out", "body", "--dir"]).arg(folder.path()).arg(url);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let started = Instant::now();
    let child = stage.topology().client().spawn(command)?;
    let ended = child.wait_with_output().map_err(LabError::io("waiting for aria2c"))?;
    let time = started.elapsed();
    if ended.status.success() {
        return Ok(time);
    }
    let said = [ended.stdout, ended.stderr].concat();
    Err(LabError::Tool {
        command: format!("{} {url}", ARIA2.0),
        reason: format!("{}: {}", ended.status, String::from_utf8_lossy(&said).trim()),
    })
}

/// How many connections the client has to the server.
fn connections(stage: &Stage) -> Result<usize, LabError> {
    let arguments = ["-Htn", "state", "established", "dst", &SERVER_V4.to_string()];
    let sockets = stage.topology().client().tool("ss", &arguments)?;
    Ok(sockets.lines().count())
}

/// What each link has carried to the client.
fn carried(stage: &Stage) -> Result<Vec<u64>, LabError> {
    let status = stage.client_status()?;
    let wans = (0u8..).take(CONNECTIONS);
    Ok(wans.map(|wan| status.bytes(&client_interface(wan), "down")).collect())
}

#[expect(clippy::cast_precision_loss, reason = "a few connections")]
const fn as_f64(count: usize) -> f64 {
    count as f64
}
