//! What several proofs do: download, wait, and read the few fields of the status document that they are
//! about.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use ropewalk_settings::Bitrate;

use crate::access::Access;
use crate::demo::QUEUE;
use crate::download::{Curl, Download};
use crate::error::LabError;
use crate::stage::Stage;
use crate::topology::WanConfig;

/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(20);
/// A download that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(90);

/// An access link with this rate and round-trip time.
pub(super) fn access(mbps: u64, rtt_ms: u64) -> WanConfig {
    let rtt = Duration::from_millis(rtt_ms);
    Access::symmetric(Bitrate::from_mbps(mbps), rtt, QUEUE).into()
}

impl Stage {
    /// Downloads over IPv4 in the first client's namespace, without telling the progress.
    pub(super) fn get(&self, bytes: u64, seed: u64) -> Result<Download, LabError> {
        patient().download(self.topology.client(), &self.url(bytes, seed), |_| {})
    }

    /// The same over IPv6.
    pub(super) fn get_v6(&self, bytes: u64, seed: u64) -> Result<Download, LabError> {
        let url = self.url_v6(bytes, seed);
        let url = url.ok_or_else(|| LabError::Unsupported("no IPv6 here".into()))?;
        patient().download(self.topology.client(), &url, |_| {})
    }
}

/// A curl that gives up in time.
pub(super) const fn patient() -> Curl {
    Curl { interface: None, limit: Some(PATIENCE) }
}

/// What the proxy's status says that its firewall turned away, once the count stands still: who asks has it read, for the next
/// who asks.
pub(super) fn turned_away(stage: &Stage, what: &str) -> Result<f64, LabError> {
    const READ_AGAIN: Duration = Duration::from_secs(2);
    thread::sleep(READ_AGAIN);
    stage.deployment.proxy_status()?;
    thread::sleep(READ_AGAIN);
    let status = stage.deployment.proxy_status()?;
    status["proxy"]["turned_away"][what]
        .as_f64()
        .ok_or_else(|| LabError::Malformed { what: "the proxy's status", text: status.to_string() })
}

/// Waits until `ready` holds, and says how long that took; `None` where it did not within `within`.
pub(super) fn until(within: Duration, mut ready: impl FnMut() -> bool) -> Option<Duration> {
    let started = Instant::now();
    loop {
        if ready() {
            return Some(started.elapsed());
        }
        if started.elapsed() > within {
            return None;
        }
        thread::sleep(POLL);
    }
}

/// A time in milliseconds, for a finding.
pub(super) const fn ms(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e3
}

/// The link of this name in the first tunnel; `Null` if there is none.
pub(super) fn link<'a>(status: &'a Value, name: &str) -> &'a Value {
    let links = status["tunnels"][0]["links"].as_array();
    links.and_then(|all| all.iter().find(|link| link["name"] == name)).unwrap_or(&Value::Null)
}

/// The client's IPv4 address inside the tunnel.
pub(super) fn inner_v4(status: &Value) -> Result<Ipv4Addr, LabError> {
    inner(status, "inner_v4")
}

/// The client's IPv6 address inside the tunnel.
pub(super) fn inner_v6(status: &Value) -> Result<Ipv6Addr, LabError> {
    inner(status, "inner_v6")
}

fn inner<T: std::str::FromStr>(status: &Value, field: &str) -> Result<T, LabError> {
    let text = &status["tunnels"][0][field];
    text.as_str().and_then(|text| text.parse().ok()).ok_or_else(|| LabError::Malformed {
        what: "an inner address in the status",
        text: text.to_string(),
    })
}

/// Everything that a daemon dropped, by reason: before it knew the tunnel, and in all tunnels.
pub(super) fn drops(status: &Value) -> BTreeMap<String, u64> {
    let tunnels = status["tunnels"].as_array().into_iter().flatten();
    let tables = std::iter::once(&status["drops"]).chain(tunnels.map(|tunnel| &tunnel["drops"]));
    let mut sum = BTreeMap::new();
    for (reason, count) in tables.filter_map(Value::as_object).flatten() {
        *sum.entry(reason.clone()).or_default() += count.as_u64().unwrap_or_default();
    }
    sum
}

/// How often one reason applied.
pub(super) fn dropped(status: &Value, reason: &str) -> u64 {
    drops(status).get(reason).copied().unwrap_or_default()
}
