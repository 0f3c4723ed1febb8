//! A registry with many clients.

use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::figure;
use crate::error::LabError;
use crate::fleet::Fleet;
use crate::fleet::crowd::{WITH_KEYS, name};
use crate::process::Usage;
use crate::prove::{Finding, Proof, Trial};
use crate::stats::Percentiles;

pub(in crate::prove) const PROOF: Proof = Proof {
    name: "fleet-scale",
    shows: "10,000 clients (--runs 1000000: a million, which takes some minutes) are brought from a file into the registry of three \
            proxies: how soon one is ready, what each costs in memory, and a handshake in time",
    seconds: 60,
    run,
};

/// A proxy is ready, with all of 10,000 clients, and with more.
const START: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(60));

/// Running proxies know of a change of the registry after this time: on a machine that does nothing else, and in a test beside other work.
const FOLLOWED: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// Memory of a proxy for each client that is not connected, in bytes.
const EACH: f64 = 400.0;

/// Clients that a proxy has whose memory is what does not grow with them: buffers, and what is allocated once.
const FEW: u32 = 1_000;

/// Clients with which the memory of each can be told: with fewer the buffers count for more.
const ENOUGH: usize = 10_000;

/// Handshakes, at full length and in short.
const HANDSHAKES: (usize, usize) = (2_000, 200);

/// An answer to a first message that takes longer is lost.
const PATIENCE: Duration = Duration::from_secs(1);

/// For how long the proxy is watched when nobody asks it for anything.
const IDLE: Duration = Duration::from_secs(3);

/// How long all proxies may take to hear of each thousand clients, at most.
const A_THOUSAND: Duration = Duration::from_secs(5);

fn run(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let clients = trial.runs_or(trial.either(10_000, 500)).max(2);
    let (count, few) = (number(clients), FEW.min(clients / 2));
    (trial.say)("starting an etcd of 3 members and 3 proxies");
    let mut fleet = Fleet::build(trial.program, 3, 1)?;
    fleet.allow_clients(count);
    fleet.start()?;
    let within = Duration::from_secs(30) + A_THOUSAND * (clients / 1000);
    let mut findings = vec![Finding::told("clients", figure(count), "")];

    (trial.say)(&format!("starting a proxy that finds {few} clients"));
    import(&fleet, few)?;
    let first = start(&mut fleet, number(few), within)?;
    let followed_first = usage(&mut fleet, 1).resident_kib;

    (trial.say)(&format!("importing {clients} clients from one file"));
    let (imported, ended) = (import(&fleet, clients)?, Instant::now());
    findings.push(Finding::told("imported in", imported.as_secs_f64(), "s"));
    for proxy in 0..3 {
        wait_for(&fleet, proxy, count, within)?;
    }
    let followed = (imported + ended.elapsed()).as_secs_f64();
    findings.push(Finding::told("known to all three running proxies after", followed, "s"));
    let again = import(&fleet, clients)?.as_secs_f64();
    findings.push(Finding::told("imported again, of which nothing is new, in", again, "s"));

    (trial.say)("starting a proxy that finds them all");
    let all = start(&mut fleet, count, within)?;
    let most = if count <= ENOUGH && !trial.short { START.0 } else { START.1 };
    let each = |kib: u64, before: u64| {
        bytes(kib.saturating_sub(before)) / figure(count - number(few)).max(1.0)
    };
    let (what, own) = ("memory for each client", each(all.resident_kib, first.resident_kib));
    let followed = each(usage(&mut fleet, 1).resident_kib, followed_first);
    findings.extend([
        Finding::at_most(
            "a proxy that starts knows them after",
            all.took.as_secs_f64(),
            most.as_secs_f64(),
            "s",
        ),
        Finding::told(
            format!("memory of a proxy with {few} clients"),
            bytes(first.resident_kib) / 1e6,
            "MB",
        ),
        Finding::told("memory of a proxy with all", bytes(all.resident_kib) / 1e6, "MB"),
        Finding::told("the most that it had as it read them", bytes(all.peak_kib) / 1e6, "MB"),
        match count >= ENOUGH {
            true => Finding::at_most(what, own, EACH, "B"),
            false => Finding::told(what, own, "B"),
        },
        Finding::told("the same at one that heard of them one after the other", followed, "B"),
    ]);
    (trial.say)("asking it for sessions");
    findings.extend(handshakes(&mut fleet, trial.either(HANDSHAKES.0, HANDSHAKES.1), clients)?);
    (trial.say)("taking a client out and in while the proxies run");
    findings.extend(changes(&fleet, trial.either(FOLLOWED.0, FOLLOWED.1))?);
    Ok(findings)
}

/// Brings the clients up to this number into the registry, from one file. Returns how long that takes without the writing of the file.
fn import(fleet: &Fleet, clients: u32) -> Result<Duration, LabError> {
    fleet.file_clients(0, 1..=clients)?;
    let began = Instant::now();
    fleet.ask(0, &["fleet", "import"])?;
    Ok(began.elapsed())
}

/// A proxy that was started.
struct Started {
    took: Duration,
    resident_kib: u64,
    peak_kib: u64,
}

/// The first proxy starts, as one does that is new: without a copy of its own. Returns when it knows all, and has written its copy.
fn start(fleet: &mut Fleet, clients: usize, within: Duration) -> Result<Started, LabError> {
    fleet.kill_proxy(0);
    fleet.forget_copy(0)?;
    let (began, at) = (Instant::now(), SystemTime::now());
    fleet.start_proxy(0)?;
    wait_for(fleet, 0, clients, within)?;
    let took = began.elapsed();
    fleet.wait_for_copy(0, at)?;
    let Usage { resident_kib, peak_kib, .. } = usage(fleet, 0);
    Ok(Started { took, resident_kib, peak_kib })
}

/// Handshakes with clients among all, at the proxy that was started.
fn handshakes(fleet: &mut Fleet, count: usize, clients: u32) -> Result<Vec<Finding>, LabError> {
    let (before, began) = (usage(fleet, 0).cpu_seconds, Instant::now());
    thread::sleep(IDLE);
    let idle = (usage(fleet, 0).cpu_seconds - before) / began.elapsed().as_secs_f64();
    let (before, began) = (usage(fleet, 0).cpu_seconds, Instant::now());
    let asking = (1..=clients.min(WITH_KEYS)).cycle().take(count);
    let took = fleet.handshakes(0, 0, asking, PATIENCE)?;
    let spent = usage(fleet, 0).cpu_seconds - before;
    let busy = spent - idle * began.elapsed().as_secs_f64();
    let granted = took.len();
    let each_us = busy.max(0.0) * 1e6 / figure(count);
    let times = Percentiles::of(took);
    Ok(vec![
        Finding::at_least("handshakes answered with a session", figure(granted), figure(count), ""),
        Finding::told("a handshake takes, median", times.p50_ms, "ms"),
        Finding::told("a handshake takes, 99th percentile", times.p99_ms, "ms"),
        Finding::told("a handshake costs the proxy, of one core", each_us, "us"),
    ])
}

/// A client goes and comes, and the other proxies follow.
fn changes(fleet: &Fleet, most: Duration) -> Result<Vec<Finding>, LabError> {
    let most = most.as_secs_f64();
    fleet.wait_for_handshake(1, 0, 1, true)?;
    fleet.ask(0, &["peer", "remove", &name(1)])?;
    let removed = fleet.wait_for_handshake(1, 0, 1, false)?;
    fleet.file_clients(0, 1..=1)?;
    fleet.ask(0, &["fleet", "import"])?;
    let added = fleet.wait_for_handshake(1, 0, 1, true)?;
    Ok(vec![
        Finding::at_most(
            "a client that was removed is refused elsewhere after",
            removed.as_secs_f64(),
            most,
            "s",
        ),
        Finding::at_most(
            "a client that was added is let in elsewhere after",
            added.as_secs_f64(),
            most,
            "s",
        ),
    ])
}

fn wait_for(fleet: &Fleet, proxy: usize, clients: usize, within: Duration) -> Result<(), LabError> {
    fleet.wait_for("all clients at the proxy", within, |fleet| {
        let known = fleet.proxy_status(proxy)?["proxy"]["registry"]["clients"].as_u64();
        Ok(known == u64::try_from(clients).ok())
    })
}

/// What a proxy uses.
fn usage(fleet: &mut Fleet, proxy: usize) -> Usage {
    fleet.proxy(proxy).map(|process| Usage::of(process)).unwrap_or_default()
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn bytes(kib: u64) -> f64 {
    (kib * 1024) as f64
}

fn number(clients: u32) -> usize {
    usize::try_from(clients).unwrap_or(usize::MAX)
}
