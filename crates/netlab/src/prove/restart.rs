//! The proxy restarted in the middle of a download, asked to end and killed: the tunnel comes back by itself, and inner addresses
//! survive. So do connections, but for one case: whoever is killed takes with it what it had acknowledged to senders of TCP
//! (docs/TCP.md). With `acknowledge = "end-to-end"` they survive that, too.

use std::thread;
use std::time::{Duration, Instant};

use super::{Finding, Proof, Trial, arrived, lateness, network};
use crate::address::SERVER_V4;
use crate::demo::LINKS;
use crate::download::Curl;
use crate::error::LabError;
use crate::ping::{Echo, Ping};
use crate::stage::{Progress, Stage};

pub(super) const PROOF: Proof = Proof {
    name: "restart",
    shows: "the proxy restarted and killed in mid-download: pings pass soon; the download goes on, after a kill with end-to-end acknowledgements",
    seconds: 60,
    run,
};

/// How soon after its end a ping passes through the one started at once.
const AIM: Duration = Duration::from_secs(3);
/// The download before the restart.
const BEFORE: Duration = Duration::from_secs(2);
/// About 10 s without a restart.
const BYTES: u64 = 10_000_000;
const SEED: u64 = 5;
const LIMIT: Duration = Duration::from_secs(60);
/// Echoes for the time in which the ping must pass again, and well beyond.
const ECHOES: u32 = 150;

fn run(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let bytes = trial.either(BYTES, BYTES / 2);
    let mut stage = Stage::build(trial.program, &network(&LINKS))?;
    stage.start([0, 1])?;
    let mut findings = Vec::new();
    findings.extend(restart(&mut stage, "asked to end", false, bytes, trial)?);
    let tunnel = toml::Table::from_iter([("acknowledge".to_owned(), "end-to-end".into())]);
    stage.deployment().proxy_config().insert("tunnel".into(), tunnel.into());
    stage.deployment().stop_proxy()?;
    stage.start([0, 1])?;
    findings.extend(restart(&mut stage, "end to end, killed", true, bytes, trial)?);
    findings.push(lateness(&stage)?);
    Ok(findings)
}

fn restart(
    stage: &mut Stage,
    what: &str,
    kill: bool,
    bytes: u64,
    trial: &Trial<'_>,
) -> Result<Vec<Finding>, LabError> {
    trial.say(&format!("the proxy is {what} in mid-download"));
    let url = stage.url(bytes, SEED);
    let curl = Curl { interface: None, limit: Some(LIMIT) };
    let ping = Ping::new(SERVER_V4.into(), ECHOES);
    let (deployment, topology) = stage.split();
    let (download, echoes, gone) = thread::scope(|scope| {
        let download = scope.spawn(|| curl.download(topology.client(), &url, |_| {}));
        let pinging = scope.spawn(|| ping.echoes(topology.client()));
        thread::sleep(BEFORE);
        let gone = end_and_start(deployment, topology, kill);
        (download.join(), pinging.join(), gone)
    });
    let download = download.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let echoes = echoes.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let passed = first_answer(&echoes, gone?).map_or(f64::INFINITY, |time| time.as_secs_f64());
    Ok(vec![
        Finding::at_most(format!("{what}: a ping passes after"), passed, AIM.as_secs_f64(), "s"),
        arrived(format!("{what}: the same download"), &download, bytes, SEED),
        Finding::told(format!("{what}: longest stall"), download.longest_stall_ms, "ms"),
    ])
}

/// Returns when the old process was gone.
fn end_and_start(
    deployment: &mut crate::deployment::Deployment,
    topology: &crate::topology::Topology,
    kill: bool,
) -> Result<Instant, LabError> {
    if kill {
        if let Some(proxy) = deployment.proxy() {
            proxy.kill();
        }
    } else {
        deployment.stop_proxy()?;
    }
    let gone = Instant::now();
    deployment.start_proxy(topology)?;
    Ok(gone)
}

/// How long after `gone` the first echo was answered that was sent after it.
fn first_answer(echoes: &[Echo], gone: Instant) -> Option<Duration> {
    let later = echoes.iter().filter(|echo| echo.sent >= gone);
    later.filter_map(Echo::answered).min().map(|answered| answered - gone)
}
