//! New keys every second under load, over links whose delays are far apart and that lose packets: no
//! datagram is lost by it.

use std::thread;
use std::time::Duration;

use super::{Finding, Proof, Trial, arrived, lateness, network};
use crate::download::Curl;
use crate::error::LabError;
use crate::loss::Loss;
use crate::stage::{Progress, Stage};
use crate::status::Status;

pub(super) const PROOF: Proof = Proof {
    name: "rekey",
    shows: "new keys every second under load on links of 10 and 300 ms with 2 % loss lose nothing",
    seconds: 45,
    run,
};

/// Mbit/s and round-trip milliseconds.
const LINKS: [(u32, u64); 2] = [(10, 10), (10, 300)];
const LOSS: f64 = 0.02;
const SEED: u64 = 6;
/// The UDP stream that keeps both links busy whatever TCP makes of the loss.
const STREAM_BITS: u64 = 3_000_000;
/// What a datagram is dropped for when its key is gone, wrong, or its number seen.
const REASONS: [&str; 5] =
    ["key_phase_unknown", "replayed", "older_than_replay_window", "not_authentic", "key_worn_out"];

fn run(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let (bytes, seconds) = trial.either((4_000_000, 25), (500_000, 6));
    let mut config = network(&LINKS);
    for access in config.wans.iter_mut().filter_map(|wan| wan.access.as_mut()) {
        for conditions in [&mut access.upstream, &mut access.downstream] {
            conditions.loss = Loss::Bernoulli(LOSS);
        }
    }
    let mut stage = Stage::build(trial.program, &config)?;
    let often = toml::Table::from_iter([("rekey_after".to_owned(), "1s".into())]);
    stage.deployment().proxy_config().insert("tunnel".into(), often.clone().into());
    stage.deployment().client_config(0).insert("tunnel".into(), often.into());
    stage.start([0, 1])?;
    let mtu = stage.settled_mtu()?;

    trial.say("a download and a UDP stream, new keys every second");
    let curl = Curl { interface: None, limit: Some(Duration::from_secs(120)) };
    let (url, client) = (stage.url(bytes, SEED), stage.topology().client());
    let (download, stream) = thread::scope(|scope| {
        let download = scope.spawn(|| curl.download(client, &url, |_| {}));
        let stream = stage.stream_down(STREAM_BITS, mtu, Duration::from_secs(seconds));
        (download.join(), stream)
    });
    let download = download.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let stream = stream?;
    let (client, proxy) = (stage.client_status()?, stage.proxy_status()?);
    #[expect(clippy::cast_precision_loss, reason = "small counts")]
    let count = |value: u64| value as f64;
    let dropped = |status: &Status| count(status.drops(&REASONS));
    Ok(vec![
        arrived("download", &download, bytes, SEED),
        Finding::told("download", download.mbit, "Mbit/s"),
        Finding::at_least("rekeys", count(client.rekeys()), count(seconds) / 2.0, ""),
        Finding::at_most("dropped by the client for key or number", dropped(&client), 0.0, ""),
        Finding::at_most("dropped by the proxy for key or number", dropped(&proxy), 0.0, ""),
        Finding::told("UDP stream lost", 100.0 * count(stream.lost) / count(stream.sent), "%"),
        Finding::told(
            "dropped by the proxy for want of room",
            count(proxy.drops(&["queue_full", "queue_timeout"])),
            "packets",
        ),
        lateness(&stage)?,
    ])
}
