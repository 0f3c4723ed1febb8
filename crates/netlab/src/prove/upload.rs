//! An upload over both links: the sum is there in the other direction too.

use std::time::Duration;

use super::{Finding, Proof, Trial, lateness, network};
use crate::demo::LINKS;
use crate::download::Curl;
use crate::error::LabError;
use crate::http::body_sha256;
use crate::namespace::Namespace;
use crate::stage::{CONGESTION, Progress, Stage};

pub(super) const PROOF: Proof = Proof {
    name: "upload",
    shows: "an upload over two unequal links reaches most of their sum",
    seconds: 25,
    run,
};

/// Of the sum of the links.
const AIM: f64 = 80.0;
const SEED: u64 = 3;
/// The default of TCP sockets, of each network namespace by itself.
const DEFAULT_CONGESTION: &str = "net.ipv4.tcp_congestion_control";

fn run(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let bytes = trial.either(16_000_000, 5_000_000);
    // In short, the start of TCP is a quarter of the time, and other tests run beside.
    let aim = trial.either(AIM, 65.0);
    let mut stage = Stage::build(trial.program, &network(&LINKS))?;
    stage.start([0, 1])?;
    let client = stage.topology().client();
    client.sysctl(&[(DEFAULT_CONGESTION, CONGESTION)])?;
    let used = default_congestion(client)?;

    trial.say(&format!("uploading {} MB over both links", bytes / 1_000_000));
    let curl = Curl { interface: None, limit: Some(Duration::from_secs(60)) };
    let upload = curl.upload(client, &stage.url(0, 0), bytes, SEED)?;
    let sum: u32 = LINKS.iter().map(|(mbps, _)| *mbps).sum();
    let complete = upload.bytes == bytes && upload.sha256 == body_sha256(bytes, SEED);
    Ok(vec![
        Finding::holds("TCP of the client's sockets", used == CONGESTION, used, CONGESTION),
        Finding::told("upload, seen by the server", upload.mbit, "Mbit/s"),
        Finding::at_least("upload, of the sum", 100.0 * upload.mbit / f64::from(sum), aim, "%"),
        Finding::holds("upload", complete, complete.to_string(), "sha256"),
        lateness(&stage)?,
    ])
}

fn default_congestion(namespace: &Namespace) -> Result<String, LabError> {
    let read = namespace
        .run(|| std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control"))?
        .map_err(LabError::io(DEFAULT_CONGESTION))?;
    Ok(read.trim().to_owned())
}
