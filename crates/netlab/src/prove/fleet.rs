//! Several proxies with one membership: what a client notices when one of them, or of the etcd behind them, is lost.

mod death;
mod demo;
mod drain;
mod partition;
mod registry;
mod scale;
mod travel;
mod trouble;

use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::address::SERVER_V4;
use crate::error::LabError;
use crate::fleet::Fleet;
use crate::ping::{Echo, Ping};
use crate::process::bound_to_parent;
use crate::stats::Percentiles;

use super::{Finding, Trial};

pub(super) use death::PROOF as DEATH;
pub(super) use demo::PROOF as DEMO;
pub(super) use drain::PROOF as DRAIN;
pub(super) use partition::PROOF as PARTITION;
pub(super) use registry::PROOF as REGISTRY;
pub(super) use scale::PROOF as SCALE;
pub(super) use travel::PROOF as TRAVEL;
pub(super) use trouble::PROOF as TROUBLE;

/// Clients of the proofs with many, at full length and in short.
const MANY: (usize, usize) = (50, 4);

/// A fleet that runs, and whose clients all joined the first proxy and use it.
fn running(trial: &Trial<'_>, proxies: usize, clients: usize) -> Result<Fleet, LabError> {
    running_with(trial, proxies, clients, 0)
}

/// The same, with so many clients more that have not joined yet.
fn running_with(
    trial: &Trial<'_>,
    proxies: usize,
    clients: usize,
    later: usize,
) -> Result<Fleet, LabError> {
    let mut fleet = Fleet::build(trial.program, proxies, clients + later)?;
    begin(trial, &mut fleet, proxies, clients)?;
    Ok(fleet)
}

/// Starts etcd and so many proxies of a fleet, and so many clients, which join the first proxy and use it.
fn begin(
    trial: &Trial<'_>,
    fleet: &mut Fleet,
    proxies: usize,
    clients: usize,
) -> Result<(), LabError> {
    (trial.say)(&format!("starting an etcd of 3 members, {proxies} proxies and {clients} clients"));
    fleet.start_with(proxies)?;
    for client in 0..clients {
        fleet.join(client, 0)?;
    }
    fleet.wait_up(0..clients)?;
    // The list of proxies came, too.
    fleet.wait("a list of proxies at each client", |fleet| {
        Ok((0..clients).all(|client| fleet.proxy_of(client).is_ok_and(|id| id == "p-0")))
    })
}

/// Pings the server from every client for a while, ten times a second, and does something beside.
fn beside_pings<T>(
    fleet: &mut Fleet,
    clients: usize,
    time: Duration,
    work: impl FnOnce(&mut Fleet) -> Result<T, LabError>,
) -> Result<(Vec<Vec<Echo>>, T), LabError> {
    let count = u32::try_from(time.as_millis() / 100).unwrap_or(u32::MAX);
    let ping = Ping::new(SERVER_V4.into(), count);
    let entries: Vec<_> =
        (0..clients).map(|client| fleet.network_of(client).entry()).collect::<Result<_, _>>()?;
    thread::scope(|scope| {
        let pinging: Vec<_> = entries
            .into_iter()
            .map(|entry| {
                let ping = ping.clone();
                scope.spawn(move || entry.enter().and_then(|()| ping.echoes_here()))
            })
            .collect();
        let done = work(fleet);
        let echoes = pinging
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        let echoes: Vec<Vec<Echo>> = echoes.collect::<Result<_, LabError>>()?;
        Ok((echoes, done?))
    })
}

/// The longest time between two answers, with the end of the series as one.
fn longest_gap(echoes: &[Echo]) -> Duration {
    let mut answered: Vec<Instant> = echoes.iter().filter_map(Echo::answered).collect();
    answered.sort_unstable();
    let end = echoes.last().map(|echo| echo.sent);
    answered.extend(end.filter(|end| answered.last().is_none_or(|last| end > last)));
    answered.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(Duration::MAX)
}

/// What clients noticed: the median and the 99th percentile of their longest gaps.
fn gaps(what: &str, echoes: &[Vec<Echo>], most: Duration) -> [Finding; 2] {
    let gaps = Percentiles::of(echoes.iter().map(|echoes| longest_gap(echoes)).collect());
    let most_ms = most.as_secs_f64() * 1e3;
    [
        Finding::told(
            format!("{what}: longest gap in a client's pings, median"),
            gaps.p50_ms,
            "ms",
        ),
        Finding::at_most(
            format!("{what}: longest gap in a client's pings, 99th percentile"),
            gaps.p99_ms,
            most_ms,
            "ms",
        ),
    ]
}

/// Bytes a second of a download that is to last.
const DOWNLOAD_BYTES_PER_SECOND: u64 = 500_000;

/// Clients that download.
const DOWNLOADS: usize = 5;

/// Begins downloads that last so long; each says how many bytes came.
fn downloads(fleet: &Fleet, clients: usize, time: Duration) -> Result<(Vec<Child>, u64), LabError> {
    let bytes = DOWNLOAD_BYTES_PER_SECOND * time.as_secs();
    let url = fleet.url(bytes, 1);
    let begin = |client| {
        let mut curl = bound_to_parent("curl");
        curl.args(["--silent", "--output", "/dev/null", "--write-out", "%{size_download}"]);
        curl.args(["--limit-rate", &DOWNLOAD_BYTES_PER_SECOND.to_string(), &url]);
        curl.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        fleet.network_of(client).spawn(curl)
    };
    let begun = (0..clients.min(DOWNLOADS)).map(begin).collect::<Result<_, _>>()?;
    Ok((begun, bytes))
}

/// Whether an invitation can be given.
fn invites(fleet: &Fleet, at: usize, name: &str) -> Result<(), String> {
    fleet.ask(at, &["peer", "add", name]).map(|_| ()).map_err(|error| error.to_string())
}

/// So many as a figure.
#[expect(clippy::cast_precision_loss, reason = "a few clients")]
const fn figure(count: usize) -> f64 {
    count as f64
}
