//! What one link carries by UDP and over TLS (docs/TLS.md), with and without loss, and what that costs: the figures beside
//! which somebody decides whether a link over TLS is of use.

use std::thread;
use std::time::{Duration, Instant};

use super::look::{access, until};
use super::{Finding, Proof, Trial, lateness};
use crate::address::{SERVER_V4, client_interface};
use crate::download::Download;
use crate::error::LabError;
use crate::loss::Loss;
use crate::netem::Conditions;
use crate::ping::{Ping, Pinged};
use crate::process::Usage;
use crate::stage::{Progress, Stage};
use crate::stats::Percentiles;
use crate::status::Status;
use crate::topology::{TopologyConfig, WanConfig};

pub(super) const PROOF: Proof = Proof {
    name: "tls-link",
    shows: "what a link carries by UDP and over TLS, with and without loss, and what that costs",
    seconds: 290,
    run,
};

/// The link: Mbit/s and round-trip milliseconds.
const RATE: u64 = 20;
const RTT_MS: u64 = 20;
/// What is lost on it at random, of the packets of each direction.
const LOST: [f64; 2] = [0.0, 0.01];

/// What the server's TCP uses, inside the tunnel.
const INNER: [&str; 2] = ["cubic", "bbr"];

/// Of the link's rate a download over TLS has at least so many percent, at full length and in short, where the start of
/// TCP weighs more and other tests run beside.
const CLEAN_AIM: [f64; 2] = [60.0, 40.0];
/// The same with loss, where TCP below the tunnel uses BBR.
const LOSSY_AIM: [f64; 2] = [40.0, 20.0];
/// And where it does not: cubic takes each loss for congestion.
const LOSSY_CUBIC_AIM: [f64; 2] = [10.0, 3.0];
/// Within so many seconds a client is connected where UDP is dropped: it waits for UDP for four of them.
const CONNECT_AIM: [f64; 2] = [6.5, 15.0];
/// One that takes longer to connect has failed.
const CONNECT_WITHIN: Duration = Duration::from_secs(30);

const SEED: u64 = 5;
/// From one echo to the next.
const SPACING: Duration = Duration::from_millis(100);

/// How the link goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Udp,
    Tls,
}

impl Way {
    const ALL: [Self; 2] = [Self::Udp, Self::Tls];

    const fn name(self) -> &'static str {
        match self {
            Self::Udp => "UDP",
            Self::Tls => "TLS",
        }
    }

    /// Connects the client by this way, and waits until full packets pass.
    fn connect(self, stage: &mut Stage) -> Result<(), LabError> {
        let word = if self == Self::Tls { "always" } else { "never" };
        set_tls(stage, word);
        let status = stage.connect([0])?;
        if is_over_tls(&status) != (self == Self::Tls) {
            let name = self.name();
            return Err(LabError::Unsupported(format!("the link does not go by {name}")));
        }
        stage.settled_mtu()?;
        Ok(())
    }
}

fn run(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let (time, fast_time) = trial.either((20, 15), (4, 3));
    let time = Duration::from_secs(time);
    let mut stage = build(trial, access(RATE, RTT_MS))?;
    let mut findings = Vec::new();
    for way in Way::ALL {
        way.connect(&mut stage)?;
        let outer = outer_congestion(&stage)?;
        if way == Way::Tls {
            findings.push(Finding::holds("TCP below the tunnel", true, &*outer, ""));
        }
        for lost in LOST {
            lose(&stage, lost)?;
            for inner in INNER.into_iter().take(trial.either(2, 1)) {
                let what = format!("{}, {:.0} % lost, {inner}", way.name(), 100.0 * lost);
                let carried = Carried::measure(&mut stage, inner, time, &what, trial)?;
                findings.extend(carried.findings(&what, inner));
                if way == Way::Tls && carried.is_of(inner) {
                    let aim = match (lost > 0.0, outer.contains("bbr")) {
                        (false, _) => CLEAN_AIM,
                        (true, true) => LOSSY_AIM,
                        (true, false) => LOSSY_CUBIC_AIM,
                    };
                    let share = 100.0 * carried.download.mbit / RATE as f64;
                    let aim = trial.either(aim[0], aim[1]);
                    let what = format!("{what}: of the link's rate");
                    findings.push(Finding::at_least(what, share, aim, "%"));
                }
            }
        }
        lose(&stage, 0.0)?;
    }
    findings.extend(connect_times(&mut stage, trial)?);
    findings.push(lateness(&stage)?);
    drop(stage);

    let mut stage = build(trial, WanConfig::default())?;
    for way in Way::ALL {
        way.connect(&mut stage)?;
        let what = format!("{}, no limit but this machine", way.name());
        let time = Duration::from_secs(fast_time);
        let carried = Carried::measure(&mut stage, "cubic", time, &what, trial)?;
        findings.extend(carried.findings(&what, "cubic"));
    }
    Ok(findings)
}

/// A client with one link, and a proxy that takes it over TLS, too.
fn build(trial: &Trial<'_>, wan: WanConfig) -> Result<Stage, LabError> {
    let mut stage = Stage::build(trial.program, &TopologyConfig::new(vec![wan]))?;
    stage.deployment.proxy_config().insert("tls".into(), toml::Table::new().into());
    stage.start_proxy()?;
    Ok(stage)
}

/// The client uses TLS by this word, from its next start on.
fn set_tls(stage: &mut Stage, word: &str) {
    if let Some(proxy) = stage.deployment.client_config(0)["proxy"].as_table_mut() {
        proxy.insert("tls".into(), word.into());
    }
}

fn is_over_tls(status: &Status) -> bool {
    status.link(&client_interface(0)).is_some_and(|link| link["over_tls"] == true)
}

/// Both directions of the link lose this share of their packets.
fn lose(stage: &Stage, share: f64) -> Result<(), LabError> {
    let loss = if share > 0.0 { Loss::Bernoulli(share) } else { Loss::None };
    stage.topology.change_both(0, 0, move |conditions: &mut Conditions| conditions.loss = loss)
}

/// The congestion control of the proxy's connections over TLS, as its kernel says; nothing where it has none.
fn outer_congestion(stage: &Stage) -> Result<String, LabError> {
    let sockets = stage.topology.proxy().tool("ss", &["-Htin", "sport", "=", ":443"])?;
    let known = ["bbr", "cubic", "reno"];
    let used = sockets.split_whitespace().filter(|word| known.contains(word));
    Ok(used.collect::<Vec<_>>().join(" "))
}

/// A download and what it was like.
struct Carried {
    download: Download,
    /// Beside it.
    pinged: Pinged,
    /// Processor time of the client and of the proxy, in seconds.
    cpu: [f64; 2],
}

impl Carried {
    /// Downloads for so long, from a server with this congestion control.
    fn measure(
        stage: &mut Stage,
        congestion: &str,
        time: Duration,
        what: &str,
        trial: &Trial<'_>,
    ) -> Result<Self, LabError> {
        let url = stage.url_using(congestion, u64::MAX, SEED);
        let echoes = u32::try_from(time.as_millis() / SPACING.as_millis()).unwrap_or(u32::MAX);
        let ping = Ping { interval: SPACING, ..Ping::new(SERVER_V4.into(), echoes) };
        let before = cpu(stage);
        let client = stage.topology.client();
        let (download, pinged) = thread::scope(|scope| {
            let pinging = scope.spawn(move || ping.run(client));
            let download = stage.fetch(&url, time, what, trial);
            (download, pinging.join())
        });
        let pinged = pinged.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let after = cpu(stage);
        let cpu = [after[0] - before[0], after[1] - before[1]];
        Ok(Self { download: download?, pinged, cpu })
    }

    /// Whether the server's kernel let its TCP use that.
    fn is_of(&self, congestion: &str) -> bool {
        self.download.congestion_control.as_deref() == Some(congestion)
    }

    fn findings(&self, what: &str, congestion: &str) -> Vec<Finding> {
        let Self { download, pinged, cpu } = self;
        if !self.is_of(congestion) {
            return vec![Finding::not_here(what, &format!("a kernel with {congestion}"))];
        }
        let gigabytes = download.bytes as f64 / 1e9;
        let [client, proxy] = cpu.map(|seconds| seconds / gigabytes);
        vec![
            Finding::told(format!("{what}: download"), download.mbit, "Mbit/s"),
            Finding::told(format!("{what}: ping beside it, median"), pinged.rtt.p50_ms, "ms"),
            Finding::told(format!("{what}: ping beside it, 95 %"), pinged.rtt.p95_ms, "ms"),
            Finding::told(format!("{what}: echoes lost"), pinged.lost as f64, ""),
            Finding::told(format!("{what}: processor time of the client"), client, "s/GB"),
            Finding::told(format!("{what}: processor time of the proxy"), proxy, "s/GB"),
        ]
    }
}

/// What client and proxy have used so far, in seconds.
fn cpu(stage: &mut Stage) -> [f64; 2] {
    let deployment = &mut stage.deployment;
    let client = deployment.client(0).map(|client| Usage::of(client)).unwrap_or_default();
    let proxy = deployment.proxy().map(|proxy| Usage::of(proxy)).unwrap_or_default();
    [client.cpu_seconds, proxy.cpu_seconds]
}

/// How long a client that starts takes until packets pass, where UDP does and where it is dropped.
fn connect_times(stage: &mut Stage, trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    set_tls(stage, "auto");
    let runs = trial.runs_or(trial.either(5, 1));
    let by_udp = times_to_connect(stage, Way::Udp, runs)?;
    let script = "table inet block { chain forward { type filter hook forward priority 0;\n\
                  meta l4proto udp drop\n}\n}";
    stage.topology.routers()[0].namespace().nft(script)?;
    trial.say("UDP is dropped on the way");
    let over_tls = times_to_connect(stage, Way::Tls, runs)?;
    let seconds = |ms: f64| ms / 1e3;
    let aim = trial.either(CONNECT_AIM[0], CONNECT_AIM[1]);
    Ok(vec![
        Finding::told("connected by UDP, median", seconds(by_udp.p50_ms), "s"),
        Finding::told("connected where UDP is dropped, median", seconds(over_tls.p50_ms), "s"),
        Finding::at_most("the same, longest", seconds(over_tls.max_ms), aim, "s"),
    ])
}

/// So many starts of the client, each until packets pass by this way.
fn times_to_connect(stage: &mut Stage, way: Way, runs: u32) -> Result<Percentiles, LabError> {
    let mut times = Vec::new();
    for _ in 0..runs {
        stage.deployment.stop_client(0)?;
        let begun = Instant::now();
        stage.deployment.start_client(&stage.topology, 0)?;
        let is_up = || {
            let Ok(status) = stage.client_status() else { return false };
            status.tunnel()["state"] == "up" && is_over_tls(&status) == (way == Way::Tls)
        };
        if until(CONNECT_WITHIN, is_up).is_none() {
            return Err(LabError::TooLate {
                what: format!("a link by {}", way.name()),
                seconds: CONNECT_WITHIN.as_secs_f64(),
                detail: String::new(),
            });
        }
        times.push(begun.elapsed());
    }
    Ok(Percentiles::of(times))
}
