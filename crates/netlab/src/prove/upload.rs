//! An upload over both links: the sum is there in the other direction too.

use std::thread;
use std::time::Duration;

use super::{Finding, Proof, Trial, lateness, network};
use crate::demo::LINKS;
use crate::download::Curl;
use crate::error::LabError;
use crate::http::body_sha256;
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
/// By then the connection exists, and the upload is far from its end.
const BEFORE_LOOK: Duration = Duration::from_secs(2);

fn run(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let bytes = trial.either(16_000_000, 5_000_000);
    // In short, the start of TCP is a quarter of the time, and other tests run beside.
    let aim = trial.either(AIM, 65.0);
    let mut stage = Stage::build(trial.program, &network(&LINKS))?;
    stage.start([0, 1])?;
    stage.route_uploads_through(CONGESTION, false)?;
    let client = stage.topology().client();

    trial.say(&format!("uploading {} MB over both links", bytes / 1_000_000));
    let curl = Curl { interface: None, limit: Some(Duration::from_secs(60)) };
    let url = stage.url(0, 0);
    let (upload, used) = thread::scope(|scope| {
        let used = scope.spawn(|| {
            thread::sleep(BEFORE_LOOK);
            stage.uploads_use()
        });
        (curl.upload(client, &url, bytes, SEED), used.join())
    });
    let upload = upload?;
    let used = used.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let sum: u32 = LINKS.iter().map(|(mbps, _)| *mbps).sum();
    let complete = upload.bytes == bytes && upload.sha256 == body_sha256(bytes, SEED);
    Ok(vec![
        Finding::holds("TCP of curl's socket", used == CONGESTION, used, CONGESTION),
        Finding::told("upload, seen by the server", upload.mbit, "Mbit/s"),
        Finding::at_least("upload, of the sum", 100.0 * upload.mbit / f64::from(sum), aim, "%"),
        Finding::holds("upload", complete, complete.to_string(), "sha256"),
        lateness(&stage)?,
    ])
}
