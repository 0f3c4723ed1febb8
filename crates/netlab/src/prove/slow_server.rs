//! An upload to a server whose own access is slower than the links: it has what that access carries, and does not wait in front
//! of it for longer than without the tunnel.

use std::thread;
use std::time::Duration;

use ropewalk_settings::Bitrate;

use super::{Finding, Proof, Trial, lateness, network};
use crate::address::{SERVER_V4, client_interface};
use crate::demo::LINKS;
use crate::download::Curl;
use crate::error::LabError;
use crate::http::{Upload, body_sha256};
use crate::limit::{TCP_HEADERS, bare_payload_share};
use crate::ping::{Ping, Pinged};
use crate::stage::{Progress, Stage};

pub(super) const PROOF: Proof = Proof {
    name: "slow-server",
    shows: "an upload to a slow server has what its access carries, and waits no longer in front of it",
    seconds: 60,
    run,
};

/// What the server's access carries: less than the first link alone.
const ACCESS_MBPS: u64 = 3;
/// What may wait in front of it, as in many such places: a second's worth.
const QUEUE: Duration = Duration::from_secs(1);
/// Of what the same upload gets over the first link alone.
const AIM: f64 = 95.0;
const SEED: u64 = 5;
/// From when on the round trips count: the bound is found after some of them.
const START: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(90);

fn run(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let (bytes, aim) = trial.either((8_000_000, AIM), (3_000_000, 85.0));
    let mut stage = Stage::build(trial.program, &network(&LINKS))?;
    stage.start([0, 1])?;
    stage.settled_mtu()?;
    stage.route_uploads_through_cubic()?;
    stage.topology().limit_server(Bitrate::from_mbps(ACCESS_MBPS), QUEUE)?;

    trial.say("uploading over the first link alone, past the tunnel");
    let (alone, waits_alone) = upload(&stage, Some(client_interface(0)), bytes)?;
    trial.say("uploading through the tunnel");
    let (inside, waits) = upload(&stage, None, bytes)?;
    let possible = ACCESS_MBPS as f64 * bare_payload_share(TCP_HEADERS);
    let whole = inside.bytes == bytes && inside.sha256 == body_sha256(bytes, SEED);
    Ok(vec![
        Finding::told("upload over the first link alone", alone.mbit, "Mbit/s"),
        Finding::told("upload through the tunnel", inside.mbit, "Mbit/s"),
        Finding::told(
            format!("upload through the tunnel, of the {possible:.2} possible"),
            100.0 * inside.mbit / possible,
            "%",
        ),
        Finding::at_least(
            "upload through the tunnel, of that alone",
            100.0 * inside.mbit / alone.mbit,
            aim,
            "%",
        ),
        Finding::told("ping beside the upload alone, median", waits_alone.rtt.p50_ms, "ms"),
        Finding::at_most(
            "ping beside the upload through the tunnel, median",
            waits.rtt.p50_ms,
            waits_alone.rtt.p50_ms,
            "ms",
        ),
        Finding::holds("upload", whole, whole.to_string(), "sha256"),
        lateness(&stage)?,
    ])
}

/// An upload to the server, and a ping beside it after its start.
fn upload(
    stage: &Stage,
    interface: Option<String>,
    bytes: u64,
) -> Result<(Upload, Pinged), LabError> {
    let client = stage.topology().client();
    let lasts = Duration::from_secs(bytes * 8 / (ACCESS_MBPS * 1_000_000));
    let count = u32::try_from(lasts.saturating_sub(START).as_millis() / 100).unwrap_or(u32::MAX);
    let ping = Ping { interface: interface.clone(), ..Ping::new(SERVER_V4.into(), count) };
    let curl = Curl { interface, limit: Some(PATIENCE) };
    let (upload, pinged) = thread::scope(|scope| {
        let pinging = scope.spawn(|| {
            thread::sleep(START);
            ping.run(client)
        });
        (curl.upload(client, &stage.url(0, 0), bytes, SEED), pinging.join())
    });
    let pinged = pinged.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    Ok((upload?, pinged))
}
