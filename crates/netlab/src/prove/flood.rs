//! A flood of first messages from invented addresses, by one who knows the proxy's public key: new clients get in, and
//! those that are in keep their rate.

use std::net::SocketAddrV4;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use ropewalk_proto::crypto::mac::HelloMac;
use ropewalk_proto::units::SessionIndex;
use ropewalk_proto::wire::hello::{FIRST_LEN, Hello, HelloKind, VERSION, envelope, set_mac};
use ropewalk_settings::PublicKey;

use super::look::{access, dropped, ms};
use super::{Finding, Proof, Trial};
use crate::address::{PROXY_V4, UPLINK};
use crate::deployment::PROXY_PORT;
use crate::error::LabError;
use crate::flood::Flood;
use crate::stage::{Progress, Stage};
use crate::topology::TopologyConfig;

/// First messages with a right mac, and with a wrong one.
pub(super) const FLOOD: Proof = Proof {
    name: "flood",
    shows: "a flood of spoofed first messages keeps nobody out and slows nobody down",
    seconds: 150,
    run,
};

/// Different datagrams of a flood, each from an address of its own.
const DATAGRAMS: u32 = 32_768;
/// Addresses of RFC 2544, which nobody has here: answers to them go nowhere.
const SPOOFED: [u8; 2] = [198, 19];
/// What the flood has before anything is measured, so that what the proxy grants at once is used up.
const BEFORE: Duration = Duration::from_secs(3);
/// A new client may take this long.
const SOON: Duration = Duration::from_secs(2);
/// A client that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often a new client is looked at.
const POLL: Duration = Duration::from_millis(20);
/// Of the goodput without a flood, what must be left: on a machine that does nothing else, and in a test beside other work.
const KEPT: [f64; 2] = [0.95, 0.5];
/// Of the rate that is meant, what the flood must reach, in the same two cases.
const FULL: [f64; 2] = [0.9, 0.5];
/// First messages without a cookie that a worker decrypts in a second under a flood: 100, and some that had one.
const DECRYPTED: f64 = 150.0;

/// What the flood consists of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// First messages with a right mac and nothing behind it.
    FirstMessages,
    /// The same with a wrong mac.
    WrongMac,
}

fn run(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let config =
        TopologyConfig { clients: 2, ..TopologyConfig::new(vec![access(20, 20), access(20, 20)]) };
    let mut stage = Stage::build(trial.program, &config)?;
    let [a, b] = SPOOFED;
    stage.topology.internet().ip(&format!("route add blackhole {a}.{b}.0.0/16"))?;
    stage.start([0, 1])?;
    let seconds = trial.either(8, 3);
    // 40 Mbit/s, less the headers.
    let bytes = seconds * 4_500_000;
    let before = stage.get(bytes, 1)?.mbit;
    let mut findings = vec![Finding::at_least("download without a flood", before, 25.0, "Mbit/s")];
    let kinds: &[(u32, Kind)] = trial.either(
        &[(20_000, Kind::FirstMessages), (100_000, Kind::FirstMessages), (100_000, Kind::WrongMac)],
        &[(40_000, Kind::FirstMessages)],
    );
    for (rate, kind) in kinds {
        let starts = trial.runs.unwrap_or(trial.either(8, 4));
        findings.extend(under(&mut stage, trial, (*rate, *kind), starts, (bytes, before))?);
    }
    Ok(findings)
}

/// What the network has to offer under one flood: to a new client, so many times, and to one that downloads.
fn under(
    stage: &mut Stage,
    trial: &Trial<'_>,
    (rate, kind): (u32, Kind),
    starts: u32,
    (bytes, before): (u64, f64),
) -> Result<Vec<Finding>, LabError> {
    let flood = flood(stage, rate, kind)?;
    let (end, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let what = match kind {
        Kind::FirstMessages => format!("{rate} first messages a second"),
        Kind::WrongMac => format!("{rate} wrong macs a second"),
    };
    let internet = stage.topology.internet();
    let (deployment, topology) = (&mut stage.deployment, &stage.topology);
    let url = stage.server.url(bytes, 2);
    let started = Instant::now();
    let (flooded, measured) = thread::scope(|scope| {
        let flooding = scope.spawn(|| flood.run(internet, &end, &sent));
        let measured = (|| -> Result<_, LabError> {
            thread::sleep(BEFORE);
            let (measured, first) = (Instant::now(), deployment.proxy_status()?);
            let download = super::look::patient().download(topology.client(), &url, |_| {})?;
            let mut took = Vec::new();
            for _ in 0..starts {
                let began = Instant::now();
                deployment.start_client(topology, 1)?;
                let up = super::look::until(PATIENCE, || {
                    thread::sleep(POLL);
                    let status = deployment.client_status(1).unwrap_or_default();
                    status["tunnels"][0]["state"] == "up"
                });
                let told = up.map_or("not at all".into(), |_| format!("{:.2?}", began.elapsed()));
                trial.say(&format!("{what}: a new client was in after: {told}"));
                took.push(up.map_or(PATIENCE, |_| began.elapsed()));
                deployment.stop_client(1)?;
            }
            let last = deployment.proxy_status()?;
            let [first, last] =
                [first, last].map(|status| dropped(&status, "handshake_not_authentic"));
            Ok((download, took, (last - first) as f64 / measured.elapsed().as_secs_f64()))
        })();
        end.store(true, Ordering::Relaxed);
        let flooded = flooding.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (flooded, measured)
    });
    flooded?;
    let (download, mut took, decrypted) = measured?;
    let reached = sent.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64();
    took.sort_unstable();
    let worst = took.last().copied().unwrap_or(PATIENCE);
    let middle = took.get(took.len() / 2).copied().unwrap_or(PATIENCE);
    let ratio = download.mbit / before;
    let [kept, full] = [KEPT, FULL].map(|[alone, busy]| trial.either(alone, busy));
    // As many workers as cores.
    let workers = thread::available_parallelism().map_or(1, NonZero::get) as f64;
    Ok(vec![
        Finding::at_least(format!("{what}: sent a second"), reached, full * f64::from(rate), ""),
        Finding::at_most(format!("{what}: decrypted"), decrypted, DECRYPTED * workers, "a second"),
        Finding::at_least(format!("{what}: goodput, of that without"), ratio, kept, ""),
        Finding::holds(
            format!("{what}: the download"),
            download.complete,
            download.message,
            "complete",
        ),
        Finding::at_most(format!("{what}: a new client, median"), ms(middle), ms(SOON), "ms"),
        Finding::at_most(format!("{what}: a new client, longest"), ms(worst), ms(SOON), "ms"),
    ])
}

fn flood(stage: &mut Stage, rate: u32, kind: Kind) -> Result<Flood, LabError> {
    let key = stage.deployment.client_config(0)["proxy"]["public_key"].clone();
    let malformed = || LabError::Malformed { what: "the proxy's key", text: key.to_string() };
    let key: PublicKey = key.as_str().and_then(|key| key.parse().ok()).ok_or_else(malformed)?;
    let mac = HelloMac::new(&key);
    let mut rng = StdRng::seed_from_u64(71);
    let datagrams = (0..DATAGRAMS)
        .map(|_| {
            let mut datagram =
                envelope(HelloKind::First, VERSION, SessionIndex::new(rng.next_u32()));
            let body = datagram.len();
            datagram.resize(FIRST_LEN, 0);
            rng.fill_bytes(&mut datagram[body..]);
            let sum = Hello::parse(&datagram).map(|hello| mac.first(&hello)).unwrap_or_default();
            if kind == Kind::FirstMessages {
                set_mac(&mut datagram, &sum);
            }
            datagram
        })
        .collect();
    let link = stage.topology.proxy().tool("ip", &["-o", "link", "show", "dev", UPLINK])?;
    let hardware = link.split_once("link/ether ").and_then(|(_, rest)| hardware(rest.get(..17)?));
    let hardware =
        hardware.ok_or(LabError::Malformed { what: "the output of `ip link`", text: link })?;
    Ok(Flood {
        interface: "proxy".into(),
        hardware,
        to: SocketAddrV4::new(PROXY_V4, PROXY_PORT),
        from: SPOOFED,
        datagrams,
        rate,
    })
}

fn hardware(text: &str) -> Option<[u8; 6]> {
    let octets: Option<Vec<u8>> =
        text.split(':').map(|octet| u8::from_str_radix(octet, 16).ok()).collect();
    octets?.try_into().ok()
}
