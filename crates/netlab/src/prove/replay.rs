//! A million replayed first messages, and an observer who copies a client's datagrams and sends them
//! from his own address before they arrive themselves.

use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use ropewalk_proto::wire::hello::HelloKind;

use super::look::{access, drops, link, patient};
use super::stranger::PROXY;
use super::{Finding, Proof, Trial};
use crate::address::{PROXY_V4, SERVER_V4, UPLINK, client_interface, provider_v4};
use crate::capture::Capture;
use crate::deployment::PROXY_PORT;
use crate::error::LabError;
use crate::http::body_sha256;
use crate::inject::Injector;
use crate::ping::Ping;
use crate::process::Usage;
use crate::stage::{Progress, Stage};
use crate::topology::TopologyConfig;

/// Replayed first messages.
pub(super) const REPLAY: Proof = Proof {
    name: "replay",
    shows: "a million replayed first messages: no session, bounded memory, no answer beyond the question",
    seconds: 60,
    run: replay,
};

/// Copied datagrams.
pub(super) const RACE: Proof = Proof {
    name: "race",
    shows: "an observer who races copies from another address moves nothing for longer than a round trip",
    seconds: 30,
    run: race,
};

/// The observer's port, at the provider's address.
const OBSERVER: u16 = 7777;

fn replay(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let mut stage =
        Stage::build(trial.program, &TopologyConfig::new(vec![access(50, 10), access(50, 20)]))?;
    let first = Capture::start(stage.topology.client(), "wan0", None, |first, frame| {
        let Some(udp) = frame.udp().filter(|udp| udp.to == PROXY) else { return };
        if udp.payload.first() == Some(&HelloKind::First.first_byte()) {
            *first = Some(udp.payload.to_vec());
        }
    })?;
    stage.start([0, 1])?;
    let Some(question) = first.look(Option::take) else {
        return Err(LabError::Unsupported("no first message was seen on wan0".into()));
    };
    drop(first);
    // The longest answer to the observer, and how many; the client has none to get.
    let answers =
        Capture::start(stage.topology.proxy(), UPLINK, (0_u64, 0_usize), |seen, frame| {
            let Some(udp) = frame.udp().filter(|udp| frame.outgoing && udp.to.port() == OBSERVER)
            else {
                return;
            };
            *seen = (seen.0 + 1, seen.1.max(udp.payload.len()));
        })?;
    let observer = SocketAddrV4::new(provider_v4(0), OBSERVER);
    let sink = stage.topology.internet().run(|| UdpSocket::bind(observer))?;
    let _sink = sink.map_err(LabError::io("the observer's socket"))?;
    let injector = Injector::open(stage.topology.internet())?;

    let many = trial.either(1_000_000, 50_000);
    let counted = |stage: &Stage| -> Result<u64, LabError> {
        let drops = drops(&stage.proxy_status()?.0);
        Ok(drops
            .iter()
            .filter(|(reason, _)| reason.starts_with("handshake_"))
            .map(|(_, n)| n)
            .sum())
    };
    let (before, sessions) = (counted(&stage)?, sessions(&stage)?);
    let session_age = |stage: &Stage| -> Result<f64, LabError> {
        let status = stage.client_status()?.0;
        Ok(status["tunnels"][0]["session"]["age_s"].as_f64().unwrap_or_default())
    };
    let (age, started) = (session_age(&stage)?, Instant::now());
    let usage_before = stage.deployment.proxy().map(|proxy| Usage::of(proxy)).unwrap_or_default();
    let echoes = trial.either(400, 40);
    let ping = Ping { interval: Duration::from_millis(50), ..Ping::new(SERVER_V4.into(), echoes) };
    let (pinged, sent) = thread::scope(|scope| -> Result<_, LabError> {
        let pinging = scope.spawn(|| ping.run(stage.topology.client()));
        let mut sent = 0_u64;
        // As many as the proxy reads: what the kernel drops at the full socket proves nothing.
        while counted(&stage)? - before < many && started.elapsed() < Duration::from_secs(120) {
            for _ in 0..2_000 {
                for _ in 0..10 {
                    // A full queue on the way is no harm.
                    sent += u64::from(injector.send(observer, proxy(), &question).is_ok());
                }
                thread::sleep(Duration::from_micros(50));
            }
        }
        match pinging.join() {
            Ok(pinged) => Ok((pinged?, sent)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })?;
    let seconds = started.elapsed().as_secs_f64();
    let read = counted(&stage)? - before;
    let usage = stage.deployment.proxy().map(|proxy| Usage::of(proxy)).unwrap_or_default();
    let (answered, longest) = answers.look(|seen| *seen);
    let cpu = usage.cpu_seconds - usage_before.cpu_seconds;
    let grown = usage.resident_kib.saturating_sub(usage_before.resident_kib);
    let age_now = session_age(&stage)?;
    Ok(vec![
        Finding::at_least(
            "replayed first messages that the proxy read",
            read as f64,
            many as f64,
            "",
        ),
        Finding::told("sent", sent as f64, ""),
        Finding::told("in", seconds, "s"),
        Finding::told("processor time of the proxy for each", 1e6 * cpu / read as f64, "µs"),
        Finding::told("answers", answered as f64, ""),
        Finding::at_most("bytes of the longest answer", longest as f64, question.len() as f64, ""),
        Finding::at_most("sessions more than before", self::sessions(&stage)? - sessions, 0.0, ""),
        Finding::at_most("memory grown", grown as f64 / 1024.0, 8.0, "MiB"),
        Finding::at_least(
            "the session in use goes on: its age grew by",
            age_now - age,
            0.9 * seconds,
            "s",
        ),
        Finding::at_most(
            format!("of {echoes} echoes beside it, lost"),
            pinged.lost as f64,
            f64::from(echoes) / 100.0,
            "",
        ),
        Finding::told("median of their round trips", pinged.rtt.p50_ms, "ms"),
    ])
}

fn race(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let mut findings = raced(trial, false)?;
    findings.extend(raced(trial, true)?);
    Ok(findings)
}

/// Copies made at the client win by half of it.
const RTT_MS: u64 = 50;

/// One download under an observer, who also hands on to the client what the proxy sends to him, or not.
fn raced(trial: &Trial<'_>, relays: bool) -> Result<Vec<Finding>, LabError> {
    let who = if relays { "relaying" } else { "copying" };
    let links = vec![access(10, RTT_MS), access(10, RTT_MS)];
    let mut stage = Stage::build(trial.program, &TopologyConfig::new(links))?;
    stage.start([0, 1])?;
    let interface = client_interface(0);
    let seen = |stage: &Stage| -> Result<String, LabError> {
        let status = stage.proxy_status()?.0;
        Ok(link(&status, &interface)["remote"].as_str().unwrap_or_default().to_owned())
    };
    let own = seen(&stage)?;
    let client_at: SocketAddrV4 = own.parse().map_err(|_| LabError::Malformed {
        what: "a link's address in the status",
        text: own.clone(),
    })?;
    let observer = SocketAddrV4::new(provider_v4(0), OBSERVER);
    let sink = stage.topology.internet().run(|| UdpSocket::bind(observer))?;
    let _sink = sink.map_err(LabError::io("the observer's socket"))?;
    let relay = Injector::open(stage.topology.internet())?;
    let drawn = Capture::start(stage.topology.proxy(), UPLINK, 0_u64, move |bytes, frame| {
        let theirs = frame.udp().filter(|udp| frame.outgoing && udp.to == SocketAddr::V4(observer));
        let Some(udp) = theirs else { return };
        *bytes += udp.payload.len() as u64;
        if relays {
            // What is lost here is lost to the observer.
            let _ = relay.send(proxy(), client_at, udp.payload);
        }
    })?;
    let bytes = trial.either(15_000_000, 5_000_000);
    let url = stage.url(bytes, 71);
    let (download, elsewhere, longest, copied) = thread::scope(|scope| -> Result<_, LabError> {
        let client = stage.topology.client();
        let download = scope.spawn(move || patient().download(client, &url, |_| {}));
        thread::sleep(Duration::from_secs(1));
        trial.say(&format!("a {who} observer sends what leaves wan0 sooner from elsewhere"));
        let injector = Injector::open(stage.topology.internet())?;
        let copies = Capture::start(client, &interface, 0_u64, move |bytes, frame| {
            let ours = frame.udp().filter(|udp| frame.outgoing && udp.to == PROXY);
            let Some(udp) = ours else { return };
            if injector.send(observer, proxy(), udp.payload).is_ok() {
                *bytes += udp.payload.len() as u64;
            }
        })?;
        let (mut elsewhere, mut longest, mut since) = (0_u32, Duration::ZERO, None);
        while !download.is_finished() {
            if seen(&stage)? == own {
                since = None;
            } else {
                elsewhere += 1;
                longest = longest.max(since.get_or_insert_with(Instant::now).elapsed());
            }
        }
        let copied = copies.look(|bytes| *bytes);
        match download.join() {
            Ok(download) => Ok((download?, elsewhere, longest, copied)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })?;
    let drawn = drawn.look(|bytes| *bytes);
    let share = 100.0 * drawn as f64 / bytes as f64;
    // What one look at the status takes on a busy machine.
    let round_trip = RTT_MS as f64 + 20.0;
    let right = download.sha256 == body_sha256(bytes, 71);
    Ok(vec![
        Finding::at_least(format!("{who}: bytes sent sooner"), copied as f64, 10_000.0, ""),
        Finding::told(
            format!("{who}: times the link was seen elsewhere"),
            f64::from(elsewhere),
            "",
        ),
        Finding::at_most(
            format!("{who}: longest time elsewhere"),
            longest.as_secs_f64() * 1e3,
            round_trip,
            "ms",
        ),
        Finding::at_most(
            format!("{who}: bytes drawn to the observer"),
            drawn as f64,
            3.0 * copied as f64,
            "",
        ),
        Finding::at_most(format!("{who}: share of the download"), share, 1.0, "%"),
        Finding::at_most(format!("{who}: longest stall"), download.longest_stall_ms, 1000.0, "ms"),
        Finding::told(format!("{who}: goodput of 20 Mbit/s in all"), download.mbit, "Mbit/s"),
        Finding::holds(format!("{who}: the download"), right, download.message, "as sent"),
    ])
}

const fn proxy() -> SocketAddrV4 {
    SocketAddrV4::new(PROXY_V4, PROXY_PORT)
}

/// Tunnels of the proxy that have a session.
fn sessions(stage: &Stage) -> Result<f64, LabError> {
    let status = stage.proxy_status()?.0;
    let tunnels = status["tunnels"].as_array().into_iter().flatten();
    Ok(tunnels.filter(|tunnel| !tunnel["session"].is_null()).count() as f64)
}
